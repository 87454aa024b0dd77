/* round_q8_0.cu - activations to 8 bits, where no kernel that makes them rounds them too (round.h).
 *
 * LAYOUT. Rows of x are whole numbers of blocks, `stride` apart; the result struct k3_gpu_acts.
 * MAPPING. A warp rounds a block, one value a lane.
 * COST. 4 bytes read and 1.13 written for each value. Bound: latency; K3's widest row is 135 KB. */
#include "kernels.h"
#include "round.h"

#define THREADS 256u
#define WARPS   (THREADS / K3_LANES)

K3_KERNEL round_blocks(K3_CONSTANT(float) x, size_t n_blocks, size_t row_blocks, size_t stride,
                       K3_GLOBAL(int8_t) q, K3_GLOBAL(float) d)
{
    size_t block = (size_t)blockIdx.x * WARPS + threadIdx.x / K3_LANES;
    unsigned lane = threadIdx.x % K3_LANES;
    if (block >= n_blocks) return; /* the whole warp */
    k3_round_block(x[block / row_blocks * stride + block % row_blocks * 32 + lane], block * 32 + lane, q, d);
}

extern "C" void k3_gpu_round_q8_0(const float *x, size_t n, size_t cols, size_t stride,
                                  const struct k3_gpu_acts *acts, k3_stream stream)
{
    size_t n_blocks = n * cols / 32;
    K3_LAUNCH(round_blocks, (unsigned)((n_blocks + WARPS - 1) / WARPS), THREADS, stream, x, n_blocks,
              cols / 32, stride, acts->q, acts->d);
}
