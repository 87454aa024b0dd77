/* kda_recur.cu - the delta-rule recurrence of KDA, in chunks; decode is a chunk of one token.
 *
 * FORMULA. src/ops/kda_recur.c, whose head comment defines D, c, A, P, U: nothing in it can overflow, whatever the
 * gate. The order of additions is the CPU's too, and dots are those of dots.h.
 * LAYOUT. state [head][value][key], so that a row is one value channel.
 * MAPPING. A block of threads for each head and SLICE of its value channels; the channels are independent of each
 * other. A half warp keeps CHANNELS rows of the state in registers from the first chunk to the last, keys l, l + 16
 * .. in lane l. What a chunk needs besides the state (`prepare`) is made in shared memory by each of the dim / SLICE
 * blocks again: a fifth of the work, and none of it in decode.
 * COST. The state is read and written once a call, 2 * 4 * dim^2 bytes a head: 12.6 MB for a layer of K3. A token is
 * 6 dim^2 multiply-adds a head, its share of the chunk 3 C dim more. Bound: decode memory; prefill the shuffles that
 * add 16 lanes, 4 for each 2 dim multiply-adds of a half warp. */
#include "dots.h"
#include "kernels.h"

#define CHUNK    16u /* K3_KDA_CHUNK: another number gives other roundings */
#define THREADS  256u
#define HALVES   (THREADS / K3_SUMS)
#define CHANNELS 2u
#define SLICE    (HALVES * CHANNELS)
#define MAX_DIM  K3_GPU_MAX_KDA_DIM
#define KEYS     (MAX_DIM / K3_SUMS)
#define ROWS     (CHUNK * MAX_DIM) /* elements of arrays in shared memory */
#define PAIRS    (CHUNK * CHUNK)
#define OUTPUTS  (SLICE * CHUNK)

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

/* Everything that does not need the state, for m tokens. A key channel is one thread's; then a half warp takes the
 * dots of token t with every earlier one. */
K3_DEVICE void prepare(inputs in, chunk w, unsigned m, unsigned dim)
{
    unsigned half = threadIdx.x / K3_SUMS, lane = threadIdx.x % K3_SUMS;
    for (unsigned t = 0; t < m; t++) {
        for (unsigned i = threadIdx.x; i < dim; i += THREADS) {
            float alpha = in.alpha[t * in.stride + i], k = in.k[t * in.stride + i];
            for (unsigned s = 0; s < t; s++) w.decayed_k[s * dim + i] *= alpha;
            w.decayed_k[t * dim + i] = k;
            float decay = t ? w.decay[i] * alpha : alpha;
            w.decay[i] = decay;
            w.kc[t * dim + i] = k * decay;
            w.qc[t * dim + i] = in.q[t * in.stride + i] * decay;
        }
        k3_sync();
        /* Half warp s has token s; those after t have none, but come to the shuffles. */
        unsigned n = half <= t ? dim : 0, s = half <= t ? half : 0;
        float a = k3_half_warp_dot(in.k + t * in.stride, w.decayed_k + s * dim, n);
        float p = k3_half_warp_dot(in.q + t * in.stride, w.decayed_k + s * dim, n);
        if (half <= t && lane == 0) {
            w.a[t * CHUNK + s] = in.beta[t * in.n_heads] * a;
            w.p[t * CHUNK + s] = p;
        }
        k3_sync();
    }
}

typedef k3_lanes_row<KEYS> row; /* of the state */

/* The chunk's outputs of one value channel, and its row as the chunk leaves it. v, o: the channel at the first token;
 * u: [CHUNK], of this half warp alone. */
