/* round_blocks.h - rows of activations to 8 bits, given what an instruction set does with a block: which blocks there
 * are, their scales, and what becomes of those without an answer stands here only. Formulas: round.c. */
#ifndef K3_QUANT_ROUND_BLOCKS_H
#define K3_QUANT_ROUND_BLOCKS_H

#include "quant/quant_internal.h"

#include <math.h>

#define K3_INFINITY_BITS 0x7f800000u

/* All of it is inlined. */
struct k3_rounding {
    uint32_t (*largest_bits)(const float *x, size_t n);         /* of the largest |x|; n is 32 or 256 */
    float (*first_of_magnitude)(const float *x, uint32_t bits); /* with its sign; there is one */
    void (*round_32)(const float *x, float factor, int8_t *q, int16_t sums[1]);
    void (*round_256)(const float *x, float factor, int8_t *q, int16_t sums[32]);
};

#define K3_ROUND_INLINE __attribute__((always_inline)) static inline

/* Whether the block has an answer; if not, it gets what round.c says. */
K3_ROUND_INLINE bool k3_can_round(uint32_t largest, float inverse, size_t n, size_t n_sums, float *d,
                                  int8_t *q, int16_t *sums)
{
    if (largest < K3_INFINITY_BITS && !isinf(inverse)) return true;
    *d = largest >= K3_INFINITY_BITS ? NAN : 0.0f;
    memset(q, 0, n);
    memset(sums, 0, n_sums * sizeof *sums);
    return false;
}

K3_ROUND_INLINE void k3_round_row_q8_0(const struct k3_rounding *with, const float *x, void *act, size_t n)
{
    struct k3_rounded r = k3_rounded_row(K3_ACT_Q8_0, act, n);
    for (size_t i = 0; i < n; i += 32, x += 32, r.d++, r.q += 32, r.sums++) {
        uint32_t bits = with->largest_bits(x, 32);
        float amax = k3_f32_from_bits(bits), inverse = 127.0f / amax;
        if (!k3_can_round(bits, inverse, 32, 1, r.d, r.q, r.sums)) continue;
        *r.d = k3_f32_from_f16(k3_f16_from_f32(amax / 127.0f));
        with->round_32(x, inverse, r.q, r.sums);
    }
}

K3_ROUND_INLINE void k3_round_row_q8_K(const struct k3_rounding *with, const float *x, void *act, size_t n)
{
    struct k3_rounded r = k3_rounded_row(K3_ACT_Q8_K, act, n);
    for (size_t i = 0; i < n; i += 256, x += 256, r.d++, r.q += 256, r.sums += 32) {
        uint32_t bits = with->largest_bits(x, 256);
        float inverse = -127.0f / with->first_of_magnitude(x, bits);
        if (!k3_can_round(bits, inverse, 256, 32, r.d, r.q, r.sums)) continue;
        *r.d = 1.0f / inverse;
        with->round_256(x, inverse, r.q, r.sums);
    }
}

#endif
