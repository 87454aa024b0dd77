/* lru.c - evicts what was asked for longest ago.
 *
 * Decode asks for the layers in a circle, so a pool smaller than what one token needs hits nothing at all:
 * each expert is evicted just before its layer comes round again. */
#include "store/key_lists.h"
#include "store/policy.h"

#include <stdlib.h>

struct lru {
    struct k3_policy base;
    struct k3_key_lists lists; /* list 0: latest first */
};

static void lru_free(struct k3_policy *policy)
{
    struct lru *lru = (struct lru *)policy;
    if (!lru) return;
    k3_key_lists_free(&lru->lists);
    free(lru);
}

static struct k3_policy *lru_create(const struct k3_policy_shape *shape)
{
    struct lru *lru = calloc(1, sizeof *lru);
    if (!lru) return NULL;
    lru->base.kind = &k3_policy_lru;
    if (k3_key_lists_init(&lru->lists, k3_policy_keys(shape), 1)) return &lru->base;
    lru_free(&lru->base);
    return NULL;
}

static void lru_visit(struct k3_policy *policy, uint32_t layer)
{
    (void)policy, (void)layer; /* the order of requests is clock enough */
}

static void lru_touch(struct k3_policy *policy, uint32_t key)
{
    struct lru *lru = (struct lru *)policy;
    k3_key_lists_remove(&lru->lists, key);
    k3_key_lists_push_front(&lru->lists, 0, key);
}

static void lru_admit(struct k3_policy *policy, uint32_t key, bool wanted)
{
    struct lru *lru = (struct lru *)policy;
    if (wanted)
        k3_key_lists_push_front(&lru->lists, 0, key);
    else
        k3_key_lists_push_back(&lru->lists, 0, key);
}

static void lru_forget(struct k3_policy *policy, uint32_t key)
{
    struct lru *lru = (struct lru *)policy;
    k3_key_lists_remove(&lru->lists, key);
}

static uint32_t lru_victim(struct k3_policy *policy, k3_may_evict_fn may_evict, void *ctx)
{
    struct lru *lru = (struct lru *)policy;
    uint32_t head = lru->lists.n_keys;
    for (uint32_t key = lru->lists.previous[head]; key != head; key = lru->lists.previous[key]) {
        if (!may_evict(ctx, key)) continue;
        k3_key_lists_remove(&lru->lists, key);
        return key;
    }
    return K3_NO_KEY;
}

const struct k3_policy_kind k3_policy_lru = {
    "lru", lru_create, lru_free, lru_visit, lru_touch, lru_admit, lru_victim, lru_forget,
};
