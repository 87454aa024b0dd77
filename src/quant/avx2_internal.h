/* avx2_internal.h - what the kernels for AVX2 share. Only files compiled for AVX2 may include it.
 *
 * The kernels of quantised weights are compiled by avx2.c and avxvnni.c, and in part by avx512_blocks.c, and
 * differ in nothing but the multiply-add below: so they are headers of static functions. */
#ifndef K3_QUANT_AVX2_INTERNAL_H
#define K3_QUANT_AVX2_INTERNAL_H

#include "quant/quant_internal.h"

#include <immintrin.h>

#define K3_INLINE __attribute__((always_inline)) static inline

void k3_avx2_f32(const struct k3_product *p); /* avx2_floats.c */
void k3_avx2_f16(const struct k3_product *p);
void k3_avx2_bf16(const struct k3_product *p);
void k3_avx2_round_q8_0(const float *x, void *act, size_t n); /* avx2_round.c */
void k3_avx2_round_q8_K(const float *x, void *act, size_t n);

#define K3_LANES 8 /* rows whose sums are one vector */

/* ---- multiply-add ----
 *
 * Each 32-bit lane of a sum gets its four products of an unsigned u and a signed q, or its two products of 16
 * bits.
 *
 * VPDPBUSD does not saturate. VPMADDUBSW does, so without VNNI two products must fit 16 bits. Small
 * products, eight of which fit 16 bits, may be added by fours of vectors at the cost of fewer instructions:
 * k3_small_begin, up to four times k3_small_add, k3_small_end. */

#if defined(__AVXVNNI__) /* the same instructions in two encodings */
#define K3_HAS_VNNI    1
#define K3_DPBUSD(...) _mm256_dpbusd_avx_epi32(__VA_ARGS__)
#define K3_DPWSSD(...) _mm256_dpwssd_avx_epi32(__VA_ARGS__)
#elif defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define K3_HAS_VNNI    1
#define K3_DPBUSD(...) _mm256_dpbusd_epi32(__VA_ARGS__)
#define K3_DPWSSD(...) _mm256_dpwssd_epi32(__VA_ARGS__)
#else
#define K3_HAS_VNNI 0
#endif

#if K3_HAS_VNNI
K3_INLINE __m256i k3_add_words(__m256i sum, __m256i a, __m256i b)
{
    return K3_DPWSSD(sum, a, b);
}

K3_INLINE __m256i k3_add_products(__m256i sum, __m256i u, __m256i q)
{
    return K3_DPBUSD(sum, u, q);
}

K3_INLINE __m256i k3_small_begin(__m256i base)
{
    return base;
}

K3_INLINE __m256i k3_small_add(__m256i small, __m256i u, __m256i q)
{
    return k3_add_products(small, u, q);
}

K3_INLINE __m256i k3_small_end(__m256i small, __m256i base)
{
    (void)base;
    return small;
}
#else
K3_INLINE __m256i k3_add_words(__m256i sum, __m256i a, __m256i b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

K3_INLINE __m256i k3_add_products(__m256i sum, __m256i u, __m256i q)
{
    return k3_add_words(sum, _mm256_maddubs_epi16(u, q), _mm256_set1_epi16(1));
}

K3_INLINE __m256i k3_small_begin(__m256i base)
{
    (void)base;
    return _mm256_setzero_si256();
}

K3_INLINE __m256i k3_small_add(__m256i small, __m256i u, __m256i q)
{
    return _mm256_add_epi16(small, _mm256_maddubs_epi16(u, q));
}

K3_INLINE __m256i k3_small_end(__m256i small, __m256i base)
{
    return k3_add_words(base, small, _mm256_set1_epi16(1));
}
#endif

/* ---- vectors ---- */

/* 128 bits from each of two places. */
K3_INLINE __m256i k3_load_halves(const void *low, const void *high)
{
    return _mm256_loadu2_m128i((const __m128i *)high, (const __m128i *)low);
}

/* Four neighbouring activations, for all rows. */
K3_INLINE __m256i k3_four(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Lane l of the result is the sum of the lanes of v[l]. Two vectors are added and interleaved at once. */
K3_INLINE __m256i k3_sums_of_8(const __m256i v[K3_LANES])
{
    __m256i four[2]; /* half k of four[i] has the sums over half k of v[4i] to v[4i + 3] */
    for (int i = 0; i < 2; i++) {
        const __m256i *a = v + 4 * i;
        __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a[0], a[1]), _mm256_unpackhi_epi32(a[0], a[1]));
        __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(a[2], a[3]), _mm256_unpackhi_epi32(a[2], a[3]));
        four[i] = _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    }
    return _mm256_add_epi32(_mm256_permute2x128_si256(four[0], four[1], 0x20),
                            _mm256_permute2x128_si256(four[0], four[1], 0x31));
}

