/* lookahead.c - guesses the experts of the next layer, and decides whether reading them early pays.
 *
 * The guess costs a router product a layer and may read what nobody needs; it saves waiting only if the names are right
 * and there is something to wait for. Both depend on model, memory and drive, so it is tried: some tokens without,
 * some with, and the faster way is kept for a while, then tried again. */
#include "engine/lookahead.h"

#include "base/clock.h"

#include <stdlib.h>

#define TRIAL_TOKENS 16   /* without, and as many with */
#define USE_TOKENS   512  /* until the next trial */
#define LEAST_GAIN   0.03 /* of a token's time; less is noise */
#define LEAST_WAIT   0.05 /* of a token's time; with less there is nothing to gain */

/* Names beyond these are wrong more often than not: on K3 the first 6 of 16 were right in 81 % of all cases, all 16 in
 * 59 % (field measurements of 2026). Reads are capped so that a wrong guess costs the drive little. */
#define MOST_NAMES 6
#define MOST_READS 4

k3_status k3_lookahead_create(struct k3_lookahead_state *l, enum k3_lookahead option, uint32_t n_layers,
                              struct k3_error *err)
{
    *l = (struct k3_lookahead_state){.forced = option != K3_LOOKAHEAD_AUTO, .on = option == K3_LOOKAHEAD_ON};
    l->guessed = calloc(n_layers, sizeof *l->guessed);
    l->right = calloc(n_layers, sizeof *l->right);
    if (l->guessed && l->right) return K3_OK;
    k3_lookahead_destroy(l);
    return k3_fail_memory(err, "lookahead", 2 * n_layers * sizeof *l->right);
}

void k3_lookahead_destroy(struct k3_lookahead_state *l)
{
    free(l->guessed);
    free(l->right);
    l->guessed = l->right = NULL;
}

void k3_lookahead_begin(struct k3_lookahead_state *l, uint64_t wait_ns)
{
    l->n = 0;
    l->token_start = k3_now_ns();
    l->wait_start = wait_ns;
}

static void next_phase(struct k3_lookahead_state *l)
{
    l->n_tokens = 0;
    switch (l->phase) {
    case K3_MEASURE_OFF:
        l->on = (double)l->wait_off >= LEAST_WAIT * (double)l->time_off;
        l->phase = l->on ? K3_MEASURE_ON : K3_DECIDED;
        break;
    case K3_MEASURE_ON:
        l->on = (double)l->time_on <= (1 - LEAST_GAIN) * (double)l->time_off;
        l->phase = K3_DECIDED;
        break;
    case K3_DECIDED:
        l->on = false;
        l->phase = K3_MEASURE_OFF;
        l->time_off = l->time_on = l->wait_off = 0;
        break;
    }
}

void k3_lookahead_end(struct k3_lookahead_state *l, uint64_t wait_ns)
{
    if (l->forced) return;
    uint64_t time = k3_now_ns() - l->token_start;
    if (l->phase == K3_MEASURE_OFF) {
        l->time_off += time;
        l->wait_off += wait_ns - l->wait_start;
    } else if (l->phase == K3_MEASURE_ON) {
        l->time_on += time;
    }
    if (++l->n_tokens == (l->phase == K3_DECIDED ? USE_TOKENS : TRIAL_TOKENS)) next_phase(l);
}

void k3_lookahead_guess(struct k3_lookahead_state *l, struct k3_device *dev, struct k3_store *store,
                        const struct k3_plan *plan, uint32_t layer)
{
    uint32_t top_k = plan->hp.top_k;
    uint32_t names[MOST_NAMES];
    size_t n = top_k < MOST_NAMES ? top_k : MOST_NAMES;
    dev->ops->guess(dev, layer, n, names);
    l->layer = layer;
    l->n = 0;
    for (size_t i = 0; i < n; i++)
        if (!k3_store_holds(store, layer, names[i])) l->ids[l->n++] = names[i];
    l->guessed[layer] += l->n;
    k3_store_hint(store, layer, l->ids, l->n, MOST_READS * k3_store_expert_bytes(plan, layer));
}

void k3_lookahead_compare(struct k3_lookahead_state *l, uint32_t layer, const uint32_t *ids, uint32_t top_k)
{
    for (uint32_t i = 0; i < l->n && l->layer == layer; i++)
        for (uint32_t j = 0; j < top_k; j++) l->right[layer] += l->ids[i] == ids[j];
    l->n = 0;
}
