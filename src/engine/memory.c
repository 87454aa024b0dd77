/* memory.c - the plan of the memory, of the host and of a GPU, and the accounts of what sessions take.
 *
 * Everything that is large is known before it is allocated: dense weights, activations and the state of a session from
 * the model's dimensions, a slot from the size of an expert. What is left goes to slots. The limit is a promise: with
 * it the resident memory of the process stays below, so that the system never pages. */
#include "engine/engine_internal.h"
#include "engine/split.h"

#include "base/host.h"
#include "base/cpu.h"
#include "ops/cpu_device.h"

#include <string.h>

/* Of what the machine has available; the rest is for the page cache, the desktop and the unforeseen. */
#define SHARE_PERCENT 85

/* Not planned in detail: program and libraries, headers, tokenizer, thread stacks. A generous guess: with k3-tiny, of
 * 2,048 tokens, program and tokenizer are resident in 3 MiB (`k3tool tokenize`, /usr/bin/time, 2026-12-01), and K3's
 * vocabulary is eighty times as large. */
#define RESERVE ((uint64_t)96 << 20)

/* A context that nobody asked for takes at most this part of what dense weights and activations leave. */
#define CONTEXT_PART 16

/* A batch uses most experts of a layer, so where they do not all stay in memory, each batch reads them all: the larger,
 * the fewer times. Beyond the usual size a batch takes at most BATCH_PART of what dense weights leave; where memory is
 * short, smaller ones do. All are multiples of K3_KDA_CHUNK, so that a sequence is cut into the same chunks whatever the
 * size and gives the same bits. */
#define BATCH_PART 8

double k3_gib(uint64_t bytes)
{
    const uint64_t hundredth = ((uint64_t)1 << 30) / 100;
    return (double)((bytes + hundredth - 1) / hundredth) / 100;
}

/* What does not depend on the size of a batch. */
struct request {
    const struct k3_plan *plan;
    const struct k3_model_options *options;
    int n_threads;
    struct k3_placement place;
    struct k3_cpu_sizes host; /* without scratch */
    struct k3_gpu_sizes vram;
    uint64_t all, wanted; /* experts; slots that were asked for, 0: as many as fit */
};

/* What the CPU device takes, if there is one. */
static struct k3_cpu_sizes host_sizes(const struct k3_plan *plan, const struct k3_placement *place,
                                      int n_threads, bool exact, size_t batch)
{
    if (!place->backend || place->is_split)
        return k3_cpu_device_sizes(plan, &place->on_host, n_threads, exact, batch);
    return (struct k3_cpu_sizes){.scratch = k3_compute_bytes(batch, k3_longest_row(plan), n_threads)};
}

static struct k3_gpu_sizes vram_sizes(const struct k3_plan *plan, const struct k3_placement *place,
                                      size_t batch)
{
    return place->backend ? place->backend->sizes(plan, &place->on_gpu, batch) : (struct k3_gpu_sizes){0};
}

static uint64_t scratch_of(const struct request *r, uint32_t batch)
{
    return k3_experts_bytes(&r->plan->hp, batch) +
           host_sizes(r->plan, &r->place, r->n_threads, r->options->exact, batch).scratch +
           (r->place.is_split ? k3_split_bytes(&r->plan->hp, batch) : 0);
}

static uint64_t rest(uint64_t all, uint64_t taken)
{
    return all > taken ? all - taken : 0;
}

/* The largest power of two that fits in the room one memory has for sessions, and not more than the model was made for. */
static uint32_t choose_context(const struct k3_hparams *hp, uint64_t room, uint64_t state, uint64_t token)
{
    uint32_t made_for = hp->context_length ? hp->context_length : UINT32_MAX, context = K3_LEAST_CONTEXT;
    uint64_t left = rest(room, k3_sessions_bytes(state, token, 0)), most = room / CONTEXT_PART;
    if (left < most) most = left;
    while (context < made_for && context <= UINT32_MAX / 2 && 2 * (uint64_t)context * token <= most)
        context *= 2;
    return context < made_for ? context : made_for;
}

static uint32_t context_of(const struct request *r, uint64_t room, uint64_t vram_room)
{
    if (r->options->context) return r->options->context;
    const struct k3_hparams *hp = &r->plan->hp;
    uint32_t host = choose_context(hp, room, r->host.state, r->host.token),
             vram = choose_context(hp, vram_room, r->vram.state, r->vram.token);
    return host < vram ? host : vram;
}

