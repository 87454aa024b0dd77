/* policies.h - policies that a trace is replayed through: those of the store, and some to compare them with. */
#ifndef K3_BENCH_POLICIES_H
#define K3_BENCH_POLICIES_H

#include "common/trace.h"

#include "store/policy.h"

extern const struct k3_policy_kind k3_policy_arc;    /* arc.c */
extern const struct k3_policy_kind k3_policy_s3fifo; /* s3fifo.c */

/* Knows the future: evicts what is asked for again last. No policy has more hits. `trace` must outlive it,
 * and must be replayed from its beginning. NULL: memory is out. */
struct k3_policy *k3_belady_create(const struct k3_policy_shape *shape, const struct k3_trace *trace);

struct k3_candidate {
    const char *name; /* NULL ends a table */
    struct k3_policy *(*create)(const struct k3_policy_shape *shape, const struct k3_trace *trace);
};

/* Belady is the last. */
extern const struct k3_candidate k3_candidates[];

struct k3_replay {
    uint64_t requests, hits; /* after the warm-up */
};

/* Replays a trace through one pool for all layers: a layer's experts are looked up all at once, then those
 * without a slot get one. The first `warm_up` tokens are not counted. */
k3_status k3_replay(const struct k3_trace *trace, const struct k3_policy_shape *shape,
                    const struct k3_candidate *candidate, uint32_t warm_up, struct k3_replay *result,
                    struct k3_error *err);

/* Slots that the replay needs at least: the most experts any token asks of a layer. */
uint32_t k3_replay_floor(const struct k3_trace *trace);

#endif
