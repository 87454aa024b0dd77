/* device.h - what the scheduler asks of a device.
 *
 * A device owns dense weights, the state of sequences and the activations of the batch it works on, and
 * offers the operations of a K3, not a graph of small ones. The scheduler (engine/walk.c) walks the layers:
 *
 *     begin              token rows -> residual stream p, empty bank
 *     for each layer
 *         attention      mix, norm, KDA or MLA, residual
 *         dense_ffn      mix, norm, FFN, residual                    (dense layers)
 *     or  route          mix, norm, router, latent input             (MoE layers)
 *         shared         shared experts
 *         join           experts' sum, latent norm, up, shared part, residual
 *     logits             mix, norm, head, for wanted rows
 *     finish             whether all of it could be computed
 *
 * From route to join the routed experts are computed elsewhere, from the store; the shared ones fill the time
 * in which it reads. Steps: architecture.md section 2.
 *
 * A device made for a share of the model (share.h) does the steps whose weights it has, and state_* for the layers whose
 * attention it has. begin and finish are for all, and between steps another device can give it what it goes on with:
 * engine/split.c makes one device of two. */
#ifndef K3_MODEL_DEVICE_H
#define K3_MODEL_DEVICE_H

#include "model/share.h"

/* Shows intermediate values to tests and tools: n_rows rows of `width` values, the first one being row `row`
 * of its kind. `layer` is -1 where there is none. Called by one thread at a time. */
struct k3_tap {
    void (*fn)(void *ctx, const char *name, int layer, size_t row, const float *values, size_t n_rows,
               size_t width);
    void *ctx;
};

/* What a device keeps of one sequence: KDA state, convolution history and MLA cache. */
struct k3_state;

/* A copy of a state. */
struct k3_saved_state;

/* What route found for a batch of n tokens; valid until the next begin. */
struct k3_routing {
    const uint32_t *ids;  /* [n][top_k] experts, best selection score first */
    const float *weights; /* [n][top_k], as they multiply the experts' outputs */
    const float *latent;  /* [n][Z] input of the experts */
};

struct k3_device {
    const struct k3_device_ops *ops;
};

struct k3_device_ops {
    void (*free)(struct k3_device *dev);

    /* An empty sequence with room for max_tokens. Memory for the cache is only taken as tokens fill it. */
    k3_status (*state_create)(struct k3_device *dev, size_t max_tokens, struct k3_state **state,
                              struct k3_error *err);
    void (*state_free)(struct k3_state *state);
    void (*state_reset)(struct k3_state *state);

    /* Copies the state after n_tokens; with `cache` the MLA cache too. Without it the copy can only be loaded
     * into the state it came from, as long as that one's first n_tokens are the same. The state it is loaded into has room
     * for as many tokens. */
    k3_status (*state_save)(const struct k3_state *state, size_t n_tokens, bool cache,
                            struct k3_saved_state **saved, struct k3_error *err);
    void (*state_load)(struct k3_state *state, const struct k3_saved_state *saved);
    void (*saved_free)(struct k3_saved_state *saved);

    /* The batch: n tokens (at most the batch size the device was made for) that follow `position` earlier
     * ones. The state must have room for position + n. */
    void (*begin)(struct k3_device *dev, struct k3_state *state, const int32_t *tokens, size_t n,
                  size_t position);
    void (*attention)(struct k3_device *dev, uint32_t layer);
    void (*dense_ffn)(struct k3_device *dev, uint32_t layer);
    struct k3_routing (*route)(struct k3_device *dev, uint32_t layer);
    void (*shared)(struct k3_device *dev, uint32_t layer);

    /* Guesses which n experts the next MoE layer, `layer`, will choose for the batch's last token: what its router says
     * to the input that route made for the layer before. ids: [n], likeliest first. Called between route and join. */
    void (*guess)(struct k3_device *dev, uint32_t layer, size_t n, uint32_t *ids);

    /* The input that route made for the last token, [D]: copied to the host; put in its place on a device that guesses
     * for another. */
    void (*give_input)(struct k3_device *dev, float *x);
    void (*take_input)(struct k3_device *dev, const float *x);

    /* sum: [n][Z], the weighted sum of the experts' outputs; overwritten. */
    void (*join)(struct k3_device *dev, uint32_t layer, float *sum);

    /* logits: [n_rows][V], of the batch's tokens rows[0 .. n_rows-1]. */
    void (*logits)(struct k3_device *dev, const uint32_t *rows, size_t n_rows, float *logits);

    /* The streams of the batch, [n][D] each: those that AttnRes banked, oldest first, and the running one. Before a
     * step on another device, give_stream copies one to the host, and take_stream puts one behind those banked here, as
     * the running one (i = n_streams - 1), or behind that, which is banked then (i = n_streams). What is banked stays
     * as it is, so only the last that this device had and those behind it are missing here. */
    size_t (*n_streams)(const struct k3_device *dev);
    void (*give_stream)(struct k3_device *dev, size_t i, float *rows);
    void (*take_stream)(struct k3_device *dev, size_t i, const float *rows);

    /* Ends the batch: waits for what is still being computed. When the device failed in any of it, the results since
     * begin are worth nothing. */
    k3_status (*finish)(struct k3_device *dev, struct k3_error *err);
};

#endif