static k3_status plan_with_batch(const struct request *r, uint32_t batch, struct k3_memory_plan *m,
                                 struct k3_error *err)
{
    m->batch = batch;
    m->scratch = scratch_of(r, batch);
    m->vram_scratch = vram_sizes(r->plan, &r->place, batch).scratch;
    uint64_t fixed = m->dense + m->scratch + m->reserve,
             vram_room = rest(m->vram_limit, m->vram_dense + m->vram_scratch);
    m->context = context_of(r, rest(m->limit, fixed), vram_room);
    m->sessions = k3_sessions_bytes(r->host.state, r->host.token, m->context);
    m->vram_sessions = k3_sessions_bytes(r->vram.state, r->vram.token, m->context);
    fixed += m->sessions;
    if (m->vram_dense + m->vram_scratch + m->vram_sessions > m->vram_limit)
        return k3_fail(err, K3_ERR_MEMORY,
                       "the GPU's memory has %.2f GiB for sessions, but %.2f GiB are needed for %u tokens",
                       (double)vram_room / ((uint64_t)1 << 30), k3_gib(m->vram_sessions), m->context);

    uint64_t least = r->wanted > m->least_slots ? r->wanted : m->least_slots,
             need = fixed + least * m->slot_bytes;
    if (m->limit < need)
        return k3_fail(err, K3_ERR_MEMORY,
                       "a memory limit of %.2f GiB is too low: %.2f GiB are needed (dense weights %.2f, "
                       "activations %.2f, "
                       "sessions %.2f, %llu experts %.2f, reserve %.2f)",
                       (double)m->limit / ((uint64_t)1 << 30), k3_gib(need), k3_gib(m->dense),
                       k3_gib(m->scratch), k3_gib(m->sessions), (unsigned long long)least,
                       k3_gib(least * m->slot_bytes), k3_gib(m->reserve));
    uint64_t fit = m->slot_bytes ? (m->limit - fixed) / m->slot_bytes : 0;
    m->n_slots = (uint32_t)(r->wanted ? r->wanted : fit < r->all ? fit : r->all);
    m->slots = m->n_slots * m->slot_bytes;
    return K3_OK;
}

static k3_status choose_batch(const struct request *r, struct k3_memory_plan *m, struct k3_error *err)
{
    uint32_t batch = K3_USUAL_BATCH;
    k3_status status = plan_with_batch(r, batch, m, err);
    while (status == K3_ERR_MEMORY && batch > K3_LEAST_BATCH) status = plan_with_batch(r, batch /= 2, m, err);
    if (status != K3_OK || m->n_slots == r->all) return status;

    uint64_t room = (m->limit - m->dense - m->reserve) / BATCH_PART;
    while (batch >= K3_USUAL_BATCH && batch < K3_MAX_BATCH && batch < m->context &&
           scratch_of(r, 2 * batch) <= room) {
        struct k3_memory_plan larger = *m;
        if (plan_with_batch(r, batch *= 2, &larger, NULL) != K3_OK) break;
        *m = larger;
    }
    return K3_OK;
}

static k3_status count_slots(struct request *r, const struct k3_memory_plan *m, struct k3_error *err)
{
    const struct k3_model_options *o = r->options;
    /* Written so that NaN fails too. */
    if (!(o->slots_percent >= 0 && o->slots_percent <= 100))
        return k3_fail(err, K3_ERR_ARGUMENT,
                       "slots for %g %% of the experts were asked for; 0 to 100 are possible",
                       (double)o->slots_percent);
    if (o->io == K3_IO_MMAP) return K3_OK; /* what is mapped is the page cache's */
    r->all = m->n_experts;
    r->wanted = o->slots ? o->slots : (uint64_t)((double)r->all * (double)o->slots_percent / 100);
    if (r->wanted > r->all) r->wanted = r->all;
    return o->slots || o->slots_percent > 0 ? k3_store_check_slots(r->plan, r->wanted, err) : K3_OK;
}

/* Who holds weights and sessions, and what these take there. */
static k3_status place(struct request *r, struct k3_memory_plan *m, struct k3_error *err)
{
    struct k3_error why;
    struct k3_placement *p = &r->place;
    uint32_t n_layers = r->plan->hp.n_layers;
    k3_status status = k3_placement_choose(r->plan, r->options, p, &why, err);
    if (status != K3_OK) return status;
    r->host = host_sizes(r->plan, p, r->n_threads, r->options->exact, K3_LEAST_BATCH);
    r->vram = vram_sizes(r->plan, p, K3_LEAST_BATCH);
    m->dense = r->host.dense;
    m->vram_dense = r->vram.dense;
    m->gpu = -1;
    if (p->backend) {
        m->gpu = p->gpu.index;
        m->vram_limit = p->vram_limit;
        memcpy(m->gpu_name, p->gpu.name, sizeof m->gpu_name);
        m->pcie_generation = p->gpu.link.generation;
        m->pcie_width = p->gpu.link.width;
        m->pcie_max_width = p->gpu.link.max_width;
    }
    k3_share_format(&p->on_gpu, n_layers, m->on_gpu, sizeof m->on_gpu);
    k3_share_format(&p->on_host, n_layers, m->on_host, sizeof m->on_host);
    if (why.status != K3_OK) memcpy(m->no_gpu, why.message, sizeof m->no_gpu);
    return K3_OK;
}

