/* kda_prepare.cu - what KDA does between its projections and its recurrence, in one launch: convolution over time and its
 * history, normalisation, decay, beta.
 *
 * FORMULA (architecture.md section 5). kernels.h; dots in the order of dots.h, and
 *   unit length   u = u * (scale / sqrt(dot(u, u) + 1e-6))
 *   decay         alpha = exp(g), g = floor * sigmoid(-a[h] (r + dt)), or a[h] * softplus(r + dt) without a bounded gate
 *   r = F_B low, in q8_0 as multiply_q8_0.cu: its rows are so short that a product would be two launches for little
 * MAPPING. A block of threads for each head, TOKENS tokens, and q, k, v or the decay: the dimensions of the grid. A channel
 * is one thread's. Rows of q and k go through shared memory, where half warps take their lengths. Only the first TOKENS
 * tokens reach back to the history, so their block renews it when it has read it. For r a warp rounds a block of low, and a thread takes a row of F_B.
 * COST for each token and channel: 16 bytes read, 16 written, and for each head's channel 24 (n_taps - 1) of history read
 * and written; some 150 operations. 0.7 MB for a token of K3. Bound: latency, or memory for many tokens. */
#include "dots.h"
#include "kernels.h"
#include "round.h"

#define THREADS K3_GPU_MAX_KDA_DIM
#define TOKENS                                                                                               \
    (THREADS / K3_SUMS) /* so that each half warp has one, and the taps reach into one block before */
#define VALUES  (TOKENS * THREADS)
#define STREAMS 3u

#define WORDS  (THREADS / 4)
#define SCALES (THREADS / 32)

enum { Q, K, V, DECAY, PARTS };

struct shape {
    size_t n, width;
    unsigned dim, n_taps;
    float scale; /* of q */
};

/* One of the streams: rows before the first one of z are those of the history. */
struct source {
    K3_CONSTANT(float) z;
    K3_GLOBAL(float) history;
    size_t kept; /* rows of it */
};

/* The value of channel c in row `row`, counted from the first of the history. */
K3_DEVICE float row_value(source from, shape s, size_t row, size_t c)
{
    if (row < from.kept) return from.history[row * s.width + c];
    return from.z[(row - from.kept) * s.width + c];
}

K3_DEVICE void renew_history(source from, shape s, size_t c)
{
    for (size_t row = 0; row < from.kept; row++)
        from.history[row * s.width + c] = row_value(from, s, s.n + row, c);
}

/* Tokens first .. first + count - 1 of one head of a stream, whose channel c this thread has if it has one. */
K3_DEVICE void convolve(source from, K3_CONSTANT(float) taps, shape s, size_t first, unsigned count, size_t c,
                        bool unit, float scale, K3_GLOBAL(float) u, K3_SHARED_OF(float) values,
                        K3_SHARED_OF(float) factors)
{
    unsigned i = threadIdx.x, half = i / K3_SUMS;
    if (i < s.dim)
        for (unsigned t = 0; t < count; t++) {
            float sum = 0;
            for (unsigned j = 0; j < s.n_taps; j++)
                sum += taps[c * s.n_taps + j] * row_value(from, s, first + t + j, c);
            values[t * s.dim + i] = k3_silu(sum);
        }
    k3_sync();
    unsigned mine = half < count ? half : 0; /* half warps without a token come to the shuffles too */
    float dot = k3_half_warp_dot(values + mine * s.dim, values + mine * s.dim, unit ? s.dim : 0);
    if (i % K3_SUMS == 0) factors[half] = scale / sqrtf(dot + 1e-6f);
    k3_sync();
    if (i < s.dim)
        for (unsigned t = 0; t < count; t++) {
            float value = values[t * s.dim + i];
            u[(first + t) * s.width + c] = unit ? value * factors[t] : value;
        }
}

/* Four bytes of four lanes, to all of them. */
K3_DEVICE int together(int8_t byte)
{
    unsigned first = threadIdx.x % K3_LANES / 4 * 4, word = 0;
    for (unsigned i = 0; i < 4; i++)
        word |= (unsigned)(uint8_t)k3_shuffle(K3_ALL_LANES, (int)byte, first + i) << 8 * i;
    return (int)word;
}

