/* avx512_batch.c - products of many columns with AVX-512 VNNI.
 *
 * FORMULA. portable.c has it; here are the same integers and the same order of roundings, so the same bits.
 *
 * LAYOUT. Weights as in quant.h; 64 rows x 2048 weights at a time are decoded into four tiles
 * (avx512_tile.h), which then serve all columns. Activations of up to 12 columns x 256 are copied together,
 * in the order of the tile's weights.
 *
 * MAPPING. Lanes are rows. VPDPBUSD multiplies 4 weights (unsigned) of 16 rows by 4 activations of one
 * column, broadcast: 12 columns x 2 tiles are 24 accumulators in registers. What weights have too much (the
 * bias) is taken away through sums of activations: q8_0, mxfp4 and iq2_xxs start at -bias * sum, iq1_m ends
 * with 2 * x - 135 * sum. Then follow the roundings of portable.c, 16 rows at once; the running sums of
 * floats are in memory, for there are no registers left.
 *
 * COST. The bound are two ports of vector arithmetic. For 16 rows, one column and 32 weights 8 VPDPBUSD, and
 *   q8_0, mxfp4  convert, multiply, multiply, add: 4, so at most 8/12 of the peak of 128 multiply-adds a
 * cycle
 *   iq2_xxs      VPMULLD (2), add: 3 and 4 for each 256, so 8/11.5
 *   iq1_m        6 for each 256, so 8/8.75
 * plus, for each 256 weights of a row, 7 to 10 ns for decoding (avx512_tile.c), which is the time of about 10
 * columns. */
#include "quant/avx512_tile.h"

#define MAX_COLUMNS 12
#define UNIT        256 /* weights for which activations are prepared at once */

/* Activations of some columns for a unit. */
struct prepared {
    _Alignas(64) int8_t q[MAX_COLUMNS][UNIT];
    int32_t bias[MAX_COLUMNS][8]; /* for each 32; of iq1_m only the first, for all */
    float d[MAX_COLUMNS][8];      /* for each 32 (q8_0) or only the first */
};

/* ---- activations ---- */

/* -bias times sums of 32, of 256 activations in q8_K. */
static inline __m256i bias_of_32s(const int16_t *sums, int bias)
{
    __m512i v = _mm512_madd_epi16(_mm512_loadu_si512(sums), _mm512_set1_epi16((int16_t)-bias));
    return _mm512_cvtepi64_epi32(_mm512_add_epi64(v, _mm512_srli_epi64(v, 32)));
}

static inline void prepare(const struct k3_tiles *t, enum k3_type type, size_t c0, int columns, size_t at,
                           size_t n, __m512i order, struct prepared *out)
{
    const enum k3_act act = type == K3_TYPE_IQ1_M || type == K3_TYPE_IQ2_XXS ? K3_ACT_Q8_K : K3_ACT_Q8_0;
    for (int c = 0; c < columns; c++) {
        /* The column that is only there to make their number even is any other one. */
        size_t column = c0 + (size_t)c < t->product->n_columns ? c0 + (size_t)c : t->product->n_columns - 1;
        struct k3_rounded x = k3_rounded_row(act, k3_product_acts(t->product, column), t->product->n);
        k3_tile_activations(x.q + at, n, order, out->q[c]);
        if (act == K3_ACT_Q8_0) {
            const int bias = type == K3_TYPE_Q8_0 ? K3_BIAS_Q8_0 : K3_BIAS_MXFP4;
            for (size_t k = 0; k < n / 32; k++) {
                out->bias[c][k] = -bias * x.sums[at / 32 + k];
                out->d[c][k] = x.d[at / 32 + k];
            }
        } else if (type == K3_TYPE_IQ2_XXS) {
            _mm256_storeu_si256((__m256i *)out->bias[c], bias_of_32s(x.sums + at / 8, K3_BIAS_IQ2_XXS));
            out->d[c][0] = x.d[at / 256];
        } else {
            __m512i sums = _mm512_loadu_si512(x.sums + at / 8);
            out->bias[c][0] =
                _mm512_reduce_add_epi32(_mm512_madd_epi16(sums, _mm512_set1_epi16(K3_BIAS_IQ1_M)));
            out->d[c][0] = x.d[at / 256];
        }
    }
}

