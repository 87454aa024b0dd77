/* walk.c - the scheduler: takes a batch of tokens through all layers.
 *
 * The device does everything but the routed experts. Of those, the store says where the bytes are and ops/experts.c
 * computes with them: those in memory first, the others as they arrive, so that the drive reads while the processor
 * computes. See docs/design.md, "The walk". */
#include "engine/engine_internal.h"

#include "base/clock.h"

/* A batch that uses more than this times what one token uses of a layer is a sweep to the store: it reads most experts
 * once, and what it leaves behind would be of no use to what comes after. */
#define SWEEP_FROM 4

/* ---- watching ---- */

static uint64_t now(const struct k3_model *model)
{
    return model->observer.step ? k3_now_ns() : 0;
}

/* Reports a step that began at `start` and ends now. */
static void watch(const struct k3_model *model, const char *name, int layer, uint64_t start)
{
    if (model->observer.step) model->observer.step(model->observer.ctx, name, layer, start, k3_now_ns());
}

/* ---- experts ---- */

static struct k3_expert_matrices matrices_of(const struct k3_model *model, uint32_t layer,
                                             const struct k3_expert *e)
{
    const struct k3_hparams *hp = &model->plan->hp;
    enum k3_type gate = k3_plan_tensor(model->plan, layer, K3_EXPERTS_GATE)->type;
    enum k3_type up = k3_plan_tensor(model->plan, layer, K3_EXPERTS_UP)->type;
    enum k3_type down = k3_plan_tensor(model->plan, layer, K3_EXPERTS_DOWN)->type;
    return (struct k3_expert_matrices){k3_matrix_make(gate, hp->n_expert_ffn, hp->latent, e->gate),
                                       k3_matrix_make(up, hp->n_expert_ffn, hp->latent, e->up),
                                       k3_matrix_make(down, hp->latent, hp->n_expert_ffn, e->down)};
}

/* Waits for the next expert of the ticket. */
static k3_status take_expert(struct k3_model *model, uint32_t layer, struct k3_ticket *ticket,
                             struct k3_expert *expert, struct k3_error *err)
{
    uint64_t start = now(model);
    k3_status status = k3_store_next(ticket, expert, err);
    if (status != K3_OK) return status;
    watch(model, "wait", (int)layer, start);
    if (model->observer.step && expert->asked_ns)
        model->observer.step(model->observer.ctx, "read", (int)layer, expert->asked_ns, expert->arrived_ns);
    return K3_OK;
}

/* Takes every expert of the ticket as it is ready and computes it, together with others that are ready, too. */
static k3_status compute_experts(struct k3_model *model, uint32_t layer, struct k3_ticket *ticket,
                                 struct k3_error *err)
{
    struct k3_experts *experts = &model->experts;
    struct k3_expert taken[K3_EXPERT_ROWS];
    struct k3_ready_expert ready[K3_EXPERT_ROWS];
    for (size_t done = 0, n; done < experts->n_chosen; done += n) {
        for (n = 0; !n || (k3_experts_fit(experts, ready, n) && k3_store_has_next(ticket)); n++) {
            k3_status status = take_expert(model, layer, ticket, &taken[n], err);
            if (status != K3_OK) return status;
            ready[n] = (struct k3_ready_expert){taken[n].index, matrices_of(model, layer, &taken[n])};
        }
        uint64_t start = k3_now_ns();
        k3_experts_compute(experts, ready, n);
        model->expert_ns[layer] += k3_now_ns() - start;
        watch(model, "expert", (int)layer, start);
        for (size_t i = 0; i < n; i++) k3_store_give_back(ticket, &taken[i]);
    }
    return K3_OK;
}

