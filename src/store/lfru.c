/* lfru.c - evicts what was asked for rarely and long ago.
 *
 *     score = frequency / (age + 1)
 *
 * age: visits of the expert's layer since it was last asked for. frequency: the requests so far, each of
 * which loses half its weight in 128 visits. Frequency is what tells the popular expert from the one that
 * came by once; the age makes room for a new topic sooner than frequency alone.
 *
 * Age is counted in visits of the expert's own layer, not in time: only when its layer came by could it be
 * asked for. In the middle of a token an expert of a layer just passed has had its chance, one of a layer
 * still to come has not, and this is worth more than a hit in a hundred while the pool is small.
 *
 * So scores change for one layer at a time: a visit computes those of its experts anew, which is about
 * n_slots changes a token, ten for each request. */
#include "store/lfru.h"

#include "store/key_heap.h"

#include <stdlib.h>

#define KEEP 0x1.fd3c22b8f71f1p-1 /* 2^(-1/128) */

/* Ages from here on count as this one: after eight half-lives all that is left to say is "long ago". */
#define MAX_AGE 1024

struct lfru {
    struct k3_policy base;
    uint32_t n_experts;
    double decay[MAX_AGE + 1];  /* what is left of a frequency at this age */
    double weight[MAX_AGE + 1]; /* score = frequency when last asked for * weight at this age */
    uint32_t *visits;           /* [n_layers] */
    uint32_t *last;             /* [n_keys]: visits of its layer when it was last asked for */
    double *frequency;          /* [n_keys]: just after it was last asked for; 0: never yet */
    struct k3_key_heap heap;    /* keys that have a slot */
};

static void lfru_free(struct k3_policy *policy)
{
    struct lfru *lfru = (struct lfru *)policy;
    if (!lfru) return;
    k3_key_heap_free(&lfru->heap);
    free(lfru->visits);
    free(lfru->last);
    free(lfru->frequency);
    free(lfru);
}

struct k3_policy *k3_lfru_create(const struct k3_policy_shape *shape, double keep, bool recency)
{
    uint32_t n_keys = k3_policy_keys(shape);
    struct lfru *lfru = calloc(1, sizeof *lfru);
    if (!lfru) return NULL;
    lfru->base.kind = &k3_policy_lfru;
    lfru->n_experts = shape->n_experts;
    double left = 1;
    for (int age = 0; age <= MAX_AGE; age++, left *= keep) {
        lfru->decay[age] = left;
        lfru->weight[age] = recency ? left / (age + 1) : left;
    }
    lfru->visits = calloc(shape->n_layers, sizeof *lfru->visits);
    lfru->last = calloc(n_keys, sizeof *lfru->last);
    lfru->frequency = calloc(n_keys, sizeof *lfru->frequency);
    bool ok = k3_key_heap_init(&lfru->heap, n_keys, shape->n_slots);
    if (ok && lfru->visits && lfru->last && lfru->frequency) return &lfru->base;
    lfru_free(&lfru->base);
    return NULL;
}

static struct k3_policy *lfru_create(const struct k3_policy_shape *shape)
{
    return k3_lfru_create(shape, KEEP, true);
}

static uint32_t age_of(const struct lfru *lfru, uint32_t key)
{
    uint32_t age = lfru->visits[key / lfru->n_experts] - lfru->last[key];
    return age < MAX_AGE ? age : MAX_AGE;
}

static double score_of(const struct lfru *lfru, uint32_t key)
{
    return lfru->frequency[key] * lfru->weight[age_of(lfru, key)];
}

static void count_request(struct lfru *lfru, uint32_t key)
{
    lfru->frequency[key] = lfru->frequency[key] * lfru->decay[age_of(lfru, key)] + 1;
    lfru->last[key] = lfru->visits[key / lfru->n_experts];
}

double k3_lfru_uses(const struct k3_policy *policy, uint32_t key)
{
    const struct lfru *lfru = (const struct lfru *)policy;
    return lfru->frequency[key] * lfru->decay[age_of(lfru, key)];
}

void k3_lfru_remember(struct k3_policy *policy, uint32_t key, double uses)
{
    struct lfru *lfru = (struct lfru *)policy;
    lfru->frequency[key] = uses;
    lfru->last[key] = lfru->visits[key / lfru->n_experts];
}

static void lfru_visit(struct k3_policy *policy, uint32_t layer)
{
    struct lfru *lfru = (struct lfru *)policy;
    lfru->visits[layer]++;
    uint32_t begin = layer * lfru->n_experts, end = begin + lfru->n_experts;
    for (uint32_t key = begin; key < end; key++)
        if (k3_key_heap_has(&lfru->heap, key)) k3_key_heap_change(&lfru->heap, key, score_of(lfru, key));
}

static void lfru_touch(struct k3_policy *policy, uint32_t key)
{
    struct lfru *lfru = (struct lfru *)policy;
    count_request(lfru, key);
    k3_key_heap_change(&lfru->heap, key, score_of(lfru, key));
}

static void lfru_admit(struct k3_policy *policy, uint32_t key, bool wanted)
{
    struct lfru *lfru = (struct lfru *)policy;
    if (wanted) count_request(lfru, key);
    k3_key_heap_put(&lfru->heap, key, score_of(lfru, key));
}

static uint32_t lfru_victim(struct k3_policy *policy, k3_may_evict_fn may_evict, void *ctx)
{
    struct lfru *lfru = (struct lfru *)policy;
    return k3_key_heap_victim(&lfru->heap, may_evict, ctx);
}

static void lfru_forget(struct k3_policy *policy, uint32_t key)
{
    struct lfru *lfru = (struct lfru *)policy;
    k3_key_heap_remove(&lfru->heap, key);
}

const struct k3_policy_kind k3_policy_lfru = {
    "lfru", lfru_create, lfru_free, lfru_visit, lfru_touch, lfru_admit, lfru_victim, lfru_forget,
};
