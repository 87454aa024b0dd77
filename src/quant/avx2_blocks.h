/* avx2_blocks.h - q8_0 and mxfp4 with AVX2, and with the VNNI of AVX or AVX-512 where that is compiled for.
 *
 * FORMULA. portable.c has it. Weights are made unsigned for the products of bytes: by 128 (q8_0 with
 * VNNI) or 12 (mxfp4), which is taken away again with the sums of the activations; or, q8_0 without
 * VNNI, by giving their sign to the activations.
 *
 * LAYOUT. A row is blocks of 34 or 17 bytes at any address; activations are struct k3_rounded in blocks of
 * 32. Nothing is read beyond them; prefetches ask for addresses that may be anywhere.
 *
 * MAPPING. A block is one vector of bytes.
 *   One column: the lanes of 8 rows' sums are added up and become the lanes of one vector, on which the sum
 *   of floats goes from left to right.
 *   More: a block of 8 rows is transposed, so that a vector has four neighbouring weights of each, and stays
 *   in registers while the columns pass; the same four activations are in all lanes of the other factor.
 *
 * COST, for 8 rows of 32 weights and a column: 8 multiply-adds (q8_0 without VNNI: 40 operations), two a
 * cycle, and 8 other operations; or, for a single column, 8 multiply-adds and 50 others, 5 cycles for 64
 * weights. That is more than memory delivers, 1.06 or 0.53 bytes a weight. */
#ifndef K3_QUANT_AVX2_BLOCKS_H
#define K3_QUANT_AVX2_BLOCKS_H

#include "quant/avx2_internal.h"

/* What differs between the types. All of it is inlined. A weight is w - offset. */
struct small {
    size_t block_bytes;
    int32_t offset;
    __m256i (*weights)(const uint8_t *block);
    __m256i (*multiply)(__m256i acc, __m256i w, __m256i q); /* adds four products in each lane */
    __m256 (*scales)(const uint8_t *const rows[K3_LANES], size_t at);
};

/* ---- q8_0 ---- */

K3_INLINE __m256 q8_0_scales(const uint8_t *const rows[K3_LANES], size_t at)
{
    _Alignas(16) uint16_t d[K3_LANES];
    for (int r = 0; r < K3_LANES; r++) d[r] = k3_load_u16(rows[r] + at);
    return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)d));
}

#if K3_HAS_VNNI
#define Q8_0_OFFSET 128

K3_INLINE __m256i q8_0_weights(const uint8_t *block)
{
    return _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(block + 2)), _mm256_set1_epi8(-128));
}

K3_INLINE __m256i q8_0_multiply(__m256i acc, __m256i w, __m256i q)
{
    return k3_add_products(acc, w, q);
}
#else
/* 255 * 127 * 2 does not fit 16 bits, but |w| <= 128 does, with the sign of w given to q, which is never
 * -128. */
#define Q8_0_OFFSET 0

K3_INLINE __m256i q8_0_weights(const uint8_t *block)
{
    return _mm256_loadu_si256((const __m256i *)(block + 2));
}

K3_INLINE __m256i q8_0_multiply(__m256i acc, __m256i w, __m256i q)
{
    return k3_add_products(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
}
#endif

static const struct small q8_0 = {
    .block_bytes = sizeof(struct k3_block_q8_0),
    .offset = Q8_0_OFFSET,
    .weights = q8_0_weights,
    .multiply = q8_0_multiply,
    .scales = q8_0_scales,
};

/* ---- mxfp4 ---- */

/* k3_mxfp4_scale in each lane. */
K3_INLINE __m256 mxfp4_scales(const uint8_t *const rows[K3_LANES], size_t at)
{
    uint64_t bytes = 0;
    for (int r = 0; r < K3_LANES; r++) bytes |= (uint64_t)rows[r][at] << 8 * r;
    __m256i e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, is_small));
}

/* Plus 12. */
K3_INLINE __m256i mxfp4_weights(const uint8_t *block)
{
    const __m256i weight =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    __m256i q = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(block + 1)));
    q = _mm256_srlv_epi64(
        q, _mm256_setr_epi64x(0, 0, 4, 4)); /* the low halves of the bytes, then the high ones */
    return _mm256_shuffle_epi8(weight, _mm256_and_si256(q, _mm256_set1_epi8(15)));
}

