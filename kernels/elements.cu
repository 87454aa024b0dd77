/* elements.cu - what is done to each element by itself: SiTU, gates, sums.
 *
 * FORMULA. kernels.h; SiTU is architecture.md section 7. exp, tanh and sigmoid are the CPU's (src/ops/vmath.h).
 * MAPPING. One thread for each element.
 * COST. situ, gate, add: 8 bytes read and 4 written, sigmoid 4 and 4; situ is some 60 operations. Bound: memory, for
 * large batches; latency for one token. */
#include "kernels.h"
#include "simt.h"

#define THREADS 256u

K3_DEVICE size_t my_element(void)
{
    return (size_t)blockIdx.x * THREADS + threadIdx.x;
}

static unsigned blocks_of(size_t n)
{
    return (unsigned)((n + THREADS - 1) / THREADS);
}

K3_KERNEL situ(K3_GLOBAL(float) g, K3_CONSTANT(float) u, float b1, float b2, size_t n)
{
    size_t i = my_element();
    if (i >= n) return;
    float gate = g[i], up = u[i];
    if (b2 > 0) up = b2 * k3_tanh(up / b2);
    g[i] = b1 * k3_tanh(gate / b1) * k3_sigmoid(gate) * up;
}

K3_KERNEL gate(K3_GLOBAL(float) x, K3_CONSTANT(float) g, size_t n)
{
    size_t i = my_element();
    if (i < n) x[i] *= k3_sigmoid(g[i]);
}

K3_KERNEL add(K3_GLOBAL(float) x, K3_CONSTANT(float) y, size_t n)
{
    size_t i = my_element();
    if (i < n) x[i] += y[i];
}

K3_KERNEL sigmoid(K3_GLOBAL(float) x, size_t n)
{
    size_t i = my_element();
    if (i < n) x[i] = k3_sigmoid(x[i]);
}

extern "C" void k3_gpu_situ(float *g, const float *u, float b1, float b2, size_t n, k3_stream stream)
{
    K3_LAUNCH(situ, blocks_of(n), THREADS, stream, g, u, b1, b2, n);
}

extern "C" void k3_gpu_gate(float *x, const float *g, size_t n, k3_stream stream)
{
    K3_LAUNCH(gate, blocks_of(n), THREADS, stream, x, g, n);
}

extern "C" void k3_gpu_add(float *x, const float *y, size_t n, k3_stream stream)
{
    K3_LAUNCH(add, blocks_of(n), THREADS, stream, x, y, n);
}

extern "C" void k3_gpu_sigmoid(float *x, size_t n, k3_stream stream)
{
    K3_LAUNCH(sigmoid, blocks_of(n), THREADS, stream, x, n);
}
