/* avx512_blocks.c - q8_0 and mxfp4 times a few columns, 4 rows at a time.
 *
 * FORMULA. portable.c has it. Weights are made unsigned, for VPDPBUSD: sum of w q = sum of (w + z) q - z *
 * (sum of q), where z is 128 for q8_0 and 12 for mxfp4, and the sums of q come with the activations.
 *
 * LAYOUT. A row is blocks of 34 or 17 bytes at any address; activations are struct k3_rounded in blocks of
 * 32. No byte beyond a row is read.
 *
 * MAPPING. A step is 16 blocks: their integers are worked out in the lanes of one vector, and so are their
 * terms dw * dx * integer, one row after the other, each from left to right as memory likes to be read. Then
 * the terms of 4 rows are transposed and added one block after the other, lanes being rows, as the definition
 * wants it; the latency of these additions passes while the next step is worked on.
 *   Two blocks are one vector of 64 weights, and so 8 vectors a step. Lane 4L + m of the terms is block 4m +
 *   L, which is how adding neighbours leaves them; scales are read in that order by a gather.
 *
 * COST, for one row and column of a step of 512 weights, in vector operations, of which two run in a cycle at
 * 512 bits:
 *     q8_0   8 * 3 for products, 21 for their sums, 8 for a quarter of transposing and adding 4 rows' terms,
 *            about 5 for a gather and 8 more: 66, 1.06 bytes a weight. 33 cycles for 544 bytes: memory is
 *            the bound, and so the next 4 rows are prefetched, in the order in which they lie
 *     mxfp4  8 * 5, the others as above: 82, 0.53 bytes a weight */
#include "quant/avx512_internal.h"

#define ROWS  4  /* of a group */
#define STEP  16 /* blocks */
#define PAIRS (STEP / 2)

/* Lane 4L + m is block 4m + L. */
#define BY_LANES _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)

struct step {
    __m512i u[PAIRS]; /* weights + z, two blocks each */
    __m512 d;         /* BY_LANES */
};

/* Reads `blocks` blocks, at most STEP; the others are anything. */
typedef struct step (*step_fn)(const uint8_t *w, size_t blocks);

/* What a type is here. */
struct type {
    step_fn step;
    size_t block_bytes;
    int z;
};

K3_INLINE __mmask16 first_lanes(size_t n)
{
    return (__mmask16)((1u << n) - 1);
}

/* 32 bits at `w`, + block_bytes, + 2 * block_bytes .., BY_LANES. */
K3_INLINE __m512i gather_words(const uint8_t *w, size_t block_bytes, size_t blocks)
{
    __m512i index = _mm512_mullo_epi32(BY_LANES, _mm512_set1_epi32((int)block_bytes));
    if (blocks == STEP) return _mm512_i32gather_epi32(index, w, 1);
    __mmask16 valid = _mm512_cmplt_epi32_mask(BY_LANES, _mm512_set1_epi32((int)blocks));
    return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), valid, index, w, 1);
}

K3_INLINE struct step q8_0_step(const uint8_t *w, size_t blocks)
{
    struct step s;
    const size_t bytes = sizeof(struct k3_block_q8_0);
    for (size_t i = 0; i < PAIRS; i++) {
        __m512i q = _mm512_setzero_si512();
        if (2 * i < blocks)
            q = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(w + 2 * i * bytes + 2)));
        if (2 * i + 1 < blocks)
            q = _mm512_inserti64x4(q, _mm256_loadu_si256((const __m256i *)(w + (2 * i + 1) * bytes + 2)), 1);
        s.u[i] = _mm512_xor_si512(q, _mm512_set1_epi8(-128));
    }
    s.d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(gather_words(w, bytes, blocks)));
    return s;
}

/* 2^(e - 128): k3_mxfp4_scale. */
K3_INLINE __m512 mxfp4_scales(__m512i e)
{
    const __m512i one = _mm512_set1_epi32(1);
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, one), 23);
    __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    return _mm512_castsi512_ps(_mm512_mask_blend_epi32(_mm512_cmpgt_epi32_mask(e, one), small, normal));
}