k3_status k3_memory_make_plan(const struct k3_plan *plan, const struct k3_model_options *o, int n_threads,
                              struct k3_memory_plan *m, struct k3_placement *placement, struct k3_error *err)
{
    struct request r = {.plan = plan, .options = o, .n_threads = n_threads};
    bool mapped = o->io == K3_IO_MMAP;
    *m = (struct k3_memory_plan){.available = k3_host_memory().available,
                                 .reserve = RESERVE,
                                 .slot_bytes = mapped ? 0 : k3_store_slot_bytes(plan),
                                 .least_slots = mapped ? 0 : k3_store_least_slots(plan),
                                 .n_experts = (uint32_t)k3_store_experts(plan)};
    m->limit = o->ram ? o->ram : m->available ? m->available / 100 * SHARE_PERCENT : UINT64_MAX / 2;
    k3_status status = place(&r, m, err);
    if (status == K3_OK) status = count_slots(&r, m, err);
    if (status == K3_OK) status = choose_batch(&r, m, err);
    if (status == K3_OK) *placement = r.place;
    return status;
}

k3_status k3_memory_plan(const char *path, const struct k3_model_options *options,
                         struct k3_memory_plan *memory, struct k3_error *err)
{
    static const struct k3_model_options defaults;
    struct k3_placement placement;
    struct k3_plan *plan;
    if (!options) options = &defaults;
    k3_status status = k3_plan_open(path, &plan, err);
    if (status != K3_OK) return status;
    status = k3_memory_make_plan(plan, options, options->threads ? options->threads : k3_cpu_count(), memory,
                                 &placement, err);
    k3_plan_close(plan);
    return status;
}

/* ---- the accounts of sessions ---- */

void k3_memory_open_accounts(struct k3_model *model, bool exact)
{
    const struct k3_memory_plan *m = &model->memory;
    struct k3_cpu_sizes host =
        host_sizes(model->plan, &model->placement, k3_pool_threads(model->pool), exact, m->batch);
    struct k3_gpu_sizes vram = vram_sizes(model->plan, &model->placement, m->batch);
    model->host = (struct k3_account){.state = host.state, .token = host.token, .limit = m->limit};
    model->vram = (struct k3_account){.state = vram.state, .token = vram.token, .limit = m->vram_limit};
    atomic_init(&model->host.left, m->limit - (m->dense + m->scratch + m->slots + m->reserve));
    atomic_init(&model->vram.left, m->vram_limit - (m->vram_dense + m->vram_scratch));
}

static uint64_t bytes_of(const struct k3_account *account, size_t n_tokens)
{
    return account->state + n_tokens * account->token;
}

static k3_status take(struct k3_account *account, size_t n_tokens, const char *what, const char *whose,
                      struct k3_error *err)
{
    uint64_t left = atomic_load(&account->left), bytes = bytes_of(account, n_tokens);
    do {
        if (left < bytes)
            return k3_fail(err, K3_ERR_MEMORY,
                           "%s takes %.2f GiB, but the %smemory limit of %.2f GiB leaves %.2f GiB for it",
                           what, k3_gib(bytes), whose, k3_gib(account->limit),
                           (double)left / ((uint64_t)1 << 30));
    } while (!atomic_compare_exchange_weak(&account->left, &left, left - bytes));
    return K3_OK;
}

static void give(struct k3_account *account, size_t n_tokens)
{
    atomic_fetch_add(&account->left, bytes_of(account, n_tokens));
}

k3_status k3_memory_take(struct k3_model *model, size_t n_tokens, const char *what, struct k3_error *err)
{
    k3_status status = take(&model->host, n_tokens, what, "", err);
    if (status != K3_OK) return status;
    status = take(&model->vram, n_tokens, what, "GPU's ", err);
    if (status != K3_OK) give(&model->host, n_tokens);
    return status;
}

void k3_memory_give(struct k3_model *model, size_t n_tokens)
{
    give(&model->host, n_tokens);
    give(&model->vram, n_tokens);
}
