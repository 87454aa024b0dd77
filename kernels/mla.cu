/* mla.cu - attention over the cache of MLA, absorbed: all heads share its rows, which are key and value.
 *
 * FORMULA. src/ops/vectors_mla.c: keys in blocks of 64; with m the largest score so far, l and z are sums of
 * exp(score - m) and exp(score - m) * c; a larger m of a block rescales both. Scores are dots in the order of dots.h,
 * and so are a block's sums of exp; z is in the order of the keys.
 * LAYOUT. cache: rows of c, then the shared part of the key, f16.
 * MAPPING.
 *   store   one thread for each value
 *   scores  a block of threads for KEYS keys, a token and HEADS heads, whose queries are in shared memory. A half
 *           warp keeps a key in registers and takes the dot with each of them
 *   values  a block of threads for a token, HEADS heads and VALUES elements of c, one for each thread. The threads
 *           bring exp(score - m) of 64 keys and HEADS heads into shared memory, half warps add these,
 *           and each thread adds the keys to its z
 * A token's keys are not divided among blocks of threads, for the sums are a chain; heads and elements are enough to
 * fill the device: 96 * 512 at K3's dimensions.
 * COST. A key is 2 * width bytes, from memory once and from the cache for the other heads, HEADS at a time. A head and
 * a key take width + kv_rank multiplications and additions, and kv_rank / VALUES exp. Bound, on paper: for one token
 * and a short cache latency, for a long one arithmetic. */
#include "dots.h"
#include "kernels.h"

#define THREADS 128u
#define KEYS    64u /* K3_MLA_KEYS: another number gives other roundings */
#define HEADS   4u
#define VALUES  THREADS
#define HALVES  (THREADS / K3_SUMS)
#define ROW     (K3_GPU_MAX_MLA_WIDTH / K3_SUMS)
#define QUERIES (HEADS * K3_GPU_MAX_MLA_WIDTH)
#define WEIGHTS (HEADS * KEYS)

static unsigned parts(size_t n, unsigned part)
{
    return (unsigned)((n + part - 1) / part);
}

K3_KERNEL store(K3_CONSTANT(float) rows, size_t n, K3_GLOBAL(uint16_t) cache)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) cache[i] = k3_f16_from_f32(rows[i]);
}

K3_KERNEL scores(K3_CONSTANT(float) absorbed, K3_CONSTANT(float) q, K3_CONSTANT(uint16_t) cache,
                 unsigned n_heads, unsigned qk_dim, unsigned pe_dim, unsigned rank, size_t position,
                 size_t n_keys, float scale, K3_GLOBAL(float) out)
{
    K3_SHARED(float, queries, QUERIES);
    unsigned width = rank + pe_dim, lane = threadIdx.x % K3_SUMS, first_head = blockIdx.y * HEADS;
    unsigned heads = n_heads - first_head < HEADS ? n_heads - first_head : HEADS;
    size_t t = blockIdx.z, seen = position + t + 1, first_key = (size_t)blockIdx.x * KEYS;
    if (first_key >= seen) return; /* the whole block */

    for (unsigned i = threadIdx.x; i < heads * width; i += THREADS) {
        unsigned at = i % width;
        size_t head = t * n_heads + first_head + i / width;
        queries[i] =
            at < rank ? absorbed[head * rank + at] : q[head * qk_dim + (qk_dim - pe_dim) + (at - rank)];
    }
    k3_sync();
    for (unsigned k = threadIdx.x / K3_SUMS; k < KEYS; k += HALVES) {
        size_t key = first_key + k;
        k3_lanes_row<ROW> row;
        K3_UNROLL
        for (unsigned j = 0; j < ROW; j++) {
            unsigned i = j * K3_SUMS + lane;
            row.at[j] = key < seen && i < width ? k3_widen(cache[key * width + i]) : 0;
        }
        for (unsigned h = 0; h < heads; h++) {
            float score = k3_dot_with_row(queries + h * width, row, width) * scale;
            if (key < seen && lane == 0) out[(t * n_heads + first_head + h) * n_keys + key] = score;
        }
    }
}

/* Half warp h adds the KEYS weights of head h, in the order of dots.h. */
K3_DEVICE void add_weights(K3_SHARED_OF(float) weights, unsigned heads, K3_SHARED_OF(float) sums)
{
    unsigned h = threadIdx.x / K3_SUMS, lane = threadIdx.x % K3_SUMS;
    float s = 0;
    for (unsigned k = lane; h < heads && k < KEYS; k += K3_SUMS) s += weights[h * KEYS + k];
    s = k3_add_sums(s);
    if (h < heads && lane == 0) sums[h] = s;
}

