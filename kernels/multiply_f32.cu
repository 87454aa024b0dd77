/* multiply_f32.cu - f32 weights times f32 activations: the router, and models whose matrices are f32.
 *
 * FORMULA. y[t][h][r] = dot(w[h][r], x[t][h]), in the order of dots.h.
 * MAPPING. A half warp for each row, token and head; tokens and heads are the other dimensions of the grid.
 * COST. 4 bytes for each weight and token (rows of tokens after the first come from the cache if they fit it). Bound:
 * memory, but with 16 lanes to a row the loads in flight are few: 400 rows are 6400 threads. */
#include "dots.h"
#include "kernels.h"

#define THREADS 128u
#define ROWS    (THREADS / K3_SUMS)

K3_KERNEL multiply(K3_CONSTANT(float) w, size_t rows, size_t cols, K3_CONSTANT(float) x, size_t stride,
                   K3_GLOBAL(float) y)
{
    size_t row = (size_t)blockIdx.x * ROWS + threadIdx.x / K3_SUMS, head = blockIdx.z;
    size_t at = (size_t)blockIdx.y * gridDim.z + head; /* the row of x */
    /* Lanes without a row come to the shuffles too, with one that others have. */
    float dot = k3_half_warp_dot(w + (head * rows + row % rows) * cols, x + at * stride, cols);
    if (row < rows && threadIdx.x % K3_SUMS == 0) y[at * rows + row] = dot;
}

extern "C" void k3_gpu_multiply_heads_f32(const float *w, size_t n_heads, size_t rows, size_t cols,
                                          const float *x, size_t stride, size_t n, float *y, k3_stream stream)
{
    dim3 blocks((unsigned)((rows + ROWS - 1) / ROWS), (unsigned)n, (unsigned)n_heads);
    K3_LAUNCH(multiply, blocks, THREADS, stream, w, rows, cols, x, stride, y);
}

extern "C" void k3_gpu_multiply_f32(const float *w, size_t rows, size_t cols, const float *x, size_t n,
                                    float *y, k3_stream stream)
{
    k3_gpu_multiply_heads_f32(w, 1, rows, cols, x, cols, n, y, stream);
}
