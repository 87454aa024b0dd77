/* model.c - opens a model: plan, threads, device, store. */
#include "engine/engine_internal.h"

#include "engine/split.h"
#include "model/weights.h"
#include "ops/cpu_device.h"

#include <stdlib.h>

static void fill_info(struct k3_model *model)
{
    const struct k3_hparams *hp = &model->plan->hp;
    model->info = (struct k3_model_info){
        .n_layers = hp->n_layers,
        .n_embd = hp->n_embd,
        .n_vocab = hp->n_vocab,
        .n_experts = hp->n_experts,
        .top_k = hp->top_k,
        .context_length = hp->context_length,
        .threads = k3_pool_threads(model->pool),
        .file_bytes = model->plan->gguf->bytes,
        .dense_bytes = k3_dense_bytes(model->plan, NULL),
        .expert_bytes = k3_store_bytes(model->plan),
        .slots = k3_store_slots(model->store),
        .session_bytes = model->host.state + model->vram.state,
        .token_bytes = model->host.token + model->vram.token,
    };
    model->batch_bytes = model->info.dense_bytes - k3_plan_tensor(model->plan, 0, K3_TOKEN_EMBD)->bytes;
}

/* ---- the device ---- */

/* Shares are loaded one after the other: their progress as that of the whole. */
struct loading {
    k3_progress_fn fn;
    void *ctx;
    uint64_t before, total; /* bytes of the shares before this one, of all */
};

static bool show_loading(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    const struct loading *l = ctx;
    (void)total;
    return !l->fn || l->fn(l->ctx, what, l->before + done, l->total);
}

static k3_status open_host(struct k3_model *model, const struct k3_model_options *o, struct loading *loading,
                           struct k3_error *err)
{
    const struct k3_share *share = &model->placement.on_host;
    struct k3_cpu_options options = {o->exact, model->memory.batch, show_loading, loading, share};
    k3_status status = k3_cpu_device_create(model->plan, model->pool, &options, &model->on_host, err);
    loading->before = k3_dense_bytes(model->plan, share);
    return status;
}

static k3_status open_gpu(struct k3_model *model, bool verify, struct loading *loading, struct k3_error *err)
{
    const struct k3_placement *p = &model->placement;
    struct k3_gpu_options options = {model->memory.batch, show_loading, loading, &p->on_gpu, verify};
    return p->backend->create(model->plan, &p->gpu, &options, &model->on_gpu, err);
}

/* The device, and what computes the experts beside it. */
static k3_status open_device(struct k3_model *model, const struct k3_model_options *o, struct k3_error *err)
{
    const struct k3_placement *p = &model->placement;
    const struct k3_hparams *hp = &model->plan->hp;
    uint32_t batch = model->memory.batch;
    struct loading loading = {o->progress, o->progress_ctx, 0, k3_dense_bytes(model->plan, NULL)};
    struct k3_compute *compute = &model->compute;
    k3_status status = K3_OK;
    if (!p->backend || p->is_split) status = open_host(model, o, &loading, err);
    if (status == K3_OK && p->backend) status = open_gpu(model, o->verify, &loading, err);
    if (status == K3_OK && p->is_split)
        status = k3_split_create(model->on_host, model->on_gpu, &p->on_gpu, hp, batch, &model->split, err);
    if (status != K3_OK) return status;
    model->device = model->split ? model->split : model->on_gpu ? model->on_gpu : model->on_host;
    if (model->on_host)
        compute = k3_cpu_device_compute(model->on_host);
    else
        status = k3_compute_create(compute, model->pool, false, batch, k3_longest_row(model->plan), err);
    return status == K3_OK ? k3_experts_create(&model->experts, compute, hp, batch, err) : status;
}

/* What else than the CPU there is, and why not more of it. */
static void log_placement(const struct k3_memory_plan *m)
{
    if (m->gpu >= 0 && m->pcie_width && m->pcie_width < m->pcie_max_width)
        k3_log(
            "GPU %d (%s) is connected by %u of its %u PCIe lanes: loading and prefill take longer than in a "
            "slot that has all of them",
            m->gpu, m->gpu_name, m->pcie_width, m->pcie_max_width);
    if (!m->no_gpu[0]) return;
    if (m->gpu < 0)
        k3_log("%s; the CPU computes everything", m->no_gpu);
    else
        k3_log("%s; the CPU computes %s", m->no_gpu, m->on_host);
}

