/* mla.c - Multi-head Latent Attention, absorbed, with a softmax that goes over the keys block by block.
 *
 * As keys are shared by all heads, a query is one head of one token. A piece of work is a tile of up to K3_MLA_QUERIES
 * of them: many tokens of one head, or, where there are few tokens, several heads. Its queries are first taken to where
 * keys are (k_b, one product for all tokens of a head), and its sums back from there (v_b). The keys come in blocks of
 * K3_MLA_KEYS from position 0 on, so the sums of a token have the same order whether it is decoded or part of a batch.
 * What is done with a block: vectors_mla.c.
 *
 * Per query and key: (kv_rank + pe_dim) + kv_rank multiply-adds. Memory: a block is read from the cache, and made f32,
 * once a tile. */
#include "ops/mla.h"

#include "quant/half.h"

#include <math.h>
#include <string.h>

size_t k3_mla_row_bytes(size_t kv_rank, size_t pe_dim, bool f16)
{
    return (kv_rank + pe_dim) * (f16 ? sizeof(uint16_t) : sizeof(float));
}

void k3_mla_store(void *cache, bool f16, size_t position, const float *rows, size_t n, size_t width)
{
    if (!f16) {
        memcpy((float *)cache + position * width, rows, n * width * sizeof *rows);
        return;
    }
    uint16_t *to = (uint16_t *)cache + position * width;
    for (size_t i = 0; i < n * width; i++) to[i] = k3_f16_from_f32(rows[i]);
}

/* ---- tiles ---- */

struct attention {
    struct k3_compute *c;
    const struct k3_mla *mla;
    const float *q;
    size_t n, position;
    float *o, *scratch;
    size_t n_tokens, n_heads; /* in a tile, at most */
};

/* Query `head - first_head` * n_tokens + `token - first_token`. */
struct tile {
    size_t first_token, n_tokens, first_head, n_heads;
    struct k3_mla_queries x;
    float *q, *keys; /* keys: [K3_MLA_KEYS][width], unless the cache is f32 */
    void *acts;      /* rounded rows of K3_MLA_QUERIES queries or sums */
};

static size_t floats_of(size_t bytes)
{
    return (bytes + 63) / 64 * (64 / sizeof(float));
}

static size_t acts_floats(size_t kv_rank, size_t nope)
{
    return K3_MLA_QUERIES * floats_of((kv_rank > nope ? kv_rank : nope) * sizeof(float));
}

size_t k3_mla_scratch(size_t kv_rank, size_t pe_dim, size_t qk_dim)
{
    size_t width = kv_rank + pe_dim;
    size_t floats = acts_floats(kv_rank, qk_dim - pe_dim) + K3_MLA_KEYS * width +
                    K3_MLA_QUERIES * (width + kv_rank + K3_MLA_KEYS + 2);
    return floats_of(floats * sizeof(float));
}

/* Divides a thread's scratch memory. */
static struct tile make_tile(const struct attention *a, int thread)
{
    const struct k3_mla *mla = a->mla;
    size_t rank = mla->kv_rank, width = rank + mla->pe_dim;
    float *p = a->scratch + (size_t)thread * k3_mla_scratch(rank, mla->pe_dim, mla->qk_dim);
    struct tile tile = {.acts = p};
    p += acts_floats(rank, mla->qk_dim - mla->pe_dim);
    tile.x = (struct k3_mla_queries){.rank = rank, .width = width, .scale = 1.0f / sqrtf((float)mla->qk_dim)};
    tile.keys = p;
    tile.x.q = tile.q = p += K3_MLA_KEYS * width;
    tile.x.z = p += K3_MLA_QUERIES * width;
    tile.x.scores = p += K3_MLA_QUERIES * rank;
    tile.x.top = p += K3_MLA_QUERIES * K3_MLA_KEYS;
    tile.x.sum = p + K3_MLA_QUERIES;
    return tile;
}

/* Where head 0 + h of the tile's first token is in an array [n][n_heads][dim]. */
static size_t place(const struct attention *a, const struct tile *tile, size_t h, size_t dim)
{
    return (tile->first_token * a->mla->n_heads + tile->first_head + h) * dim;
}

