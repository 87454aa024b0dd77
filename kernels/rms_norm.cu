/* rms_norm.cu - RMS norm of rows, with the output gate of KDA's heads and the rounding for the next product.
 *
 * FORMULA and MAPPING. norm.h; a block of threads for each row.
 * LAYOUT. Rows of x and y are `stride` apart, those of gate and of the rounded result `width`.
 * COST. x is read twice, the second time from the cache; 4 bytes written for each value, 1.13 more if it is rounded, 4
 * more read with a gate. Bound: latency: 448 additions in a chain at K3's width, 8 for a head of KDA. */
#include "kernels.h"
#include "norm.h"

#define THREADS 256u

K3_KERNEL rms_norm(K3_GLOBAL(const float) x, K3_CONSTANT(float) w, float eps, size_t width, size_t stride,
                   K3_CONSTANT(float) gate, K3_GLOBAL(float) y, K3_GLOBAL(int8_t) q, K3_GLOBAL(float) d)
{
    K3_SHARED(float, squares, K3_NORM_TILE);
    K3_SHARED(float, scale, 1);
    size_t row = blockIdx.x;
    if (gate) gate = gate + row * width;
    if (q) {
        q = q + row * width;
        d = d + row * width / 32;
    }
    k3_norm_row(x + row * stride, w, eps, width, gate, y + row * stride, q, d, false, squares, scale);
}

extern "C" void k3_gpu_rms_norm(const float *x, const float *w, float eps, size_t n, size_t width,
                                size_t stride, const float *gate, float *y, const struct k3_gpu_acts *acts,
                                k3_stream stream)
{
    K3_LAUNCH(rms_norm, (unsigned)n, THREADS, stream, x, w, eps, width, stride, gate, y,
              acts ? acts->q : NULL, acts ? acts->d : NULL);
}
