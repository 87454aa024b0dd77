/* multiply_f32.cu - f32 weights times f32 activations: the router, absorbed queries, and models whose matrices are f32.
 *
 * FORMULA. y[t][h][r] = dot(w[h][r], x[t][h]), in the order of dots.h.
 * MAPPING. Tokens and heads are dimensions of the grid. With many rows a half warp takes each; loads in flight are many
 * because rows are. With few a block of threads takes each: all bring a TILE of products into shared memory, where 16
 * lanes add them. So the 400 rows of K3's router are 51,200 threads with 16 loads each, where half warps would be 6,400.
 * COST. 4 bytes for each weight and token (rows of tokens after the first come from the cache if they fit it); a
 * multiplication and an addition. Bound: memory. */
#include "dots.h"
#include "kernels.h"

#define THREADS  128u
#define ROWS     (THREADS / K3_SUMS)
#define TILE     2048u
#define FEW_ROWS 4096u

K3_KERNEL multiply_rows(K3_CONSTANT(float) w, size_t rows, size_t cols, K3_CONSTANT(float) x, size_t stride,
                        K3_GLOBAL(float) y)
{
    size_t row = (size_t)blockIdx.x * ROWS + threadIdx.x / K3_SUMS, head = blockIdx.z;
    size_t at = (size_t)blockIdx.y * gridDim.z + head; /* the row of x */
    /* Lanes without a row come to the shuffles too, with one that others have. */
    float dot = k3_half_warp_dot(w + (head * rows + row % rows) * cols, x + at * stride, cols);
    if (row < rows && threadIdx.x % K3_SUMS == 0) y[at * rows + row] = dot;
}

K3_KERNEL multiply_row(K3_CONSTANT(float) w, size_t rows, size_t cols, K3_CONSTANT(float) x, size_t stride,
                       K3_GLOBAL(float) y)
{
    K3_SHARED(float, products, TILE);
    size_t row = blockIdx.x, head = blockIdx.z, at = (size_t)blockIdx.y * gridDim.z + head;
    size_t whole = cols - cols % K3_SUMS;
    float s = 0;
    w = w + (head * rows + row) * cols;
    x = x + at * stride;
    for (size_t tile = 0; tile < whole; tile += TILE) {
        unsigned count = (unsigned)(whole - tile < TILE ? whole - tile : TILE);
        K3_UNROLL_BY(16)
        for (unsigned i = threadIdx.x; i < count; i += THREADS) products[i] = w[tile + i] * x[tile + i];
        k3_sync();
        if (threadIdx.x < K3_SUMS) {
            K3_UNROLL_BY(8)
            for (unsigned i = threadIdx.x; i < count; i += K3_SUMS) s += products[i];
        }
        k3_sync();
    }
    if (threadIdx.x >= K3_LANES) return;
    s = k3_add_sums(s);
    for (size_t i = whole; i < cols; i++) s += w[i] * x[i];
    if (threadIdx.x == 0) y[at * rows + row] = s;
}

extern "C" void k3_gpu_multiply_heads_f32(const float *w, size_t n_heads, size_t rows, size_t cols,
                                          const float *x, size_t stride, size_t n, float *y, k3_stream stream)
{
    if (rows * n_heads * n <= FEW_ROWS)
        K3_LAUNCH(multiply_row, dim3((unsigned)rows, (unsigned)n, (unsigned)n_heads), THREADS, stream, w,
                  rows, cols, x, stride, y);
    else
        K3_LAUNCH(multiply_rows, dim3((unsigned)((rows + ROWS - 1) / ROWS), (unsigned)n, (unsigned)n_heads),
                  THREADS, stream, w, rows, cols, x, stride, y);
}

extern "C" void k3_gpu_multiply_f32(const float *w, size_t rows, size_t cols, const float *x, size_t n,
                                    float *y, k3_stream stream)
{
    k3_gpu_multiply_heads_f32(w, 1, rows, cols, x, cols, n, y, stream);
}
