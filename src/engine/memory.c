/* memory.c - the plan of the host's memory, and the account of what sessions take.
 *
 * Everything that is large is known before it is allocated: dense weights, activations and the state of a session from
 * the model's dimensions, a slot from the size of an expert. What is left goes to slots. The limit is a promise: with
 * it the resident memory of the process stays below, so that the system never pages. */
#include "engine/engine_internal.h"

#include "base/host.h"
#include "base/cpu.h"
#include "ops/cpu_device.h"

/* Of what the machine has available; the rest is for the page cache, the desktop and the unforeseen. */
#define SHARE_PERCENT 85

/* Not planned in detail: program and libraries, headers, tokenizer, thread stacks. k3-tiny takes 14 MiB, the header and
 * tokenizer of a model with 163,840 tokens 60 MiB more. */
#define RESERVE ((uint64_t)96 << 20)

/* The plan has room for one session and so many copies of its recurrent state. */
#define CHECKPOINTS 2

/* A context that nobody asked for takes at most this part of what dense weights and activations leave. */
#define CONTEXT_PART 16

#define GIB (1024.0 * 1024 * 1024)

/* The largest power of two that fits, and not more than the model was made for. */
static uint32_t choose_context(const struct k3_hparams *hp, uint64_t room, uint64_t token_bytes)
{
    uint32_t made_for = hp->context_length ? hp->context_length : UINT32_MAX, context = 4096;
    while (context < made_for && context <= UINT32_MAX / 2 &&
           2 * (uint64_t)context * token_bytes <= room / CONTEXT_PART)
        context *= 2;
    return context < made_for ? context : made_for;
}

static k3_status choose_slots(const struct k3_plan *plan, const struct k3_model_options *o,
                              struct k3_memory_plan *m, struct k3_error *err)
{
    uint64_t fixed = m->dense + m->scratch + m->sessions + m->reserve, all = k3_store_experts(plan);
    uint64_t left = m->limit > fixed ? m->limit - fixed : 0, wanted = o->slots;
    uint64_t fit = m->slot_bytes ? left / m->slot_bytes : 0;
    if (o->io == K3_IO_MMAP)
        wanted = all = 0;
    else if (!wanted && o->slots_percent > 0)
        wanted = (uint64_t)((double)all * (double)o->slots_percent / 100);
    if (wanted > all) wanted = all;

    uint64_t least = wanted > m->least_slots ? wanted : m->least_slots;
    if (fit < least || m->limit < fixed)
        return k3_fail(err, K3_ERR_MEMORY,
                       "a memory limit of %.2f GiB is too low: %.2f GiB are needed (dense weights %.2f, "
                       "activations %.2f, "
                       "sessions %.2f, %llu experts %.2f, reserve %.2f)",
                       (double)m->limit / GIB, (double)(fixed + least * m->slot_bytes) / GIB,
                       (double)m->dense / GIB, (double)m->scratch / GIB, (double)m->sessions / GIB,
                       (unsigned long long)least, (double)(least * m->slot_bytes) / GIB,
                       (double)m->reserve / GIB);
    if (o->slots || o->slots_percent > 0) {
        k3_status status = o->io == K3_IO_MMAP ? K3_OK : k3_store_check_slots(plan, wanted, err);
        if (status != K3_OK) return status;
    }
    m->n_slots = (uint32_t)(wanted ? wanted : fit < all ? fit : all);
    m->slots = m->n_slots * m->slot_bytes;
    return K3_OK;
}

k3_status k3_memory_make_plan(const struct k3_plan *plan, const struct k3_model_options *o, int n_threads,
                              struct k3_memory_plan *m, struct k3_error *err)
{
    struct k3_cpu_sizes sizes = k3_cpu_device_sizes(plan, n_threads, o->exact, K3_MAX_BATCH);
    /* Written so that NaN fails too. */
    if (!(o->slots_percent >= 0 && o->slots_percent <= 100))
        return k3_fail(err, K3_ERR_ARGUMENT,
                       "slots for %g %% of the experts were asked for; 0 to 100 are possible",
                       (double)o->slots_percent);

    *m = (struct k3_memory_plan){.available = k3_host_memory().available,
                                 .dense = sizes.dense,
                                 .scratch = sizes.scratch + k3_experts_bytes(&plan->hp, K3_MAX_BATCH),
                                 .reserve = RESERVE,
                                 .slot_bytes = k3_store_slot_bytes(plan),
                                 .least_slots = k3_store_least_slots(plan),
                                 .n_experts = (uint32_t)k3_store_experts(plan)};
    m->limit = o->ram ? o->ram : m->available ? m->available / 100 * SHARE_PERCENT : UINT64_MAX / 2;
    uint64_t fixed = m->dense + m->scratch + m->reserve;
    m->context = o->context ? o->context
                            : choose_context(&plan->hp, m->limit > fixed ? m->limit - fixed : 0, sizes.token);
    m->sessions = (1 + CHECKPOINTS) * sizes.state + m->context * sizes.token;
    if (o->io == K3_IO_MMAP) m->least_slots = m->slot_bytes = 0; /* what is mapped is the page cache's */
    return choose_slots(plan, o, m, err);
}

k3_status k3_memory_plan(const char *path, const struct k3_model_options *options,
                         struct k3_memory_plan *memory, struct k3_error *err)
{
    static const struct k3_model_options defaults;
    struct k3_plan *plan;
    if (!options) options = &defaults;
    k3_status status = k3_plan_open(path, &plan, err);
    if (status != K3_OK) return status;
    status =
        k3_memory_make_plan(plan, options, options->threads ? options->threads : k3_cpu_count(), memory, err);
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
                           (double)bytes / GIB, (double)model->memory.limit / GIB, (double)left / GIB);
    } while (!atomic_compare_exchange_weak(&model->session_memory, &left, left - bytes));
    return K3_OK;
}

void k3_memory_give(struct k3_model *model, uint64_t bytes)
{
    atomic_fetch_add(&model->session_memory, bytes);
}
