/* portable.c - the products in plain C: the definition that every other implementation matches bit for bit.
 *
 * FORMULA. w is a row of n weights, x the activations; one f32 comes out.
 *
 * f32, f16, bf16 (x in f32): 16 partial sums, all 0 at first. For i = 0 .. n - n % 16 - 1, in order:
 *     s[i % 16] += w[i] * x[i]
 * which is a multiplication and then an addition, each rounded. Then the sums are added in pairs:
 *     s[l] += s[l + 8] for l < 8;  s[l] += s[l + 4] for l < 4;  s[l] += s[l + 2] for l < 2;  s[0] += s[1]
 * Then the products of the n % 16 elements that are left are added to s[0], in order. A weight of 16 bits is
 * widened first, which is exact.
 *
 * q8_0, mxfp4 (x in q8_0), blocks of 32, in order:
 *     sum += dw * dx * (sum of qw[j] * qx[j])
 * iq1_m, iq2_xxs (x in q8_K), blocks of 256, in order:
 *     sum += dw / 8 * dx * (sum of factor[j / 16] * qw[j] * qx[j])
 * Operations go from left to right. dw and dx are the scales in f32. The sum in brackets is an exact int32,
 * rounded to f32 (to even; only iq2_xxs can be too large to be exact):
 *     q8_0     32 * 128 * 127      < 2^19        iq1_m    256 * 15 * 9 * 127   < 2^23
 *     mxfp4    32 * 12 * 127       < 2^16        iq2_xxs  256 * 31 * 43 * 127  < 2^26
 *
 * LAYOUT. Rows of blocks at any address (quant_internal.h); activations as struct k3_rounded or f32. Nothing
 * is read beyond either.
 *
 * MAPPING. The compiler vectorises the inner loops: 16 sums are four registers of 128 bits; integers of 16
 * bits are multiplied eight at a time. A block becomes such integers once for up to 32 columns. The grid
 * types are first spread out to 256 int8 in 64-bit registers, eight weights at a time, and multiplied by
 * their factors.
 *
 * COST. For each weight one multiply-add and 4 (f32), 2 (f16, bf16), 1.06 (q8_0), 0.53 (mxfp4), 0.22 (iq1_m)
 * or 0.26 bytes (iq2_xxs). f32 is bound by memory, or in cache by the latency of addition: 16 weights in 4
 * cycles. The grid types are bound by spreading the codes, about 30 instructions for eight weights. */
#include "quant/quant_internal.h"

/* ---- floats ---- */

/* Element i of a row. */
typedef float (*load_fn)(const uint8_t *w, size_t i);

static inline float load_f32(const uint8_t *w, size_t i)
{
    return k3_f32_from_bits(k3_load_u32(w + 4 * i));
}

static inline float load_f16(const uint8_t *w, size_t i)
{
    return k3_load_f16(w + 2 * i);
}

static inline float load_bf16(const uint8_t *w, size_t i)
{
    return k3_f32_from_bf16(k3_load_u16(w + 2 * i));
}

__attribute__((always_inline)) static inline float dot_floats(const uint8_t *w, load_fn load, const float *x,
                                                              size_t n)
{
    float s[16] = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t l = 0; l < 16; l++) s[l] += load(w, i + l) * x[i + l];
    /* Written out, for an array that is only indexed by constants lives in registers. */
    for (int l = 0; l < 8; l++) s[l] += s[l + 8];
    for (int l = 0; l < 4; l++) s[l] += s[l + 4];
    float sum = (s[0] + s[2]) + (s[1] + s[3]);
    for (; i < n; i++) sum += load(w, i) * x[i];
    return sum;
}

/* Always inlined, so that each caller has loops with its own `load` in them. */
__attribute__((always_inline)) static inline void multiply_floats(const struct k3_product *p, load_fn load)
{
    for (size_t r = 0; r < p->n_rows; r++)
        for (size_t c = 0; c < p->n_columns; c++)
            p->y[c * p->y_stride + r] =
                dot_floats(p->rows + r * p->row_bytes, load, k3_product_acts(p, c), p->n);
}

/* ---- blocks ---- */

/* A block of 32 or 256 weights, scale * w[j] each. */
struct block {
    float scale;
    int16_t w[256];
};

typedef void (*block_fn)(const uint8_t *bytes, struct block *out);

static inline void block_q8_0(const uint8_t *bytes, struct block *out)
{
    const struct k3_block_q8_0 *b = (const struct k3_block_q8_0 *)bytes;
    out->scale = k3_load_f16(b->d);
    for (int j = 0; j < 32; j++) out->w[j] = b->q[j];
}

