/* store.h - where the experts come from.
 *
 * The scheduler asks for the experts a layer needs and takes each one as it becomes ready, in any order:
 * first those that are in memory, then the others as they arrive. It gives each one back as soon as it has
 * computed with it. What is in memory is a fixed number of slots, one expert each; which experts stay there
 * is the store's business and changes the speed of things, never a result. See docs/store.md.
 *
 * A store belongs to one thread at a time. Reading goes on beside it. */
#ifndef K3_STORE_STORE_H
#define K3_STORE_STORE_H

#include "model/model.h"

struct k3_store;
struct k3_ticket;

struct k3_store_options {
    enum k3_io io;
    enum k3_direct direct;
    uint32_t n_slots; /* more than all experts are as good as all; unused with K3_IO_MMAP */
    uint32_t depth;   /* pieces of about 1 MiB to be read at a time at most; 0: chosen */
};

/* The three matrices of one expert, types and shapes as in the layer's tensors. At least K3_BUFFER_PAD bytes
 * after each are readable. */
struct k3_expert {
    size_t index; /* in the list that was asked for */
    const unsigned char *gate, *up, *down;
    uint64_t asked_ns, arrived_ns; /* of its reading, told once; 0 when it was here already */
};

/* `plan` must outlive the store. */
k3_status k3_store_open(const struct k3_plan *plan, const struct k3_store_options *options,
                        struct k3_store **store, struct k3_error *err);
void k3_store_close(struct k3_store *store);

/* Bytes of one expert of a MoE layer, and of all experts, in the files. */
uint64_t k3_store_expert_bytes(const struct k3_plan *plan, uint32_t layer);
uint64_t k3_store_bytes(const struct k3_plan *plan);

/* Experts in all layers; the fewest slots a store can work with; bytes of memory of each. */
uint64_t k3_store_experts(const struct k3_plan *plan);
uint32_t k3_store_least_slots(const struct k3_plan *plan);
uint64_t k3_store_slot_bytes(const struct k3_plan *plan);

/* K3_ERR_ARGUMENT when n_slots are fewer than k3_store_least_slots. */
k3_status k3_store_check_slots(const struct k3_plan *plan, uint64_t n_slots, struct k3_error *err);

uint32_t k3_store_slots(const struct k3_store *store); /* 0: files are mapped */

/* Asks for n different experts of a layer, and starts reading what is not there. `sweep`: they are most of
 * the layer's and for many tokens, so that they say nothing about what will be needed next: they pass through
 * few slots and evict nothing. Best in ascending order then, which is the order in the file. One ticket at a
 * time; `ids` must stay until it is released. */
k3_status k3_store_acquire(struct k3_store *store, uint32_t layer, const uint32_t *ids, size_t n, bool sweep,
                           struct k3_ticket **ticket, struct k3_error *err);

/* The next expert that is ready; called n times. Its bytes stay until it is given back. Hold few of them: half the least
 * slots at most, of a sweep one; K3_ERR_ARGUMENT when so many are held that the next has no slot. K3_ERR_IO: an expert
 * could not be read; the others still can be had. */
k3_status k3_store_next(struct k3_ticket *ticket, struct k3_expert *expert, struct k3_error *err);

/* Whether k3_store_next would return at once. */
bool k3_store_has_next(struct k3_ticket *ticket);

/* The expert was computed. Others of the ticket may be waiting for its slot. */
void k3_store_give_back(struct k3_ticket *ticket, const struct k3_expert *expert);

/* Gives back all experts and forgets those that were not taken. */
void k3_store_release(struct k3_ticket *ticket);

/* Whether an expert is in memory, or being read. */
bool k3_store_holds(const struct k3_store *store, uint32_t layer, uint32_t expert);

/* Guesses that experts of a layer will be asked for, likeliest first. Up to max_bytes of them are read when
 * there is nothing else to read. A guess evicts nothing, and is forgotten when the layer has passed without
 * it. */
void k3_store_hint(struct k3_store *store, uint32_t layer, const uint32_t *ids, size_t n, uint64_t max_bytes);

struct k3_store_stats {
    uint64_t requests;
    uint64_t hits;                /* wholly in memory before they were asked for */
    uint64_t misses;              /* the others. With mapped files neither is known */
    uint64_t bytes_read;          /* as they came from the files: alignment and repeated reads included */
    uint64_t wait_ns;             /* that k3_store_next waited */
    uint64_t read_ns;             /* while experts of the layer were being read */
    uint64_t hints, useful_hints; /* reads that were started on a guess; those that were asked for in time */
    uint64_t n_pieces, depth_sum; /* reads; and how many were under way when each arrived, added up */
};

/* ---- what is in memory, to begin with it another time ---- */

struct k3_store_item {
    uint32_t layer, expert;
    uint32_t uses; /* requests, in hundredths; each weighs half after 128 visits of its layer */
};

/* Up to `capacity` experts that are kept in memory, the most used first; `items` has room for them.
 * k3_store_slots is always enough. Returns their number. */
size_t k3_store_list(const struct k3_store *store, struct k3_store_item *items, size_t capacity);

/* Remembers how often experts were used, and reads those of them that are not there into free slots, the first items
 * before the last, in the order of the file. What cannot be read is left to whoever asks for it. False: cancelled by
 * `progress`, which counts bytes and may be NULL. Not while a ticket is out. */
bool k3_store_preload(struct k3_store *store, struct k3_store_item *items, size_t n, k3_progress_fn progress,
                      void *progress_ctx);

void k3_store_get_stats(const struct k3_store *store, uint32_t layer, struct k3_store_stats *stats);

#endif