K3_KERNEL values(K3_CONSTANT(float) scores, K3_CONSTANT(uint16_t) cache, unsigned n_heads, unsigned width,
                 unsigned rank, size_t position, size_t n_keys, K3_GLOBAL(float) out)
{
    K3_SHARED(float, weights, WEIGHTS); /* [HEADS][KEYS]: scores, then exp(score - m) */
    K3_SHARED(float, sums, HEADS);      /* of a block's weights */
    unsigned first_head = blockIdx.y * HEADS, r = blockIdx.x * VALUES + threadIdx.x;
    unsigned heads = n_heads - first_head < HEADS ? n_heads - first_head : HEADS;
    size_t t = blockIdx.z, seen = position + t + 1;
    float top[HEADS], sum[HEADS], z[HEADS];
    K3_UNROLL
    for (unsigned h = 0; h < HEADS; h++) {
        top[h] = -INFINITY;
        sum[h] = z[h] = 0;
    }
    for (size_t first = 0; first < seen; first += KEYS) {
        unsigned count = (unsigned)(seen - first < KEYS ? seen - first : KEYS);
        for (unsigned i = threadIdx.x; i < WEIGHTS; i += THREADS) {
            unsigned h = i / KEYS, k = i % KEYS;
            weights[i] = h < heads && k < count ? scores[(t * n_heads + first_head + h) * n_keys + first + k]
                                                : -INFINITY;
        }
        k3_sync();
        float higher[HEADS];
        K3_UNROLL
        for (unsigned h = 0; h < HEADS; h++) {
            higher[h] = top[h];
            for (unsigned k = 0; k < count; k++) {
                float score = weights[h * KEYS + k];
                higher[h] = score > higher[h] ? score : higher[h];
            }
        }
        k3_sync();
        K3_UNROLL
        for (unsigned h = 0; h < HEADS; h++)
            if (h < heads && threadIdx.x < KEYS)
                weights[h * KEYS + threadIdx.x] = k3_expf(weights[h * KEYS + threadIdx.x] - higher[h]);
        k3_sync();
        add_weights(weights, heads, sums);
        k3_sync();
        K3_UNROLL
        for (unsigned h = 0; h < HEADS; h++) {
            if (h >= heads) continue;
            float rescale = k3_expf(top[h] - higher[h]);
            sum[h] = sum[h] * rescale + sums[h];
            z[h] *= rescale;
            top[h] = higher[h];
        }
        for (unsigned k = 0; k < count; k++) {
            float c = r < rank ? k3_widen(cache[(first + k) * width + r]) : 0;
            K3_UNROLL
            for (unsigned h = 0; h < HEADS; h++)
                if (h < heads) z[h] += weights[h * KEYS + k] * c;
        }
        k3_sync();
    }
    K3_UNROLL
    for (unsigned h = 0; h < HEADS; h++)
        if (h < heads && r < rank) out[(t * n_heads + first_head + h) * rank + r] = z[h] / sum[h];
}

extern "C" void k3_gpu_mla_store(const float *rows, size_t n, size_t width, size_t position, uint16_t *cache,
                                 k3_stream stream)
{
    K3_LAUNCH(store, parts(n * width, THREADS), THREADS, stream, rows, n * width, cache + position * width);
}

extern "C" void k3_gpu_mla_scores(const struct k3_gpu_mla *mla, const float *absorbed, const float *q,
                                  float *out, k3_stream stream)
{
    size_t n_keys = mla->position + mla->n;
    dim3 blocks(parts(n_keys, KEYS), parts(mla->n_heads, HEADS), (unsigned)mla->n);
    K3_LAUNCH(scores, blocks, THREADS, stream, absorbed, q, mla->cache, (unsigned)mla->n_heads,
              (unsigned)mla->qk_dim, (unsigned)mla->pe_dim, (unsigned)mla->kv_rank, mla->position, n_keys,
              1.0f / sqrtf((float)mla->qk_dim), out);
}

extern "C" void k3_gpu_mla_values(const struct k3_gpu_mla *mla, const float *scores, float *z,
                                  k3_stream stream)
{
    dim3 blocks(parts(mla->kv_rank, VALUES), parts(mla->n_heads, HEADS), (unsigned)mla->n);
    K3_LAUNCH(values, blocks, THREADS, stream, scores, mla->cache, (unsigned)mla->n_heads,
              (unsigned)(mla->kv_rank + mla->pe_dim), (unsigned)mla->kv_rank, mla->position,
              mla->position + mla->n, z);
}