static inline void block_mxfp4(const uint8_t *bytes, struct block *out)
{
    const struct k3_block_mxfp4 *b = (const struct k3_block_mxfp4 *)bytes;
    int8_t q[32];
    k3_mxfp4_integers(b, q);
    out->scale = k3_mxfp4_scale(b->e);
    for (int j = 0; j < 32; j++) out->w[j] = q[j];
}

static inline void block_of_integers(const struct k3_integers *integers, struct block *out)
{
    out->scale = integers->scale;
    for (int k = 0; k < 16; k++)
        for (int j = 16 * k; j < 16 * k + 16; j++)
            out->w[j] = (int16_t)(integers->factor[k] * integers->q[j]);
}

static inline void block_iq1_m(const uint8_t *bytes, struct block *out)
{
    struct k3_integers integers;
    k3_iq1_m_integers((const struct k3_block_iq1_m *)bytes, &integers);
    block_of_integers(&integers, out);
}

static inline void block_iq2_xxs(const uint8_t *bytes, struct block *out)
{
    struct k3_integers integers;
    k3_iq2_xxs_integers((const struct k3_block_iq2_xxs *)bytes, &integers);
    block_of_integers(&integers, out);
}

static inline int32_t dot_integers(const int16_t *w, const int8_t *x, size_t n)
{
    int32_t sum = 0;
    for (size_t j = 0; j < n; j++) sum += w[j] * (int16_t)x[j];
    return sum;
}

#define COLUMNS 32 /* that a block is decoded for at once */

/* One row times the columns from `first` on. Always inlined, so that each caller has a loop of its own. */
__attribute__((always_inline)) static inline void multiply_row(const struct k3_product *p, size_t row,
                                                               size_t first, size_t size, size_t block_bytes,
                                                               block_fn decode)
{
    const uint8_t *bytes = p->rows + row * p->row_bytes;
    size_t n_columns = p->n_columns - first < COLUMNS ? p->n_columns - first : COLUMNS;
    struct k3_rounded x[COLUMNS];
    float sums[COLUMNS] = {0};
    for (size_t c = 0; c < n_columns; c++)
        x[c] = k3_rounded_row(size == 32 ? K3_ACT_Q8_0 : K3_ACT_Q8_K, k3_product_acts(p, first + c), p->n);
    for (size_t b = 0; b < p->n / size; b++) {
        struct block block;
        decode(bytes + b * block_bytes, &block);
        for (size_t c = 0; c < n_columns; c++)
            sums[c] += block.scale * x[c].d[b] * (float)dot_integers(block.w, x[c].q + size * b, size);
    }
    for (size_t c = 0; c < n_columns; c++) p->y[(first + c) * p->y_stride + row] = sums[c];
}

__attribute__((always_inline)) static inline void multiply_blocks(const struct k3_product *p, size_t size,
                                                                  size_t block_bytes, block_fn decode)
{
    for (size_t row = 0; row < p->n_rows; row++)
        for (size_t first = 0; first < p->n_columns; first += COLUMNS)
            multiply_row(p, row, first, size, block_bytes, decode);
}

/* ---- products ---- */

static void product_f32(const struct k3_product *p)
{
    multiply_floats(p, load_f32);
}
static void product_f16(const struct k3_product *p)
{
    multiply_floats(p, load_f16);
}
static void product_bf16(const struct k3_product *p)
{
    multiply_floats(p, load_bf16);
}
static void product_q8_0(const struct k3_product *p)
{
    multiply_blocks(p, 32, sizeof(struct k3_block_q8_0), block_q8_0);
}
static void product_mxfp4(const struct k3_product *p)
{
    multiply_blocks(p, 32, sizeof(struct k3_block_mxfp4), block_mxfp4);
}
static void product_iq1_m(const struct k3_product *p)
{
    multiply_blocks(p, 256, sizeof(struct k3_block_iq1_m), block_iq1_m);
}
static void product_iq2_xxs(const struct k3_product *p)
{
    multiply_blocks(p, 256, sizeof(struct k3_block_iq2_xxs), block_iq2_xxs);
}

const struct k3_kernels k3_kernels_portable = {
    .name = "portable",
    .product =
        {
            [K3_TYPE_F32] = product_f32,
            [K3_TYPE_F16] = product_f16,
            [K3_TYPE_BF16] = product_bf16,
            [K3_TYPE_Q8_0] = product_q8_0,
            [K3_TYPE_MXFP4] = product_mxfp4,
            [K3_TYPE_IQ1_M] = product_iq1_m,
            [K3_TYPE_IQ2_XXS] = product_iq2_xxs,
        },
    .round = {[K3_ACT_Q8_0] = k3_round_q8_0, [K3_ACT_Q8_K] = k3_round_q8_K},
};
