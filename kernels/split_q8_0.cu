/* split_q8_0.cu - q8_0 blocks of a file into scales and weights.
 *
 * FORMULA. Block b of the file is 17 words of 16 bits: d[b], then q[32 b .. 32 b + 31].
 * LAYOUT. Files: blocks of 34 bytes (quants.md), at a multiple of 2. Device: struct k3_gpu_q8_0.
 * MAPPING. One thread moves one word; a warp reads 64 bytes side by side.
 * COST. 34 bytes read and 34 written for each 32 weights, once when a model is loaded. Bound: the bus that the blocks
 * come over, which is ten times slower. */
#include "kernels.h"
#include "simt.h"

#define THREADS     256u
#define BLOCK_WORDS 17u

K3_KERNEL split(K3_CONSTANT(uint16_t) words, size_t n_words, K3_GLOBAL(uint16_t) q, K3_GLOBAL(uint16_t) d)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n_words) return;
    size_t block = i / BLOCK_WORDS, word = i % BLOCK_WORDS;
    if (word == 0)
        d[block] = words[i];
    else
        q[block * 16 + word - 1] = words[i];
}

extern "C" void k3_gpu_split_q8_0(const void *blocks, size_t n_blocks, int8_t *q, uint16_t *d,
                                  k3_stream stream)
{
    size_t n_words = n_blocks * BLOCK_WORDS;
    K3_LAUNCH(split, (unsigned)((n_words + THREADS - 1) / THREADS), THREADS, stream, (const uint16_t *)blocks,
              n_words, (uint16_t *)q, d);
}
