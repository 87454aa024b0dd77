/* round.h - activations to 8 bits, for kernels that make them and the one that only rounds them.
 *
 * src/quant/round.c, q8_0: for each 32 values, d = f16(amax / 127), q = round(x * (127 / amax)). A block with an infinity
 * or a NaN gets d = NaN, q = 0; one that is too small for 127 / amax gets zeros. A warp rounds a block, one value a lane.
 * The largest bits of |x| are found by five shuffles: they are ordered as the values are, and the largest does not depend
 * on the order. */
#ifndef K3_KERNELS_ROUND_H
#define K3_KERNELS_ROUND_H

#include "simt.h"

#define K3_INFINITY_BITS 0x7f800000u

/* This lane's value of the block of this warp, and the block's scale. */
K3_DEVICE int8_t k3_rounded(float value, float &scale)
{
    uint32_t largest = k3_f32_bits(value) & 0x7fffffffu;
    for (unsigned step = 16; step > 0; step /= 2) {
        uint32_t other = k3_shuffle_xor(K3_ALL_LANES, largest, step);
        largest = other > largest ? other : largest;
    }
    float amax = k3_f32_from_bits(largest), factor = 127.0f / amax;
    if (largest >= K3_INFINITY_BITS || isinf(factor)) {
        scale = largest >= K3_INFINITY_BITS ? NAN : 0.0f;
        return 0;
    }
    scale = k3_f32_from_f16(k3_f16_from_f32(amax / 127.0f));
    return (int8_t)k3_round_to_int(value * factor);
}

/* Rounds the block of this warp's values to q[at] .. and d[at / 32]; `at`, of this lane, is at / 32 * 32 + lane. */
K3_DEVICE void k3_round_block(float value, size_t at, K3_GLOBAL(int8_t) q, K3_GLOBAL(float) d)
{
    float scale;
    q[at] = k3_rounded(value, scale);
    if (threadIdx.x % K3_LANES == 0) d[at / 32] = scale;
}

#endif
