/* mix.cu - AttnRes: the mix of bank and stream that every sublayer sees.
 *
 * FORMULA. score_j = dot(score, c_j) / root_j, root_j = sqrt(dot(c_j, c_j) / width + eps); prob = softmax(score_j);
 * y = sum_j prob_j c_j, j in order, the stream last (architecture.md section 4). Dots in the order of dots.h.
 * LAYOUT. kernels.h: one array of bank and stream. A banked row never changes, so neither does its root: it is the one
 * that was computed when the row was the stream.
 * MAPPING. A block of threads for each token. There are n_sources dots with `score` and one of the stream with itself.
 * DOTS of them are done together: all threads multiply a TILE of elements of each into shared memory, then half warp j
 * adds the products of dot j to its 16 sums (see rms_norm.cu). K3 has at most 10, so one round. Then one
 * thread for each source does its part of the softmax, but all add the sum, in order; and all take elements 512 apart
 * of y.
 * COST. 4 (n_bank + 1) bytes for each element, read twice, the second time from the cache, and 4 written: 258 KB with
 * 8 banked rows at K3's width. Bound: latency; it is one block of threads for a token. */
#include "dots.h"
#include "kernels.h"

#define THREADS     512u
#define DOTS        10u
#define TILE        1024u
#define STRIDE      (TILE + K3_SUMS) /* the two dots of a warp lie in different banks */
#define PRODUCTS    (DOTS * STRIDE)
#define MAX_SOURCES 65u /* K3_MAX_BANK and the stream */

/* Dot `dot`: its two factors. The last one is the stream with itself. */
struct factors {
    K3_CONSTANT(float) a;
    K3_CONSTANT(float) b;
};

K3_DEVICE factors factors_of(K3_CONSTANT(float) streams, K3_CONSTANT(float) score, unsigned dot,
                             unsigned n_sources, size_t stream_stride)
{
    if (dot < n_sources) return {score, streams + dot * stream_stride};
    return {streams + (n_sources - 1) * stream_stride, streams + (n_sources - 1) * stream_stride};
}

/* Dots first .. first + count - 1 of rows of `width`, to dots[]. `streams` points at the token's row of the oldest. */
K3_DEVICE void some_dots(K3_CONSTANT(float) streams, K3_CONSTANT(float) score, unsigned first, unsigned count,
                         unsigned n_sources, size_t stream_stride, size_t width, K3_SHARED_OF(float) products,
                         K3_SHARED_OF(float) dots)
{
    size_t whole = width - width % K3_SUMS;
    unsigned mine = threadIdx.x / K3_SUMS, lane = threadIdx.x % K3_SUMS;
    float s = 0;
    for (size_t tile = 0; tile < whole; tile += TILE) {
        unsigned n = (unsigned)(whole - tile < TILE ? whole - tile : TILE);
        for (unsigned j = 0; j < count; j++) {
            factors f = factors_of(streams, score, first + j, n_sources, stream_stride);
            for (unsigned i = threadIdx.x; i < n; i += THREADS)
                products[j * STRIDE + i] = f.a[tile + i] * f.b[tile + i];
        }
        k3_sync();
        if (mine < count)
            for (unsigned i = lane; i < n; i += K3_SUMS) s += products[mine * STRIDE + i];
        k3_sync();
    }
    s = k3_add_sums(s);
    if (mine >= count || lane != 0) return;
    factors f = factors_of(streams, score, first + mine, n_sources, stream_stride);
    for (size_t i = whole; i < width; i++) s += f.a[i] * f.b[i];
    dots[first + mine] = s;
}

K3_KERNEL mix(K3_CONSTANT(float) streams, K3_GLOBAL(float) roots, unsigned n_bank, size_t batch,
              K3_CONSTANT(float) score, float eps, K3_CONSTANT(uint32_t) rows, size_t width,
              K3_GLOBAL(float) y, K3_GLOBAL(float) probs)
{
    K3_SHARED(float, products, PRODUCTS);
    K3_SHARED(float, dots, MAX_SOURCES + 1);
    K3_SHARED(float, scores, MAX_SOURCES);
    K3_SHARED(float, powers, MAX_SOURCES);
    K3_SHARED(float, prob, MAX_SOURCES);
    unsigned n_sources = n_bank + 1, i = threadIdx.x;
    size_t out = blockIdx.x, t = rows ? rows[out] : out, stream_stride = batch * width;
    streams = streams + t * width;

    for (unsigned first = 0; first < n_sources + 1; first += DOTS)
        some_dots(streams, score, first, n_sources + 1 - first < DOTS ? n_sources + 1 - first : DOTS,
                  n_sources, stream_stride, width, products, dots);
    k3_sync();

    if (i < n_sources) {
        float root = i < n_bank ? roots[i * batch + t] : sqrtf(dots[n_sources] / (float)width + eps);
        scores[i] = dots[i] / root;
        if (i == n_bank) roots[i * batch + t] = root;
    }
    k3_sync();

    float top = -INFINITY, sum = 0;
    for (unsigned j = 0; j < n_sources; j++) top = scores[j] > top ? scores[j] : top;
    if (i < n_sources) powers[i] = k3_expf(scores[i] - top);
    k3_sync();
    for (unsigned j = 0; j < n_sources; j++) sum += powers[j];
    if (i < n_sources) prob[i] = powers[i] / sum;
    k3_sync();
    if (probs && i < n_sources) probs[out * n_sources + i] = prob[i];
    for (size_t d = i; d < width; d += THREADS) {
        float value = 0;
        for (unsigned j = 0; j < n_sources; j++) value += prob[j] * streams[j * stream_stride + d];
        y[out * width + d] = value;
    }
}

extern "C" void k3_gpu_mix(const float *streams, float *roots, size_t n_bank, size_t batch,
                           const float *score, float eps, const uint32_t *rows, size_t n, size_t width,
                           float *y, float *probs, k3_stream stream)
{
    K3_LAUNCH(mix, (unsigned)n, THREADS, stream, streams, roots, (unsigned)n_bank, batch, score, eps, rows,
              width, y, probs);
}
