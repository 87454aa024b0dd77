/* avx512_round.c - activations to 8 bits.
 *
 * FORMULA and what happens where it has no answer: round.c, whose bytes these are.
 *
 * MAPPING. Lanes are activations, 16 at a time. Magnitudes are compared as bits, as in round.c. Sums of 4
 * neighbours are a product with ones.
 *
 * COST. A block of 256 is 16 loads, 16 maxima, 16 multiplications, 16 conversions and 16 stores, and twice
 * the latency of going across a vector: about 0.5 cycles an activation, which thousands of rows of weights
 * then use. */
#include "quant/avx512_internal.h"
#include "quant/round_blocks.h"

K3_INLINE __m512i magnitude(const float *x)
{
    return _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi32(0x7fffffff));
}

K3_INLINE uint32_t largest_bits(const float *x, const size_t n)
{
    __m512i largest = magnitude(x);
    for (size_t i = 16; i < n; i += 16) largest = _mm512_max_epu32(largest, magnitude(x + i));
    return _mm512_reduce_max_epu32(largest);
}

K3_INLINE float first_of_magnitude(const float *x, uint32_t bits)
{
    __mmask16 equal;
    while ((equal = _mm512_cmpeq_epi32_mask(magnitude(x), _mm512_set1_epi32((int)bits))) == 0) x += 16;
    return x[__builtin_ctz(equal)];
}

K3_INLINE void round_values(const float *x, float factor, const size_t n, int8_t *q)
{
    for (size_t i = 0; i < n; i += 16) {
        __m512i whole =
            _mm512_cvt_roundps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(factor)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm_storeu_si128((__m128i *)(q + i), _mm512_cvtepi32_epi8(whole));
    }
}

K3_INLINE void round_32(const float *x, float factor, int8_t *q, int16_t sums[1])
{
    round_values(x, factor, 32, q);
    __m512i words = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)q));
    sums[0] = (int16_t)_mm512_reduce_add_epi32(_mm512_madd_epi16(words, _mm512_set1_epi16(1)));
}

/* Sums of 8 neighbours. */
K3_INLINE void sum_eights(const int8_t *q, int16_t sums[32])
{
    for (int i = 0; i < 4; i++) {
        __m512i fours =
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), _mm512_loadu_si512(q + 64 * i));
        __m512i eights = _mm512_add_epi32(fours, _mm512_srli_epi64(fours, 32));
        _mm_storeu_si128((__m128i *)(sums + 8 * i), _mm512_cvtepi64_epi16(eights));
    }
}

K3_INLINE void round_256(const float *x, float factor, int8_t *q, int16_t sums[32])
{
    round_values(x, factor, 256, q);
    sum_eights(q, sums);
}

static const struct k3_rounding avx512 = {largest_bits, first_of_magnitude, round_32, round_256};

void k3_avx512_round_q8_0(const float *x, void *act, size_t n)
{
    k3_round_row_q8_0(&avx512, x, act, n);
}

void k3_avx512_round_q8_K(const float *x, void *act, size_t n)
{
    k3_round_row_q8_K(&avx512, x, act, n);
}
