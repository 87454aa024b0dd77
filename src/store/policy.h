/* policy.h - which expert makes room for another.
 *
 * A policy is told what is asked for and what gets a slot, and when all slots are taken it names the expert
 * that goes. It never sees slots, bytes or files, so the store and the simulator (k3bench policy) drive the
 * same code. It changes speed only, never results.
 *
 * One step of decode, in this order:
 *     visit(layer)                once
 *     touch(key)                  for each expert asked for that has a slot
 *     victim(), admit(key, true)  for each other; no victim while a slot is free
 *
 * A prefill sweep asks for nearly all experts of a layer, which says nothing about what comes next. It has
 * slots of its own and is not told to the policy at all, so it cannot displace what decode needs. What it, or
 * a guess, leaves in a free slot is admitted with wanted = false and is the first to go unless its past
 * speaks for it.
 *
 * Nothing allocates after create. Not safe for two threads at a time. The same calls give the same victims on
 * every machine. */
#ifndef K3_STORE_POLICY_H
#define K3_STORE_POLICY_H

#include "base/error.h"

#define K3_NO_KEY UINT32_MAX

/* A key is an expert of a layer: layer * n_experts + expert. Layers are numbered as the caller likes, from 0. */
struct k3_policy_shape {
    uint32_t n_layers, n_experts, n_slots;
};

static inline uint32_t k3_policy_keys(const struct k3_policy_shape *shape)
{
    return shape->n_layers * shape->n_experts;
}

/* False for what is being computed, read or waited for. */
typedef bool (*k3_may_evict_fn)(void *ctx, uint32_t key);

/* Every policy begins with this. */
struct k3_policy {
    const struct k3_policy_kind *kind;
};

struct k3_policy_kind {
    const char *name;

    /* NULL: memory is out. */
    struct k3_policy *(*create)(const struct k3_policy_shape *shape);

    /* Accepts NULL. */
    void (*free)(struct k3_policy *policy);

    /* A token has come to `layer`. This is the clock: time is counted in visits of a layer. */
    void (*visit)(struct k3_policy *policy, uint32_t layer);

    /* `key` is asked for and has a slot. */
    void (*touch)(struct k3_policy *policy, uint32_t key);

    /* `key` had no slot and now has one; `wanted`: because it was asked for. */
    void (*admit)(struct k3_policy *policy, uint32_t key, bool wanted);

    /* The key that loses its slot: it has none from now on. K3_NO_KEY if none may be evicted. */
    uint32_t (*victim)(struct k3_policy *policy, k3_may_evict_fn may_evict, void *ctx);

    /* `key` has lost its slot for another reason: it could not be read. */
    void (*forget)(struct k3_policy *policy, uint32_t key);
};

/* Frequency and recency: what the engine uses. docs/cache-policy.md says why. */
extern const struct k3_policy_kind k3_policy_lfru;

/* Least recently used: the baseline. */
extern const struct k3_policy_kind k3_policy_lru;

#endif
