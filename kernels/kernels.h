/* kernels.h - the operations of the device, as the C side calls them.
 *
 * Pointers are to device memory unless a name says host. A launch returns at once; what is wrong with it shows at the
 * next check of the stream. Operations on the same stream follow each other. Shapes are as in src/ops/; n is a number
 * of tokens, at least 1. Results have the bits of the CPU's unless said otherwise. */
#ifndef K3_KERNELS_KERNELS_H
#define K3_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void *k3_stream; /* a cudaStream_t */

/* A q8_0 matrix as the device keeps it: weight = d * q. Files have d and q of a block side by side, 34 bytes that no
 * wide load can take; here they are apart. cols is a multiple of 32. */
struct k3_gpu_q8_0 {
    const int8_t *q;   /* [rows][cols], at a multiple of 16 */
    const uint16_t *d; /* [rows][cols / 32], f16 */
    size_t rows, cols;
};

/* Activations rounded to q8_0: value = d * q. */
struct k3_gpu_acts {
    int8_t *q; /* [n][cols], at a multiple of 16 */
    float *d;  /* [n][cols / 32], values of f16 */
};

/* ---- q8_0 ---- */

/* Takes n_blocks blocks as they are in files (at a multiple of 2) apart. */
void k3_gpu_split_q8_0(const void *blocks, size_t n_blocks, int8_t *q, uint16_t *d, k3_stream stream);

/* y[t] = row ids[t] of the table. */
void k3_gpu_rows_q8_0(const struct k3_gpu_q8_0 *table, const int32_t *ids, size_t n, float *y,
                      k3_stream stream);

/* x: n rows of cols values, `stride` apart */
void k3_gpu_round_q8_0(const float *x, size_t n, size_t cols, size_t stride, const struct k3_gpu_acts *acts,
                       k3_stream stream);

/* y[t] = W acts[t]; y: [n][rows]. */
void k3_gpu_multiply_q8_0(const struct k3_gpu_q8_0 *w, const struct k3_gpu_acts *acts, size_t n, float *y,
                          k3_stream stream);

/* The same for several matrices, of as many columns. */
#define K3_GPU_MAX_PRODUCTS 6
struct k3_gpu_product {
    struct k3_gpu_q8_0 w;
    float *y;
};
void k3_gpu_multiply_all_q8_0(const struct k3_gpu_product *products, size_t n_products,
                              const struct k3_gpu_acts *acts, size_t n, k3_stream stream);

/* y[t] += plus[t] + W acts[t]; without the first term of the sum if plus is NULL. */
void k3_gpu_multiply_add_q8_0(const struct k3_gpu_q8_0 *w, const struct k3_gpu_acts *acts, size_t n,
                              const float *plus, float *y, k3_stream stream);

/* The same for each head h: y[t][h] = W[h] acts[t][h], W a stack of n_heads matrices, w->rows of all together. */
void k3_gpu_multiply_heads_q8_0(const struct k3_gpu_q8_0 *w, const struct k3_gpu_acts *acts, size_t n_heads,
                                size_t n, float *y, k3_stream stream);

/* What these do for more than 8 tokens; `plus` has a meaning if `add`. */
void k3_gpu_multiply_many_q8_0(const struct k3_gpu_q8_0 *w, const struct k3_gpu_acts *acts, size_t n_heads,
                               size_t n, int add, const float *plus, float *y, k3_stream stream);

/* ---- f32 ---- */

/* y[t] = W x[t]; W: [rows][cols]. */
void k3_gpu_multiply_f32(const float *w, size_t rows, size_t cols, const float *x, size_t n, float *y,
                         k3_stream stream);

/* The same for each head h: y[t][h] = W[h] x[t][h], W a stack of n_heads matrices of `rows` rows; the rows of x, [n][n_heads],
 * are `stride` floats apart. */
void k3_gpu_multiply_heads_f32(const float *w, size_t n_heads, size_t rows, size_t cols, const float *x,
                               size_t stride, size_t n, float *y, k3_stream stream);

/* Kernels that make what a product takes next round it too: where `acts` is not NULL they leave rows of a multiple of 32
 * values there, as k3_gpu_round_q8_0 would. */

/* y[t] = w * x[t] / rms(x[t]) for n rows of `width`, `stride` floats apart in both; times sigmoid(gate[t]) if gate,
 * [n][width], is not NULL. y may be x. */
void k3_gpu_rms_norm(const float *x, const float *w, float eps, size_t n, size_t width, size_t stride,
                     const float *gate, float *y, const struct k3_gpu_acts *acts, k3_stream stream);

/* ---- AttnRes ---- */

/* Bank and stream of a batch are one array: [n_bank + 1][batch][width], the stream last. To bank the stream is to
 * count one more, so that a new stream begins behind it. roots: [n_bank + 1][batch], sqrt(mean(c^2) + eps) of each
 * row; those of the bank are known from when each was the stream, that of the stream is written here.
 *
 * y[i] = sum_j prob_j c_j[t], prob = softmax_j(score . c_j[t] / root_j[t]) for rows t = rows[i] (NULL: i) of the
 * batch, i < n; then its RMS norm, if there is one. */
struct k3_gpu_mixing {
    const float *streams;
    float *roots;
    size_t n_bank, batch, width;
    const float *score;
    float eps;
    const uint32_t *rows;
    size_t n;
    const float *known; /* score . c_j of the banked rows, [n_bank][batch], or NULL */
    const float *next;  /* the score of the next mix, or NULL: n is the batch then, and rows NULL */
    float *next_dots;   /* next . c_j of bank and stream, [n_bank + 1][batch] */
    const float *norm;  /* weights, or NULL */
    float *y;
    float *probs; /* [n][n_bank + 1], or NULL */
    const struct k3_gpu_acts *acts;
};
void k3_gpu_mix(const struct k3_gpu_mixing *mix, k3_stream stream);

