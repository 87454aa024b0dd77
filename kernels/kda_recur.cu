/* kda_recur.cu - the delta-rule recurrence of KDA, in chunks; decode is a chunk of one token.
 *
 * FORMULA. src/ops/vectors_kda.c, whose head comment defines D, c, A, P and U: nothing in it can overflow, whatever the
 * gate. The order of additions is the CPU's too: sums over keys go from the first key to the last, the dots of A and P
 * are those of dots.h.
 * LAYOUT. state: [head][key][value], so that value channels, which are independent of each other, lie side by side.
 * MAPPING. A block of threads for each head. What a chunk needs besides the state (`prepare`) is made in shared memory:
 * a key channel is one thread's, a dot a half warp's. Then a value channel is one thread's. For each key it reads the
 * state once for the 2 CHUNK vectors that are multiplied with it, and after the tokens' U once more to renew it.
 * COST. The state is read twice, the second time from the cache, and written once a chunk: 12.6 MB for a layer of K3. A
 * token is 3 dim^2 multiply-adds a head, its share of the chunk 3 CHUNK dim more. Bound, on paper: decode memory,
 * prefill arithmetic, as 96 heads are not enough blocks for all of a large device. */
#include "dots.h"
#include "kernels.h"

#define CHUNK   16u /* K3_KDA_CHUNK: another number gives other roundings */
#define MAX_DIM K3_GPU_MAX_KDA_DIM
#define THREADS MAX_DIM
#define HALVES  (THREADS / K3_SUMS)

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

/* The chunk of one value channel: v and o at its first token, `state` at its first key. For MOST tokens or fewer. */
template <unsigned MOST>
K3_DEVICE void advance(inputs in, chunk w, unsigned m, unsigned dim, K3_CONSTANT(float) v, K3_GLOBAL(float) o,
                       K3_GLOBAL(float) state)
{
    float from_k[MOST] = {}, from_q[MOST] = {}, u[MOST] = {};
    K3_UNROLL_BY(4)
    for (unsigned i = 0; i < dim; i++) {
        float s = state[i * dim];
        K3_UNROLL
        for (unsigned t = 0; t < MOST; t++) {
            if (t >= m) continue;
            from_k[t] += w.kc[t * dim + i] * s;
            from_q[t] += w.qc[t * dim + i] * s;
        }
    }
    K3_UNROLL
    for (unsigned t = 0; t < MOST; t++) {
        if (t >= m) continue;
        u[t] = in.beta[t * in.n_heads] * (v[t * in.stride] - from_k[t]);
        float out = from_q[t];
        K3_UNROLL
        for (unsigned s = 0; s < t; s++) {
            u[t] -= w.a[t * CHUNK + s] * u[s];
            out += w.p[t * CHUNK + s] * u[s];
        }
        o[t * in.stride] = out + w.p[t * CHUNK + t] * u[t];
    }
    K3_UNROLL_BY(4)
    for (unsigned i = 0; i < dim; i++) {
        float s = state[i * dim] * w.decay[i];
        K3_UNROLL
        for (unsigned t = 0; t < MOST; t++)
            if (t < m) s += u[t] * w.decayed_k[t * dim + i];
        state[i * dim] = s;
    }
}

/* MOST is 1 for calls of one token, else CHUNK. */
template <unsigned MOST>
K3_KERNEL recur(K3_CONSTANT(float) q, K3_CONSTANT(float) k, K3_CONSTANT(float) v, K3_CONSTANT(float) alpha,
                K3_CONSTANT(float) beta, size_t n, unsigned n_heads, unsigned dim, K3_GLOBAL(float) state,
                K3_GLOBAL(float) o)
{
    const unsigned row_floats = MOST * MAX_DIM, pair_floats = MOST * CHUNK;
    K3_SHARED(float, decayed_k, row_floats);
    K3_SHARED(float, kc, row_floats);
    K3_SHARED(float, qc, row_floats);
    K3_SHARED(float, decay, MAX_DIM);
    K3_SHARED(float, a, pair_floats);
    K3_SHARED(float, p, pair_floats);
    chunk w = {decayed_k, kc, qc, decay, a, p};
    unsigned head = blockIdx.x, channel = threadIdx.x;
    size_t stride = (size_t)n_heads * dim;
    for (size_t t = 0; t < n; t += MOST) {
        unsigned m = (unsigned)(n - t < MOST ? n - t : MOST);
        size_t at = t * stride + head * dim;
        inputs in = {q + at, k + at, alpha + at, beta + (t * n_heads + head), stride, n_heads};
        prepare(in, w, m, dim);
        if (channel < dim)
            advance<MOST>(in, w, m, dim, v + (at + channel), o + (at + channel),
                          state + ((size_t)head * dim * dim + channel));
        k3_sync();
    }
}

extern "C" void k3_gpu_kda_recur(const float *q, const float *k, const float *v, const float *alpha,
                                 const float *beta, size_t n, size_t n_heads, size_t dim, float *state,
                                 float *o, k3_stream stream)
{
    if (n == 1)
        K3_LAUNCH(recur<1>, (unsigned)n_heads, THREADS, stream, q, k, v, alpha, beta, n, (unsigned)n_heads,
                  (unsigned)dim, state, o);
    else
        K3_LAUNCH(recur<CHUNK>, (unsigned)n_heads, THREADS, stream, q, k, v, alpha, beta, n,
                  (unsigned)n_heads, (unsigned)dim, state, o);
}
