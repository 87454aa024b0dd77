/* experts.h - the routed experts of one layer for a batch of tokens.
 *
 *     k3_experts_group     the batch's choices, ordered by expert
 *     k3_experts_compute   some experts, each for all tokens that chose it; experts in any order
 *     k3_experts_sum       sum[t] = sum_i weight[t][i] * output of expert ids[t][i], i in order of choice
 *
 * The sum has a fixed order, so the result does not depend on the order in which experts arrive. */
#ifndef K3_OPS_EXPERTS_H
#define K3_OPS_EXPERTS_H

#include "ops/compute.h"

struct k3_expert_matrices {
    struct k3_matrix gate, up; /* [F][Z] */
    struct k3_matrix down;     /* [Z][F] */
};

/* An expert that is in memory: that of chosen[index]. */
struct k3_ready_expert {
    size_t index;
    struct k3_expert_matrices m;
};

/* Experts that are computed together: as many as come to this many rows, so that a single token's need one go and those
 * of a batch, which have many rows each, do not hold each other's memory. */
#define K3_EXPERT_ROWS 32

/* "Pair": a token and one of its top_k choices; pair t * top_k + i. */
struct k3_experts {
    struct k3_compute *c;        /* not owned */
    const struct k3_hparams *hp; /* not owned */
    void *buffer;                /* the arrays below are pieces of it; owned */

    size_t n; /* tokens of the batch */
    struct k3_routing routing;
    int layer;
    size_t n_chosen;  /* distinct experts */
    uint32_t *chosen; /* their ids, ascending */
    uint32_t *first;  /* [n_chosen + 1]: each one's first place in the order of experts */
    uint32_t *tokens; /* [n * top_k] in that order: the token of a pair */
    uint32_t *places; /* [n * top_k] by pair: its place in that order */

    struct k3_acts gate_acts, up_acts; /* the latent input, rounded for each of the two types */
    bool rounded;
    unsigned char *gate_buffer, *up_buffer;
    size_t max_rows;                /* that a group of experts may have */
    float *hidden_gate, *hidden_up; /* [max_rows][F] */
    unsigned char *down_buffer;     /* hidden_gate, rounded */
    float *out;                     /* [max_batch * top_k][Z] in the order of experts */
    float *sum;                     /* [max_batch][Z] */
};

k3_status k3_experts_create(struct k3_experts *x, struct k3_compute *c, const struct k3_hparams *hp,
                            size_t max_batch, struct k3_error *err);
/* Bytes that k3_experts_create allocates. */
size_t k3_experts_bytes(const struct k3_hparams *hp, size_t max_batch);
void k3_experts_destroy(struct k3_experts *x);

void k3_experts_group(struct k3_experts *x, const struct k3_routing *routing, size_t n, int layer);

/* Whether another one may be computed together with those. At most K3_EXPERT_ROWS ever are. */
bool k3_experts_fit(const struct k3_experts *x, const struct k3_ready_expert *list, size_t n);
void k3_experts_compute(struct k3_experts *x, const struct k3_ready_expert *list, size_t n);
float *k3_experts_sum(struct k3_experts *x); /* [n][Z], valid until the next group */

#endif
