/* rms_norm.cu - RMS norm of rows.
 *
 * FORMULA. y[i] = w[i] * (x[i] * (1 / sqrt(dot(x, x) / width + eps))) (architecture.md section 3), dot in the order of
 * dots.h.
 * MAPPING. A block of threads for each row. All threads square a TILE of it into shared memory, then 16 lanes add the
 * squares to the 16 sums of dots.h: the chain of width / 16 additions is fed from shared memory and not from device
 * memory, which is twenty times as far away.
 * COST. x is read twice, the second time from the cache. Bound: latency: 448 additions in a chain at K3's width. */
#include "dots.h"
#include "kernels.h"

#define THREADS 256u
#define TILE    4096u

/* The dot product of a row with itself, to the threads of the first warp. */
K3_DEVICE float sum_of_squares(K3_GLOBAL(const float) x, size_t width, K3_SHARED_OF(float) squares)
{
    size_t whole = width - width % K3_SUMS;
    float s = 0;
    for (size_t tile = 0; tile < whole; tile += TILE) {
        unsigned count = (unsigned)(whole - tile < TILE ? whole - tile : TILE);
        for (unsigned i = threadIdx.x; i < count; i += THREADS) squares[i] = x[tile + i] * x[tile + i];
        k3_sync();
        if (threadIdx.x < K3_SUMS)
            for (unsigned i = threadIdx.x; i < count; i += K3_SUMS) s += squares[i];
        k3_sync();
    }
    if (threadIdx.x >= K3_LANES) return 0;
    s = k3_add_sums(s);
    for (size_t i = whole; i < width; i++) s += x[i] * x[i];
    return s;
}

K3_KERNEL rms_norm(K3_GLOBAL(const float) x, K3_CONSTANT(float) w, float eps, size_t width, size_t stride,
                   K3_GLOBAL(float) y)
{
    K3_SHARED(float, squares, TILE);
    K3_SHARED(float, scale, 1);
    x = x + blockIdx.x * stride;
    y = y + blockIdx.x * stride;
    float sum = sum_of_squares(x, width, squares);
    if (threadIdx.x == 0) scale[0] = 1.0f / sqrtf(sum / (float)width + eps);
    k3_sync();
    for (size_t i = threadIdx.x; i < width; i += THREADS) y[i] = w[i] * (x[i] * scale[0]);
}

extern "C" void k3_gpu_rms_norm(const float *x, const float *w, float eps, size_t n, size_t width,
                                size_t stride, float *y, k3_stream stream)
{
    K3_LAUNCH(rms_norm, (unsigned)n, THREADS, stream, x, w, eps, width, stride, y);
}
