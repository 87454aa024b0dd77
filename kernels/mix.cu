/* mix.cu - AttnRes: the mix of bank and stream that every sublayer sees, and the norm that follows it.
 *
 * FORMULA. score_j = dot(score, c_j) / root_j, root_j = sqrt(dot(c_j, c_j) / width + eps); prob = softmax(score_j);
 * y = sum_j prob_j c_j, j in order, the stream last (architecture.md section 4). Dots in the order of dots.h. Then
 * norm.h.
 * LAYOUT. kernels.h: one array of bank and stream. A banked row never changes, so neither does its root: it is the one
 * that was computed when the row was the stream.
 * MAPPING. Tokens are the first dimension of the grid. The first block of a token mixes. There are n_sources dots with
 * `score` and one of the stream with itself. DOTS of them are done together: all threads multiply a tile of elements of
 * each into shared memory, then half warp j adds the products of dot j to its 16 sums (see norm.h). Then one thread for
 * each source does its part of the softmax, but all add the sum, in order; and all take elements 512 apart of y.
 *     All these dots but two can be had before: rows in the bank do not change, and the next score is known. So a mix
 * has more blocks, one for each row, that take the dots of the next one beside it. Then that mix waits for two tiles of
 * its own stream, and not for seven of ten rows.
 * COST. 4 (n_bank + 1) bytes for each element, read once more from the cache for the next mix, and 4 written, some more
 * by the norm: 258 KB with 8 banked rows at K3's width. Bound: latency; one block of threads mixes for a token. */
#include "kernels.h"
#include "norm.h"

#define THREADS     512u
#define DOTS        10u
#define PRODUCTS    (DOTS * (1024u + K3_SUMS))
#define MAX_SOURCES 65u /* K3_MAX_BANK and the stream */

/* Elements of a row that are multiplied together when there are `count` dots, in steps of THREADS. */
K3_DEVICE unsigned tile_of(unsigned count)
{
    return (PRODUCTS / count - K3_SUMS) / THREADS * THREADS;
}

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
    unsigned mine = threadIdx.x / K3_SUMS, lane = threadIdx.x % K3_SUMS, most = tile_of(count);
    unsigned stride = most + K3_SUMS; /* the two dots of a warp lie in different banks */
    float s = 0;
    for (size_t tile = 0; tile < whole; tile += most) {
        unsigned n = (unsigned)(whole - tile < most ? whole - tile : most);
        for (unsigned j = 0; j < count; j++) {
            factors f = factors_of(streams, score, first + j, n_sources, stream_stride);
            for (unsigned i = threadIdx.x; i < n; i += THREADS)
                products[j * stride + i] = f.a[tile + i] * f.b[tile + i];
        }
        k3_sync();
        if (mine < count) {
            K3_UNROLL_BY(8)
            for (unsigned i = lane; i < n; i += K3_SUMS) s += products[mine * stride + i];
        }
        k3_sync();
    }
    s = k3_add_sums(s);
    if (mine >= count || lane != 0) return;
    factors f = factors_of(streams, score, first + mine, n_sources, stream_stride);
    for (size_t i = whole; i < width; i++) s += f.a[i] * f.b[i];
    dots[first + mine] = s;
}

/* Probabilities of the sources of token t, in shared memory. `dots` has those of all, and of the stream with itself. */
K3_DEVICE void softmax(K3_SHARED_OF(float) dots, K3_GLOBAL(float) roots, size_t t, unsigned n_bank,
                       size_t batch, float eps, size_t width, K3_SHARED_OF(float) scores,
                       K3_SHARED_OF(float) powers, K3_SHARED_OF(float) prob)
{
    unsigned n_sources = n_bank + 1, i = threadIdx.x;
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
}

K3_KERNEL mix(K3_CONSTANT(float) streams, K3_GLOBAL(float) roots, unsigned n_bank, size_t batch,
              K3_CONSTANT(float) score, float eps, K3_CONSTANT(uint32_t) rows, size_t width,
              K3_CONSTANT(float) known, K3_CONSTANT(float) next, K3_GLOBAL(float) next_dots,
              K3_CONSTANT(float) norm, K3_GLOBAL(float) y, K3_GLOBAL(float) probs, K3_GLOBAL(int8_t) q,
              K3_GLOBAL(float) d)
{
    K3_SHARED(float, products, PRODUCTS);
    K3_SHARED(float, dots, MAX_SOURCES + 1);
    K3_SHARED(float, scores, MAX_SOURCES);
    K3_SHARED(float, powers, MAX_SOURCES);
    K3_SHARED(float, prob, MAX_SOURCES);
    unsigned n_sources = n_bank + 1, i = threadIdx.x;
    size_t out = blockIdx.x, t = rows ? rows[out] : out, stream_stride = batch * width;
    streams = streams + t * width;

    if (blockIdx.y > 0) { /* for the next mix */
        unsigned j = blockIdx.y - 1;
        some_dots(streams + j * stream_stride, next, 0, 1, 1, stream_stride, width, products, dots);
        if (i == 0) next_dots[j * batch + t] = dots[0];
        return;
    }
    if (known && i < n_bank) dots[i] = known[i * batch + t];
    for (unsigned first = known ? n_bank : 0; first < n_sources + 1; first += DOTS)
        some_dots(streams, score, first, n_sources + 1 - first < DOTS ? n_sources + 1 - first : DOTS,
                  n_sources, stream_stride, width, products, dots);
    k3_sync();
    softmax(dots, roots, t, n_bank, batch, eps, width, scores, powers, prob);
    if (probs && i < n_sources) probs[out * n_sources + i] = prob[i];
    bool squared = width <= PRODUCTS;
    for (size_t at = i; at < width; at += THREADS) {
        float value = 0;
        for (unsigned j = 0; j < n_sources; j++) value += prob[j] * streams[j * stream_stride + at];
        if (n_bank == 0) value = streams[at];
        if (squared) products[at] = value * value;
        y[out * width + at] = value;
    }
    if (!norm) return;
    if (q) {
        q = q + out * width;
        d = d + out * width / 32;
    }
    K3_CONSTANT(float) no_gate = {};
    k3_norm_row(y + out * width, norm, eps, width, no_gate, y + out * width, q, d, squared, products, scores);
}

extern "C" void k3_gpu_mix(const struct k3_gpu_mixing *m, k3_stream stream)
{
    dim3 blocks((unsigned)m->n, m->next ? (unsigned)m->n_bank + 2 : 1);
    K3_LAUNCH(mix, blocks, THREADS, stream, m->streams, m->roots, (unsigned)m->n_bank, m->batch, m->score,
              m->eps, m->rows, m->width, m->known, m->next, m->next_dots, m->norm, m->y, m->probs,
              m->acts ? m->acts->q : NULL, m->acts ? m->acts->d : NULL);
}