k3_status k3_model_open(const char *path, const struct k3_model_options *options, struct k3_model **out,
                        struct k3_error *err)
{
    static const struct k3_model_options defaults;
    if (!path || !out)
        return k3_fail(err, K3_ERR_ARGUMENT, "k3_model_open needs a path and a place for the model");
    if (!options) options = &defaults;

    struct k3_model *model = calloc(1, sizeof *model);
    if (!model) return k3_fail_memory(err, "a model", sizeof *model);
    pthread_mutex_init(&model->lock, NULL);

    k3_status status = k3_pool_create(options->threads, &model->pool, err);
    if (status == K3_OK) status = k3_plan_open(path, &model->plan, err);
    if (status == K3_OK)
        status = k3_memory_make_plan(model->plan, options, k3_pool_threads(model->pool), &model->memory,
                                     &model->placement, err);
    struct k3_store_options store = {options->io, options->direct, model->memory.n_slots, 0};
    if (status == K3_OK) status = k3_store_open(model->plan, &store, &model->store, err);
    if (status == K3_OK) status = open_device(model, options, err);
    if (status == K3_OK)
        status = k3_lookahead_create(&model->lookahead, options->lookahead, model->plan->hp.n_layers, err);
    if (status == K3_OK) {
        model->expert_ns = calloc(model->plan->hp.n_layers, sizeof *model->expert_ns);
        if (!model->expert_ns)
            status = k3_fail_memory(err, "statistics", model->plan->hp.n_layers * sizeof(uint64_t));
    }
    if (status != K3_OK) {
        k3_model_close(model);
        return status;
    }
    k3_memory_open_accounts(model, options->exact);
    fill_info(model);
    log_placement(&model->memory);
    *out = model;
    return K3_OK;
}

void k3_model_close(struct k3_model *model)
{
    if (!model) return;
    free(model->expert_ns);
    k3_lookahead_destroy(&model->lookahead);
    k3_experts_destroy(&model->experts);
    k3_compute_destroy(&model->compute);
    struct k3_device *const devices[] = {model->split, model->on_gpu, model->on_host};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (devices[i]) devices[i]->ops->free(devices[i]);
    k3_store_close(model->store);
    k3_plan_close(model->plan);
    k3_pool_free(model->pool);
    pthread_mutex_destroy(&model->lock);
    free(model);
}

void k3_model_get_info(const struct k3_model *model, struct k3_model_info *info)
{
    *info = model->info;
}

void k3_model_observe(struct k3_model *model, const struct k3_observer *observer)
{
    model->observer = observer ? *observer : (struct k3_observer){0};
}

void k3_model_get_expert_stats(const struct k3_model *model, uint32_t layer, struct k3_expert_stats *stats)
{
    struct k3_store_stats s;
    k3_store_get_stats(model->store, layer, &s);
    *stats = (struct k3_expert_stats){
        .requests = s.requests,
        .hits = s.hits,
        .misses = s.misses,
        .bytes_read = s.bytes_read,
        .wait_seconds = (double)s.wait_ns * 1e-9,
        .read_seconds = (double)s.read_ns * 1e-9,
        .reads = s.n_pieces,
        .depth_sum = s.depth_sum,
        .hints = s.hints,
        .useful_hints = s.useful_hints,
    };
    for (uint32_t i = 0; i < model->plan->hp.n_layers; i++) {
        if (layer != K3_ALL_LAYERS && layer != i) continue;
        stats->compute_seconds += (double)model->expert_ns[i] * 1e-9;
        stats->guessed += model->lookahead.guessed[i];
        stats->guessed_right += model->lookahead.right[i];
    }
}

void k3_model_get_memory(const struct k3_model *model, struct k3_memory_plan *memory)
{
    *memory = model->memory;
}
