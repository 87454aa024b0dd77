/* mla.cu - attention over the cache of MLA, absorbed: all heads share its rows, which are key and value.
 *
 * FORMULA. src/ops/vectors_mla.c: keys in blocks of 64; with m the largest score so far, l and z are sums of
 * exp(score - m) and exp(score - m) * c; a larger m of a block rescales both. Scores are dots in the order of dots.h,
 * and so are a block's sums of exp; z is in the order of the keys.
 * LAYOUT. cache: rows of c, then the shared part of the key, f16. Beside the scores of a token and head stand, for every
 * group of 64 keys, the group's largest score, the sum of its weights, and what is before it is multiplied with.
 * MAPPING.
 *   store   one thread for each value
 *   scores  a block of threads for a group of keys, a token and HEADS heads, whose queries are in shared memory. A half
 *           warp keeps two keys in registers and takes the dots with each of them; then one takes the largest of a head. The
 *           heads come first in the grid, so that those of the same keys find them in the cache
 *   weigh   a block of threads for GROUPS groups, a token and a head. The largest score until then is that of the groups
 *           until then, whatever the order; so groups, which half warps take, do not wait for each other
 *   values  a block of threads for a token, ALL_HEADS heads and LANES elements of c: two heads and an element for each
 *           thread. STEP keys of c and their weights are in shared memory, while those of the next step are on their way to
 *           registers. This is the chain: for an element of z it goes from the first key to the last
 * So of all that grows with the context only one multiplication and addition a key are one after the other, with 192 blocks
 * of threads for a token of K3: some 0.5 ms for 262,144 keys if the chain alone bound.
 * COST. A key is 2 * width bytes, from memory once for scores and once for values, and from the cache for the other heads. A
 * head and a key take width + kv_rank multiplications and additions and one exp; 8 bytes of its scores are written and read.
 * Bound, on paper: for a short context latency; for a long one, of one token, shared memory for scores and the way to the
 * next step's keys for values: docs/gpu.md has times. */
#include "dots.h"
#include "kernels.h"
#include "round.h"

#define THREADS   128u
#define KEYS      ((unsigned)K3_GPU_GROUP_TOKENS) /* K3_MLA_KEYS: another number gives other roundings */
#define HEADS     4u
#define HALVES    (THREADS / K3_SUMS)
#define ROW       (K3_GPU_MAX_MLA_WIDTH / K3_SUMS)
#define QUERIES   (HEADS * K3_GPU_MAX_MLA_WIDTH)
#define TILE      (HEADS * KEYS)
#define PAIR      2u  /* keys that a half warp has in registers */
#define GROUPS    16u /* of a block of threads in weigh */
#define LANES     K3_LANES
#define WARPS     (THREADS / LANES)
#define ALL_HEADS (2 * WARPS)
#define STEP      (2 * KEYS)
#define MY_VALUES (STEP * LANES / THREADS) /* of a step, that a thread brings */
#define MY_SCORES (STEP * ALL_HEADS / THREADS)
#define VALUES    (STEP * LANES)
#define WEIGHTS   (STEP * ALL_HEADS)

/* What stands beside the scores of a token and head with n groups: [n] each. */
struct group_rows {
    K3_GLOBAL(float) top;
    K3_GLOBAL(float) sum;
    K3_GLOBAL(float) rescale;
};

K3_DEVICE group_rows rows_of(K3_GLOBAL(float) groups, size_t token_head, size_t n)
{
    K3_GLOBAL(float) first = groups + token_head * 3 * n;
    return {first, first + n, first + 2 * n};
}

static unsigned parts(size_t n, unsigned part)
{
    return (unsigned)((n + part - 1) / part);
}

K3_KERNEL store(K3_CONSTANT(float) rows, size_t n, K3_GLOBAL(uint16_t) cache)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) cache[i] = k3_f16_from_f32(rows[i]);
}

