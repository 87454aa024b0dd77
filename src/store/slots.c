/* slots.c - the fixed set of memory slots that hold experts.
 *
 * A slot is free, loading, ready or pinned; the arrows are
 *     free -> loading -> ready <-> pinned,   loading -> pinned,   ready -> free   (eviction)
 * and only the thread that has the store moves one. A loading slot's bytes belong to the reader; a pinned
 * slot's do not change until it is given back.
 *
 * Slots are equal, but not what they are used for: at most max_kept hold experts that stay, and what is left,
 * at least max_spare, is for experts that pass through. So a sweep over all experts or a wrong guess never
 * costs what is used often, and a guess that was right becomes kept without a copy. */
#include "store/slots.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t slab_bytes(const struct k3_plan *plan, const struct k3_gguf_tensor *t)
{
    return t->bytes / plan->hp.n_experts;
}

/* The place of a slab: wherever in a page it begins in the file, the pages it touches fit, and so does what
 * kernels read past its end. */
static uint64_t place_bytes(uint64_t slab)
{
    return (slab + K3_IO_ALIGN - 1 + K3_BUFFER_PAD + K3_IO_ALIGN - 1) / K3_IO_ALIGN * K3_IO_ALIGN;
}

uint64_t k3_slots_bytes_each(const struct k3_plan *plan)
{
    uint64_t most = K3_IO_ALIGN;
    for (uint32_t layer = plan->hp.n_dense_layers; layer < plan->hp.n_layers; layer++) {
        uint64_t bytes = 0;
        for (int role = K3_FIRST_EXPERT_ROLE; role < K3_ROLE_COUNT; role++)
            bytes += place_bytes(slab_bytes(plan, k3_plan_tensor(plan, layer, role)));
        if (bytes > most) most = bytes;
    }
    return most;
}

/* ---- memory ---- */

/* One mapping; pages come when they are first written. Huge ones spare the processor most of its misses in
 * the table of pages, and the kernel most of its work for each read; where there are none, small ones do. */
