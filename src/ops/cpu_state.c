/* cpu_state.c - the state of a sequence on the CPU: create and copy. */
#include "ops/cpu_internal.h"

#include "base/memory.h"
#include "ops/mla.h"

#include <stdlib.h>
#include <string.h>

struct k3_saved_state {
    size_t n_tokens;
    float *recurrent;
    void **caches; /* [n_layers] as in k3_state, n_tokens rows each; NULL without cache */
    size_t n_layers;
};

size_t k3_cpu_recurrent_floats(const struct k3_hparams *hp)
{
    size_t dim = hp->kda_dim, wide = (size_t)hp->n_heads * dim;
    return wide * dim + 3 * (hp->conv_taps - 1) * wide;
}

float *k3_cpu_kda_state(const struct k3_state *state, uint32_t layer)
{
    const struct k3_hparams *hp = state->device->hp;
    size_t index = 0;
    for (uint32_t i = 0; i < layer; i++) index += k3_share_has_attention(state->device->share, hp, i, false);
    return state->recurrent + index * k3_cpu_recurrent_floats(hp);
}

size_t k3_cpu_cache_row_bytes(const struct k3_cpu_device *dev)
{
    return k3_mla_row_bytes(dev->hp->kv_rank, dev->hp->pe_dim, !dev->exact);
}

static bool allocate(struct k3_state *state, size_t max_tokens)
{
    const struct k3_hparams *hp = state->device->hp;
    const struct k3_share *share = state->device->share;
    size_t row = k3_cpu_cache_row_bytes(state->device);
    for (uint32_t i = 0; i < hp->n_layers; i++)
        if (k3_share_has_attention(share, hp, i, false))
            state->recurrent_floats += k3_cpu_recurrent_floats(hp);
    state->recurrent = k3_buffer_alloc(state->recurrent_floats, sizeof(float));
    state->caches = calloc(hp->n_layers, sizeof *state->caches);
    bool ok = state->recurrent && state->caches;
    for (uint32_t i = 0; ok && i < hp->n_layers; i++)
        if (k3_share_has_attention(share, hp, i, true))
            ok = (state->caches[i] = k3_buffer_alloc(max_tokens, row)) != NULL;
    return ok;
}

k3_status k3_cpu_state_create(struct k3_device *base, size_t max_tokens, struct k3_state **out,
                              struct k3_error *err)
{
    struct k3_cpu_device *dev = (struct k3_cpu_device *)base;
    struct k3_state *state = calloc(1, sizeof *state);
    if (!state) return k3_fail_memory(err, "a session", sizeof *state);
    state->device = dev;
    if (!allocate(state, max_tokens)) {
        k3_status status =
            k3_fail(err, K3_ERR_MEMORY, "not enough memory for a session of %zu tokens", max_tokens);
        k3_cpu_state_free(state);
        return status;
    }
    k3_cpu_state_reset(state);
    *out = state;
    return K3_OK;
}

static void free_caches(void **caches, size_t n_layers)
{
    for (size_t i = 0; caches && i < n_layers; i++) free(caches[i]);
    free(caches);
}

void k3_cpu_state_free(struct k3_state *state)
{
    if (!state) return;
    free(state->recurrent);
    free_caches(state->caches, state->device->hp->n_layers);
    free(state);
}

void k3_cpu_state_reset(struct k3_state *state)
{
    memset(state->recurrent, 0, state->recurrent_floats * sizeof(float));
}

k3_status k3_cpu_state_save(const struct k3_state *state, size_t n_tokens, bool cache,
                            struct k3_saved_state **out, struct k3_error *err)
{
    const struct k3_hparams *hp = state->device->hp;
    size_t row = k3_cpu_cache_row_bytes(state->device), recurrent = state->recurrent_floats * sizeof(float);
    struct k3_saved_state *saved = calloc(1, sizeof *saved);
    if (!saved) return k3_fail_memory(err, "a copy of a session", sizeof *saved);
    *saved = (struct k3_saved_state){.n_tokens = n_tokens, .n_layers = hp->n_layers};

    bool ok = (saved->recurrent = k3_buffer_alloc(recurrent, 1)) != NULL;
    if (ok) memcpy(saved->recurrent, state->recurrent, recurrent);
    if (ok && cache) ok = (saved->caches = calloc(hp->n_layers, sizeof *saved->caches)) != NULL;
    for (uint32_t i = 0; ok && cache && n_tokens && i < hp->n_layers; i++) {
        if (!state->caches[i]) continue;
        ok = (saved->caches[i] = k3_buffer_alloc(n_tokens, row)) != NULL;
        if (ok) memcpy(saved->caches[i], state->caches[i], n_tokens * row);
    }
    if (!ok) {
        k3_cpu_saved_free(saved);
        return k3_fail_memory(err, "a copy of a session", recurrent + (cache ? n_tokens * row : 0));
    }
    *out = saved;
    return K3_OK;
}

void k3_cpu_state_load(struct k3_state *state, const struct k3_saved_state *saved)
{
    size_t row = k3_cpu_cache_row_bytes(state->device);
    memcpy(state->recurrent, saved->recurrent, state->recurrent_floats * sizeof(float));
    for (size_t i = 0; saved->caches && i < saved->n_layers; i++)
        if (saved->caches[i]) memcpy(state->caches[i], saved->caches[i], saved->n_tokens * row);
}

void k3_cpu_saved_free(struct k3_saved_state *saved)
{
    if (!saved) return;
    free(saved->recurrent);
    free_caches(saved->caches, saved->n_layers);
    free(saved);
}
