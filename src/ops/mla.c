/* mla.c - Multi-head Latent Attention, absorbed, with a softmax that goes over the keys block by block.
 *
 * A piece of work is one head and a tile of up to K3_MLA_TOKENS tokens. The keys come in blocks of
 * K3_MLA_KEYS from position 0 on, so the sums of a token have the same order whether it is decoded or part of
 * a batch. Running softmax: with m the largest score so far, l and z are sums of exp(score - m) and exp(score
 * - m) * c; a larger m rescales both.
 *
 * Per token, head and key: (kv_rank + pe_dim) + kv_rank multiply-adds. Memory: a key block is read from the
 * cache once per tile and head. */
#include "ops/mla.h"

#include "ops/vmath.h"

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

/* One thread's memory. */
struct tile {
    float *keys;   /* [K3_MLA_KEYS][width], unless the cache is f32 */
    float *q;      /* [K3_MLA_TOKENS][width]: absorbed query, then its pe part */
    float *z;      /* [K3_MLA_TOKENS][kv_rank] */
    float *scores; /* [K3_MLA_KEYS] */
    float top[K3_MLA_TOKENS], sum[K3_MLA_TOKENS]; /* m and l of the head comment */
};

size_t k3_mla_scratch(size_t kv_rank, size_t pe_dim)
{
    size_t width = kv_rank + pe_dim;
    return K3_MLA_KEYS * width + K3_MLA_TOKENS * (width + kv_rank) + K3_MLA_KEYS;
}

struct attention {
    struct k3_compute *c;
    const struct k3_mla *mla;
    const float *q;
    size_t n, position;
    float *o, *scratch;
    float scale;
};

static const float *load_keys(const struct k3_mla *mla, struct tile *tile, size_t first, size_t n_keys)
{
    size_t width = mla->kv_rank + mla->pe_dim;
    if (!mla->f16) return (const float *)mla->cache + first * width;
    const uint16_t *from = (const uint16_t *)mla->cache + first * width;
    for (size_t i = 0; i < n_keys * width; i++) tile->keys[i] = k3_f32_from_f16(from[i]);
    return tile->keys;
}

/* Adds a block of keys to token i of the tile. */
static void add_keys(const struct attention *a, struct tile *tile, size_t i, const float *keys, size_t n_keys)
{
    size_t rank = a->mla->kv_rank, width = rank + a->mla->pe_dim;
    const float *q = tile->q + i * width;
    float *z = tile->z + i * rank, top = tile->top[i];

    for (size_t s = 0; s < n_keys; s++) {
        tile->scores[s] = a->scale * k3_dot(a->c, q, keys + s * width, width);
        if (tile->scores[s] > top) top = tile->scores[s];
    }
    float rescale = k3_expf(tile->top[i] - top), sum = tile->sum[i] * rescale;
    for (size_t r = 0; r < rank; r++) z[r] *= rescale;
    for (size_t s = 0; s < n_keys; s++) {
        float p = k3_expf(tile->scores[s] - top);
        sum += p;
        for (size_t r = 0; r < rank; r++) z[r] += p * keys[s * width + r];
    }
    tile->top[i] = top;
    tile->sum[i] = sum;
}

static void attend_tile(const struct attention *a, struct tile *tile, size_t head, size_t first, size_t n,
                        int thread)
{
    const struct k3_mla *mla = a->mla;
    size_t rank = mla->kv_rank, width = rank + mla->pe_dim, nope = mla->qk_dim - mla->pe_dim;
    struct k3_matrix k_b = k3_matrix_slice(&mla->k_b, head * rank, rank);
    struct k3_matrix v_b = k3_matrix_slice(&mla->v_b, head * mla->v_dim, mla->v_dim);

    memset(tile->z, 0, n * rank * sizeof *tile->z);
    for (size_t i = 0; i < n; i++) {
        const float *q = a->q + ((first + i) * mla->n_heads + head) * mla->qk_dim;
        k3_matvec_serial(a->c, &k_b, q, tile->q + i * width, thread);
        memcpy(tile->q + i * width + rank, q + nope, mla->pe_dim * sizeof *q);
        tile->top[i] = -INFINITY;
        tile->sum[i] = 0;
    }

    size_t n_seen = a->position + first + n; /* by the tile's last token */
    for (size_t key = 0; key < n_seen; key += K3_MLA_KEYS) {
        size_t n_keys = n_seen - key < K3_MLA_KEYS ? n_seen - key : K3_MLA_KEYS;
        const float *keys = load_keys(mla, tile, key, n_keys);
        for (size_t i = 0; i < n; i++) {
            size_t seen = a->position + first + i + 1;
            if (seen > key) add_keys(a, tile, i, keys, seen - key < n_keys ? seen - key : n_keys);
        }
    }

    for (size_t i = 0; i < n; i++) {
        float *z = tile->z + i * rank;
        for (size_t r = 0; r < rank; r++) z[r] /= tile->sum[i];
        k3_matvec_serial(a->c, &v_b, z, a->o + ((first + i) * mla->n_heads + head) * mla->v_dim, thread);
    }
}

static void attend_tiles(void *ctx, size_t begin, size_t end, int thread)
{
    const struct attention *a = ctx;
    size_t rank = a->mla->kv_rank, width = rank + a->mla->pe_dim;
    float *scratch = a->scratch + (size_t)thread * k3_mla_scratch(rank, a->mla->pe_dim);
    struct tile tile = {.keys = scratch};
    tile.q = tile.keys + K3_MLA_KEYS * width;
    tile.z = tile.q + K3_MLA_TOKENS * width;
    tile.scores = tile.z + K3_MLA_TOKENS * rank;

    for (size_t item = begin; item < end; item++) {
        size_t head = item % a->mla->n_heads, first = item / a->mla->n_heads * K3_MLA_TOKENS;
        size_t n = a->n - first < K3_MLA_TOKENS ? a->n - first : K3_MLA_TOKENS;
        attend_tile(a, &tile, head, first, n, thread);
    }
}

void k3_mla_attend(struct k3_compute *c, const struct k3_mla *mla, const float *q, size_t n, size_t position,
                   float *o, float *scratch)
{
    struct attention a = {c, mla, q, n, position, o, scratch, 1.0f / sqrtf((float)mla->qk_dim)};
    size_t n_tiles = (n + K3_MLA_TOKENS - 1) / K3_MLA_TOKENS;
    k3_pool_run(c->pool, attend_tiles, &a, n_tiles * mla->n_heads, 1);
}