/* In both halves: 32-bit lane j of out[k] is lane k of v[j]. */
K3_INLINE void k3_transpose_4(const __m256i v[4], __m256i out[4])
{
    __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
    __m256i c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
    out[0] = _mm256_unpacklo_epi64(a, c);
    out[1] = _mm256_unpackhi_epi64(a, c);
    out[2] = _mm256_unpacklo_epi64(b, d);
    out[3] = _mm256_unpackhi_epi64(b, d);
}

/* 32-bit lane r of out[i] is lane i of v[r]. */
K3_INLINE void k3_transpose_8(const __m256i v[K3_LANES], __m256i out[8])
{
    __m256i low[4], high[4];
    k3_transpose_4(v, low);
    k3_transpose_4(v + 4, high);
    for (int i = 0; i < 4; i++) {
        out[i] = _mm256_permute2x128_si256(low[i], high[i], 0x20);
        out[i + 4] = _mm256_permute2x128_si256(low[i], high[i], 0x31);
    }
}

/* ---- rows ---- */

/* The addresses of 8 rows from `row` on. Beyond the last row it is that row again, for nothing else may be
 * read; its sums are not stored. */
K3_INLINE void k3_lane_rows(const struct k3_product *p, size_t row, const uint8_t *rows[K3_LANES])
{
    for (size_t r = 0; r < K3_LANES; r++) {
        size_t i = row + r < p->n_rows ? row + r : p->n_rows - 1;
        rows[r] = p->rows + i * p->row_bytes;
    }
}

/* Asks for the line at an address, which may be anywhere. Rows are too short for the processor to see that
 * they follow each other: work on some rows asks for the next ones. */
K3_INLINE void k3_prefetch(const uint8_t *at)
{
    _mm_prefetch((const char *)at, _MM_HINT_T0);
}

K3_INLINE void k3_store_lanes(const struct k3_product *p, size_t row, size_t column, __m256 sums)
{
    float *y = p->y + column * p->y_stride + row;
    if (row + K3_LANES <= p->n_rows) {
        _mm256_storeu_ps(y, sums);
    } else {
        float lanes[K3_LANES];
        _mm256_storeu_ps(lanes, sums);
        memcpy(y, lanes, (p->n_rows - row) * sizeof *lanes);
    }
}

/* acc + dw * dx * sum in each lane, every operation rounded. */
K3_INLINE __m256 k3_add_block(__m256 acc, __m256 dw, float dx, __m256i sum)
{
    return _mm256_add_ps(acc, _mm256_mul_ps(_mm256_mul_ps(dw, _mm256_set1_ps(dx)), _mm256_cvtepi32_ps(sum)));
}

/* Columns that are worked on at once. */
#define K3_GROUP_COLUMNS 4

/* Calls group(..., column, columns) for the columns from 0 to `end`, K3_GROUP_COLUMNS at a time, with a
 * constant for `columns`: the loops over them are unrolled. */
#define K3_FOR_GROUPS(group, end, ...)                                                                       \
    for (size_t column = 0; column < (end); column += K3_GROUP_COLUMNS) {                                    \
        switch ((end)-column) {                                                                              \
        case 1:                                                                                              \
            group(__VA_ARGS__, column, 1);                                                                   \
            break;                                                                                           \
        case 2:                                                                                              \
            group(__VA_ARGS__, column, 2);                                                                   \
            break;                                                                                           \
        case 3:                                                                                              \
            group(__VA_ARGS__, column, 3);                                                                   \
            break;                                                                                           \
        default:                                                                                             \
            group(__VA_ARGS__, column, K3_GROUP_COLUMNS);                                                    \
        }                                                                                                    \
    }

#endif