static k3_status map_memory(struct k3_slots *s, struct k3_error *err)
{
    if (s->n > (SIZE_MAX / 2 - K3_HUGE_PAGE) / s->slot_bytes)
        return k3_fail_memory(err, "the slots of experts", UINT64_MAX);
    s->mapping_bytes = s->n * s->slot_bytes + K3_HUGE_PAGE;
    void *mapping = mmap(NULL, s->mapping_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return k3_fail_memory(err, "the slots of experts", s->mapping_bytes);
    s->mapping = mapping;
    uintptr_t begin = ((uintptr_t)mapping + K3_HUGE_PAGE - 1) / K3_HUGE_PAGE * K3_HUGE_PAGE;
    s->memory = (unsigned char *)begin;
    madvise(s->memory, s->n * s->slot_bytes, MADV_HUGEPAGE);
    return K3_OK;
}

k3_status k3_slots_create(struct k3_slots *s, const struct k3_plan *plan, uint32_t n, uint32_t max_spare,
                          const struct k3_policy_kind *policy, struct k3_error *err)
{
    uint64_t n_experts = (uint64_t)plan->hp.n_layers * plan->hp.n_experts;
    if (n_experts >= K3_NO_KEY)
        return k3_fail(err, K3_ERR_UNSUPPORTED, "%u layers of %u experts are more than the store can number",
                       plan->hp.n_layers, plan->hp.n_experts);
    *s = (struct k3_slots){.plan = plan, .n = n, .max_kept = n - max_spare, .max_spare = max_spare};
    s->slot_bytes = k3_slots_bytes_each(plan);
    s->slots = calloc(n, sizeof *s->slots);
    s->where = calloc(n_experts, sizeof(struct k3_slot *));
    struct k3_policy_shape shape = {plan->hp.n_layers, plan->hp.n_experts, s->max_kept};
    s->policy = policy->create(&shape);
    k3_status status = K3_OK;
    if (!s->slots || !s->where || !s->policy)
        status =
            k3_fail_memory(err, "the table of experts", n * sizeof *s->slots + n_experts * sizeof *s->where);
    if (status == K3_OK) status = map_memory(s, err);
    if (status != K3_OK) {
        k3_slots_destroy(s);
        return status;
    }
    for (uint32_t i = n; i-- > 0;) { /* the lowest first */
        s->slots[i].next_free = s->free;
        s->free = &s->slots[i];
    }
    return K3_OK;
}

void k3_slots_destroy(struct k3_slots *s)
{
    if (s->mapping) munmap(s->mapping, s->mapping_bytes);
    if (s->policy) s->policy->kind->free(s->policy);
    free(s->where);
    free(s->slots);
    memset(s, 0, sizeof *s);
}

/* ---- the kept ones, which the policy knows ---- */

static uint32_t key_of(const struct k3_slots *s, uint32_t layer, uint32_t expert)
{
    return layer * s->plan->hp.n_experts + expert;
}

static bool may_evict(void *ctx, uint32_t key)
{
    const struct k3_slots *s = ctx;
    return s->where[key]->state == K3_SLOT_READY;
}

static void set_free(struct k3_slots *s, struct k3_slot *slot)
{
    *(slot->kept ? &s->n_kept : &s->n_spare) -= 1;
    s->where[key_of(s, slot->layer, slot->expert)] = NULL;
    slot->state = K3_SLOT_FREE;
    slot->next_free = s->free;
    s->free = slot;
}

static bool evict(struct k3_slots *s)
{
    uint32_t key = s->policy->kind->victim(s->policy, may_evict, s);
    if (key == K3_NO_KEY) return false;
    set_free(s, s->where[key]);
    return true;
}

static void keep(struct k3_slots *s, struct k3_slot *slot, bool wanted)
{
    slot->kept = true;
    s->n_kept++;
    s->policy->kind->admit(s->policy, key_of(s, slot->layer, slot->expert), wanted);
}

/* ---- slots ---- */

struct k3_slot *k3_slots_find(const struct k3_slots *s, uint32_t layer, uint32_t expert)
{
    return s->where[key_of(s, layer, expert)];
}

/* Whether the slot to be taken will be a kept one; room for it has been made then. */
static bool make_room(struct k3_slots *s, enum k3_slot_use use)
{
    if (use == K3_USE_GUESS && s->max_spare) return false;
    return s->n_kept < s->max_kept || (use == K3_USE_STEP && evict(s));
}

static void fill_load(const struct k3_slots *s, struct k3_slot *slot)
{
    unsigned char *place = s->memory + (uint64_t)(slot - s->slots) * s->slot_bytes;
    for (int i = 0; i < K3_LOAD_RANGES; i++) {
        const struct k3_gguf_tensor *t = k3_plan_tensor(s->plan, slot->layer, K3_FIRST_EXPERT_ROLE + i);
        uint64_t bytes = slab_bytes(s->plan, t);
        slot->load.ranges[i] = (struct k3_range){t->shard, t->offset + slot->expert * bytes, bytes, place};
        place += place_bytes(bytes);
    }
}

struct k3_slot *k3_slots_take(struct k3_slots *s, uint32_t layer, uint32_t expert, enum k3_slot_use use)
{
    bool kept = make_room(s, use);
    if (!kept && s->n_spare == s->max_spare) return NULL;
    struct k3_slot *slot = s->free; /* there is one: n_kept < max_kept or n_spare < max_spare */
    s->free = slot->next_free;
    *slot = (struct k3_slot){.state = K3_SLOT_LOADING,
                             .layer = layer,
                             .expert = expert,
                             .guess = use == K3_USE_GUESS,
                             .item = K3_NO_ITEM};
    if (kept)
        keep(s, slot, use == K3_USE_STEP);
    else
        s->n_spare++;
    s->where[key_of(s, layer, expert)] = slot;
    fill_load(s, slot);
    slot->load.guess = slot->guess;
    return slot;
}

void k3_slots_visit(struct k3_slots *s, uint32_t layer)
{
    s->policy->kind->visit(s->policy, layer);
}

void k3_slots_touch(struct k3_slots *s, struct k3_slot *slot)
{
    if (slot->kept) {
        s->policy->kind->touch(s->policy, key_of(s, slot->layer, slot->expert));
    } else if (make_room(s, K3_USE_STEP)) {
        s->n_spare--;
        keep(s, slot, true);
    }
}

void k3_slots_free(struct k3_slots *s, struct k3_slot *slot)
{
    if (slot->kept) s->policy->kind->forget(s->policy, key_of(s, slot->layer, slot->expert));
    set_free(s, slot);
}

const unsigned char *k3_slots_matrix(const struct k3_slot *slot, enum k3_role role)
{
    const struct k3_range *range = &slot->load.ranges[role - K3_FIRST_EXPERT_ROLE];
    return range->to + range->offset % K3_IO_ALIGN;
}