static void load_queries(const struct attention *a, struct tile *tile, int thread)
{
    const struct k3_mla *mla = a->mla;
    size_t rank = mla->kv_rank, width = rank + mla->pe_dim, stride = mla->n_heads * mla->qk_dim;
    for (size_t h = 0; h < tile->n_heads; h++) {
        struct k3_matrix k_b = k3_matrix_slice(&mla->k_b, (tile->first_head + h) * rank, rank);
        const float *from = a->q + place(a, tile, h, mla->qk_dim);
        float *to = tile->q + h * tile->n_tokens * width;
        k3_matmul_serial(a->c, &k_b, from, stride, tile->n_tokens, to, width, tile->acts, thread);
        for (size_t t = 0; t < tile->n_tokens; t++)
            memcpy(to + t * width + rank, from + t * stride + (mla->qk_dim - mla->pe_dim),
                   mla->pe_dim * sizeof *to);
    }
    tile->x.n = tile->n_heads * tile->n_tokens;
    memset(tile->x.z, 0, tile->x.n * rank * sizeof *tile->x.z);
    for (size_t i = 0; i < tile->x.n; i++) {
        tile->x.top[i] = -INFINITY;
        tile->x.sum[i] = 0;
    }
}

static const float *load_keys(const struct attention *a, struct tile *tile, size_t first, size_t n_keys)
{
    size_t width = tile->x.width;
    if (!a->mla->f16) return (const float *)a->mla->cache + first * width;
    a->c->vectors->from_f16((const uint16_t *)a->mla->cache + first * width, tile->keys, n_keys * width);
    return tile->keys;
}

static void store_values(const struct attention *a, struct tile *tile, int thread)
{
    const struct k3_mla *mla = a->mla;
    size_t rank = mla->kv_rank;
    for (size_t i = 0; i < tile->x.n; i++)
        for (size_t r = 0; r < rank; r++) tile->x.z[i * rank + r] /= tile->x.sum[i];
    for (size_t h = 0; h < tile->n_heads; h++) {
        struct k3_matrix v_b = k3_matrix_slice(&mla->v_b, (tile->first_head + h) * mla->v_dim, mla->v_dim);
        k3_matmul_serial(a->c, &v_b, tile->x.z + h * tile->n_tokens * rank, rank, tile->n_tokens,
                         a->o + place(a, tile, h, mla->v_dim), mla->n_heads * mla->v_dim, tile->acts, thread);
    }
}

static void attend_tile(const struct attention *a, struct tile *tile, int thread)
{
    size_t first_seen = a->position + tile->first_token + 1; /* by the tile's first token */
    size_t n_seen = first_seen + tile->n_tokens - 1;
    load_queries(a, tile, thread);
    for (size_t key = 0; key < n_seen; key += K3_MLA_KEYS) {
        size_t n_keys = n_seen - key < K3_MLA_KEYS ? n_seen - key : K3_MLA_KEYS, seen[K3_MLA_QUERIES];
        for (size_t i = 0; i < tile->x.n; i++) {
            size_t end = first_seen + i % tile->n_tokens;
            seen[i] = end <= key ? 0 : end - key < n_keys ? end - key : n_keys;
        }
        a->c->vectors->mla_keys(&tile->x, load_keys(a, tile, key, n_keys), seen);
    }
    store_values(a, tile, thread);
}

/* Tiles of all heads, then the next tokens. */
static void attend_tiles(void *ctx, size_t begin, size_t end, int thread)
{
    const struct attention *a = ctx;
    size_t all = a->mla->n_heads, groups = (all + a->n_heads - 1) / a->n_heads;
    struct tile tile = make_tile(a, thread);
    for (size_t item = begin; item < end; item++) {
        tile.first_head = item % groups * a->n_heads;
        tile.n_heads = all - tile.first_head < a->n_heads ? all - tile.first_head : a->n_heads;
        tile.first_token = item / groups * a->n_tokens;
        tile.n_tokens = a->n - tile.first_token < a->n_tokens ? a->n - tile.first_token : a->n_tokens;
        attend_tile(a, &tile, thread);
    }
}

void k3_mla_attend(struct k3_compute *c, const struct k3_mla *mla, const float *q, size_t n, size_t position,
                   float *o, float *scratch)
{
    struct attention a = {c, mla, q, n, position, o, scratch, K3_MLA_QUERIES, 1};
    if (n < K3_MLA_QUERIES) { /* as many heads as fill a tile, if that leaves two tiles to a thread */
        size_t share = mla->n_heads / (2 * (size_t)k3_pool_threads(c->pool));
        a.n_tokens = n;
        a.n_heads = K3_MLA_QUERIES / n < share ? K3_MLA_QUERIES / n : share ? share : 1;
    }
    size_t groups = (mla->n_heads + a.n_heads - 1) / a.n_heads;
    k3_pool_run(c->pool, attend_tiles, &a, (n + a.n_tokens - 1) / a.n_tokens * groups, 1);
}
