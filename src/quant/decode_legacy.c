/* decode_legacy.c - rows to f32: the plain floats, and the types whose weights are codes of 4 to 8 bits each:
 * q4_0 to q8_0, mxfp4, iq4_nl, iq4_xs.
 *
 * The order of operations in each line is the format's definition: other orders round differently. */
#include "quant/quant_internal.h"

void k3_decode_f32(const void *row, float *y, size_t n)
{
    memcpy(y, row, n * sizeof *y);
}

void k3_decode_f16(const void *row, float *y, size_t n)
{
    const uint8_t *x = row;
    for (size_t i = 0; i < n; i++) y[i] = k3_load_f16(x + 2 * i);
}

void k3_decode_bf16(const void *row, float *y, size_t n)
{
    const uint8_t *x = row;
    for (size_t i = 0; i < n; i++) y[i] = k3_f32_from_bf16(k3_load_u16(x + 2 * i));
}

void k3_decode_q4_0(const void *row, float *y, size_t n)
{
    const struct k3_block_q4_0 *b = row;
    uint8_t code[32];
    for (size_t i = 0; i < n; i += 32, b++) {
        float d = k3_load_f16(b->d);
        k3_split_nibbles(b->q, code);
        for (int j = 0; j < 32; j++) y[i + j] = (float)(code[j] - 8) * d;
    }
}

void k3_decode_q4_1(const void *row, float *y, size_t n)
{
    const struct k3_block_q4_1 *b = row;
    uint8_t code[32];
    for (size_t i = 0; i < n; i += 32, b++) {
        float d = k3_load_f16(b->d), m = k3_load_f16(b->m);
        k3_split_nibbles(b->q, code);
        for (int j = 0; j < 32; j++) y[i + j] = (float)code[j] * d + m;
    }
}

/* The codes of q5_0 and q5_1: four bits from q, the fifth of code j is bit j of h. */
static void join_fifth_bits(const uint8_t q[16], const uint8_t h[4], uint8_t code[32])
{
    uint32_t high = k3_load_u32(h);
    k3_split_nibbles(q, code);
    for (int j = 0; j < 32; j++) code[j] |= (uint8_t)((high >> j & 1) << 4);
}

void k3_decode_q5_0(const void *row, float *y, size_t n)
{
    const struct k3_block_q5_0 *b = row;
    uint8_t code[32];
    for (size_t i = 0; i < n; i += 32, b++) {
        float d = k3_load_f16(b->d);
        join_fifth_bits(b->q, b->h, code);
        for (int j = 0; j < 32; j++) y[i + j] = (float)(code[j] - 16) * d;
    }
}

void k3_decode_q5_1(const void *row, float *y, size_t n)
{
    const struct k3_block_q5_1 *b = row;
    uint8_t code[32];
    for (size_t i = 0; i < n; i += 32, b++) {
        float d = k3_load_f16(b->d), m = k3_load_f16(b->m);
        join_fifth_bits(b->q, b->h, code);
        for (int j = 0; j < 32; j++) y[i + j] = (float)code[j] * d + m;
    }
}

void k3_decode_q8_0(const void *row, float *y, size_t n)
{
    const struct k3_block_q8_0 *b = row;
    for (size_t i = 0; i < n; i += 32, b++) {
        float d = k3_load_f16(b->d);
        for (int j = 0; j < 32; j++) y[i + j] = (float)b->q[j] * d;
    }
}

void k3_decode_mxfp4(const void *row, float *y, size_t n)
{
    const struct k3_block_mxfp4 *b = row;
    int8_t q[32];
    for (size_t i = 0; i < n; i += 32, b++) {
        float scale = k3_mxfp4_scale(b->e);
        k3_mxfp4_integers(b, q);
        for (int j = 0; j < 32; j++) y[i + j] = (float)q[j] * scale;
    }
}

/* What the 16 codes of iq4_nl and iq4_xs stand for: more of them near 0, where more weights are. */
static const int8_t iq4_weights[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};

static void decode_iq4(const uint8_t q[16], float scale, float y[32])
{
    uint8_t code[32];
    k3_split_nibbles(q, code);
    for (int j = 0; j < 32; j++) y[j] = scale * (float)iq4_weights[code[j]];
}

void k3_decode_iq4_nl(const void *row, float *y, size_t n)
{
    const struct k3_block_iq4_nl *b = row;
    for (size_t i = 0; i < n; i += 32, b++) decode_iq4(b->q, k3_load_f16(b->d), y + i);
}

void k3_decode_iq4_xs(const void *row, float *y, size_t n)
{
    const struct k3_block_iq4_xs *b = row;
    for (size_t i = 0; i < n; i += 256, b++) {
        float d = k3_load_f16(b->d);
        unsigned sh = k3_load_u16(b->sh);
        for (unsigned k = 0; k < 8; k++) {
            int scale = (int)(k3_nibble(b->sl[k / 2], k % 2) | (sh >> 2 * k & 3) << 4) - 32;
            decode_iq4(b->q + 16 * k, d * (float)scale, y + i + 32 * k);
        }
    }
}
