/* model.c - opens a model: plan, threads, device, store. */
#include "engine/engine_internal.h"

#include "ops/cpu_device.h"

#include <stdlib.h>

static void fill_info(struct k3_model *model, bool exact, const struct k3_placement *place)
{
    const struct k3_hparams *hp = &model->plan->hp;
    struct k3_cpu_sizes host =
        k3_cpu_device_sizes(model->plan, k3_pool_threads(model->pool), exact, model->memory.batch);
    struct k3_gpu_sizes sizes = {.state = host.state, .token = host.token};
    if (place->backend) sizes = place->backend->sizes(model->plan, model->memory.batch);
    struct k3_model_info *info = &model->info;
    *info = (struct k3_model_info){
        .n_layers = hp->n_layers,
        .n_embd = hp->n_embd,
        .n_vocab = hp->n_vocab,
        .n_experts = hp->n_experts,
        .top_k = hp->top_k,
        .context_length = hp->context_length,
        .threads = k3_pool_threads(model->pool),
        .file_bytes = model->plan->gguf->bytes,
        .expert_bytes = k3_store_bytes(model->plan),
        .slots = k3_store_slots(model->store),
    };
    info->dense_bytes = host.dense;
    model->batch_bytes = host.dense - k3_plan_tensor(model->plan, 0, K3_TOKEN_EMBD)->bytes;
    info->session_bytes = sizes.state;
    info->token_bytes = sizes.token;
}

/* The device, and what computes the experts beside it. */
static k3_status open_device(struct k3_model *model, const struct k3_placement *place,
                             const struct k3_model_options *o, struct k3_error *err)
{
    uint32_t batch = model->memory.batch;
    struct k3_compute *compute = &model->compute;
    k3_status status;
    if (place->backend) {
        struct k3_gpu_options gpu = {batch, o->progress, o->progress_ctx};
        status = place->backend->create(model->plan, &place->gpu, &gpu, &model->device, err);
        if (status == K3_OK)
            status = k3_compute_create(compute, model->pool, false, batch, k3_longest_row(model->plan), err);
    } else {
        struct k3_cpu_options cpu = {o->exact, batch, o->progress, o->progress_ctx};
        status = k3_cpu_device_create(model->plan, model->pool, &cpu, &model->device, err);
        if (status == K3_OK) compute = k3_cpu_device_compute(model->device);
    }
    return status == K3_OK ? k3_experts_create(&model->experts, compute, &model->plan->hp, batch, err)
                           : status;
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

    struct k3_placement place = {0};
    k3_status status = k3_pool_create(options->threads, &model->pool, err);
    if (status == K3_OK) status = k3_plan_open(path, &model->plan, err);
    if (status == K3_OK)
        status = k3_memory_make_plan(model->plan, options, k3_pool_threads(model->pool), &model->memory,
                                     &place, err);
    struct k3_store_options store = {options->io, options->direct, model->memory.n_slots, 0};
    if (status == K3_OK) status = k3_store_open(model->plan, &store, &model->store, err);
    if (status == K3_OK) status = open_device(model, &place, options, err);
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
    fill_info(model, options->exact, &place);
    const struct k3_memory_plan *m = &model->memory;
    if (m->no_gpu[0]) k3_log("%s; the CPU computes everything", m->no_gpu);
    atomic_init(&model->session_memory, place.backend
                                            ? m->vram_limit - (m->vram_dense + m->vram_scratch)
                                            : m->limit - (m->dense + m->scratch + m->slots + m->reserve));
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
    if (model->device) model->device->ops->free(model->device);
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
