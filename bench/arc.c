/* arc.c - two lists of what has a slot, asked for once and more often, and two of what had one; hits in those
 * move the border. N. Megiddo, D. Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003.
 *
 * Here a step's victims are chosen before its reads, so the border moves when a key is admitted. */
#include "policies.h"

#include "store/key_lists.h"

#include <stdlib.h>

enum { ONCE, OFTEN, GONE_ONCE, GONE_OFTEN, N_LISTS, NO_LIST = N_LISTS };

struct arc {
    struct k3_policy base;
    uint32_t n_slots;
    uint32_t border; /* how many keys ONCE should have: 0 .. n_slots */
    uint32_t n[N_LISTS];
    unsigned char *list_of; /* [n_keys] */
    struct k3_key_lists lists;
};

static void arc_free(struct k3_policy *policy)
{
    struct arc *arc = (struct arc *)policy;
    if (!arc) return;
    k3_key_lists_free(&arc->lists);
    free(arc->list_of);
    free(arc);
}

static struct k3_policy *arc_create(const struct k3_policy_shape *shape)
{
    uint32_t n_keys = k3_policy_keys(shape);
    struct arc *arc = calloc(1, sizeof *arc);
    if (!arc) return NULL;
    arc->base.kind = &k3_policy_arc;
    arc->n_slots = shape->n_slots;
    arc->list_of = malloc(n_keys);
    bool ok = k3_key_lists_init(&arc->lists, n_keys, N_LISTS) && arc->list_of;
    for (uint32_t key = 0; key < n_keys && ok; key++) arc->list_of[key] = NO_LIST;
    if (ok) return &arc->base;
    arc_free(&arc->base);
    return NULL;
}

static void arc_visit(struct k3_policy *policy, uint32_t layer)
{
    (void)policy, (void)layer;
}

static void take_out(struct arc *arc, uint32_t key)
{
    arc->n[arc->list_of[key]]--;
    arc->list_of[key] = NO_LIST;
    k3_key_lists_remove(&arc->lists, key);
}

static void put(struct arc *arc, unsigned char list, uint32_t key)
{
    arc->n[list]++;
    arc->list_of[key] = list;
    k3_key_lists_push_front(&arc->lists, list, key);
}

static uint32_t oldest(const struct arc *arc, int list)
{
    return arc->lists.previous[arc->lists.n_keys + (uint32_t)list];
}

static void arc_touch(struct k3_policy *policy, uint32_t key)
{
    struct arc *arc = (struct arc *)policy;
    take_out(arc, key);
    put(arc, OFTEN, key);
}

/* A key that came back tells which list was too short. */
static void move_border(struct arc *arc, uint32_t key)
{
    uint32_t once = arc->n[GONE_ONCE], often = arc->n[GONE_OFTEN];
    if (arc->list_of[key] == GONE_ONCE) {
        uint32_t by = often > once ? often / once : 1;
        arc->border = arc->n_slots - arc->border > by ? arc->border + by : arc->n_slots;
    } else {
        uint32_t by = once > often ? once / often : 1;
        arc->border = arc->border > by ? arc->border - by : 0;
    }
}

static void arc_admit(struct k3_policy *policy, uint32_t key, bool wanted)
{
    struct arc *arc = (struct arc *)policy;
    bool back = arc->list_of[key] != NO_LIST;
    if (back && wanted) move_border(arc, key);
    if (back) take_out(arc, key);
    put(arc, back && wanted ? OFTEN : ONCE, key);
}

/* What had a slot is remembered: with what has one, n_slots keys asked for once and as many in all besides. */
static void trim_memory(struct arc *arc)
{
    while (arc->n[GONE_ONCE] && arc->n[ONCE] + arc->n[GONE_ONCE] > arc->n_slots)
        take_out(arc, oldest(arc, GONE_ONCE));
    while (arc->n[GONE_ONCE] + arc->n[GONE_OFTEN] > arc->n_slots)
        take_out(arc, oldest(arc, arc->n[GONE_OFTEN] ? GONE_OFTEN : GONE_ONCE));
}

static uint32_t oldest_evictable(const struct arc *arc, int list, k3_may_evict_fn may_evict, void *ctx)
{
    uint32_t head = arc->lists.n_keys + (uint32_t)list, key = oldest(arc, list);
    while (key != head && !may_evict(ctx, key)) key = arc->lists.previous[key];
    return key == head ? K3_NO_KEY : key;
}

static uint32_t arc_victim(struct k3_policy *policy, k3_may_evict_fn may_evict, void *ctx)
{
    struct arc *arc = (struct arc *)policy;
    int list = arc->n[ONCE] > arc->border ? ONCE : OFTEN;
    uint32_t key = oldest_evictable(arc, list, may_evict, ctx);
    if (key == K3_NO_KEY) {
        list = ONCE + OFTEN - list;
        key = oldest_evictable(arc, list, may_evict, ctx);
    }
    if (key == K3_NO_KEY) return key;
    take_out(arc, key);
    put(arc, list == ONCE ? GONE_ONCE : GONE_OFTEN, key);
    trim_memory(arc);
    return key;
}

static void arc_forget(struct k3_policy *policy, uint32_t key)
{
    take_out((struct arc *)policy, key);
}

const struct k3_policy_kind k3_policy_arc = {
    "arc", arc_create, arc_free, arc_visit, arc_touch, arc_admit, arc_victim, arc_forget,
};