/* The larger of the half warp's values, to all its lanes; a number wins over NaN. */
K3_DEVICE float largest_of(float x)
{
    for (unsigned step = K3_SUMS / 2; step > 0; step /= 2) {
        float other = k3_shuffle_xor(K3_ALL_LANES, x, step);
        x = other > x ? other : x;
    }
    return x;
}

K3_KERNEL scores(K3_CONSTANT(float) absorbed, K3_CONSTANT(float) q, K3_CONSTANT(uint16_t) cache,
                 unsigned n_heads, unsigned qk_dim, unsigned pe_dim, unsigned rank, size_t position,
                 size_t n_keys, size_t n_groups, float scale, K3_GLOBAL(float) out, K3_GLOBAL(float) groups)
{
    K3_SHARED(float, queries, QUERIES);
    K3_SHARED(float, tile, TILE); /* [HEADS][KEYS] */
    unsigned width = rank + pe_dim, lane = threadIdx.x % K3_SUMS, first_head = blockIdx.x * HEADS;
    unsigned heads = n_heads - first_head < HEADS ? n_heads - first_head : HEADS;
    size_t t = blockIdx.z, seen = position + t + 1, first_key = (size_t)blockIdx.y * KEYS;
    if (first_key >= seen) return; /* the whole block */

    for (unsigned i = threadIdx.x; i < heads * width; i += THREADS) {
        unsigned at = i % width;
        size_t head = t * n_heads + first_head + i / width;
        queries[i] =
            at < rank ? absorbed[head * rank + at] : q[head * qk_dim + (qk_dim - pe_dim) + (at - rank)];
    }
    k3_sync();
    for (unsigned first = threadIdx.x / K3_SUMS; first < KEYS; first += PAIR * HALVES) {
        k3_lanes_row<ROW> rows[PAIR];
        K3_UNROLL
        for (unsigned p = 0; p < PAIR; p++) {
            size_t key = first_key + first + p * HALVES;
            K3_UNROLL
            for (unsigned j = 0; j < ROW; j++) {
                unsigned i = j * K3_SUMS + lane;
                rows[p].at[j] = key < seen && i < width ? k3_widen(cache[key * width + i]) : 0;
            }
        }
        for (unsigned h = 0; h < heads; h++) {
            float dots[PAIR];
            k3_dots_with_rows(queries + h * width, rows, width, dots);
            K3_UNROLL
            for (unsigned p = 0; lane == 0 && p < PAIR; p++) {
                unsigned k = first + p * HALVES;
                float score = dots[p] * scale;
                tile[h * KEYS + k] = first_key + k < seen ? score : -INFINITY;
                if (first_key + k < seen)
                    out[(t * n_heads + first_head + h) * n_keys + first_key + k] = score;
            }
        }
    }
    k3_sync();
    unsigned mine = threadIdx.x / K3_SUMS; /* half warps without a head come to the shuffles too */
    float top = -INFINITY;
    for (unsigned k = lane; mine < heads && k < KEYS; k += K3_SUMS)
        top = tile[mine * KEYS + k] > top ? tile[mine * KEYS + k] : top;
    top = largest_of(top);
    if (mine < heads && lane == 0)
        rows_of(groups, t * n_heads + first_head + mine, n_groups).top[blockIdx.y] = top;
}

/* The largest score of groups 0 .. n - 1, to all threads. */
K3_DEVICE float largest_before(K3_GLOBAL(float) top, size_t n, K3_SHARED_OF(float) tops)
{
    float largest = -INFINITY;
    for (size_t g = threadIdx.x; g < n; g += THREADS) largest = top[g] > largest ? top[g] : largest;
    largest = largest_of(largest);
    if (threadIdx.x % K3_SUMS == 0) tops[threadIdx.x / K3_SUMS] = largest;
    k3_sync();
    for (unsigned i = 0; i < HALVES; i++) largest = tops[i] > largest ? tops[i] : largest;
    return largest;
}