/* ---- elements ---- */

/* g = b1 tanh(g / b1) sigmoid(g) * b2 tanh(u / b2); u itself if b2 is 0. */
void k3_gpu_situ(float *g, const float *u, float b1, float b2, size_t n, const struct k3_gpu_acts *acts,
                 k3_stream stream);
/* x *= sigmoid(gate) */
void k3_gpu_gate(float *x, const float *gate, size_t n, const struct k3_gpu_acts *acts, k3_stream stream);
/* x += y */
void k3_gpu_add(float *x, const float *y, size_t n, k3_stream stream);

/* ---- router ---- */

/* k3_route of src/ops/ffn.h. probs: [n][n_experts], logits that become sigmoids; ids, weights: [n][top_k]. n_experts
 * is at most K3_GPU_MAX_EXPERTS, top_k at most K3_GPU_MAX_TOP_K. */
#define K3_GPU_MAX_EXPERTS 2048
#define K3_GPU_MAX_TOP_K   64
void k3_gpu_route(float *probs, const float *bias, size_t n, size_t n_experts, size_t top_k, int normalise,
                  float scale, uint32_t *ids, float *weights, k3_stream stream);

/* ---- KDA: src/ops/kda.h ---- */

/* K3's dim is the most that shared memory holds. */
#define K3_GPU_MAX_KDA_DIM  128
#define K3_GPU_MAX_KDA_TAPS 9

/* What the recurrence takes, from the projections. q, k and v are convolved over time and squashed, then rows of q and k
 * get unit length, and q 1 / sqrt(dim):
 *     u[t][c] = silu(sum_j taps[c][j] * z[t - n_taps + 1 + j][c])
 * where rows of z before the first come from `history`, [3][n_taps - 1][n_heads * dim] of q, k and v, which the last rows
 * of z then replace. alpha becomes the decay, exp(k3_kda_gate(alpha)); without a bounded gate it may differ from the CPU's
 * by units of the last place. beta becomes its sigmoid. */
struct k3_gpu_kda {
    size_t n, n_heads, dim, n_taps;
    const float *z[3], *taps[3];
    float *u[3];
    float *history;
    float *alpha;           /* [n][n_heads * dim]; only written if low is not NULL */
    const float *low;       /* [n][dim], or NULL: alpha is f_b low then, rounded, and dim a multiple of 32 */
    struct k3_gpu_q8_0 f_b; /* [n_heads * dim][dim] */
    float *beta;            /* [n][n_heads] */
    const float *a, *dt;
    int bounded;
    float floor;
};
void k3_gpu_kda_prepare(const struct k3_gpu_kda *kda, k3_stream stream);

/* k3_kda_recur. state: [n_heads][key][value], updated. */
void k3_gpu_kda_recur(const float *q, const float *k, const float *v, const float *alpha, const float *beta,
                      size_t n, size_t n_heads, size_t dim, float *state, float *o, k3_stream stream);

/* ---- MLA: src/ops/mla.h, with an f16 cache ----
 *
 * The absorbed queries are k3_gpu_multiply_heads_q8_0 of k_b, the outputs that of v_b and z. */

/* Appends n rows of `width` to a cache that has `position` rows. */
void k3_gpu_mla_store(const float *rows, size_t n, size_t width, size_t position, uint16_t *cache,
                      k3_stream stream);

/* K3's width is the most that registers hold. */
#define K3_GPU_MAX_MLA_WIDTH 576
struct k3_gpu_mla {
    size_t n_heads, qk_dim, pe_dim, kv_rank; /* kv_rank + pe_dim: the width */
    const uint16_t *cache;                   /* [position + n][width] */
    size_t position, n;
};

/* Floats for each token and head beside the scores of n_keys keys: for every K3_GPU_GROUP_TOKENS of them the largest score,
 * the sum of their weights, and what is before them is multiplied with. */
#define K3_GPU_GROUP_TOKENS 64
size_t k3_gpu_mla_group_floats(size_t n_keys);

/* scores[t][h][s] = qk_dim^-1/2 * (absorbed[t][h] . c[s] + the pe part of q[t][h] . k_pe[s]) for s <= position + t.
 * absorbed: [n][n_heads][kv_rank]; q: [n][n_heads][qk_dim]; scores: [n][n_heads][position + n]; groups:
 * [n][n_heads][k3_gpu_mla_group_floats(position + n)]. */
void k3_gpu_mla_scores(const struct k3_gpu_mla *mla, const float *absorbed, const float *q, float *scores,
                       float *groups, k3_stream stream);

/* z[t][h] = sum over s <= position + t of softmax(scores[t][h])[s] * c[s]; z: [n][n_heads][kv_rank]. Scores become
 * exp(score - the largest until then). */
void k3_gpu_mla_values(const struct k3_gpu_mla *mla, float *scores, float *groups, float *z,
                       const struct k3_gpu_acts *acts, k3_stream stream);

/* ---- limits ---- */

/* Keeps the matrix units busy: n_blocks of 256 threads, each with `steps` rounds of products. out: [n_blocks * 256].
 * Returns the multiply-adds that this makes. */
double k3_gpu_matrix_rate(size_t n_blocks, unsigned steps, int *out, k3_stream stream);

#ifdef __cplusplus
}
#endif

#endif
