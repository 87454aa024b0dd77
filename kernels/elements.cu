/* elements.cu - what is done to each element by itself: SiTU, gates, sums; and the rounding for the next product.
 *
 * FORMULA. kernels.h; SiTU is architecture.md section 7. exp, tanh and sigmoid are the CPU's (src/ops/vmath.h).
 * MAPPING. One thread for each element; a warp has a block of q8_0.
 * COST. 8 bytes read and 4 written for each element, 1.13 more where it is rounded; situ is some 60 operations. Bound:
 * memory, for large batches; latency for one token. */
#include "kernels.h"
#include "round.h"

#define THREADS 256u

K3_DEVICE size_t my_element(void)
{
    return (size_t)blockIdx.x * THREADS + threadIdx.x;
}

static unsigned blocks_of(size_t n)
{
    return (unsigned)((n + THREADS - 1) / THREADS);
}

/* q and d may be NULL, and n is a multiple of 32 if they are not. */
K3_KERNEL situ(K3_GLOBAL(float) g, K3_CONSTANT(float) u, float b1, float b2, size_t n, K3_GLOBAL(int8_t) q,
               K3_GLOBAL(float) d)
{
    size_t i = my_element();
    if (i >= n) return;
    float gate = g[i], up = u[i];
    if (b2 > 0) up = b2 * k3_tanh(up / b2);
    float value = b1 * k3_tanh(gate / b1) * k3_sigmoid(gate) * up;
    g[i] = value;
    if (q) k3_round_block(value, i, q, d);
}

K3_KERNEL gate(K3_GLOBAL(float) x, K3_CONSTANT(float) g, size_t n, K3_GLOBAL(int8_t) q, K3_GLOBAL(float) d)
{
    size_t i = my_element();
    if (i >= n) return;
    float value = x[i] * k3_sigmoid(g[i]);
    x[i] = value;
    if (q) k3_round_block(value, i, q, d);
}

K3_KERNEL add(K3_GLOBAL(float) x, K3_CONSTANT(float) y, size_t n)
{
    size_t i = my_element();
    if (i < n) x[i] += y[i];
}

extern "C" void k3_gpu_situ(float *g, const float *u, float b1, float b2, size_t n,
                            const struct k3_gpu_acts *acts, k3_stream stream)
{
    K3_LAUNCH(situ, blocks_of(n), THREADS, stream, g, u, b1, b2, n, acts ? acts->q : NULL,
              acts ? acts->d : NULL);
}

extern "C" void k3_gpu_gate(float *x, const float *g, size_t n, const struct k3_gpu_acts *acts,
                            k3_stream stream)
{
    K3_LAUNCH(gate, blocks_of(n), THREADS, stream, x, g, n, acts ? acts->q : NULL, acts ? acts->d : NULL);
}

extern "C" void k3_gpu_add(float *x, const float *y, size_t n, k3_stream stream)
{
    K3_LAUNCH(add, blocks_of(n), THREADS, stream, x, y, n);
}
