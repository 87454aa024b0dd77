/* state.c - the state of a sequence in device memory; copies of it stay there, too. */
#include "gpu/gpu_internal.h"

#include <stdlib.h>

/* Copies on the device: loading and saving take no way through the host. */
struct k3_saved_state {
    struct k3_gpu_device *device;
    size_t n_tokens;
    struct k3_gpu_arrays arrays;
    float *recurrent;
    uint16_t **caches; /* [n_layers] as in k3_state, n_tokens rows each; NULL without cache */
};

static size_t width_of(const struct k3_hparams *hp)
{
    return (size_t)hp->kv_rank + hp->pe_dim;
}

static size_t recurrent_floats(const struct k3_hparams *hp)
{
    size_t dim = hp->kda_dim, wide = (size_t)hp->n_heads * dim;
    return wide * dim + 3 * (hp->conv_taps - 1) * wide;
}

size_t k3_gpu_recurrent_place(const struct k3_hparams *hp, const struct k3_share *share, uint32_t layer)
{
    size_t index = 0;
    for (uint32_t i = 0; i < layer; i++) index += k3_share_has_attention(share, hp, i, false);
    return index * recurrent_floats(hp);
}

static size_t recurrent_bytes(const struct k3_hparams *hp, const struct k3_share *share)
{
    return k3_gpu_recurrent_place(hp, share, hp->n_layers) * sizeof(float);
}

static size_t score_floats(const struct k3_hparams *hp, const struct k3_share *share)
{
    for (uint32_t i = 0; i < hp->n_layers; i++)
        if (k3_share_has_attention(share, hp, i, true)) return (size_t)K3_GPU_SCORES * hp->n_heads;
    return 0;
}

void k3_gpu_state_sizes(const struct k3_hparams *hp, const struct k3_share *share, struct k3_gpu_sizes *sizes)
{
    uint64_t row = score_floats(hp, share) * sizeof(float), group = row * k3_gpu_mla_group_floats(1);
    sizes->state = recurrent_bytes(hp, share);
    /* Twice the groups, for the last may have fewer tokens; only a context of less than half a group takes more, some
     * KiB. */
    sizes->token = row + (2 * group + K3_GPU_GROUP_TOKENS - 1) / K3_GPU_GROUP_TOKENS;
    for (uint32_t i = 0; i < hp->n_layers; i++)
        if (k3_share_has_attention(share, hp, i, true)) sizes->token += width_of(hp) * sizeof(uint16_t);
}

static uint16_t **cache_arrays(struct k3_gpu_arrays *arrays, const struct k3_gpu_device *dev, size_t n_tokens)
{
    const struct k3_hparams *hp = dev->hp;
    uint16_t **caches = calloc(hp->n_layers, sizeof *caches);
    for (uint32_t i = 0; caches && i < hp->n_layers; i++)
        if (k3_share_has_attention(dev->share, hp, i, true))
            caches[i] = k3_gpu_array(arrays, "MLA cache", n_tokens * width_of(hp), sizeof **caches);
    return caches;
}

k3_status k3_gpu_state_create(struct k3_device *base, size_t max_tokens, struct k3_state **out,
                              struct k3_error *err)
{
    struct k3_gpu_device *dev = (struct k3_gpu_device *)base;
    const struct k3_hparams *hp = dev->hp;
    struct k3_state *state = calloc(1, sizeof *state);
    if (!state) return k3_fail_memory(err, "a session", sizeof *state);
    k3_gpu_select(dev->gpu.index);
    *state = (struct k3_state){.device = dev, .max_tokens = max_tokens, .arrays = {.allocate = true}};
    state->recurrent = k3_gpu_array(&state->arrays, "KDA state", recurrent_bytes(hp, dev->share), 1);
    state->scores =
        k3_gpu_array(&state->arrays, "MLA scores", max_tokens * score_floats(hp, dev->share), sizeof(float));
    state->groups =
        k3_gpu_array(&state->arrays, "MLA groups",
                     k3_gpu_mla_group_floats(max_tokens) * score_floats(hp, dev->share), sizeof(float));
    state->caches = cache_arrays(&state->arrays, dev, max_tokens);
    k3_status status = state->caches ? k3_gpu_arrays_check(&state->arrays, err)
                                     : k3_fail_memory(err, "a session", hp->n_layers * sizeof(void *));
    if (status != K3_OK) {
        k3_gpu_state_free(state);
        return status;
    }
    k3_gpu_state_reset(state);
    *out = state;
    return K3_OK;
}

void k3_gpu_state_free(struct k3_state *state)
{
    if (!state) return;
    k3_gpu_select(state->device->gpu.index);
    k3_gpu_arrays_free(&state->arrays);
    free(state->caches);
    free(state);
}

void k3_gpu_state_reset(struct k3_state *state)
{
    struct k3_gpu_device *dev = state->device;
    k3_gpu_select(dev->gpu.index);
    k3_gpu_zero(state->recurrent, recurrent_bytes(dev->hp, dev->share), dev->stream);
}

k3_status k3_gpu_state_save(const struct k3_state *state, size_t n_tokens, bool cache,
                            struct k3_saved_state **out, struct k3_error *err)
{
    struct k3_gpu_device *dev = state->device;
    const struct k3_hparams *hp = dev->hp;
    struct k3_saved_state *saved = calloc(1, sizeof *saved);
    if (!saved) return k3_fail_memory(err, "a copy of a session", sizeof *saved);
    k3_gpu_select(dev->gpu.index);
    *saved = (struct k3_saved_state){.device = dev, .n_tokens = n_tokens, .arrays = {.allocate = true}};
    saved->recurrent =
        k3_gpu_array(&saved->arrays, "a copy of KDA state", recurrent_bytes(hp, dev->share), 1);
    k3_status status = K3_OK;
    if (cache && !(saved->caches = cache_arrays(&saved->arrays, dev, n_tokens)))
        status = k3_fail_memory(err, "a copy of a session", hp->n_layers * sizeof(void *));
    if (status == K3_OK) status = k3_gpu_arrays_check(&saved->arrays, err);
    if (status != K3_OK) {
        k3_gpu_saved_free(saved);
        return status;
    }
    k3_gpu_copy(saved->recurrent, state->recurrent, recurrent_bytes(dev->hp, dev->share), dev->stream);
    for (uint32_t i = 0; cache && i < hp->n_layers; i++)
        if (saved->caches[i])
            k3_gpu_copy(saved->caches[i], state->caches[i], n_tokens * width_of(hp) * sizeof(uint16_t),
                        dev->stream);
    *out = saved;
    return K3_OK;
}

void k3_gpu_state_load(struct k3_state *state, const struct k3_saved_state *saved)
{
    struct k3_gpu_device *dev = state->device;
    const struct k3_hparams *hp = dev->hp;
    k3_gpu_select(dev->gpu.index);
    k3_gpu_copy(state->recurrent, saved->recurrent, recurrent_bytes(dev->hp, dev->share), dev->stream);
    for (uint32_t i = 0; saved->caches && i < hp->n_layers; i++)
        if (saved->caches[i])
            k3_gpu_copy(state->caches[i], saved->caches[i], saved->n_tokens * width_of(hp) * sizeof(uint16_t),
                        dev->stream);
}

void k3_gpu_saved_free(struct k3_saved_state *saved)
{
    if (!saved) return;
    k3_gpu_select(saved->device->gpu.index);
    k3_gpu_arrays_free(&saved->arrays);
    free(saved->caches);
    free(saved);
}
