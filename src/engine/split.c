/* split.c - a device made of two: each step is done by the one that has the weights for it.
 *
 * Where the step before was the other's, the stream is handed over first, by way of the host: the running one and those
 * that were banked since the device had it last. For one token of K3 that is 28 KiB each, and a wait for what is being
 * computed. Shared experts, guesses and the sum of the experts need no stream: they follow route on its device. */
#include "engine/split.h"

#include "base/memory.h"

#include <stdlib.h>

enum { PARTS = 2 };

struct split {
    struct k3_device base;
    struct k3_device *parts[PARTS];
    const struct k3_share *share; /* of the second */
    uint32_t n_layers;
    float *rows; /* [B][D] on their way; owned */
    size_t at;   /* the part that has the stream */
};

/* Of each part its own; k3_state is what each device means by it, here and inside. */
struct k3_state {
    struct split *split;
    struct k3_state *parts[PARTS]; /* owned */
};

struct k3_saved_state {
    struct split *split;
    struct k3_saved_state *parts[PARTS]; /* owned */
};

static struct split *split_of(struct k3_device *dev)
{
    return (struct split *)dev;
}

/* ---- create and free ---- */

static void split_free(struct k3_device *base)
{
    struct split *s = split_of(base);
    free(s->rows);
    free(s);
}

uint64_t k3_split_bytes(const struct k3_hparams *hp, size_t max_batch)
{
    return (uint64_t)max_batch * hp->n_embd * sizeof(float);
}

static const struct k3_device_ops split_ops;

k3_status k3_split_create(struct k3_device *first, struct k3_device *second, const struct k3_share *share,
                          const struct k3_hparams *hp, size_t max_batch, struct k3_device **device,
                          struct k3_error *err)
{
    struct split *s = calloc(1, sizeof *s);
    float *rows = k3_buffer_alloc(max_batch * hp->n_embd, sizeof *rows);
    if (!s || !rows) {
        free(rows);
        free(s);
        return k3_fail_memory(err, "a stream between two devices", k3_split_bytes(hp, max_batch));
    }
    *s = (struct split){{&split_ops}, {first, second}, share, hp->n_layers, rows, 0};
    *device = &s->base;
    return K3_OK;
}

/* ---- sessions ---- */

static void state_free(struct k3_state *state)
{
    if (!state) return;
    for (size_t i = 0; i < PARTS; i++) state->split->parts[i]->ops->state_free(state->parts[i]);
    free(state);
}

static k3_status state_create(struct k3_device *base, size_t max_tokens, struct k3_state **out,
                              struct k3_error *err)
{
    struct split *s = split_of(base);
    struct k3_state *state = calloc(1, sizeof *state);
    if (!state) return k3_fail_memory(err, "a session", sizeof *state);
    state->split = s;
    k3_status status = K3_OK;
    for (size_t i = 0; i < PARTS && status == K3_OK; i++)
        status = s->parts[i]->ops->state_create(s->parts[i], max_tokens, &state->parts[i], err);
    if (status != K3_OK) {
        state_free(state);
        return status;
    }
    *out = state;
    return K3_OK;
}

static void state_reset(struct k3_state *state)
{
    for (size_t i = 0; i < PARTS; i++) state->split->parts[i]->ops->state_reset(state->parts[i]);
}

static void saved_free(struct k3_saved_state *saved)
{
    if (!saved) return;
    for (size_t i = 0; i < PARTS; i++) saved->split->parts[i]->ops->saved_free(saved->parts[i]);
    free(saved);
}

static k3_status state_save(const struct k3_state *state, size_t n_tokens, bool cache,
                            struct k3_saved_state **out, struct k3_error *err)
{
    struct split *s = state->split;
    struct k3_saved_state *saved = calloc(1, sizeof *saved);
    if (!saved) return k3_fail_memory(err, "a copy of a session", sizeof *saved);
    saved->split = s;
    k3_status status = K3_OK;
    for (size_t i = 0; i < PARTS && status == K3_OK; i++)
        status = s->parts[i]->ops->state_save(state->parts[i], n_tokens, cache, &saved->parts[i], err);
    if (status != K3_OK) {
        saved_free(saved);
        return status;
    }
    *out = saved;
    return K3_OK;
}

