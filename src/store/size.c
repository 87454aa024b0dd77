/* size.c - how large things of the store are, and how many slots it needs. */
#include "store/store_internal.h"

uint64_t k3_store_expert_bytes(const struct k3_plan *plan, uint32_t layer)
{
    uint64_t bytes = 0;
    for (int role = K3_FIRST_EXPERT_ROLE; role < K3_ROLE_COUNT; role++) {
        const struct k3_gguf_tensor *t = k3_plan_tensor(plan, layer, role);
        if (t) bytes += t->bytes / plan->hp.n_experts;
    }
    return bytes;
}

uint64_t k3_store_bytes(const struct k3_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t layer = 0; layer < plan->hp.n_layers; layer++)
        bytes += k3_store_expert_bytes(plan, layer) * plan->hp.n_experts;
    return bytes;
}

uint64_t k3_store_experts(const struct k3_plan *plan)
{
    return (uint64_t)(plan->hp.n_layers - plan->hp.n_dense_layers) * plan->hp.n_experts;
}

uint64_t k3_store_slot_bytes(const struct k3_plan *plan)
{
    return k3_slots_bytes_each(plan);
}

/* Twice what one token uses of a layer: while one half is computed with, the other can be read. */
uint32_t k3_store_least_slots(const struct k3_plan *plan)
{
    uint64_t n = 2 * (uint64_t)plan->hp.top_k, all = k3_store_experts(plan);
    return (uint32_t)(n < all ? n : all);
}

k3_status k3_store_check_slots(const struct k3_plan *plan, uint64_t n_slots, struct k3_error *err)
{
    uint32_t least = k3_store_least_slots(plan);
    if (n_slots >= least) return K3_OK;
    return k3_fail(
        err, K3_ERR_ARGUMENT,
        "%llu slots are too few: at least %u are needed, twice the %u experts that a token uses of a layer; "
        "they take %llu bytes",
        (unsigned long long)n_slots, least, plan->hp.top_k,
        (unsigned long long)(least * k3_slots_bytes_each(plan)));
}

/* Sweeps read this far ahead: 16 experts of K3 are 150 reads, more than a drive works on at a time. */
uint32_t k3_store_spare_slots(const struct k3_plan *plan, uint32_t n_slots)
{
    if (n_slots == k3_store_experts(plan)) return 0; /* every expert can stay */
    uint32_t spare = n_slots / 8;
    return spare < 2 ? 2 : spare > 16 ? 16 : spare;
}
