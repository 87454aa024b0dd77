/* kda_prepare.cu - what KDA does before its recurrence: convolution, normalisation, decay.
 *
 * FORMULA (architecture.md section 5).
 *   conv        u[t][c] = silu(sum_j taps[c][j] z[t + j][c]), j in order
 *   normalise   x = x * (scale / sqrt(dot(x, x) + 1e-6)), dot in the order of dots.h
 *   decay       alpha = exp(g), g = floor * sigmoid(-a[h] (r + dt)), or a[h] * softplus(r + dt) without a bounded gate
 * MAPPING. conv and decay: one thread for each token and channel, tokens in the second dimension of the grid.
 * normalise: a half warp for each row.
 * COST for each token and channel: conv 4 + 4 n_taps bytes from the cache, 8 from memory; normalise 4 read, 4 written;
 * decay the same, and some 60 operations. Bound: memory, or latency for one token. */
#include "dots.h"
#include "kernels.h"

#define THREADS 128u
#define ROWS    (THREADS / K3_SUMS)

static unsigned parts(size_t n, unsigned part)
{
    return (unsigned)((n + part - 1) / part);
}

K3_KERNEL conv(K3_CONSTANT(float) z, K3_CONSTANT(float) taps, unsigned n_taps, size_t width,
               K3_GLOBAL(float) u)
{
    size_t c = (size_t)blockIdx.x * THREADS + threadIdx.x, t = blockIdx.y;
    if (c >= width) return;
    float sum = 0;
    for (unsigned j = 0; j < n_taps; j++) sum += taps[c * n_taps + j] * z[(t + j) * width + c];
    u[t * width + c] = k3_silu(sum);
}

K3_KERNEL normalise(K3_GLOBAL(float) x, size_t n_rows, size_t dim, float scale)
{
    size_t row = (size_t)blockIdx.x * ROWS + threadIdx.x / K3_SUMS;
    size_t n = row < n_rows ? dim : 0; /* lanes without a row come to the shuffles too */
    x = x + row % n_rows * dim;
    float factor = scale / sqrtf(k3_half_warp_dot(x, x, n) + 1e-6f);
    k3_sync_warp(K3_ALL_LANES); /* elements after the sums are read by all lanes */
    for (size_t i = threadIdx.x % K3_SUMS; i < n; i += K3_SUMS) x[i] *= factor;
}

K3_KERNEL decay(K3_GLOBAL(float) r, K3_CONSTANT(float) a, K3_CONSTANT(float) dt, int bounded, float floor,
                size_t width, size_t dim)
{
    size_t c = (size_t)blockIdx.x * THREADS + threadIdx.x, at = blockIdx.y * width + c;
    if (c >= width) return;
    float rate = a[c / dim], x = r[at] + dt[c];
    float g = bounded ? floor * k3_sigmoid(-rate * x) : rate * k3_softplus(x);
    r[at] = k3_expf(g);
}

extern "C" void k3_gpu_kda_conv(const float *z, const float *taps, size_t n_taps, size_t n, size_t width,
                                float *u, k3_stream stream)
{
    K3_LAUNCH(conv, dim3(parts(width, THREADS), (unsigned)n), THREADS, stream, z, taps, (unsigned)n_taps,
              width, u);
}

extern "C" void k3_gpu_kda_normalise(float *x, size_t n_rows, size_t dim, float scale, k3_stream stream)
{
    K3_LAUNCH(normalise, parts(n_rows, ROWS), THREADS, stream, x, n_rows, dim, scale);
}

extern "C" void k3_gpu_kda_decay(float *r, const float *a, const float *dt, int bounded, float floor,
                                 size_t n, size_t n_heads, size_t dim, k3_stream stream)
{
    size_t width = n_heads * dim;
    K3_LAUNCH(decay, dim3(parts(width, THREADS), (unsigned)n), THREADS, stream, r, a, dt, bounded, floor,
              width, dim);
}
