/* store.h - where the experts come from.
 *
 * The scheduler asks for the experts a layer needs and takes each one as it becomes ready, in any order;
 * their bytes stay where they are until the ticket is released. This version maps the model's files into
 * memory and leaves it to the kernel which pages are resident: every expert is ready at once, and touching it
 * may wait for the drive. */
#ifndef K3_STORE_STORE_H
#define K3_STORE_STORE_H

#include "model/model.h"

struct k3_store;
struct k3_ticket;

/* The three matrices of one expert, types and shapes as in the layer's tensors. At least K3_BUFFER_PAD bytes
 * after each are readable. */
struct k3_expert {
    size_t index; /* in the list that was asked for */
    const unsigned char *gate, *up, *down;
};

/* `plan` must outlive the store. */
k3_status k3_store_open(const struct k3_plan *plan, struct k3_store **store, struct k3_error *err);
void k3_store_close(struct k3_store *store);

/* Bytes of one expert of a MoE layer, and of all experts. */
uint64_t k3_store_expert_bytes(const struct k3_store *store, uint32_t layer);
uint64_t k3_store_bytes(const struct k3_store *store);

/* Asks for n different experts of a layer. One ticket at a time; `ids` must stay until it is released. */
k3_status k3_store_acquire(struct k3_store *store, uint32_t layer, const uint32_t *ids, size_t n,
                           struct k3_ticket **ticket, struct k3_error *err);

/* The next expert that is ready; called n times. */
k3_status k3_store_next(struct k3_ticket *ticket, struct k3_expert *expert, struct k3_error *err);

void k3_store_release(struct k3_ticket *ticket);

#endif