K3_DEVICE void advance(inputs in, chunk w, unsigned m, unsigned dim, K3_CONSTANT(float) v, K3_GLOBAL(float) o,
                       bool exists, K3_SHARED_OF(float) u, row &r)
{
    unsigned lane = threadIdx.x % K3_SUMS;
    for (unsigned t = 0; t < m; t++) {
        float from_k = k3_dot_with_row(w.kc + t * dim, r, dim),
              from_q = k3_dot_with_row(w.qc + t * dim, r, dim);
        float ut = exists ? in.beta[t * in.n_heads] * (v[t * in.stride] - from_k) : 0;
        for (unsigned s = 0; s < t; s++) ut -= w.a[t * CHUNK + s] * u[s];
        if (lane == 0) u[t] = ut;
        k3_sync_warp(K3_ALL_LANES);
        float out = from_q;
        for (unsigned s = 0; s <= t; s++) out += w.p[t * CHUNK + s] * u[s];
        if (exists && lane == 0) o[t * in.stride] = out;
    }
    K3_UNROLL
    for (unsigned j = 0; j < KEYS; j++) {
        unsigned i = j * K3_SUMS + lane;
        if (i >= dim) continue;
        r.at[j] *= w.decay[i];
        for (unsigned t = 0; t < m; t++) r.at[j] += u[t] * w.decayed_k[t * dim + i];
    }
}

K3_KERNEL recur(K3_CONSTANT(float) q, K3_CONSTANT(float) k, K3_CONSTANT(float) v, K3_CONSTANT(float) alpha,
                K3_CONSTANT(float) beta, size_t n, unsigned n_heads, unsigned dim, K3_GLOBAL(float) state,
                K3_GLOBAL(float) o)
{
    K3_SHARED(float, decayed_k, ROWS);
    K3_SHARED(float, kc, ROWS);
    K3_SHARED(float, qc, ROWS);
    K3_SHARED(float, decay, MAX_DIM);
    K3_SHARED(float, a, PAIRS);
    K3_SHARED(float, p, PAIRS);
    K3_SHARED(float, u, OUTPUTS);
    chunk w = {decayed_k, kc, qc, decay, a, p};
    unsigned head = blockIdx.x, lane = threadIdx.x % K3_SUMS;
    unsigned first = threadIdx.x / K3_SUMS * CHANNELS; /* of this half warp's channels in the slice */
    size_t stride = (size_t)n_heads * dim;
    row rows[CHANNELS];

    K3_UNROLL
    for (unsigned c = 0; c < CHANNELS; c++) {
        unsigned channel = blockIdx.y * SLICE + first + c;
        K3_GLOBAL(const float) from = state + ((size_t)head * dim + channel) * dim;
        K3_UNROLL
        for (unsigned j = 0; j < KEYS; j++)
            rows[c].at[j] = channel < dim && j * K3_SUMS + lane < dim ? (float)from[j * K3_SUMS + lane] : 0;
    }
    for (size_t t = 0; t < n; t += CHUNK) {
        unsigned m = (unsigned)(n - t < CHUNK ? n - t : CHUNK);
        size_t at = t * stride + head * dim;
        inputs in = {q + at, k + at, alpha + at, beta + (t * n_heads + head), stride, n_heads};
        prepare(in, w, m, dim);
        K3_UNROLL
        for (unsigned c = 0; c < CHANNELS; c++) {
            unsigned channel = blockIdx.y * SLICE + first + c;
            advance(in, w, m, dim, v + (at + channel), o + (at + channel), channel < dim,
                    u + (first + c) * CHUNK, rows[c]);
        }
        k3_sync();
    }
    K3_UNROLL
    for (unsigned c = 0; c < CHANNELS; c++) {
        unsigned channel = blockIdx.y * SLICE + first + c;
        K3_GLOBAL(float) to = state + ((size_t)head * dim + channel) * dim;
        K3_UNROLL
        for (unsigned j = 0; j < KEYS; j++)
            if (channel < dim && j * K3_SUMS + lane < dim) to[j * K3_SUMS + lane] = rows[c].at[j];
    }
}

extern "C" void k3_gpu_kda_recur(const float *q, const float *k, const float *v, const float *alpha,
                                 const float *beta, size_t n, size_t n_heads, size_t dim, float *state,
                                 float *o, k3_stream stream)
{
    dim3 blocks((unsigned)n_heads, (unsigned)((dim + SLICE - 1) / SLICE));
    K3_LAUNCH(recur, blocks, THREADS, stream, q, k, v, alpha, beta, n, (unsigned)n_heads, (unsigned)dim,
              state, o);
}
