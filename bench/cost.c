/* cost.c - counts what a model asks of a machine. */
#include "cost.h"

#include "synth.h"

static void add_tensor(struct k3_cost *cost, enum k3_role role, enum k3_type type, double weights)
{
    const struct k3_type_info *info = k3_type_info(type);
    double bytes = weights / info->block * info->block_bytes;
    if (role >= K3_FIRST_EXPERT_ROLE) {
        cost->expert_weights[type] += weights / cost->n_experts;
        cost->expert_bytes += bytes / cost->n_experts;
    } else if (role == K3_TOKEN_EMBD) {
        cost->embedding_bytes += bytes;
    } else {
        cost->dense_weights[type] += weights;
        cost->dense_bytes += bytes;
    }
}

/* What does not follow from the tensors. The score of a cached row takes kv_rank + pe_dim multiply-adds a head, the
 * sum of values kv_rank (architecture.md section 6, absorbed). */
static void count_states(const struct k3_hparams *hp, struct k3_cost *cost)
{
    *cost = (struct k3_cost){.n_layers = hp->n_layers, .n_experts = hp->n_experts, .top_k = hp->top_k};
    cost->n_moe_layers = hp->n_layers - hp->n_dense_layers;
    for (uint32_t layer = 0; layer < hp->n_layers; layer++) {
        double heads = hp->n_heads;
        if (hp->is_mla[layer]) {
            cost->cache_bytes += 2.0 * (hp->kv_rank + hp->pe_dim);
            cost->attention_madds += heads * (2.0 * hp->kv_rank + hp->pe_dim);
        } else {
            cost->state_bytes += 4 * heads * hp->kda_dim * hp->kda_dim;
        }
    }
}

void k3_cost_of_sizes(const struct k3_hparams *hp, struct k3_cost *cost)
{
    count_states(hp, cost);
    for (uint32_t layer = 0; layer < hp->n_layers; layer++)
        for (int role = 0; role < K3_ROLE_COUNT; role++) {
            char name[K3_GGUF_NAME_MAX + 1];
            uint64_t ne[K3_GGUF_MAX_DIMS];
            uint32_t n_dims;
            if (layer > 0 && role < (int)K3_FIRST_LAYER_ROLE) continue;
            if (k3_role_describe(hp, (enum k3_role)role, layer, name, ne, &n_dims))
                add_tensor(cost, (enum k3_role)role, k3_synth_type((enum k3_role)role),
                           (double)ne[0] * (double)ne[1] * (double)ne[2]);
        }
    k3_gpu_token_of_sizes(hp, &cost->gpu);
}

void k3_cost_of_plan(const struct k3_plan *plan, struct k3_cost *cost)
{
    count_states(&plan->hp, cost);
    for (uint32_t layer = 0; layer < plan->hp.n_layers; layer++)
        for (int role = 0; role < K3_ROLE_COUNT; role++) {
            const struct k3_gguf_tensor *t = k3_plan_tensor(plan, layer, (enum k3_role)role);
            if (layer > 0 && role < (int)K3_FIRST_LAYER_ROLE) continue;
            if (t)
                add_tensor(cost, (enum k3_role)role, t->type,
                           (double)t->ne[0] * (double)t->ne[1] * (double)t->ne[2]);
        }
    k3_gpu_token_of_plan(plan, &cost->gpu);
}
