/* round_q8_0.cu - activations to 8 bits.
 *
 * FORMULA. src/quant/round.c, q8_0: for each 32 values, d = f16(amax / 127), q = round(x * (127 / amax)). A block with
 * an infinity or a NaN gets d = NaN, q = 0; one that is too small for 127 / amax gets zeros.
 * LAYOUT. Rows of x are whole numbers of blocks, `stride` apart; the result struct k3_gpu_acts.
 * MAPPING. A warp rounds a block, one value a lane. The largest bits of |x| are found by five shuffles: they are
 * ordered as the values are, and the largest does not depend on the order.
 * COST. 4 bytes read and 1.13 written for each value. Bound: latency; K3's widest row is 135 KB. */
#include "kernels.h"
#include "simt.h"

#define THREADS       256u
#define WARPS         (THREADS / K3_LANES)
#define INFINITY_BITS 0x7f800000u

K3_KERNEL round_blocks(K3_CONSTANT(float) x, size_t n_blocks, size_t row_blocks, size_t stride,
                       K3_GLOBAL(int8_t) q, K3_GLOBAL(float) d)
{
    size_t block = (size_t)blockIdx.x * WARPS + threadIdx.x / K3_LANES;
    unsigned lane = threadIdx.x % K3_LANES;
    if (block >= n_blocks) return; /* the whole warp */

    float value = x[block / row_blocks * stride + block % row_blocks * 32 + lane];
    uint32_t largest = k3_f32_bits(value) & 0x7fffffffu;
    for (unsigned step = 16; step > 0; step /= 2) {
        uint32_t other = k3_shuffle_xor(K3_ALL_LANES, largest, step);
        largest = other > largest ? other : largest;
    }

    float amax = k3_f32_from_bits(largest), factor = 127.0f / amax, scale;
    if (largest >= INFINITY_BITS || isinf(factor)) {
        scale = largest >= INFINITY_BITS ? NAN : 0.0f;
        q[block * 32 + lane] = 0;
    } else {
        scale = k3_f32_from_f16(k3_f16_from_f32(amax / 127.0f));
        q[block * 32 + lane] = (int8_t)k3_round_to_int(value * factor);
    }
    if (lane == 0) d[block] = scale;
}

extern "C" void k3_gpu_round_q8_0(const float *x, size_t n, size_t cols, size_t stride,
                                  const struct k3_gpu_acts *acts, k3_stream stream)
{
    size_t n_blocks = n * cols / 32;
    K3_LAUNCH(round_blocks, (unsigned)((n_blocks + WARPS - 1) / WARPS), THREADS, stream, x, n_blocks,
              cols / 32, stride, acts->q, acts->d);
}
