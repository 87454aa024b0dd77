/* replay.c - a trace through a policy. */
#include "policies.h"

#include "store/lfru.h"

#include <stdlib.h>

#define KEEP_32 0x1.f50765b6e454p-1 /* 2^(-1/32) */

static struct k3_policy *create_lru(const struct k3_policy_shape *shape, const struct k3_trace *trace)
{
    (void)trace;
    return k3_policy_lru.create(shape);
}

static struct k3_policy *create_lfu(const struct k3_policy_shape *shape, const struct k3_trace *trace)
{
    (void)trace;
    return k3_lfru_create(shape, KEEP_32, false);
}

static struct k3_policy *create_lfru(const struct k3_policy_shape *shape, const struct k3_trace *trace)
{
    (void)trace;
    return k3_policy_lfru.create(shape);
}

static struct k3_policy *create_arc(const struct k3_policy_shape *shape, const struct k3_trace *trace)
{
    (void)trace;
    return k3_policy_arc.create(shape);
}

static struct k3_policy *create_s3fifo(const struct k3_policy_shape *shape, const struct k3_trace *trace)
{
    (void)trace;
    return k3_policy_s3fifo.create(shape);
}

const struct k3_candidate k3_candidates[] = {
    {"lru", create_lru},
    {"lfu", create_lfu},
    {"arc", create_arc},
    {"s3fifo", create_s3fifo},
    {"lfru", create_lfru},
    {"belady", k3_belady_create},
    {0},
};

enum state { ABSENT, RESIDENT, IN_USE };

struct pool {
    const struct k3_policy_shape *shape;
    struct k3_policy *policy;
    unsigned char *state; /* [n_keys], of enum state */
    uint32_t used;        /* slots */
};

static bool may_evict(void *ctx, uint32_t key)
{
    const struct pool *pool = ctx;
    return pool->state[key] != IN_USE;
}

/* One layer of one token. Returns the hits. */
static uint32_t step(struct pool *pool, uint32_t layer, const uint16_t *ids, size_t n)
{
    const struct k3_policy_kind *kind = pool->policy->kind;
    uint32_t hits = 0, base = layer * pool->shape->n_experts;
    kind->visit(pool->policy, layer);
    for (size_t i = 0; i < n; i++) {
        if (pool->state[base + ids[i]] != RESIDENT) continue;
        kind->touch(pool->policy, base + ids[i]);
        pool->state[base + ids[i]] = IN_USE;
        hits++;
    }
    for (size_t i = 0; i < n; i++) {
        if (pool->state[base + ids[i]] != ABSENT) continue;
        if (pool->used < pool->shape->n_slots)
            pool->used++;
        else
            pool->state[kind->victim(pool->policy, may_evict, pool)] = ABSENT;
        kind->admit(pool->policy, base + ids[i], true);
        pool->state[base + ids[i]] = IN_USE;
    }
    for (size_t i = 0; i < n; i++) pool->state[base + ids[i]] = RESIDENT;
    return hits;
}

uint32_t k3_replay_floor(const struct k3_trace *trace)
{
    size_t most = 0, n_lists = (size_t)trace->n_tokens * trace->n_layers;
    for (size_t i = 0; i < n_lists; i++) {
        size_t n = trace->begin[i + 1] - trace->begin[i];
        if (n > most) most = n;
    }
    return (uint32_t)most;
}

static void run(struct pool *pool, const struct k3_trace *trace, uint32_t warm_up, struct k3_replay *result)
{
    const size_t *begin = trace->begin;
    for (uint32_t token = 0; token < trace->n_tokens; token++) {
        for (uint32_t layer = 0; layer < trace->n_layers; layer++, begin++) {
            size_t n = begin[1] - begin[0];
            uint32_t hits = step(pool, layer, trace->ids + begin[0], n);
            if (token < warm_up) continue;
            result->requests += n;
            result->hits += hits;
        }
    }
}

k3_status k3_replay(const struct k3_trace *trace, const struct k3_policy_shape *shape,
                    const struct k3_candidate *candidate, uint32_t warm_up, struct k3_replay *result,
                    struct k3_error *err)
{
    uint32_t floor = k3_replay_floor(trace);
    if (shape->n_slots < floor)
        return k3_fail(err, K3_ERR_ARGUMENT, "%u slots are too few: a layer asks for %u experts at once",
                       shape->n_slots, floor);
    struct pool pool = {.shape = shape};
    pool.policy = candidate->create(shape, trace);
    pool.state = calloc(k3_policy_keys(shape), sizeof *pool.state);
    k3_status status = K3_OK;
    *result = (struct k3_replay){0};
    if (pool.policy && pool.state)
        run(&pool, trace, warm_up, result);
    else
        status = k3_fail_memory(err, "a cache policy", k3_policy_keys(shape));
    free(pool.state);
    if (pool.policy) pool.policy->kind->free(pool.policy);
    return status;
}
