/* engine_internal.h - the model and session objects, as the files of this room see them. */
#ifndef K3_ENGINE_INTERNAL_H
#define K3_ENGINE_INTERNAL_H

#include "engine/lookahead.h"
#include "engine/placement.h"
#include "model/device.h"
#include "ops/experts.h"
#include "store/store.h"

#include <pthread.h>
#include <stdatomic.h>

/* Tokens that are computed together at most. Larger batches read each expert for more tokens, but their
 * activations take memory: at K3's size about 1.5 MB a token. */
#define K3_MAX_BATCH 8192

/* What sessions and copies of them take of one memory, and may still take. */
struct k3_account {
    uint64_t state, token; /* bytes of a session without tokens; for each token */
    uint64_t limit;        /* of the memory, for messages */
    atomic_uint_fast64_t left;
};

struct k3_model {
    struct k3_plan *plan;
    struct k3_pool *pool;
    struct k3_placement placement;
    struct k3_device *on_host, *on_gpu; /* owned; NULL where nothing is placed there */
    struct k3_device *split;            /* of both, if there are both; owned */
    struct k3_device *device;           /* that walks: one of these */
    struct k3_compute compute; /* with experts, where all else is on a GPU; if not it is the CPU device's */
    struct k3_store *store;
    struct k3_experts experts;
    struct k3_model_info info;
    uint64_t batch_bytes; /* of dense weights that a batch reads: all but the token table */
    struct k3_lookahead_state lookahead;
    struct k3_observer observer;
    uint64_t *expert_ns; /* [n_layers]: spent computing with experts; owned */
    struct k3_memory_plan memory;
    struct k3_account host, vram; /* of sessions */
    /* Held while a batch is computed: device, experts, store and pool serve one at a time. */
    pthread_mutex_t lock;
};

struct k3_checkpoint {
    size_t n_tokens;
    struct k3_saved_state *saved; /* without cache: its rows are still in the session's state */
};

struct k3_session {
    struct k3_model *model;
    struct k3_state *state;
    int32_t *tokens; /* those in the state, [n_tokens] of [capacity] */
    size_t n_tokens, capacity;
    size_t max_tokens; /* the context */
    bool is_counted;   /* in the model's accounts, with max_tokens */
    size_t batch;
    struct k3_checkpoint *checkpoints; /* ascending n_tokens; [n_checkpoints] of [max_checkpoints] */
    size_t n_checkpoints, max_checkpoints;
    struct k3_stats stats;
    k3_progress_fn progress;
    void *progress_ctx;
    size_t feed_done, feed_total; /* tokens of the feed under way before this batch, and in all */
};

/* What progress says a feed is doing. */
#define K3_FEEDING "reading the prompt"

/* In hundredths of a GiB, rounded up: a limit that is told must do. */
double k3_gib(uint64_t bytes);

/* How memory is to be used, before any of it is, and where the dense model is. K3_ERR_MEMORY when it cannot do. */
k3_status k3_memory_make_plan(const struct k3_plan *plan, const struct k3_model_options *options,
                              int n_threads, struct k3_memory_plan *memory, struct k3_placement *placement,
                              struct k3_error *err);

/* Opens the accounts of sessions with what the plan leaves. */
void k3_memory_open_accounts(struct k3_model *model, bool exact);

/* Takes memory for a session of n_tokens, or a copy of one whose cache has so many; K3_ERR_MEMORY when the plan has none
 * left. */
k3_status k3_memory_take(struct k3_model *model, size_t n_tokens, const char *what, struct k3_error *err);
void k3_memory_give(struct k3_model *model, size_t n_tokens);

/* Makes room in the list of a session's tokens. */
k3_status k3_session_reserve(struct k3_session *session, size_t n_tokens, struct k3_error *err);

/* Forgets the checkpoints of a session that are behind more than n_tokens tokens, or all if that is 0. */
void k3_checkpoints_forget(struct k3_session *session, size_t n_tokens);

/* Computes a batch of at most memory.batch tokens after `position` others, and the logits of rows[0 .. n_rows-1]
 * of it. The state has room. On an error the state is broken: the session must go back to where it was or to
 * nothing. */
k3_status k3_walk(struct k3_session *session, const int32_t *tokens, size_t n, const uint32_t *rows,
                  size_t n_rows, float *logits, struct k3_error *err);

#endif
