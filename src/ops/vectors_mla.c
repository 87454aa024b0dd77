/* vectors_mla.c - adds a block of keys to the running softmax of queries that share them.
 *
 * FORMULA, for query i and the keys it sees (mla.c):
 *
 *   score[s] = scale * q[i] . key[s];  top' = max(top, score);  r = exp(top - top');  p[s] = exp(score[s] - top')
 *   sum = sum * r + sum_s p[s];  z = z * r + sum_s p[s] * key[s][0 .. rank-1];  top = top'
 *
 * The sum of p has 16 partial sums, like a dot product; each value of z is summed key by key.
 *
 * MAPPING. Scores: the elements of a key are lanes; a few queries and two keys are multiplied at a time, so that what is
 * loaded is used more than once. Values: those of z are lanes; up to four queries take the same keys through registers.
 * Queries that see fewer keys than others leave such a group early and go on alone: nothing is ever added for a key that
 * is not seen, not even zero times it.
 *
 * COST, for each query and key: width + rank multiply-adds, two instructions each; at 512 + 64 and 16 lanes 136, half as
 * many cycles. Keys come from the nearest caches. */
#include "ops/vectors_internal.h"
#include "ops/vmath.h"

#define KEYS    K3_MLA_KEYS
#define QUERIES (LANES == 16 ? 4 : 2) /* that are scored together */
#define PAIR    (LANES == 4 ? 1 : 2)  /* keys they are scored with */
#define GROUP   4                     /* queries whose values are summed together */
#define STRIP   2                     /* registers of values */

/* ---- scores ---- */

INLINE void score_queries(const struct k3_mla_queries *x, size_t i, size_t n_queries, const float *keys,
                          size_t n_keys)
{
    size_t width = x->width, s = 0;
    for (; s + PAIR <= n_keys; s += PAIR)
        dots(x->q + i * width, width, n_queries, keys + s * width, width, PAIR, width,
             x->scores + i * KEYS + s, KEYS);
    for (; s < n_keys; s++)
        dots(x->q + i * width, width, n_queries, keys + s * width, 0, 1, width, x->scores + i * KEYS + s,
             KEYS);
}

static size_t most(const size_t *seen, size_t n)
{
    size_t largest = 0;
    for (size_t i = 0; i < n; i++) largest = seen[i] > largest ? seen[i] : largest;
    return largest;
}

static void score(const struct k3_mla_queries *x, const float *keys, const size_t *seen)
{
    size_t i = 0;
    for (; i + QUERIES <= x->n; i += QUERIES) score_queries(x, i, QUERIES, keys, most(seen + i, QUERIES));
    for (; i < x->n; i++) score_queries(x, i, 1, keys, seen[i]);
}

/* ---- softmax ---- */

/* Scores become p, and what was summed before gets the new scale. Up to a multiple of 16 what follows the scores is
 * that of a key without weight. */
static void weigh(const struct k3_mla_queries *x, size_t i, size_t n_keys)
{
    float *p = x->scores + i * KEYS, *z = x->z + i * x->rank, top = x->top[i], tops[16], sums[16] = {0};
    size_t n = (n_keys + 15) / 16 * 16;
    for (size_t s = 0; s < n_keys; s++) p[s] *= x->scale;
    for (size_t s = n_keys; s < n; s++) p[s] = -INFINITY;
    for (size_t l = 0; l < 16; l++) tops[l] = top;
    for (size_t s = 0; s < n; s += 16)
        for (size_t l = 0; l < 16; l++) tops[l] = p[s + l] > tops[l] ? p[s + l] : tops[l];
    for (size_t l = 0; l < 16; l++) top = tops[l] > top ? tops[l] : top;
    for (size_t s = 0; s < n; s++) p[s] = k3_expf(p[s] - top);
    for (size_t s = 0; s < n; s += 16)
        for (size_t l = 0; l < 16; l++) sums[l] += p[s + l];
    for (size_t l = 0; l < 8; l++) sums[l] += sums[l + 8];
    for (size_t l = 0; l < 4; l++) sums[l] += sums[l + 4];

    float rescale = k3_expf(x->top[i] - top);
    x->sum[i] = x->sum[i] * rescale + ((sums[0] + sums[2]) + (sums[1] + sums[3]));
    x->top[i] = top;
    if (rescale != 1.0f)
        for (size_t r = 0; r < x->rank; r++) z[r] *= rescale;
}

/* ---- values ---- */

/* Keys from .. to - 1, for queries i .. i + n_queries - 1. */
INLINE void add_values(const struct k3_mla_queries *x, size_t i, size_t n_queries, const float *keys,
                       size_t from, size_t to)
{
    size_t rank = x->rank, width = x->width, r = 0;
    const float *p = x->scores + i * KEYS;
    float *z = x->z + i * rank;
    for (; r + STRIP * LANES <= rank; r += STRIP * LANES) {
        vec sums[GROUP][STRIP];
        EACH(k, n_queries)
            EACH(l, STRIP) sums[k][l] = load(z + k * rank + r + l * LANES);
        for (size_t s = from; s < to; s++)
            EACH(l, STRIP) {
                vec key = load(keys + s * width + r + l * LANES);
                EACH(k, n_queries) sums[k][l] += all(p[k * KEYS + s]) * key;
            }
        EACH(k, n_queries)
            EACH(l, STRIP) store(z + k * rank + r + l * LANES, sums[k][l]);
    }
    for (; r < rank; r++)
        for (size_t k = 0; k < n_queries; k++)
            for (size_t s = from; s < to; s++) z[k * rank + r] += p[k * KEYS + s] * keys[s * width + r];
}

static void add_group(const struct k3_mla_queries *x, size_t i, const float *keys, const size_t *seen)
{
    size_t common = KEYS;
    for (size_t k = 0; k < GROUP; k++) common = seen[i + k] < common ? seen[i + k] : common;
    add_values(x, i, GROUP, keys, 0, common);
    for (size_t k = 0; k < GROUP; k++)
        if (seen[i + k] > common) add_values(x, i + k, 1, keys, common, seen[i + k]);
}

void K3_OF_SET(k3_mla_keys)(const struct k3_mla_queries *x, const float *keys, const size_t *seen)
{
    size_t i = 0;
    score(x, keys, seen);
    for (size_t k = 0; k < x->n; k++)
        if (seen[k]) weigh(x, k, seen[k]);
    for (; i + GROUP <= x->n; i += GROUP) add_group(x, i, keys, seen);
    for (; i < x->n; i++) add_values(x, i, 1, keys, 0, seen[i]);
}