K3_INLINE struct step mxfp4_step(const uint8_t *w, size_t blocks)
{
    const __m512i plus_12 =
        _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m512i halves = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    struct step s;
    const size_t bytes = sizeof(struct k3_block_mxfp4);
    for (size_t i = 0; i < PAIRS; i++) {
        __m512i q = _mm512_setzero_si512();
        if (2 * i < blocks)
            q = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(w + 2 * i * bytes + 1)));
        if (2 * i + 1 < blocks)
            q = _mm512_mask_broadcast_i32x4(q, 0xff00,
                                            _mm_loadu_si128((const __m128i *)(w + (2 * i + 1) * bytes + 1)));
        q = _mm512_and_si512(_mm512_srlv_epi64(q, halves), _mm512_set1_epi8(15));
        s.u[i] = _mm512_shuffle_epi8(plus_12, q);
    }
    __m512i e = _mm512_and_si512(gather_words(w, bytes, blocks), _mm512_set1_epi32(255));
    s.d = mxfp4_scales(e);
    return s;
}

static const struct type q8_0 = {q8_0_step, sizeof(struct k3_block_q8_0), 128};
static const struct type mxfp4 = {mxfp4_step, sizeof(struct k3_block_mxfp4), 12};

/* ---- activations ---- */

struct column {
    const int8_t *q;
    __m512 d;       /* BY_LANES */
    __m512i offset; /* z * sum, BY_LANES */
};

K3_INLINE struct column load_column(const struct k3_rounded *x, size_t b, size_t blocks, int z)
{
    __m512 d = _mm512_maskz_loadu_ps(first_lanes(blocks), x->d + b);
    __m512i sums = _mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(first_lanes(blocks), x->sums + b));
    return (struct column){
        .q = x->q + 32 * b,
        .d = _mm512_permutexvar_ps(BY_LANES, d),
        .offset = _mm512_permutexvar_epi32(BY_LANES, _mm512_mullo_epi32(sums, _mm512_set1_epi32(z))),
    };
}

/* ---- products ---- */

/* Four vectors to one: lane 4L + m is the sum of the four lanes L of v[m]. */
K3_INLINE __m512i sums_of_4(__m512i v0, __m512i v1, __m512i v2, __m512i v3)
{
    __m512i v01 = _mm512_add_epi32(_mm512_unpacklo_epi32(v0, v1), _mm512_unpackhi_epi32(v0, v1));
    __m512i v23 = _mm512_add_epi32(_mm512_unpacklo_epi32(v2, v3), _mm512_unpackhi_epi32(v2, v3));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(v01, v23), _mm512_unpackhi_epi64(v01, v23));
}

/* The terms dw * dx * integer of `blocks` blocks; 0 in the other lanes, which changes no sum. */
K3_INLINE __m512 terms(const struct step *w, const struct column *x, size_t blocks)
{
    const __m512i zero = _mm512_setzero_si512();
    __m512i v[PAIRS];
    for (size_t i = 0; i < PAIRS; i++) {
        v[i] = zero;
        if (2 * i < blocks) v[i] = _mm512_dpbusd_epi32(zero, w->u[i], _mm512_load_si512(x->q + 64 * i));
    }
    /* The two blocks of v[2m] are 4m and 4m + 1, those of v[2m + 1] are 4m + 2 and 4m + 3. */
    __m512i low = sums_of_4(v[0], v[2], v[4], v[6]), high = sums_of_4(v[1], v[3], v[5], v[7]);
    __m512i sums =
        _mm512_add_epi32(_mm512_shuffle_i64x2(low, high, 0x88), _mm512_shuffle_i64x2(low, high, 0xdd));
    __m512 integers = _mm512_cvtepi32_ps(_mm512_sub_epi32(sums, x->offset)),
           scales = _mm512_mul_ps(w->d, x->d);
    if (blocks == STEP) return _mm512_mul_ps(scales, integers);
    __mmask16 valid = _mm512_cmplt_epi32_mask(BY_LANES, _mm512_set1_epi32((int)blocks));
    return _mm512_maskz_mul_ps(valid, scales, integers);
}

