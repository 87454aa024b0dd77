/* kda_recur.cu - the delta-rule recurrence of KDA, in chunks; decode is a chunk of one token.
 *
 * FORMULA. src/ops/vectors_kda.c, whose head comment defines D, c, A, P and U: nothing in it can overflow, whatever the
 * gate. The order of additions is the CPU's too: sums over keys go from the first key to the last, the dots of A and P
 * are those of dots.h.
 * LAYOUT. state: [head][key][value], so that value channels, which are independent of each other, lie side by side.
 * MAPPING. A block of threads for each head and CHANNELS of its value channels, 384 blocks for K3. The state of these is
 * brought into shared memory, by all threads at once, and stays there until the last token. What a chunk needs besides
 * (`prepare`) is made there by each block for itself: a key channel is one thread's, a dot a half warp's. A warp then
 * takes the products of a GROUPth of the chunk's tokens with the state, a channel each lane, from the first key to the
 * last; one warp solves for U; all make the outputs of their tokens and renew the state.
 * COST. The state is read and written once: 12.6 MB for a layer of K3. A token is 3 dim^2 multiply-adds a head and 3 CHUNK
 * dim more for its share of the chunk, of which `prepare` is done by each of the dim / CHANNELS blocks. Bound, on paper:
 * decode memory; prefill arithmetic: 0.45 G multiply-adds for a token of K3, two instructions each, so 4096 tokens take
 * 0.15 s at 25 T instructions/s, while the experts that they need are 282 GB to be read. A form with matrix products would
 * shorten what nothing waits for, and have other roundings. */
#include "dots.h"
#include "kernels.h"

#define CHUNK    16u /* K3_KDA_CHUNK: another number gives other roundings */
#define MAX_DIM  K3_GPU_MAX_KDA_DIM
#define THREADS  MAX_DIM
#define HALVES   (THREADS / K3_SUMS)
#define CHANNELS K3_LANES
#define GROUPS   (THREADS / CHANNELS)
#define STATE    (MAX_DIM * CHANNELS)

/* One head of the inputs at the chunk's first token; rows of a token are `stride` apart, betas `n_heads`. */
struct inputs {
    K3_CONSTANT(float) q;
    K3_CONSTANT(float) k;
    K3_CONSTANT(float) alpha;
    K3_CONSTANT(float) beta;
    size_t stride, n_heads;
};

/* In shared memory, rows of `dim`. */
struct chunk {
    K3_SHARED_OF(float) decayed_k; /* [CHUNK][dim] */
    K3_SHARED_OF(float) kc;
    K3_SHARED_OF(float) qc;
    K3_SHARED_OF(float) decay; /* [dim] */
    K3_SHARED_OF(float) a;     /* [CHUNK][CHUNK] */
    K3_SHARED_OF(float) p;
    K3_SHARED_OF(float) state; /* [dim][CHANNELS] */
    K3_SHARED_OF(float) u;     /* [CHUNK][CHANNELS] */
};

/* Everything that does not need the state, for m tokens. */
K3_DEVICE void prepare(inputs in, chunk w, unsigned m, unsigned dim)
{
    unsigned half = threadIdx.x / K3_SUMS, lane = threadIdx.x % K3_SUMS, i = threadIdx.x;
    for (unsigned t = 0; t < m; t++) {
        if (i < dim) {
            float alpha = in.alpha[t * in.stride + i], k = in.k[t * in.stride + i];
            for (unsigned s = 0; s < t; s++) w.decayed_k[s * dim + i] *= alpha;
            w.decayed_k[t * dim + i] = k;
            float decay = t ? w.decay[i] * alpha : alpha;
            w.decay[i] = decay;
            w.kc[t * dim + i] = k * decay;
            w.qc[t * dim + i] = in.q[t * in.stride + i] * decay;
        }
        k3_sync();
        for (unsigned first = 0; first <= t; first += HALVES) {
            /* Half warps after the last earlier token have none, but come to the shuffles. */
            unsigned s = first + half <= t ? first + half : t;
            float a = k3_half_warp_dot(in.k + t * in.stride, w.decayed_k + s * dim, dim);
            float p = k3_half_warp_dot(in.q + t * in.stride, w.decayed_k + s * dim, dim);
            if (first + half <= t && lane == 0) {
                w.a[t * CHUNK + s] = a * in.beta[t * in.n_heads];
                w.p[t * CHUNK + s] = p;
            }
        }
        k3_sync();
    }
}

/* U of one channel, from beta * (v - what the state has for the keys), which stands in its place. */
K3_DEVICE void solve(chunk w, unsigned m, unsigned channel)
{
    for (unsigned t = 1; t < m; t++) {
        float u = w.u[t * CHANNELS + channel];
        for (unsigned s = 0; s < t; s++) u -= w.a[t * CHUNK + s] * w.u[s * CHANNELS + channel];
        w.u[t * CHANNELS + channel] = u;
    }
}

