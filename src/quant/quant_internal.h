/* quant_internal.h - the layouts of the blocks, and what decoders and products share.
 *
 * Blocks are structs of bytes, so they have no alignment and no padding and can lie anywhere in a row.
 * Formats: quants.md sections 1 and 2, whose field order and names these are. */
#ifndef K3_QUANT_INTERNAL_H
#define K3_QUANT_INTERNAL_H

#include "quant/half.h"
#include "quant/quant.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF is little endian and is read as it lies");

struct k3_block_q4_0 {
    uint8_t d[2], q[16];
};
struct k3_block_q4_1 {
    uint8_t d[2], m[2], q[16];
};
struct k3_block_q5_0 {
    uint8_t d[2], h[4], q[16];
};
struct k3_block_q5_1 {
    uint8_t d[2], m[2], h[4], q[16];
};
struct k3_block_q8_0 {
    uint8_t d[2];
    int8_t q[32];
};
struct k3_block_mxfp4 {
    uint8_t e, q[16];
};
struct k3_block_iq4_nl {
    uint8_t d[2], q[16];
};
struct k3_block_iq4_xs {
    uint8_t d[2], sh[2], sl[4], q[128];
};
struct k3_block_q2_K {
    uint8_t s[16], q[64], d[2], dmin[2];
};
struct k3_block_q3_K {
    uint8_t hm[32], q[64], s[12], d[2];
};
struct k3_block_q4_K {
    uint8_t d[2], dmin[2], s[12], q[128];
};
struct k3_block_q5_K {
    uint8_t d[2], dmin[2], s[12], qh[32], q[128];
};
struct k3_block_q6_K {
    uint8_t ql[128], qh[64];
    int8_t s[16];
    uint8_t d[2];
};
struct k3_block_iq1_s {
    uint8_t d[2], qs[32], qh[16];
};
struct k3_block_iq1_m {
    uint8_t qs[32], qh[16], sc[8];
};
struct k3_block_iq2_xxs {
    uint8_t d[2], body[64];
};
struct k3_block_iq2_xs {
    uint8_t d[2], q[64], s[8];
};
struct k3_block_iq2_s {
    uint8_t d[2], qs[32], sg[32], qh[8], s[8];
};
struct k3_block_iq3_xxs {
    uint8_t d[2], qs[64], a[32];
};
struct k3_block_iq3_s {
    uint8_t d[2], qs[64], qh[8], sg[32], s[4];
};

/* ---- fields ---- */

static inline uint16_t k3_load_u16(const uint8_t *p)
{
    uint16_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline uint32_t k3_load_u32(const uint8_t *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline uint64_t k3_load_u64(const uint8_t *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline float k3_load_f16(const uint8_t *p)
{
    return k3_f32_from_f16(k3_load_u16(p));
}

/* Half k of a byte: 0 is the low one. */
static inline unsigned k3_nibble(unsigned byte, unsigned k)
{
    return byte >> 4 * k & 15;
}

/* The 32 codes of 16 bytes: code j in the low half of byte j, code j + 16 in the high half. */
static inline void k3_split_nibbles(const uint8_t q[16], uint8_t codes[32])
{
    for (int j = 0; j < 16; j++) codes[j] = q[j] & 15;
    for (int j = 0; j < 16; j++) codes[j + 16] = q[j] >> 4;
}

/* ---- mxfp4 ---- */

/* 2^(e-128): half the value of E8M0, because k3_mxfp4_weight is twice that of E2M1. */
static inline float k3_mxfp4_scale(uint8_t e)
{
    return k3_f32_from_bits(e >= 2 ? (uint32_t)(e - 1) << 23 : 0x00200000u << e);
}

/* 0 1 2 3 4 6 8 12 for codes 0 to 7, and the negatives for 8 to 15. Arithmetic, where a table would do, so
 * that the compiler can do 16 at a time. */
static inline int8_t k3_mxfp4_weight(uint8_t code)
{
    int8_t c = (int8_t)(code & 7), negative = (int8_t)(0 - (code >> 3));
    int8_t weight = (int8_t)(c + (c > 4) + (c > 5) + 3 * (c > 6));
    return (int8_t)((weight ^ negative) - negative);
}

static inline void k3_mxfp4_integers(const struct k3_block_mxfp4 *block, int8_t q[32])
{
    uint8_t codes[32];
    k3_split_nibbles(block->q, codes);
    for (int j = 0; j < 32; j++) q[j] = k3_mxfp4_weight(codes[j]);
}

/* ---- iq1_m and iq2_xxs ----
 *
 * Both are integers times a small odd factor for each 16 weights times one scale for all 256:
 * weight i = scale * factor[i / 16] * q[i]. */
struct k3_integers {
    float scale; /* d / 8 in both formats */
    int16_t factor[16];
    int8_t q[256];
};

void k3_iq1_m_integers(const struct k3_block_iq1_m *block, struct k3_integers *out);
void k3_iq2_xxs_integers(const struct k3_block_iq2_xxs *block, struct k3_integers *out);

/* ---- decoders: see k3_decode_fn ---- */

void k3_decode_f32(const void *row, float *y, size_t n);
void k3_decode_f16(const void *row, float *y, size_t n);
void k3_decode_bf16(const void *row, float *y, size_t n);
void k3_decode_q4_0(const void *row, float *y, size_t n);
void k3_decode_q4_1(const void *row, float *y, size_t n);
void k3_decode_q5_0(const void *row, float *y, size_t n);
void k3_decode_q5_1(const void *row, float *y, size_t n);
void k3_decode_q8_0(const void *row, float *y, size_t n);
void k3_decode_mxfp4(const void *row, float *y, size_t n);
void k3_decode_iq4_nl(const void *row, float *y, size_t n);
void k3_decode_iq4_xs(const void *row, float *y, size_t n);
void k3_decode_q2_K(const void *row, float *y, size_t n);
void k3_decode_q3_K(const void *row, float *y, size_t n);
void k3_decode_q4_K(const void *row, float *y, size_t n);
void k3_decode_q5_K(const void *row, float *y, size_t n);
void k3_decode_q6_K(const void *row, float *y, size_t n);
void k3_decode_iq1_s(const void *row, float *y, size_t n);
void k3_decode_iq1_m(const void *row, float *y, size_t n);
void k3_decode_iq2_xxs(const void *row, float *y, size_t n);
void k3_decode_iq2_xs(const void *row, float *y, size_t n);
void k3_decode_iq2_s(const void *row, float *y, size_t n);
void k3_decode_iq3_xxs(const void *row, float *y, size_t n);
void k3_decode_iq3_s(const void *row, float *y, size_t n);

/* ---- activations: see k3_act_fn and round.c ---- */

void k3_round_q8_0(const float *x, void *act, size_t n);
void k3_round_q8_K(const float *x, void *act, size_t n);

/* ---- implementations of the products ---- */

/* The activations of column c. */
static inline const void *k3_product_acts(const struct k3_product *p, size_t c)
{
    return p->acts + (p->columns ? p->columns[c] : c) * p->act_stride;
}

extern const struct k3_kernels k3_kernels_portable;
#if defined(__x86_64__)
extern const struct k3_kernels k3_kernels_avx2, k3_kernels_avxvnni, k3_kernels_avx512, k3_kernels_amx;
#endif

#endif
