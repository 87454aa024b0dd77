/* memory.c - the plan of the host's memory, and the account of what sessions take.
 *
 * Everything that is large is known before it is allocated: dense weights, activations and the state of a session from
 * the model's dimensions, a slot from the size of an expert. What is left goes to slots. The limit is a promise: with
 * it the resident memory of the process stays below, so that the system never pages. */
#include "engine/engine_internal.h"

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

/* The plan has room for one session and so many copies of its recurrent state. */
#define CHECKPOINTS 2

/* A context that nobody asked for takes at most this part of what dense weights and activations leave. */
#define CONTEXT_PART 16

/* A batch uses most experts of a layer, so where they do not all stay in memory, each batch reads them all: the larger,
 * the fewer times. Beyond the usual size a batch takes at most BATCH_PART of what dense weights leave; where memory is
 * short, smaller ones do. All are multiples of K3_KDA_CHUNK, so that a sequence is cut into the same chunks whatever the
 * size and gives the same bits. */
#define LEAST_BATCH 16
#define USUAL_BATCH 512
#define BATCH_PART  8

/* Of what is free in a GPU's memory; the rest is for what its driver takes, and for other programs. */
#define VRAM_PERCENT 95

/* A context that nobody asked for is at least this. */
#define LEAST_CONTEXT 4096

/* In hundredths of a GiB, rounded up: a limit that is told must do. */
static double gib(uint64_t bytes)
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
    uint64_t state, token; /* bytes of a session */
    uint64_t all, wanted;  /* experts; slots that were asked for, 0: as many as fit */
};

static uint64_t scratch_of(const struct request *r, uint32_t batch)
{
    uint64_t experts = k3_experts_bytes(&r->plan->hp, batch);
    if (r->place.backend) return experts + k3_compute_bytes(batch, k3_longest_row(r->plan), r->n_threads);
    return experts + k3_cpu_device_sizes(r->plan, r->n_threads, r->options->exact, batch).scratch;
}

static uint64_t vram_scratch_of(const struct request *r, uint32_t batch)
{
    return r->place.backend ? r->place.backend->sizes(r->plan, batch).scratch : 0;
}

static uint64_t rest(uint64_t all, uint64_t taken)
{
    return all > taken ? all - taken : 0;
}

static uint64_t sessions_of(const struct request *r, uint64_t context)
{
    return (1 + CHECKPOINTS) * r->state + context * r->token;
}

/* The largest power of two that fits, and not more than the model was made for. */
static uint32_t choose_context(const struct k3_hparams *hp, uint64_t room, uint64_t token_bytes)
{
    uint32_t made_for = hp->context_length ? hp->context_length : UINT32_MAX, context = LEAST_CONTEXT;
    while (context < made_for && context <= UINT32_MAX / 2 &&
           2 * (uint64_t)context * token_bytes <= room / CONTEXT_PART)
        context *= 2;
    return context < made_for ? context : made_for;
}

static k3_status plan_with_batch(const struct request *r, uint32_t batch, struct k3_memory_plan *m,
                                 struct k3_error *err)
{
    m->batch = batch;
    m->scratch = scratch_of(r, batch);
    m->vram_scratch = vram_scratch_of(r, batch);
    uint64_t fixed = m->dense + m->scratch + m->reserve, vram_fixed = m->vram_dense + m->vram_scratch;
    uint64_t room = r->place.backend ? rest(m->vram_limit, vram_fixed) : rest(m->limit, fixed);
    m->context = r->options->context ? r->options->context : choose_context(&r->plan->hp, room, r->token);
    *(r->place.backend ? &m->vram_sessions : &m->sessions) = sessions_of(r, m->context);
    fixed += m->sessions;
    if (m->vram_sessions > room && r->place.backend)
        return k3_fail(err, K3_ERR_MEMORY,
                       "the GPU's memory has %.2f GiB for sessions, but %.2f GiB are needed for %u tokens",
                       (double)room / ((uint64_t)1 << 30), gib(m->vram_sessions), m->context);

    uint64_t least = r->wanted > m->least_slots ? r->wanted : m->least_slots,
             need = fixed + least * m->slot_bytes;
    if (m->limit < need)
        return k3_fail(err, K3_ERR_MEMORY,
                       "a memory limit of %.2f GiB is too low: %.2f GiB are needed (dense weights %.2f, "
                       "activations %.2f, "
                       "sessions %.2f, %llu experts %.2f, reserve %.2f)",
                       (double)m->limit / ((uint64_t)1 << 30), gib(need), gib(m->dense), gib(m->scratch),
                       gib(m->sessions), (unsigned long long)least, gib(least * m->slot_bytes),
                       gib(m->reserve));
    uint64_t fit = m->slot_bytes ? (m->limit - fixed) / m->slot_bytes : 0;
    m->n_slots = (uint32_t)(r->wanted ? r->wanted : fit < r->all ? fit : r->all);
    m->slots = m->n_slots * m->slot_bytes;
    return K3_OK;
}

