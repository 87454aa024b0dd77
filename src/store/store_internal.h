/* store_internal.h - the store and its ticket, as the files of this room see them. */
#ifndef K3_STORE_STORE_INTERNAL_H
#define K3_STORE_STORE_INTERNAL_H

#include "store/mapped.h"
#include "store/slots.h"
#include "store/store.h"

/* Items of a ticket, by number; first in, first out. */
struct k3_item_queue {
    uint32_t *items; /* [n_experts], owned */
    uint32_t first, end;
};

/* The one request under way. */
struct k3_ticket {
    struct k3_store *store;
    uint32_t layer;
    const uint32_t *ids; /* NULL: no request */
    uint32_t n, n_given;
    enum k3_slot_use use;
    struct k3_slot **slots;       /* [n_experts], owned: of each item, while it has one */
    struct k3_item_queue ready;   /* to be handed out, or reported as failed */
    struct k3_item_queue waiting; /* for a slot */
};

struct k3_store {
    const struct k3_plan *plan;
    struct k3_mapped *mapped; /* or all of the following */
    struct k3_slots slots;
    struct k3_reader *reader;

    struct k3_ticket ticket;
    uint64_t n_acquires;
    struct k3_slot **guesses; /* spare slots with guesses, [n_guesses] of [max_spare]; owned */
    uint32_t n_guesses;
    struct k3_store_stats *stats; /* [n_layers], owned */
    uint64_t *last_arrival;       /* [n_layers], owned: when a load of the layer last arrived */
};

/* How many of the slots are set aside for sweeps and guesses. */
uint32_t k3_store_spare_slots(const struct k3_plan *plan, uint32_t n_slots);

/* A load that was collected: its slot becomes ready, or free again. */
void k3_store_take_load(struct k3_store *store, struct k3_load *load);

/* Moves on the slots whose loads are finished. */
void k3_store_take_arrived(struct k3_store *store);

/* depth.c: chooses how many reads are under way, by a short test; not if it would read less than least_bytes with each
 * depth, which tells nothing. */
void k3_store_find_depth(struct k3_store *store, uint64_t least_bytes);

/* guess.c */

/* The guess came true, or is given up: it is no guess any more. */
void k3_guess_end(struct k3_store *store, struct k3_slot *slot);

/* Forgets the guesses about a layer that has passed, and those that are too old. */
void k3_guesses_expire(struct k3_store *store, uint32_t layer);

/* Frees the slot of some guess; false if none can be freed now. */
bool k3_guesses_yield(struct k3_store *store);

#endif