static k3_status moe(struct k3_session *session, uint32_t layer, size_t n, struct k3_error *err)
{
    struct k3_model *model = session->model;
    struct k3_device *dev = model->device;
    struct k3_experts *experts = &model->experts;
    const struct k3_hparams *hp = &model->plan->hp;
    struct k3_lookahead_state *lookahead = &model->lookahead;

    uint64_t start = now(model);
    struct k3_routing routing = dev->ops->route(dev, layer);
    watch(model, "router", (int)layer, start);
    if (model->observer.routing)
        model->observer.routing(model->observer.ctx, layer, routing.ids, n, hp->top_k);
    if (n == 1) k3_lookahead_compare(lookahead, layer, routing.ids, hp->top_k);

    start = now(model);
    struct k3_ticket *ticket;
    k3_experts_group(experts, &routing, n, (int)layer);
    bool sweep = experts->n_chosen > SWEEP_FROM * (size_t)hp->top_k;
    k3_status status =
        k3_store_acquire(model->store, layer, experts->chosen, experts->n_chosen, sweep, &ticket, err);
    if (status != K3_OK) return status;
    watch(model, "submit", (int)layer, start);

    if (n == 1 && lookahead->on && layer + 1 < hp->n_layers) {
        start = now(model);
        k3_lookahead_guess(lookahead, dev, model->store, model->plan, layer + 1);
        watch(model, "guess", (int)layer, start);
    }
    start = now(model);
    dev->ops->shared(dev, layer);
    watch(model, "shared", (int)layer, start);
    status = compute_experts(model, layer, ticket, err);
    k3_store_release(ticket);
    session->stats.expert_requests += experts->n_chosen;
    session->stats.expert_bytes += experts->n_chosen * k3_store_expert_bytes(model->plan, layer);
    if (status != K3_OK) return status;

    start = now(model);
    dev->ops->join(dev, layer, k3_experts_sum(experts));
    watch(model, "sum", (int)layer, start);
    return K3_OK;
}

/* Batches of large models take long, so progress is shown, and may cancel, after every layer of one. A single token is
 * quick and is not interrupted: its session stays whole. */
static k3_status report(const struct k3_session *s, uint32_t layer, size_t n, struct k3_error *err)
{
    if (n == 1 || !s->progress || layer + 1 == s->model->plan->hp.n_layers) return K3_OK;
    size_t part = n * (layer + 1) / s->model->plan->hp.n_layers;
    if (s->progress(s->progress_ctx, K3_FEEDING, s->feed_done + part, s->feed_total)) return K3_OK;
    return k3_fail(err, K3_ERR_CANCELLED, "cancelled in layer %u of a batch of %zu tokens", layer, n);
}

static uint64_t waited(const struct k3_model *model)
{
    struct k3_store_stats stats;
    k3_store_get_stats(model->store, K3_ALL_LAYERS, &stats);
    return stats.wait_ns;
}

k3_status k3_walk(struct k3_session *session, const int32_t *tokens, size_t n, const uint32_t *rows,
                  size_t n_rows, float *logits, struct k3_error *err)
{
    struct k3_model *model = session->model;
    struct k3_device *dev = model->device;
    const struct k3_hparams *hp = &model->plan->hp;
    k3_status status = K3_OK;

    if (n == 1) k3_lookahead_begin(&model->lookahead, waited(model));
    dev->ops->begin(dev, session->state, tokens, n, session->n_tokens);
    for (uint32_t layer = 0; layer < hp->n_layers && status == K3_OK; layer++) {
        uint64_t start = now(model);
        dev->ops->attention(dev, layer);
        watch(model, "attention", (int)layer, start);
        if (layer < hp->n_dense_layers) {
            start = now(model);
            dev->ops->dense_ffn(dev, layer);
            watch(model, "dense_ffn", (int)layer, start);
        } else {
            status = moe(session, layer, n, err);
        }
        if (status == K3_OK) status = report(session, layer, n, err);
    }
    if (status != K3_OK) return status;
    uint64_t start = now(model);
    if (n_rows) dev->ops->logits(dev, rows, n_rows, logits);
    status = dev->ops->finish(dev, err);
    if (status != K3_OK) return status;
    watch(model, "logits", -1, start);
    if (n == 1) k3_lookahead_end(&model->lookahead, waited(model));
    session->stats.dense_bytes += model->batch_bytes;
    return K3_OK;
}