static k3_status choose_batch(const struct request *r, struct k3_memory_plan *m, struct k3_error *err)
{
    uint32_t batch = USUAL_BATCH;
    k3_status status = plan_with_batch(r, batch, m, err);
    while (status == K3_ERR_MEMORY && batch > LEAST_BATCH) status = plan_with_batch(r, batch /= 2, m, err);
    if (status != K3_OK || m->n_slots == r->all) return status;

    uint64_t room = (m->limit - m->dense - m->reserve) / BATCH_PART;
    while (batch >= USUAL_BATCH && batch < K3_MAX_BATCH && batch < m->context &&
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

/* Whether the GPU has room for the weights, the smallest batch and a session. */
static k3_status check_vram(const struct request *r, const struct k3_memory_plan *m, struct k3_error *err)
{
    uint64_t context = r->options->context ? r->options->context : choose_context(&r->plan->hp, 0, r->token);
    uint64_t need = m->vram_dense + vram_scratch_of(r, LEAST_BATCH) + sessions_of(r, context);
    if (need <= m->vram_limit) return K3_OK;
    return k3_fail(err, K3_ERR_MEMORY, "GPU %d (%s) has %.2f GiB of memory for this, but %.2f GiB are needed",
                   r->place.gpu.index, r->place.gpu.name, (double)m->vram_limit / ((uint64_t)1 << 30),
                   gib(need));
}

static void place_on_gpu(struct request *r, struct k3_memory_plan *m, struct k3_error *why)
{
    struct k3_gpu_sizes sizes = r->place.backend->sizes(r->plan, LEAST_BATCH);
    r->state = sizes.state;
    r->token = sizes.token;
    m->vram_limit = r->place.gpu.free_bytes / 100 * VRAM_PERCENT;
    m->vram_dense = sizes.dense;
    m->gpu = r->place.gpu.index;
    memcpy(m->gpu_name, r->place.gpu.name, sizeof m->gpu_name);
    if (check_vram(r, m, why) != K3_OK) r->place.backend = NULL;
}

static void place_on_host(struct request *r, struct k3_memory_plan *m)
{
    struct k3_cpu_sizes sizes = k3_cpu_device_sizes(r->plan, r->n_threads, r->options->exact, LEAST_BATCH);
    r->state = sizes.state;
    r->token = sizes.token;
    m->dense = sizes.dense;
    m->vram_limit = m->vram_dense = 0;
    m->gpu = -1;
    m->gpu_name[0] = 0;
}

/* Who holds weights and sessions, and what these take there. */
static void place(struct request *r, struct k3_memory_plan *m)
{
    struct k3_error why;
    r->place = k3_placement_choose(r->plan, r->options, &why);
    if (r->place.backend) place_on_gpu(r, m, &why);
    if (!r->place.backend) place_on_host(r, m);
    if (why.status != K3_OK) memcpy(m->no_gpu, why.message, sizeof m->no_gpu);
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
    place(&r, m);
    k3_status status = count_slots(&r, m, err);
    if (status == K3_OK) status = choose_batch(&r, m, err);
    if (status == K3_OK && placement) *placement = r.place;
    return status;
}

k3_status k3_memory_plan(const char *path, const struct k3_model_options *options,
                         struct k3_memory_plan *memory, struct k3_error *err)
{
    static const struct k3_model_options defaults;
    struct k3_plan *plan;
    if (!options) options = &defaults;
    k3_status status = k3_plan_open(path, &plan, err);
    if (status != K3_OK) return status;
    status = k3_memory_make_plan(plan, options, options->threads ? options->threads : k3_cpu_count(), memory,
                                 NULL, err);
    k3_plan_close(plan);
    return status;
}

/* ---- the account of sessions ---- */

k3_status k3_memory_take(struct k3_model *model, uint64_t bytes, const char *what, struct k3_error *err)
{
    uint64_t left = atomic_load(&model->session_memory);
    do {
        if (left < bytes)
            return k3_fail(err, K3_ERR_MEMORY,
                           "%s takes %.2f GiB, but the memory limit of %.2f GiB leaves %.2f GiB for it", what,
                           gib(bytes),
                           gib(model->memory.gpu < 0 ? model->memory.limit : model->memory.vram_limit),
                           (double)left / ((uint64_t)1 << 30));
    } while (!atomic_compare_exchange_weak(&model->session_memory, &left, left - bytes));
    return K3_OK;
}

void k3_memory_give(struct k3_model *model, uint64_t bytes)
{
    atomic_fetch_add(&model->session_memory, bytes);
}
