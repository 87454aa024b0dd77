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
 * LAYOUT. Rows of blocks at any address (quant_internal.h); activations as struct k3_rounded or f32. Nothing is read beyond either.
 *
 * MAPPING. The compiler vectorises the inner loops: 16 sums are four SSE registers; bytes are widened to 16
 * bits and multiplied eight at a time. For the grid types a block is first spread out to 256 int8 in 64-bit
 * registers, eight weights at a time, and multiplied by its factors to int16.
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

/* Always inlined, so that each caller has a loop with its own `load` in it. */
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

static float dot_f32_row(const void *row, const void *act, size_t n)
{
    return dot_floats(row, load_f32, act, n);
}

static float dot_f16(const void *row, const void *act, size_t n)
{
    return dot_floats(row, load_f16, act, n);
}

static float dot_bf16(const void *row, const void *act, size_t n)
{
    return dot_floats(row, load_bf16, act, n);
}

/* ---- blocks of 32 ---- */

static inline int32_t dot_32(const int8_t *w, const int8_t *x)
{
    int32_t sum = 0;
    for (int j = 0; j < 32; j++) sum += (int16_t)w[j] * (int16_t)x[j];
    return sum;
}

static float dot_q8_0(const void *row, const void *act, size_t n)
{
    const struct k3_block_q8_0 *w = row;
    const struct k3_rounded x = k3_rounded_row(K3_ACT_Q8_0, act, n);
    float sum = 0;
    for (size_t b = 0; b < n / 32; b++)
        sum += k3_load_f16(w[b].d) * x.d[b] * (float)dot_32(w[b].q, x.q + 32 * b);
    return sum;
}

static float dot_mxfp4(const void *row, const void *act, size_t n)
{
    const struct k3_block_mxfp4 *w = row;
    const struct k3_rounded x = k3_rounded_row(K3_ACT_Q8_0, act, n);
    float sum = 0;
    for (size_t b = 0; b < n / 32; b++) {
        int8_t q[32];
        k3_mxfp4_integers(&w[b], q);
        sum += k3_mxfp4_scale(w[b].e) * x.d[b] * (float)dot_32(q, x.q + 32 * b);
    }
    return sum;
}

/* ---- blocks of 256 ---- */

static inline float dot_integers(const struct k3_integers *w, const int8_t *q, float d)
{
    int16_t scaled[256];
    for (int k = 0; k < 16; k++)
        for (int j = 0; j < 16; j++) scaled[16 * k + j] = (int16_t)(w->factor[k] * w->q[16 * k + j]);
    int32_t sum = 0;
    for (int j = 0; j < 256; j++) sum += scaled[j] * (int16_t)q[j];
    return w->scale * d * (float)sum;
}

static float dot_iq1_m(const void *row, const void *act, size_t n)
{
    const struct k3_block_iq1_m *w = row;
    const struct k3_rounded x = k3_rounded_row(K3_ACT_Q8_K, act, n);
    struct k3_integers integers;
    float sum = 0;
    for (size_t b = 0; b < n / 256; b++) {
        k3_iq1_m_integers(&w[b], &integers);
        sum += dot_integers(&integers, x.q + 256 * b, x.d[b]);
    }
    return sum;
}

static float dot_iq2_xxs(const void *row, const void *act, size_t n)
{
    const struct k3_block_iq2_xxs *w = row;
    const struct k3_rounded x = k3_rounded_row(K3_ACT_Q8_K, act, n);
    struct k3_integers integers;
    float sum = 0;
    for (size_t b = 0; b < n / 256; b++) {
        k3_iq2_xxs_integers(&w[b], &integers);
        sum += dot_integers(&integers, x.q + 256 * b, x.d[b]);
    }
    return sum;
}

/* ---- products ---- */

typedef float (*row_fn)(const void *row, const void *act, size_t n);

/* Always inlined, as dot_floats is. */
__attribute__((always_inline)) static inline void multiply(const struct k3_product *p, row_fn dot)
{
    for (size_t r = 0; r < p->n_rows; r++)
        for (size_t c = 0; c < p->n_columns; c++)
            p->y[c * p->y_stride + r] = dot(p->rows + r * p->row_bytes, k3_product_acts(p, c), p->n);
}

static void product_f32(const struct k3_product *p)
{
    multiply(p, dot_f32_row);
}
static void product_f16(const struct k3_product *p)
{
    multiply(p, dot_f16);
}
static void product_bf16(const struct k3_product *p)
{
    multiply(p, dot_bf16);
}
static void product_q8_0(const struct k3_product *p)
{
    multiply(p, dot_q8_0);
}
static void product_mxfp4(const struct k3_product *p)
{
    multiply(p, dot_mxfp4);
}
static void product_iq1_m(const struct k3_product *p)
{
    multiply(p, dot_iq1_m);
}
static void product_iq2_xxs(const struct k3_product *p)
{
    multiply(p, dot_iq2_xxs);
}

static float dot_f32(const float *a, const float *b, size_t n)
{
    return dot_f32_row(a, b, n);
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
    .dot = dot_f32,
};
