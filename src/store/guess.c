/* guess.c - experts that may be needed soon.
 *
 * A guess reads an expert into a spare slot. If the expert is asked for, it becomes like any other; if its
 * layer passes without it, the slot is free again. */
#include "store/store_internal.h"

/* Acquires that a guess lives, should its layer never come. The next layer is the first of them. */
#define LIFETIME 2

void k3_guess_end(struct k3_store *store, struct k3_slot *slot)
{
    slot->guess = false;
    for (uint32_t i = 0; i < store->n_guesses; i++)
        if (store->guesses[i] == slot) {
            store->guesses[i] = store->guesses[--store->n_guesses];
            return;
        }
}

/* Gives up a guess. What is being read already goes on, and its slot is freed when that is over. */
static bool forget(struct k3_store *store, struct k3_slot *slot)
{
    k3_guess_end(store, slot);
    if (slot->state == K3_SLOT_LOADING && !k3_reader_cancel(store->reader, &slot->load)) return false;
    k3_slots_free(&store->slots, slot);
    return true;
}

void k3_guesses_expire(struct k3_store *store, uint32_t layer)
{
    for (uint32_t i = store->n_guesses; i-- > 0;) {
        struct k3_slot *slot = store->guesses[i];
        if (slot->layer == layer || slot->deadline <= store->n_acquires) forget(store, slot);
    }
}

bool k3_guesses_yield(struct k3_store *store)
{
    while (store->n_guesses)
        if (forget(store, store->guesses[store->n_guesses - 1])) return true;
    return false;
}

bool k3_store_holds(const struct k3_store *store, uint32_t layer, uint32_t expert)
{
    return store->mapped || k3_slots_find(&store->slots, layer, expert);
}

void k3_store_hint(struct k3_store *store, uint32_t layer, const uint32_t *ids, size_t n, uint64_t max_bytes)
{
    if (store->mapped) return;
    k3_store_take_arrived(store); /* guesses that were given up while they were read may be in the way */
    uint64_t bytes = k3_store_expert_bytes(store->plan, layer);
    for (size_t i = 0; i < n && max_bytes >= bytes; i++) {
        if (k3_slots_find(&store->slots, layer, ids[i])) continue;
        struct k3_slot *slot = k3_slots_take(&store->slots, layer, ids[i], K3_USE_GUESS);
        if (!slot) return;
        slot->deadline = store->n_acquires + LIFETIME;
        if (!slot->kept) store->guesses[store->n_guesses++] = slot;
        k3_reader_start(store->reader, &slot->load);
        store->stats[layer].hints++;
        max_bytes -= bytes;
    }
}
