/* cost.h - what a model asks of a machine: bytes and multiply-adds, counted from the shapes of its tensors. */
#ifndef K3_BENCH_COST_H
#define K3_BENCH_COST_H

#include "launches.h"

struct k3_cost {
    uint32_t n_layers, n_moe_layers, n_experts, top_k;
    double dense_weights[K3_TYPE_COUNT];  /* all that every token is multiplied with, by type */
    double dense_bytes;                   /* of them */
    double embedding_bytes;               /* of which a token needs a row */
    double expert_weights[K3_TYPE_COUNT]; /* of one expert in each MoE layer, by type */
    double expert_bytes;                  /* of them */
    double state_bytes;                   /* of KDA, f32; read and written by each token or chunk of tokens */
    double cache_bytes;                   /* of MLA, f16, for each token before */
    double attention_madds;               /* for each token and each token before it */
    struct k3_gpu_token gpu;              /* what decoding a token asks of a GPU that has the dense weights */
};

/* Of the sizes `hp` with the types of the published file: iq1_m, iq2_xxs, q8_0, f32. */
void k3_cost_of_sizes(const struct k3_hparams *hp, struct k3_cost *cost);

/* Of a model file. */
void k3_cost_of_plan(const struct k3_plan *plan, struct k3_cost *cost);

#endif
