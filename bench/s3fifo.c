/* s3fifo.c - a short queue for what is new, a long one for what was asked for again, and a memory of what
 * left the short one. J. Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023. */
#include "policies.h"

#include "store/key_lists.h"

#include <stdlib.h>

enum { SMALL, MAIN, GHOST, N_LISTS, NO_LIST = N_LISTS };

#define MAX_USES 3 /* two bits in the paper */

struct s3fifo {
    struct k3_policy base;
    uint32_t small_slots, main_slots; /* a tenth and the rest; GHOST holds as many as MAIN */
    uint32_t n[N_LISTS];
    unsigned char *list_of, *uses; /* [n_keys] */
    struct k3_key_lists lists;     /* newest first */
};

static void s3fifo_free(struct k3_policy *policy)
{
    struct s3fifo *s = (struct s3fifo *)policy;
    if (!s) return;
    k3_key_lists_free(&s->lists);
    free(s->list_of);
    free(s->uses);
    free(s);
}

static struct k3_policy *s3fifo_create(const struct k3_policy_shape *shape)
{
    uint32_t n_keys = k3_policy_keys(shape);
    struct s3fifo *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->base.kind = &k3_policy_s3fifo;
    s->small_slots = shape->n_slots / 10;
    s->main_slots = shape->n_slots - s->small_slots;
    s->list_of = malloc(n_keys);
    s->uses = calloc(n_keys, sizeof *s->uses);
    bool ok = k3_key_lists_init(&s->lists, n_keys, N_LISTS) && s->list_of && s->uses;
    for (uint32_t key = 0; key < n_keys && ok; key++) s->list_of[key] = NO_LIST;
    if (ok) return &s->base;
    s3fifo_free(&s->base);
    return NULL;
}

static void s3fifo_visit(struct k3_policy *policy, uint32_t layer)
{
    (void)policy, (void)layer;
}

static void s3fifo_touch(struct k3_policy *policy, uint32_t key)
{
    struct s3fifo *s = (struct s3fifo *)policy;
    if (s->uses[key] < MAX_USES) s->uses[key]++;
}

static void take_out(struct s3fifo *s, uint32_t key)
{
    s->n[s->list_of[key]]--;
    s->list_of[key] = NO_LIST;
    k3_key_lists_remove(&s->lists, key);
}

static void put(struct s3fifo *s, unsigned char list, uint32_t key)
{
    s->n[list]++;
    s->list_of[key] = list;
    k3_key_lists_push_front(&s->lists, list, key);
}

static void s3fifo_admit(struct k3_policy *policy, uint32_t key, bool wanted)
{
    struct s3fifo *s = (struct s3fifo *)policy;
    bool back = s->list_of[key] == GHOST;
    if (back) take_out(s, key);
    s->uses[key] = 0;
    put(s, back && wanted ? MAIN : SMALL, key);
}

static void remember(struct s3fifo *s, uint32_t key)
{
    put(s, GHOST, key);
    if (s->n[GHOST] > s->main_slots) take_out(s, s->lists.previous[s->lists.n_keys + GHOST]);
}

static uint32_t evict_small(struct s3fifo *s, k3_may_evict_fn may_evict, void *ctx)
{
    uint32_t head = s->lists.n_keys + SMALL;
    for (uint32_t key = s->lists.previous[head], before; key != head; key = before) {
        before = s->lists.previous[key];
        if (s->uses[key] > 1) { /* asked for again, and again: it is no passer-by */
            take_out(s, key);
            put(s, MAIN, key);
            s->uses[key] = 0;
        } else if (may_evict(ctx, key)) {
            take_out(s, key);
            remember(s, key);
            return key;
        }
    }
    return K3_NO_KEY;
}

static uint32_t evict_main(struct s3fifo *s, k3_may_evict_fn may_evict, void *ctx)
{
    uint32_t head = s->lists.n_keys + MAIN;
    for (uint32_t key = s->lists.previous[head], before; key != head; key = before) {
        before = s->lists.previous[key];
        if (!may_evict(ctx, key)) continue;
        take_out(s, key);
        if (s->uses[key] == 0) return key;
        s->uses[key]--;
        put(s, MAIN, key); /* another round */
        if (before == head) before = key;
    }
    return K3_NO_KEY;
}

static uint32_t s3fifo_victim(struct k3_policy *policy, k3_may_evict_fn may_evict, void *ctx)
{
    struct s3fifo *s = (struct s3fifo *)policy;
    uint32_t key = K3_NO_KEY;
    if (s->n[SMALL] > s->small_slots) key = evict_small(s, may_evict, ctx);
    if (key == K3_NO_KEY) key = evict_main(s, may_evict, ctx);
    if (key == K3_NO_KEY) key = evict_small(s, may_evict, ctx);
    return key == K3_NO_KEY ? evict_main(s, may_evict, ctx) : key;
}

static void s3fifo_forget(struct k3_policy *policy, uint32_t key)
{
    take_out((struct s3fifo *)policy, key);
}

const struct k3_policy_kind k3_policy_s3fifo = {
    "s3fifo",     s3fifo_create, s3fifo_free,   s3fifo_visit,
    s3fifo_touch, s3fifo_admit,  s3fifo_victim, s3fifo_forget,
};
