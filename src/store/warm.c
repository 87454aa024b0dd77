/* warm.c - what is in memory now, and beginning with it another time. */
#include "store/lfru.h"
#include "store/store_internal.h"

#include <stdlib.h>

#define HUNDREDTHS 100

/* ---- listing ---- */

static int most_used_first(const void *a, const void *b)
{
    const struct k3_store_item *x = a, *y = b;
    if (x->uses != y->uses) return x->uses > y->uses ? -1 : 1;
    if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    return (x->expert > y->expert) - (x->expert < y->expert);
}

static uint32_t key_of(const struct k3_store *store, uint32_t layer, uint32_t expert)
{
    return layer * store->plan->hp.n_experts + expert;
}

size_t k3_store_list(const struct k3_store *store, struct k3_store_item *items, size_t capacity)
{
    const struct k3_slots *slots = &store->slots;
    size_t n = 0;
    for (uint32_t i = 0; i < slots->n && n < capacity; i++) {
        const struct k3_slot *slot = &slots->slots[i];
        if (!slot->kept || slot->state != K3_SLOT_READY) continue;
        double uses = k3_lfru_uses(slots->policy, key_of(store, slot->layer, slot->expert));
        items[n++] = (struct k3_store_item){slot->layer, slot->expert, (uint32_t)(uses * HUNDREDTHS + 0.5)};
    }
    qsort(items, n, sizeof *items, most_used_first);
    return n;
}

/* ---- preloading ---- */

#define AHEAD 16 /* experts being read: of K3 more reads than a drive works on at a time */

static int in_file_order(const void *a, const void *b)
{
    const struct k3_store_item *x = a, *y = b;
    if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    return (x->expert > y->expert) - (x->expert < y->expert);
}

struct preload {
    struct k3_store *store;
    uint64_t done, total; /* bytes */
    size_t n_reading;
    k3_progress_fn progress;
    void *ctx;
};

/* Waits until all but `most` loads have arrived. False: cancelled. */
static bool collect(struct preload *p, size_t most)
{
    bool going = true;
    while (p->n_reading > most) {
        struct k3_load *load = k3_reader_collect(p->store->reader, true);
        p->n_reading--;
        for (int i = 0; i < K3_LOAD_RANGES; i++) p->done += load->ranges[i].bytes;
        k3_store_take_load(p->store, load);
        if (p->progress && !p->progress(p->ctx, "reading the warm experts", p->done, p->total)) going = false;
    }
    return going;
}

/* Moves those that will be read to the front: not there already, and with a free slot. Returns their number. */
static size_t choose(struct k3_store *store, struct k3_store_item *items, size_t n)
{
    struct k3_slots *slots = &store->slots;
    size_t room = slots->max_kept - slots->n_kept, chosen = 0;
    for (size_t i = 0; i < n; i++) {
        if (k3_slots_find(slots, items[i].layer, items[i].expert)) continue;
        k3_lfru_remember(slots->policy, key_of(store, items[i].layer, items[i].expert),
                         (double)items[i].uses / HUNDREDTHS);
        if (chosen < room) items[chosen++] = items[i];
    }
    return chosen;
}

bool k3_store_preload(struct k3_store *store, struct k3_store_item *items, size_t n, k3_progress_fn progress,
                      void *ctx)
{
    struct preload p = {.store = store, .progress = progress, .ctx = ctx};
    n = choose(store, items, n);
    qsort(items, n, sizeof *items, in_file_order);
    for (size_t i = 0; i < n; i++) p.total += k3_store_expert_bytes(store->plan, items[i].layer);

    bool going = true;
    for (size_t i = 0; i < n && going; i++) {
        struct k3_slot *slot = k3_slots_take(&store->slots, items[i].layer, items[i].expert, K3_USE_SWEEP);
        k3_reader_start(store->reader, &slot->load);
        p.n_reading++;
        going = collect(&p, AHEAD);
    }
    going = collect(&p, 0) && going;
    for (uint32_t i = 0; i < store->slots.n; i++) { /* nobody asked: no request shall tell of these reads */
        struct k3_slot *slot = &store->slots.slots[i];
        if (slot->state == K3_SLOT_READY) slot->load.asked_ns = slot->load.arrived_ns = 0;
    }
    return going;
}