K3_KERNEL weigh(K3_GLOBAL(float) scores, K3_GLOBAL(float) groups, unsigned n_heads, size_t position,
                size_t n_keys, size_t n_groups)
{
    K3_SHARED(float, tops, HALVES);
    size_t t = blockIdx.z, seen = position + t + 1, token_head = t * n_heads + blockIdx.y;
    size_t first = (size_t)blockIdx.x * GROUPS, n_seen = (seen + KEYS - 1) / KEYS;
    if (first >= n_seen) return; /* the whole block */
    unsigned lane = threadIdx.x % K3_SUMS;
    group_rows all = rows_of(groups, token_head, n_groups);
    K3_GLOBAL(float) mine = scores + token_head * n_keys;
    float before = largest_before(all.top, first, tops);
    for (unsigned i = threadIdx.x / K3_SUMS; i < GROUPS; i += HALVES) {
        size_t group = first + i;
        bool have = group < n_seen; /* half warps without a group come to the shuffles too */
        float until = before, sum = 0;
        for (size_t g = first; have && g < group; g++) until = all.top[g] > until ? all.top[g] : until;
        float top = have && all.top[group] > until ? all.top[group] : until;
        for (size_t key = group * KEYS + lane; have && key < (group + 1) * KEYS; key += K3_SUMS) {
            float weight = key < seen ? k3_expf(mine[key] - top) : 0;
            if (key < seen) mine[key] = weight;
            sum += weight;
        }
        sum = k3_add_sums(sum);
        if (!have || lane != 0) continue;
        all.sum[group] = sum;
        all.rescale[group] = k3_expf(until - top);
    }
}

/* What a thread brings for the step that begins with key `first`. */
struct step {
    float values[MY_VALUES], scores[MY_SCORES];
};

struct view {
    K3_CONSTANT(uint16_t) cache; /* at the first element of the block of threads */
    K3_CONSTANT(float) scores;   /* of its first head */
    size_t seen, n_keys;
    unsigned width, elements, heads; /* that there are */
};

K3_DEVICE void bring(step &s, view from, size_t first)
{
    K3_UNROLL
    for (unsigned j = 0; j < MY_VALUES; j++) {
        unsigned i = j * THREADS + threadIdx.x;
        size_t key = first + i / LANES;
        s.values[j] = key < from.seen && i % LANES < from.elements
                          ? k3_widen(from.cache[key * from.width + i % LANES])
                          : 0;
    }
    K3_UNROLL
    for (unsigned j = 0; j < MY_SCORES; j++) {
        unsigned i = j * THREADS + threadIdx.x;
        size_t key = first + i % STEP;
        s.scores[j] =
            key < from.seen && i / STEP < from.heads ? from.scores[i / STEP * from.n_keys + key] : 0;
    }
}

