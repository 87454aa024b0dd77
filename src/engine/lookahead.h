/* lookahead.h - guesses the experts of the next layer, and decides whether reading them early pays.
 *
 * Only for single tokens: a batch uses most experts of a layer anyway. */
#ifndef K3_ENGINE_LOOKAHEAD_H
#define K3_ENGINE_LOOKAHEAD_H

#include "model/device.h"
#include "store/store.h"

struct k3_lookahead_state {
    enum { K3_MEASURE_OFF, K3_MEASURE_ON, K3_DECIDED } phase;
    bool forced;                          /* by an option: nothing is measured */
    bool on;                              /* in this token */
    uint32_t n_tokens;                    /* of this phase */
    uint64_t token_start, wait_start;     /* when the token began; what the store had waited by then, in ns */
    uint64_t time_off, time_on, wait_off; /* sums over the tokens of the two measuring phases, in ns */

    /* The guess for the next layer: names that were not in memory. */
    uint32_t layer, n;
    uint32_t ids[K3_MAX_TOP_K];
    uint64_t *guessed, *right; /* [n_layers], owned */
};

k3_status k3_lookahead_create(struct k3_lookahead_state *l, enum k3_lookahead option, uint32_t n_layers,
                              struct k3_error *err);
void k3_lookahead_destroy(struct k3_lookahead_state *l);

/* A token begins, and ends. wait_ns: what the store has waited so far. */
void k3_lookahead_begin(struct k3_lookahead_state *l, uint64_t wait_ns);
void k3_lookahead_end(struct k3_lookahead_state *l, uint64_t wait_ns);

/* Between route and join of the layer before `layer`: guesses, and hints to the store. */
void k3_lookahead_guess(struct k3_lookahead_state *l, struct k3_device *dev, struct k3_store *store,
                        const struct k3_plan *plan, uint32_t layer);

/* What the layer really chose. */
void k3_lookahead_compare(struct k3_lookahead_state *l, uint32_t layer, const uint32_t *ids, uint32_t top_k);

#endif
