/* avx2_round.c - activations to 8 bits with AVX2.
 *
 * FORMULA. round.c has it, with the answer for blocks that have none.
 *
 * MAPPING. The largest |x| is a maximum of integers, as there. VCVTPS2DQ rounds halves to the even integer,
 * which is how processes start; nothing here changes it. Eight vectors of eight integers are packed to 64
 * bytes, and their sums to one vector.
 *
 * COST. Two passes over a block in the cache of the first level, about 2 operations for each x. */
#include "quant/avx2_internal.h"
#include "quant/round_blocks.h"

K3_INLINE __m256i magnitude(const float *x)
{
    return _mm256_and_si256(_mm256_loadu_si256((const __m256i *)x), _mm256_set1_epi32(0x7fffffff));
}

K3_INLINE uint32_t largest_bits(const float *x, size_t n)
{
    __m256i m = magnitude(x);
    for (size_t i = 8; i < n; i += 8) m = _mm256_max_epi32(m, magnitude(x + i));
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

K3_INLINE float first_of_magnitude(const float *x, uint32_t bits)
{
    for (;; x += 8) {
        __m256i same = _mm256_cmpeq_epi32(magnitude(x), _mm256_set1_epi32((int)bits));
        unsigned mask = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(same));
        if (mask) return x[__builtin_ctz(mask)];
    }
}

K3_INLINE __m256i round_8(const float *x, float factor)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), _mm256_set1_ps(factor)));
}

/* Four vectors of integers as 32 bytes. */
K3_INLINE void store_32(int8_t *q, const __m256i v[4])
{
    __m256i ab = _mm256_packs_epi32(v[0], v[1]), cd = _mm256_packs_epi32(v[2], v[3]);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((__m256i *)q, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(ab, cd), order));
}

K3_INLINE int sum_of_lanes(__m256i v)
{
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

K3_INLINE void round_32(const float *x, float factor, int8_t *q, int16_t sums[1])
{
    __m256i v[4];
    for (int k = 0; k < 4; k++) v[k] = round_8(x + 8 * k, factor);
    store_32(q, v);
    sums[0] =
        (int16_t)sum_of_lanes(_mm256_add_epi32(_mm256_add_epi32(v[0], v[1]), _mm256_add_epi32(v[2], v[3])));
}

K3_INLINE void round_256(const float *x, float factor, int8_t *q, int16_t sums[32])
{
    for (size_t j = 0; j < 256; j += 64) {
        __m256i v[8];
        for (size_t k = 0; k < 8; k++) v[k] = round_8(x + j + 8 * k, factor);
        store_32(q + j, v);
        store_32(q + j + 32, v + 4);
        __m256i s = k3_sums_of_8(v);
        __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
        _mm_storeu_si128((__m128i *)(sums + j / 8), words);
    }
}

static const struct k3_rounding avx2 = {largest_bits, first_of_magnitude, round_32, round_256};

void k3_avx2_round_q8_0(const float *x, void *act, size_t n)
{
    k3_round_row_q8_0(&avx2, x, act, n);
}

void k3_avx2_round_q8_K(const float *x, void *act, size_t n)
{
    k3_round_row_q8_K(&avx2, x, act, n);
}
