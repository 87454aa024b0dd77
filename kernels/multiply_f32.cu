/* multiply_f32.cu - f32 weights times f32 activations: the router, and models whose matrices are f32.
 *
 * FORMULA. y[t][r] = dot(w[r], x[t]), in the order of dots.h.
 * MAPPING. A half warp for each row and token; the tokens are the second dimension of the grid.
 * COST. 4 bytes for each weight and token (rows of tokens after the first come from the cache if they fit it). Bound:
 * memory, but with 16 lanes to a row the loads in flight are few: 400 rows are 6400 threads. */
#include "dots.h"
#include "kernels.h"

#define THREADS 128u
#define ROWS    (THREADS / K3_SUMS)

K3_KERNEL multiply(K3_CONSTANT(float) w, size_t rows, size_t cols, K3_CONSTANT(float) x, K3_GLOBAL(float) y)
{
    size_t row = (size_t)blockIdx.x * ROWS + threadIdx.x / K3_SUMS, t = blockIdx.y;
    /* Lanes without a row come to the shuffles too, with one that others have. */
    float dot = k3_half_warp_dot(w + row % rows * cols, x + t * cols, cols);
    if (row < rows && threadIdx.x % K3_SUMS == 0) y[t * rows + row] = dot;
}

extern "C" void k3_gpu_multiply_f32(const float *w, size_t rows, size_t cols, const float *x, size_t n,
                                    float *y, k3_stream stream)
{
    K3_LAUNCH(multiply, dim3((unsigned)((rows + ROWS - 1) / ROWS), (unsigned)n), THREADS, stream, w, rows,
              cols, x, y);
}