/* ---- a unit ---- */

/* What follows is always inlined into a function for one type and one number of columns: accumulators must be
 * registers. */

/* 16 int32. Not __m512i, which gcc 12 takes for 8 int64: it would copy each accumulator around each VPDPBUSD.
 * */
typedef int32_t lanes __attribute__((vector_size(64)));

typedef lanes integers[MAX_COLUMNS][2];
typedef __m512 floats[MAX_COLUMNS][2];

/* Adds products of 4 * n_steps weights of tiles, from step `at` of them on, and activations from q on. */
K3_INLINE void multiply(const struct k3_tile *const pair[2], size_t at, size_t n_steps, const int8_t *q,
                        int columns, integers acc)
{
    const uint8_t *w0 = pair[0]->w[at][0], *w1 = pair[1]->w[at][0];
    for (size_t s = 0; s < n_steps; s++, w0 += 64, w1 += 64, q += 4) {
        const __m512i a0 = _mm512_load_si512(w0), a1 = _mm512_load_si512(w1);
#pragma GCC unroll 12
        for (int c = 0; c < columns; c++) {
            const __m512i x = _mm512_set1_epi32((int32_t)k3_load_u32((const uint8_t *)q + UNIT * c));
            acc[c][0] = (lanes)_mm512_dpbusd_epi32((__m512i)acc[c][0], a0, x);
            acc[c][1] = (lanes)_mm512_dpbusd_epi32((__m512i)acc[c][1], a1, x);
        }
    }
}

K3_INLINE void start_at_zero(integers acc, int columns)
{
#pragma GCC unroll 12
    for (int c = 0; c < columns; c++) acc[c][0] = acc[c][1] = (lanes){0};
}

/* Of 32 weights, the k-th ones of a unit. */
K3_INLINE void start_at_bias(integers acc, int columns, const struct prepared *x, size_t k)
{
#pragma GCC unroll 12
    for (int c = 0; c < columns; c++) acc[c][0] = acc[c][1] = (lanes)_mm512_set1_epi32(x->bias[c][k]);
}

/* q8_0 and mxfp4: a unit is up to 8 blocks. */
K3_INLINE void blocks_of_32(const struct k3_tile *const pair[2], size_t at, size_t n,
                            const struct prepared *x, int columns, floats sums)
{
    for (size_t k = 0; k < n / 32; k++) {
        const size_t block = at / 32 + k;
        integers acc;
        start_at_bias(acc, columns, x, k);
        multiply(pair, 8 * block, 8, x->q[0] + 32 * k, columns, acc);
#pragma GCC unroll 12
        for (int c = 0; c < columns; c++)
#pragma GCC unroll 2
            for (int t = 0; t < 2; t++)
                sums[c][t] = k3_tile_add_block(sums[c][t], _mm512_load_ps(pair[t]->scale[block]), x->d[c][k],
                                               (__m512i)acc[c][t]);
    }
}

K3_INLINE void block_of_iq1_m(const struct k3_tile *const pair[2], size_t at, const struct prepared *x,
                              int columns, floats sums)
{
    integers acc;
    start_at_zero(acc, columns);
    multiply(pair, at / 4, UNIT / 4, x->q[0], columns, acc);
#pragma GCC unroll 12
    for (int c = 0; c < columns; c++)
#pragma GCC unroll 2
        for (int t = 0; t < 2; t++) {
            const lanes v = acc[c][t] + acc[c][t] - x->bias[c][0];
            sums[c][t] = k3_tile_add_block(sums[c][t], _mm512_load_ps(pair[t]->scale[at / 256]), x->d[c][0],
                                           (__m512i)v);
        }
}

K3_INLINE void block_of_iq2_xxs(const struct k3_tile *const pair[2], size_t at, const struct prepared *x,
                                int columns, floats sums)
{
    integers total;
    start_at_zero(total, columns);
    for (size_t k = 0; k < 8; k++) {
        integers acc;
        start_at_bias(acc, columns, x, k);
        multiply(pair, at / 4 + 8 * k, 8, x->q[0] + 32 * k, columns, acc);
#pragma GCC unroll 12
        for (int c = 0; c < columns; c++)
#pragma GCC unroll 2
            for (int t = 0; t < 2; t++) {
                total[c][t] += acc[c][t] * *(const lanes *)pair[t]->factor[at / 32 + k];
            }
    }
#pragma GCC unroll 12
    for (int c = 0; c < columns; c++)
#pragma GCC unroll 2
        for (int t = 0; t < 2; t++)
            sums[c][t] = k3_tile_add_block(sums[c][t], _mm512_load_ps(pair[t]->scale[at / 256]), x->d[c][0],
                                           (__m512i)total[c][t]);
}