static void state_load(struct k3_state *state, const struct k3_saved_state *saved)
{
    for (size_t i = 0; i < PARTS; i++)
        state->split->parts[i]->ops->state_load(state->parts[i], saved->parts[i]);
}

/* ---- handing over ---- */

static size_t part_with(const struct split *s, uint32_t group)
{
    return s->share->has[group];
}

/* What is banked does not change, so the other part lacks only what comes after that which it saw last. */
static void hand_over(struct split *s, size_t to)
{
    struct k3_device *giver = s->parts[s->at], *taker = s->parts[to];
    size_t n = giver->ops->n_streams(giver);
    for (size_t i = taker->ops->n_streams(taker) - 1; i < n; i++) {
        giver->ops->give_stream(giver, i, s->rows);
        taker->ops->take_stream(taker, i, s->rows);
    }
    s->at = to;
}

/* The part that does a step, with the stream. */
static struct k3_device *go_to(struct split *s, uint32_t group)
{
    size_t to = part_with(s, group);
    if (to != s->at) hand_over(s, to);
    return s->parts[to];
}

/* ---- the walk ---- */

static void begin(struct k3_device *base, struct k3_state *state, const int32_t *tokens, size_t n,
                  size_t position)
{
    struct split *s = split_of(base);
    for (size_t i = 0; i < PARTS; i++)
        s->parts[i]->ops->begin(s->parts[i], state->parts[i], tokens, n, position);
    s->at = part_with(s, K3_EMBEDDING_GROUP);
}

static void attention(struct k3_device *base, uint32_t layer)
{
    struct k3_device *part = go_to(split_of(base), k3_attention_group(layer));
    part->ops->attention(part, layer);
}

static void dense_ffn(struct k3_device *base, uint32_t layer)
{
    struct k3_device *part = go_to(split_of(base), k3_ffn_group(layer));
    part->ops->dense_ffn(part, layer);
}

static struct k3_routing route(struct k3_device *base, uint32_t layer)
{
    struct k3_device *part = go_to(split_of(base), k3_ffn_group(layer));
    return part->ops->route(part, layer);
}

static void shared(struct k3_device *base, uint32_t layer)
{
    struct split *s = split_of(base);
    s->parts[s->at]->ops->shared(s->parts[s->at], layer);
}

/* The router asked may be the other part's, which then gets the input alone: the stream is not done yet. */
static void guess(struct k3_device *base, uint32_t layer, size_t n, uint32_t *ids)
{
    struct split *s = split_of(base);
    struct k3_device *here = s->parts[s->at], *part = s->parts[part_with(s, k3_ffn_group(layer))];
    if (part != here) {
        here->ops->give_input(here, s->rows);
        part->ops->take_input(part, s->rows);
    }
    part->ops->guess(part, layer, n, ids);
}

static void join(struct k3_device *base, uint32_t layer, float *sum)
{
    struct split *s = split_of(base);
    s->parts[s->at]->ops->join(s->parts[s->at], layer, sum);
}

static void logits(struct k3_device *base, const uint32_t *rows, size_t n_rows, float *out)
{
    struct split *s = split_of(base);
    struct k3_device *part = go_to(s, k3_head_group(s->n_layers));
    part->ops->logits(part, rows, n_rows, out);
}

/* Both end their batch, whatever the first says. */
static k3_status finish(struct k3_device *base, struct k3_error *err)
{
    struct split *s = split_of(base);
    k3_status status = K3_OK;
    for (size_t i = 0; i < PARTS; i++) {
        k3_status ended = s->parts[i]->ops->finish(s->parts[i], status == K3_OK ? err : NULL);
        if (status == K3_OK) status = ended;
    }
    return status;
}

/* It is never a part itself, so it has nothing to hand over. */
static const struct k3_device_ops split_ops = {
    .free = split_free,
    .state_create = state_create,
    .state_free = state_free,
    .state_reset = state_reset,
    .state_save = state_save,
    .state_load = state_load,
    .saved_free = saved_free,
    .begin = begin,
    .attention = attention,
    .dense_ffn = dense_ffn,
    .route = route,
    .shared = shared,
    .guess = guess,
    .join = join,
    .logits = logits,
    .finish = finish,
};