/* Adds the terms of 16 blocks, which are BY_LANES, to sums of 4 rows, in the order of the blocks. */
K3_INLINE __m128 add_terms(__m128 sums, const __m512 t[ROWS])
{
    __m512 t01[2] = {_mm512_unpacklo_ps(t[0], t[1]), _mm512_unpackhi_ps(t[0], t[1])};
    __m512 t23[2] = {_mm512_unpacklo_ps(t[2], t[3]), _mm512_unpackhi_ps(t[2], t[3])};
    for (int m = 0; m < 4; m++) {
        __m512d a = _mm512_castps_pd(t01[m / 2]), b = _mm512_castps_pd(t23[m / 2]);
        __m512 rows = _mm512_castpd_ps(m % 2 ? _mm512_unpackhi_pd(a, b) : _mm512_unpacklo_pd(a, b));
        sums = _mm_add_ps(sums, _mm512_castps512_ps128(rows));
        sums = _mm_add_ps(sums, _mm512_extractf32x4_ps(rows, 1));
        sums = _mm_add_ps(sums, _mm512_extractf32x4_ps(rows, 2));
        sums = _mm_add_ps(sums, _mm512_extractf32x4_ps(rows, 3));
    }
    return sums;
}

/* Asks for a part of the next 4 rows while a step of row r is worked on. */
K3_INLINE void prefetch_next(const struct k3_product *p, const struct type *type, size_t row, size_t b,
                             size_t r)
{
    size_t bytes = STEP * type->block_bytes;
    const char *next = (const char *)(p->rows + (row + ROWS) * p->row_bytes + (b * ROWS / STEP + r) * bytes);
    for (size_t i = 0; i < bytes; i += 64) _mm_prefetch(next + i, _MM_HINT_T0);
}

K3_INLINE void add_step(const struct k3_product *p, const struct type *type, size_t row, size_t rows,
                        size_t column, const size_t columns, size_t b, size_t blocks, __m128 sums[])
{
    struct column x[K3_MAX_COLUMNS];
    __m512 t[K3_MAX_COLUMNS][ROWS] = {0};
    for (size_t c = 0; c < columns; c++) {
        struct k3_rounded act = k3_rounded_row(K3_ACT_Q8_0, k3_product_acts(p, column + c), p->n);
        x[c] = load_column(&act, b, blocks, type->z);
    }
    for (size_t r = 0; r < rows; r++) {
        prefetch_next(p, type, row, b, r);
        struct step w = type->step(p->rows + (row + r) * p->row_bytes + b * type->block_bytes, blocks);
        for (size_t c = 0; c < columns; c++) t[c][r] = terms(&w, &x[c], blocks);
    }
    for (size_t c = 0; c < columns; c++) sums[c] = add_terms(sums[c], t[c]);
}

K3_INLINE void group(const struct k3_product *p, const struct type *type, size_t row, size_t rows,
                     size_t column, const size_t columns)
{
    size_t n_blocks = p->n / 32, b = 0;
    __m128 sums[K3_MAX_COLUMNS];
    for (size_t c = 0; c < columns; c++) sums[c] = _mm_setzero_ps();
    for (; b + STEP <= n_blocks; b += STEP) add_step(p, type, row, rows, column, columns, b, STEP, sums);
    if (b < n_blocks) add_step(p, type, row, rows, column, columns, b, n_blocks - b, sums);
    for (size_t c = 0; c < columns; c++)
        _mm_mask_storeu_ps(p->y + (column + c) * p->y_stride + row, (__mmask8)first_lanes(rows), sums[c]);
}

K3_INLINE void multiply(const struct k3_product *p, const struct type *type)
{
    for (size_t row = 0; row < p->n_rows; row += ROWS) {
        size_t rows = p->n_rows - row < ROWS ? p->n_rows - row : ROWS;
        K3_FOR_COLUMNS(group, p, type, row, rows);
    }
}

void k3_avx512_q8_0(const struct k3_product *p)
{
    multiply(p, &q8_0);
}

void k3_avx512_mxfp4(const struct k3_product *p)
{
    multiply(p, &mxfp4);
}