/* ---- tiles times some columns ---- */

/* n_columns from c0 on. `columns` is constant; as many are calculated, and those beyond n_columns dropped. */
K3_INLINE void multiply_columns(const struct k3_tiles *t, enum k3_type type, __m512i order, size_t c0,
                                size_t n_columns, int columns)
{
    struct prepared x;
    floats sums[K3_TILE_PAIRS];
    k3_tiles_load(t, c0, n_columns, MAX_COLUMNS, sums[0]);
    for (size_t at = 0; at < t->n; at += UNIT) {
        const size_t n = t->n - at < UNIT ? t->n - at : UNIT;
        prepare(t, type, c0, columns, t->first + at, n, order, &x);
        for (size_t i = 0; i < k3_tiles_pairs(t); i++) {
            if (type == K3_TYPE_IQ1_M)
                block_of_iq1_m(t->pairs[i], at, &x, columns, sums[i]);
            else if (type == K3_TYPE_IQ2_XXS)
                block_of_iq2_xxs(t->pairs[i], at, &x, columns, sums[i]);
            else
                blocks_of_32(t->pairs[i], at, n, &x, columns, sums[i]);
        }
    }
    k3_tiles_store(t, c0, n_columns, MAX_COLUMNS, (const __m512(*)[2])sums[0]);
}

/* Columns are divided evenly, for 10 + 10 are faster than 12 + 8. */
K3_INLINE void multiply_tiles(const struct k3_tiles *t, enum k3_type type)
{
    const __m512i order = k3_tile_order(type);
    const size_t all = t->product->n_columns, n_groups = (all + MAX_COLUMNS - 1) / MAX_COLUMNS;
    for (size_t g = 0; g < n_groups; g++) {
        const size_t c0 = all * g / n_groups, n = all * (g + 1) / n_groups - c0;
        if (n <= 2)
            multiply_columns(t, type, order, c0, n, 2);
        else if (n <= 4)
            multiply_columns(t, type, order, c0, n, 4);
        else if (n <= 6)
            multiply_columns(t, type, order, c0, n, 6);
        else if (n <= 8)
            multiply_columns(t, type, order, c0, n, 8);
        else if (n <= 10)
            multiply_columns(t, type, order, c0, n, 10);
        else
            multiply_columns(t, type, order, c0, n, 12);
    }
}

/* ---- products ---- */

static void multiply_q8_0(const struct k3_tiles *t)
{
    multiply_tiles(t, K3_TYPE_Q8_0);
}
static void multiply_mxfp4(const struct k3_tiles *t)
{
    multiply_tiles(t, K3_TYPE_MXFP4);
}
static void multiply_iq1_m(const struct k3_tiles *t)
{
    multiply_tiles(t, K3_TYPE_IQ1_M);
}
static void multiply_iq2_xxs(const struct k3_tiles *t)
{
    multiply_tiles(t, K3_TYPE_IQ2_XXS);
}

void k3_avx512_batch_q8_0(const struct k3_product *p)
{
    k3_tile_product(p, K3_TYPE_Q8_0, K3_TILE_UNSIGNED, multiply_q8_0);
}
void k3_avx512_batch_mxfp4(const struct k3_product *p)
{
    k3_tile_product(p, K3_TYPE_MXFP4, K3_TILE_UNSIGNED, multiply_mxfp4);
}
void k3_avx512_batch_iq1_m(const struct k3_product *p)
{
    k3_tile_product(p, K3_TYPE_IQ1_M, K3_TILE_UNSIGNED, multiply_iq1_m);
}
void k3_avx512_batch_iq2_xxs(const struct k3_product *p)
{
    k3_tile_product(p, K3_TYPE_IQ2_XXS, K3_TILE_UNSIGNED, multiply_iq2_xxs);
}
