/* walk.c - the scheduler: takes a batch of tokens through all layers.
 *
 * The device does everything but the routed experts. Of those, the store says where the bytes are and
 * ops/experts.c computes with them. See docs/design.md, "The walk". */
#include "engine/engine_internal.h"

/* A batch that uses more than this times what one token uses of a layer is a sweep to the store: it reads
 * most experts once, and what it leaves behind would be of no use to what comes after. */
#define SWEEP_FROM 4

static k3_status compute_experts(struct k3_session *session, uint32_t layer, const struct k3_routing *routing,
                                 size_t n, float **sum, struct k3_error *err)
{
    struct k3_model *model = session->model;
    struct k3_experts *experts = &model->experts;
    const struct k3_hparams *hp = &model->plan->hp;
    enum k3_type gate = k3_plan_tensor(model->plan, layer, K3_EXPERTS_GATE)->type;
    enum k3_type up = k3_plan_tensor(model->plan, layer, K3_EXPERTS_UP)->type;
    enum k3_type down = k3_plan_tensor(model->plan, layer, K3_EXPERTS_DOWN)->type;

    k3_experts_group(experts, routing, n, (int)layer);
    struct k3_ticket *ticket;
    k3_status status = k3_store_acquire(model->store, layer, experts->chosen, experts->n_chosen,
                                        experts->n_chosen > SWEEP_FROM * (size_t)hp->top_k, &ticket, err);
    if (status != K3_OK) return status;
    model->device->ops->shared(model->device, layer);
    for (size_t i = 0; i < experts->n_chosen && status == K3_OK; i++) {
        struct k3_expert expert;
        status = k3_store_next(ticket, &expert, err);
        if (status != K3_OK) break;
        struct k3_expert_matrices m = {k3_matrix_make(gate, hp->n_expert_ffn, hp->latent, expert.gate),
                                       k3_matrix_make(up, hp->n_expert_ffn, hp->latent, expert.up),
                                       k3_matrix_make(down, hp->latent, hp->n_expert_ffn, expert.down)};
        k3_experts_compute(experts, expert.index, &m);
        k3_store_give_back(ticket, &expert);
    }
    k3_store_release(ticket);

    session->stats.expert_requests += experts->n_chosen;
    session->stats.expert_bytes += experts->n_chosen * k3_store_expert_bytes(model->plan, layer);
    *sum = k3_experts_sum(experts);
    return status;
}

k3_status k3_walk(struct k3_session *session, const int32_t *tokens, size_t n, const uint32_t *rows,
                  size_t n_rows, float *logits, struct k3_error *err)
{
    struct k3_device *dev = session->model->device;
    const struct k3_hparams *hp = &session->model->plan->hp;

    dev->ops->begin(dev, session->state, tokens, n, session->n_tokens);
    for (uint32_t layer = 0; layer < hp->n_layers; layer++) {
        dev->ops->attention(dev, layer);
        if (layer < hp->n_dense_layers) {
            dev->ops->dense_ffn(dev, layer);
            continue;
        }
        struct k3_routing routing = dev->ops->route(dev, layer);
        float *sum;
        k3_status status = compute_experts(session, layer, &routing, n, &sum, err);
        if (status != K3_OK) return status;
        dev->ops->join(dev, layer, sum);
    }
    if (n_rows) dev->ops->logits(dev, rows, n_rows, logits);
    session->stats.dense_bytes += session->model->batch_bytes;
    return K3_OK;
}