/* The state of this thread's channel after the chunk: every GROUPth key. */
K3_DEVICE void renew(chunk w, unsigned m, unsigned dim, unsigned group, unsigned channel)
{
    for (unsigned i = group; i < dim; i += GROUPS) {
        float s = w.state[i * CHANNELS + channel] * w.decay[i];
        for (unsigned t = 0; t < m; t++) s += w.u[t * CHANNELS + channel] * w.decayed_k[t * dim + i];
        w.state[i * CHANNELS + channel] = s;
    }
}

/* A chunk of m tokens, of which this thread has TOKENS. v and o are those of its channel at the chunk's first token, if
 * it has one. */
template <unsigned TOKENS>
K3_DEVICE void advance(inputs in, chunk w, unsigned m, unsigned dim, bool have, K3_CONSTANT(float) v,
                       K3_GLOBAL(float) o)
{
    unsigned group = threadIdx.x / CHANNELS, channel = threadIdx.x % CHANNELS, first = group * TOKENS;
    float from_k[TOKENS] = {}, from_q[TOKENS] = {};
    K3_UNROLL_BY(4)
    for (unsigned i = 0; have && i < dim; i++) {
        float s = w.state[i * CHANNELS + channel];
        K3_UNROLL
        for (unsigned j = 0; j < TOKENS; j++) {
            if (first + j >= m) continue;
            from_k[j] += w.kc[(first + j) * dim + i] * s;
            from_q[j] += w.qc[(first + j) * dim + i] * s;
        }
    }
    K3_UNROLL
    for (unsigned j = 0; j < TOKENS; j++) {
        unsigned t = first + j;
        if (have && t < m)
            w.u[t * CHANNELS + channel] = in.beta[t * in.n_heads] * (v[t * in.stride] - from_k[j]);
    }
    k3_sync();
    if (have && group == 0) solve(w, m, channel);
    k3_sync();
    K3_UNROLL
    for (unsigned j = 0; j < TOKENS; j++) {
        unsigned t = first + j;
        if (!have || t >= m) continue;
        float out = from_q[j];
        for (unsigned s = 0; s <= t; s++) out += w.p[t * CHUNK + s] * w.u[s * CHANNELS + channel];
        o[t * in.stride] = out;
    }
    if (have) renew(w, m, dim, group, channel);
}

/* MOST is 1 for calls of one token, else CHUNK. */
template <unsigned MOST>
K3_KERNEL recur(K3_CONSTANT(float) q, K3_CONSTANT(float) k, K3_CONSTANT(float) v, K3_CONSTANT(float) alpha,
                K3_CONSTANT(float) beta, size_t n, unsigned dim, K3_GLOBAL(float) state, K3_GLOBAL(float) o)
{
    const unsigned row_floats = MOST * MAX_DIM, pair_floats = MOST * CHUNK, u_floats = MOST * CHANNELS;
    const unsigned tokens = (MOST + GROUPS - 1) / GROUPS;
    K3_SHARED(float, decayed_k, row_floats);
    K3_SHARED(float, kc, row_floats);
    K3_SHARED(float, qc, row_floats);
    K3_SHARED(float, decay, MAX_DIM);
    K3_SHARED(float, a, pair_floats);
    K3_SHARED(float, p, pair_floats);
    K3_SHARED(float, kept, STATE);
    K3_SHARED(float, u, u_floats);
    chunk w = {decayed_k, kc, qc, decay, a, p, kept, u};
    unsigned head = blockIdx.y, n_heads = gridDim.y, group = threadIdx.x / CHANNELS;
    unsigned lane = threadIdx.x % CHANNELS, channel = blockIdx.x * CHANNELS + lane;
    bool have = channel < dim;
    size_t stride = (size_t)n_heads * dim;
    state = state + ((size_t)head * dim * dim + channel);
    K3_UNROLL_BY(16)
    for (unsigned i = group; i < dim; i += GROUPS)
        if (have) kept[i * CHANNELS + lane] = state[i * dim];
    for (size_t t = 0; t < n; t += MOST) {
        unsigned m = (unsigned)(n - t < MOST ? n - t : MOST);
        size_t at = t * stride + head * dim;
        inputs in = {q + at, k + at, alpha + at, beta + (t * n_heads + head), stride, n_heads};
        prepare(in, w, m, dim); /* its barriers show the state to all */
        advance<tokens>(in, w, m, dim, have, v + (at + channel), o + (at + channel));
        k3_sync();
    }
    for (unsigned i = group; i < dim; i += GROUPS)
        if (have) state[i * dim] = kept[i * CHANNELS + lane];
}

extern "C" void k3_gpu_kda_recur(const float *q, const float *k, const float *v, const float *alpha,
                                 const float *beta, size_t n, size_t n_heads, size_t dim, float *state,
                                 float *o, k3_stream stream)
{
    dim3 blocks((unsigned)((dim + CHANNELS - 1) / CHANNELS), (unsigned)n_heads);
    if (n == 1)
        K3_LAUNCH(recur<1>, blocks, THREADS, stream, q, k, v, alpha, beta, n, (unsigned)dim, state, o);
    else
        K3_LAUNCH(recur<CHUNK>, blocks, THREADS, stream, q, k, v, alpha, beta, n, (unsigned)dim, state, o);
}