/* Row c of F_B times one token's low, `dim` values, which all threads round into shared memory. */
K3_DEVICE float low_product(K3_CONSTANT(float) low, K3_CONSTANT(int4) q, K3_CONSTANT(uint16_t) d,
                            unsigned dim, size_t c, K3_SHARED_OF(int) words, K3_SHARED_OF(float) scales)
{
    unsigned i = threadIdx.x, n_blocks = dim / 32;
    float scale, sum = 0;
    int word = together(k3_rounded(i < dim ? low[i] : 0.0f, scale));
    k3_sync(); /* the words of the token before were read */
    if (i % 4 == 0) words[i / 4] = word;
    if (i % 32 == 0) scales[i / 32] = scale;
    k3_sync();
    for (unsigned b = 0; i < dim && b < n_blocks; b++) {
        int dot = 0;
        K3_UNROLL
        for (unsigned half = 0; half < 2; half++) {
            unsigned at = b * 8 + half * 4;
            int4 x = {words[at], words[at + 1], words[at + 2], words[at + 3]};
            dot += k3_dot_16(q[(c * n_blocks + b) * 2 + half], x);
        }
        sum += k3_widen(d[c * n_blocks + b]) * scales[b] * (float)dot;
    }
    return sum;
}

K3_KERNEL prepare(K3_CONSTANTS(float, STREAMS) z, K3_CONSTANTS(float, STREAMS) taps,
                  K3_GLOBALS(float, STREAMS) u, K3_GLOBAL(float) history, K3_GLOBAL(float) alpha,
                  K3_GLOBAL(float) beta, K3_CONSTANT(float) low, K3_CONSTANT(int4) f_b_q,
                  K3_CONSTANT(uint16_t) f_b_d, K3_CONSTANT(float) a, K3_CONSTANT(float) dt, int bounded,
                  float floor, shape s)
{
    K3_SHARED(float, values, VALUES);
    K3_SHARED(float, factors, TOKENS);
    K3_SHARED(int, words, WORDS);
    K3_SHARED(float, scales, SCALES);
    unsigned head = blockIdx.x, part = blockIdx.z, i = threadIdx.x;
    size_t first = (size_t)blockIdx.y * TOKENS, c = (size_t)head * s.dim + i;
    unsigned count = (unsigned)(s.n - first < TOKENS ? s.n - first : TOKENS);
    if (part == DECAY) {
        for (size_t t = first; t < first + count; t++) {
            size_t at = t * s.width + c, of_head = t * gridDim.x + head;
            float r = low ? low_product(low + t * s.dim, f_b_q, f_b_d, s.dim, c, words, scales) : 0;
            if (i < s.dim) {
                float rate = a[head], x = (low ? r : alpha[at]) + dt[c];
                alpha[at] = k3_expf(bounded ? floor * k3_sigmoid(-rate * x) : rate * k3_softplus(x));
            }
            if (i == 0) beta[of_head] = k3_sigmoid(beta[of_head]);
        }
        return;
    }
    size_t kept = s.n_taps - 1;
    source from = {part == Q   ? z.at[Q]
                   : part == K ? z.at[K]
                               : z.at[V],
                   history + part * kept * s.width, kept};
    convolve(from,
             part == Q   ? taps.at[Q]
             : part == K ? taps.at[K]
                         : taps.at[V],
             s, first, count, c, part != V, part == Q ? s.scale : 1.0f,
             part == Q   ? u.at[Q]
             : part == K ? u.at[K]
                         : u.at[V],
             values, factors);
    if (first == 0 && i < s.dim) renew_history(from, s, c);
}

extern "C" void k3_gpu_kda_prepare(const struct k3_gpu_kda *k, k3_stream stream)
{
    k3_pointers<const float, STREAMS> z = {{k->z[0], k->z[1], k->z[2]}},
                                      taps = {{k->taps[0], k->taps[1], k->taps[2]}};
    k3_pointers<float, STREAMS> u = {{k->u[0], k->u[1], k->u[2]}};
    shape s = {k->n, k->n_heads * k->dim, (unsigned)k->dim, (unsigned)k->n_taps, 1.0f / sqrtf((float)k->dim)};
    dim3 blocks((unsigned)k->n_heads, (unsigned)((k->n + TOKENS - 1) / TOKENS), PARTS);
    K3_LAUNCH(prepare, blocks, THREADS, stream, z, taps, u, k->history, k->alpha, k->beta, k->low,
              k->low ? (const int4 *)k->f_b.q : NULL, k->low ? k->f_b.d : NULL, k->a, k->dt, k->bounded,
              k->floor, s);
}