K3_KERNEL values(K3_CONSTANT(float) scores, K3_CONSTANT(float) groups, K3_CONSTANT(uint16_t) cache,
                 unsigned n_heads, unsigned width, unsigned rank, size_t position, size_t n_keys,
                 size_t n_groups, K3_GLOBAL(float) out, K3_GLOBAL(int8_t) q, K3_GLOBAL(float) d)
{
    K3_SHARED(float, keys, VALUES);     /* [STEP][LANES] */
    K3_SHARED(float, weights, WEIGHTS); /* [STEP][ALL_HEADS] */
    unsigned lane = threadIdx.x % LANES, mine = threadIdx.x / LANES * 2;
    unsigned first_head = blockIdx.x * ALL_HEADS, first_element = blockIdx.y * LANES;
    size_t t = blockIdx.z, seen = position + t + 1, token_head = t * n_heads + first_head;
    view from = {cache + first_element,
                 scores + token_head * n_keys,
                 seen,
                 n_keys,
                 width,
                 rank - first_element < LANES ? rank - first_element : LANES,
                 n_heads - first_head < ALL_HEADS ? n_heads - first_head : ALL_HEADS};
    float z[2] = {0, 0}, sum[2] = {0, 0};
    step next;
    bring(next, from, 0);
    for (size_t first = 0; first < seen; first += STEP) {
        K3_UNROLL
        for (unsigned j = 0; j < MY_VALUES; j++) keys[j * THREADS + threadIdx.x] = next.values[j];
        K3_UNROLL
        for (unsigned j = 0; j < MY_SCORES; j++) {
            unsigned i = j * THREADS + threadIdx.x;
            weights[i % STEP * ALL_HEADS + i / STEP] = next.scores[j];
        }
        k3_sync();
        bring(next, from, first + STEP);
        for (size_t begin = first; begin < first + STEP && begin < seen; begin += KEYS) {
            unsigned count = (unsigned)(seen - begin < KEYS ? seen - begin : KEYS);
            K3_UNROLL
            for (unsigned h = 0; h < 2; h++) {
                if (mine + h >= from.heads) continue;
                K3_CONSTANT(float) group = groups + (token_head + mine + h) * 3 * n_groups + begin / KEYS;
                float rescale = group[2 * n_groups];
                sum[h] = sum[h] * rescale + group[n_groups];
                z[h] *= rescale;
            }
            K3_UNROLL_BY(8)
            for (unsigned k = (unsigned)(begin - first); k < (unsigned)(begin - first) + count; k++) K3_UNROLL
            for (unsigned h = 0; h < 2; h++)
                z[h] += weights[k * ALL_HEADS + mine + h] * keys[k * LANES + lane];
        }
        k3_sync();
    }
    K3_UNROLL
    for (unsigned h = 0; h < 2; h++) {
        if (mine + h >= from.heads || lane >= from.elements) continue; /* the whole warp, if z is rounded */
        size_t at = (token_head + mine + h) * rank + first_element + lane;
        float value = z[h] / sum[h];
        out[at] = value;
        if (q) k3_round_block(value, at, q, d);
    }
}

extern "C" void k3_gpu_mla_store(const float *rows, size_t n, size_t width, size_t position, uint16_t *cache,
                                 k3_stream stream)
{
    K3_LAUNCH(store, parts(n * width, THREADS), THREADS, stream, rows, n * width, cache + position * width);
}

extern "C" size_t k3_gpu_mla_group_floats(size_t n_keys)
{
    return 3 * parts(n_keys, KEYS);
}

extern "C" void k3_gpu_mla_scores(const struct k3_gpu_mla *mla, const float *absorbed, const float *q,
                                  float *out, float *groups, k3_stream stream)
{
    size_t n_keys = mla->position + mla->n;
    unsigned n_groups = parts(n_keys, KEYS);
    dim3 blocks(parts(mla->n_heads, HEADS), n_groups, (unsigned)mla->n);
    K3_LAUNCH(scores, blocks, THREADS, stream, absorbed, q, mla->cache, (unsigned)mla->n_heads,
              (unsigned)mla->qk_dim, (unsigned)mla->pe_dim, (unsigned)mla->kv_rank, mla->position, n_keys,
              n_groups, 1.0f / sqrtf((float)mla->qk_dim), out, groups);
}

extern "C" void k3_gpu_mla_values(const struct k3_gpu_mla *mla, float *scores, float *groups, float *z,
                                  const struct k3_gpu_acts *acts, k3_stream stream)
{
    size_t n_keys = mla->position + mla->n;
    unsigned n_groups = parts(n_keys, KEYS), heads = (unsigned)mla->n_heads, n = (unsigned)mla->n;
    K3_LAUNCH(weigh, dim3(parts(n_groups, GROUPS), heads, n), THREADS, stream, scores, groups, heads,
              mla->position, n_keys, n_groups);
    K3_LAUNCH(values, dim3(parts(heads, ALL_HEADS), parts(mla->kv_rank, LANES), n), THREADS, stream, scores,
              groups, mla->cache, heads, (unsigned)(mla->kv_rank + mla->pe_dim), (unsigned)mla->kv_rank,
              mla->position, n_keys, n_groups, z, acts ? acts->q : NULL, acts ? acts->d : NULL);
}