static const struct small mxfp4 = {
    .block_bytes = sizeof(struct k3_block_mxfp4),
    .offset = 12,
    .weights = mxfp4_weights,
    .multiply = k3_add_products,
    .scales = mxfp4_scales,
};

/* ---- one column: row by row ---- */

K3_INLINE void small_row_group(const struct k3_product *p, const struct small *type, size_t row,
                               size_t column)
{
    struct k3_rounded x = k3_rounded_row(K3_ACT_Q8_0, k3_product_acts(p, column), p->n);
    const uint8_t *rows[K3_LANES];
    __m256 acc = _mm256_setzero_ps();
    k3_lane_rows(p, row, rows);
    for (size_t b = 0; b < p->n / 32; b++) {
        __m256i q = _mm256_load_si256((const __m256i *)(x.q + 32 * b)), sums[K3_LANES];
        for (size_t r = 0; r < K3_LANES; r++) {
            const uint8_t *block = rows[r] + b * type->block_bytes;
            k3_prefetch(block + K3_LANES * p->row_bytes);
            sums[r] = type->multiply(_mm256_setzero_si256(), type->weights(block), q);
        }
        __m256i base = _mm256_set1_epi32(-type->offset * x.sums[b]);
        acc = k3_add_block(acc, type->scales(rows, b * type->block_bytes), x.d[b],
                           _mm256_add_epi32(base, k3_sums_of_8(sums)));
    }
    k3_store_lanes(p, row, column, acc);
}

/* ---- many columns: 8 rows of a block, transposed ---- */

#define SMALL_COLUMNS 64 /* whose sums are kept while a block is at hand */

struct small_column {
    struct k3_rounded x;
    __m256 acc;
};

K3_INLINE void small_block(const struct small *type, const uint8_t *const rows[K3_LANES], size_t b,
                           struct small_column columns[], size_t n)
{
    __m256i natural[K3_LANES], w[8]; /* lane r of w[i]: weights 4i to 4i + 3 of row r */
    for (size_t r = 0; r < K3_LANES; r++) natural[r] = type->weights(rows[r] + b * type->block_bytes);
    k3_transpose_8(natural, w);
    __m256 scales = type->scales(rows, b * type->block_bytes);
    for (size_t c = 0; c < n; c++) {
        const struct k3_rounded *x = &columns[c].x;
        __m256i sum = _mm256_set1_epi32(-type->offset * x->sums[b]);
        for (int i = 0; i < 8; i++) sum = type->multiply(sum, w[i], k3_four(x->q + 32 * b + 4 * i));
        columns[c].acc = k3_add_block(columns[c].acc, scales, x->d[b], sum);
    }
}

K3_INLINE void small_column_group(const struct k3_product *p, const struct small *type, size_t first,
                                  size_t n)
{
    struct small_column columns[SMALL_COLUMNS];
    for (size_t c = 0; c < n; c++)
        columns[c].x = k3_rounded_row(K3_ACT_Q8_0, k3_product_acts(p, first + c), p->n);
    for (size_t row = 0; row < p->n_rows; row += K3_LANES) {
        const uint8_t *rows[K3_LANES];
        k3_lane_rows(p, row, rows);
        for (size_t c = 0; c < n; c++) columns[c].acc = _mm256_setzero_ps();
        for (size_t b = 0; b < p->n / 32; b++) small_block(type, rows, b, columns, n);
        for (size_t c = 0; c < n; c++) k3_store_lanes(p, row, first + c, columns[c].acc);
    }
}

K3_INLINE void multiply_small(const struct k3_product *p, const struct small *type)
{
    if (p->n_columns == 1) {
        for (size_t row = 0; row < p->n_rows; row += K3_LANES) small_row_group(p, type, row, 0);
        return;
    }
    for (size_t first = 0; first < p->n_columns; first += SMALL_COLUMNS) {
        size_t left = p->n_columns - first;
        small_column_group(p, type, first, left < SMALL_COLUMNS ? left : SMALL_COLUMNS);
    }
}

/* ---- the products ---- */

static void product_q8_0(const struct k3_product *p)
{
    multiply_small(p, &q8_0);
}

static void product_mxfp4(const struct k3_product *p)
{
    multiply_small(p, &mxfp4);
}

#endif
