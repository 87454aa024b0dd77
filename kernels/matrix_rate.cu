/* matrix_rate.cu - how fast a device's matrix units are: the limit beside which k3bench shows multiply_many_q8_0.cu.
 *
 * FORMULA. None: out[thread] is a sum that keeps a compiler from leaving the products away.
 * MAPPING. A warp adds products of 16 x 8 x 32 bytes (k3_mma_s8) to CHAINS results in its registers, so that none waits for
 * the one before.
 * COST. 4096 multiply-adds for each product, and no memory. Bound: the matrix units. */
#include "kernels.h"
#include "simt.h"

#define THREADS 256u
#define CHAINS  8u

K3_KERNEL matrix_rate(unsigned steps, K3_GLOBAL(int) out)
{
    int c[CHAINS][4], a[4], b[2];
    K3_UNROLL
    for (unsigned i = 0; i < CHAINS; i++)
        K3_UNROLL
        for (unsigned j = 0; j < 4; j++) c[i][j] = 0;
    K3_UNROLL
    for (unsigned j = 0; j < 4; j++) a[j] = (int)(threadIdx.x * 0x01010101u + j);
    b[0] = a[0] ^ 0x5a5a5a5a;
    b[1] = a[1];
    for (unsigned s = 0; s < steps; s++)
        K3_UNROLL
        for (unsigned i = 0; i < CHAINS; i++) k3_mma_s8(c[i], a, b);
    int sum = 0;
    K3_UNROLL
    for (unsigned i = 0; i < CHAINS; i++)
        K3_UNROLL
        for (unsigned j = 0; j < 4; j++) sum ^= c[i][j];
    out[blockIdx.x * THREADS + threadIdx.x] = sum;
}

double k3_gpu_matrix_rate(size_t n_blocks, unsigned steps, int *out, k3_stream stream)
{
    K3_LAUNCH(matrix_rate, dim3((unsigned)n_blocks), THREADS, stream, steps, out);
    return (double)n_blocks * (THREADS / 32) * steps * CHAINS * 4096;
}
