/* slots.h - the fixed set of memory slots that hold experts. For this room only. */
#ifndef K3_STORE_SLOTS_H
#define K3_STORE_SLOTS_H

#include "model/model.h"
#include "store/policy.h"
#include "store/reader.h"

enum k3_slot_state { K3_SLOT_FREE, K3_SLOT_LOADING, K3_SLOT_READY, K3_SLOT_PINNED };

#define K3_NO_ITEM UINT32_MAX

struct k3_slot {
    enum k3_slot_state state;
    uint32_t layer, expert; /* unless free */
    bool kept;              /* stays when it is not in use, until evicted; else "spare": freed after use */
    bool guess;             /* nobody has asked for it yet */
    uint64_t deadline;      /* of a guess: the acquire by which it must have come true */
    uint32_t item;          /* of the ticket that waits for it or uses it; K3_NO_ITEM: none */
    struct k3_slot *next_free;
    struct k3_load load;
};

struct k3_slots {
    const struct k3_plan *plan;
    unsigned char *memory; /* [n] of slot_bytes, in a mapping of its own */
    void *mapping;
    uint64_t slot_bytes, mapping_bytes;
    uint32_t n;
    struct k3_slot *slots;  /* owned */
    struct k3_slot **where; /* [n_layers][n_experts]: the slot of an expert, or NULL; owned */
    struct k3_slot *free;
    uint32_t n_kept, max_kept;
    uint32_t n_spare, max_spare; /* in use; see k3_slots_take */
    struct k3_policy *policy;    /* knows the kept ones; owned */
};

/* What a slot is wanted for, and so what may make room for it. */
enum k3_slot_use {
    K3_USE_STEP,  /* by few tokens: stays, another goes */
    K3_USE_SWEEP, /* by many tokens, one time: stays only where there is room; evicts nothing */
    K3_USE_GUESS, /* perhaps: as a sweep, but stays only where there is room for all experts */
};

/* n slots, of which max_spare are set aside for sweeps and guesses; which of the others goes, the policy says. */
k3_status k3_slots_create(struct k3_slots *slots, const struct k3_plan *plan, uint32_t n, uint32_t max_spare,
                          const struct k3_policy_kind *policy, struct k3_error *err);
void k3_slots_destroy(struct k3_slots *slots);

/* Bytes of a slot for the experts of this model: room for the largest. */
uint64_t k3_slots_bytes_each(const struct k3_plan *plan);

/* NULL: the expert is in none. */
struct k3_slot *k3_slots_find(const struct k3_slots *slots, uint32_t layer, uint32_t expert);

/* A slot for an expert that has none: state loading, its load filled in and not started. NULL: all are in
 * use. */
struct k3_slot *k3_slots_take(struct k3_slots *slots, uint32_t layer, uint32_t expert, enum k3_slot_use use);

/* A step has come to a layer. */
void k3_slots_visit(struct k3_slots *slots, uint32_t layer);

/* The expert was asked for again in a step. A spare slot becomes a kept one, for which another goes, unless all are in
 * use. */
void k3_slots_touch(struct k3_slots *slots, struct k3_slot *slot);

/* Takes the expert out. */
void k3_slots_free(struct k3_slots *slots, struct k3_slot *slot);

/* Where the matrix of a role lies in a slot that is loaded. */
const unsigned char *k3_slots_matrix(const struct k3_slot *slot, enum k3_role role);

#endif
