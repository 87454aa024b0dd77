/* experts.c - the routed experts of one layer for a batch of tokens. */
#include "ops/experts.h"

#include "base/memory.h"
#include "ops/ffn.h"

#include <stdlib.h>
#include <string.h>

static void lay_out(struct k3_experts *x, struct k3_layout *l, const struct k3_hparams *hp, size_t batch)
{
    size_t pairs = batch * hp->top_k, row = hp->latent * sizeof(float),
           hidden = hp->n_expert_ffn * sizeof(float);
    x->chosen = k3_layout_add(l, hp->n_experts, sizeof *x->chosen);
    x->first = k3_layout_add(l, (size_t)hp->n_experts + 1, sizeof *x->first);
    x->tokens = k3_layout_add(l, pairs, sizeof *x->tokens);
    x->places = k3_layout_add(l, pairs, sizeof *x->places);
    x->gate_buffer = k3_layout_add(l, batch, row);
    x->up_buffer = k3_layout_add(l, batch, row);
    x->hidden_gate = k3_layout_add(l, batch, hidden);
    x->hidden_up = k3_layout_add(l, batch, hidden);
    x->out = k3_layout_add(l, pairs, row);
    x->sum = k3_layout_add(l, batch, row);
}

size_t k3_experts_bytes(const struct k3_hparams *hp, size_t max_batch)
{
    struct k3_experts x;
    struct k3_layout layout = {0};
    lay_out(&x, &layout, hp, max_batch);
    return layout.bytes;
}

k3_status k3_experts_create(struct k3_experts *x, struct k3_compute *c, const struct k3_hparams *hp,
                            size_t max_batch, struct k3_error *err)
{
    struct k3_layout layout = {k3_buffer_alloc(k3_experts_bytes(hp, max_batch), 1), 0};
    if (!layout.base)
        return k3_fail_memory(err, "the outputs of a batch's experts", k3_experts_bytes(hp, max_batch));
    *x = (struct k3_experts){.c = c, .hp = hp, .buffer = layout.base};
    lay_out(x, &layout, hp, max_batch);
    return K3_OK;
}

void k3_experts_destroy(struct k3_experts *x)
{
    free(x->buffer);
    x->buffer = NULL;
}

/* A counting sort of the pairs by expert; tokens of an expert stay in order. */
void k3_experts_group(struct k3_experts *x, const struct k3_routing *routing, size_t n, int layer)
{
    size_t top_k = x->hp->top_k, n_pairs = n * top_k;
    x->n = n;
    x->routing = *routing;
    x->layer = layer;
    x->rounded = false;

    uint32_t *count = x->first; /* by expert at first, packed below */
    memset(count, 0, ((size_t)x->hp->n_experts + 1) * sizeof *count);
    for (size_t p = 0; p < n_pairs; p++) count[routing->ids[p]]++;

    /* From here on chosen[e] is where expert e's next pair goes, until it is packed too. */
    uint32_t place = 0;
    for (size_t e = 0; e < x->hp->n_experts; e++) {
        x->chosen[e] = place;
        place += count[e];
    }
    for (size_t p = 0; p < n_pairs; p++) {
        uint32_t at = x->chosen[routing->ids[p]]++;
        x->tokens[at] = (uint32_t)(p / top_k);
        x->places[p] = at;
    }
    x->n_chosen = 0;
    place = 0;
    for (size_t e = 0; e < x->hp->n_experts; e++) {
        uint32_t n_e = count[e];
        if (!n_e) continue;
        x->chosen[x->n_chosen] = (uint32_t)e; /* n_chosen <= e: nothing unread is overwritten */
        x->first[x->n_chosen++] = place;
        place += n_e;
    }
    x->first[x->n_chosen] = place;
}

/* Shows the rows of one expert to the tap, each under the number of its pair. */
static void show_rows(const struct k3_experts *x, const char *name, size_t i, const float *rows, size_t width)
{
    if (!x->c->tap) return;
    for (size_t p = 0; p < x->n * x->hp->top_k; p++) {
        uint32_t at = x->places[p];
        if (at < x->first[i] || at >= x->first[i + 1]) continue;
        k3_show(x->c, name, x->layer, p, rows + (at - x->first[i]) * width, 1, width);
    }
}

void k3_experts_compute(struct k3_experts *x, size_t i, const struct k3_expert_matrices *m)
{
    struct k3_compute *c = x->c;
    const struct k3_hparams *hp = x->hp;
    size_t first = x->first[i], n = x->first[i + 1] - first, width = hp->n_expert_ffn;
    const uint32_t *columns = x->tokens + first;

    if (!x->rounded) { /* once per layer: its experts have the same types */
        x->gate_acts = k3_round(c, m->gate.type, x->routing.latent, x->n, hp->latent, x->gate_buffer);
        x->up_acts = m->up.type == m->gate.type
                         ? x->gate_acts
                         : k3_round(c, m->up.type, x->routing.latent, x->n, hp->latent, x->up_buffer);
        x->rounded = true;
    }
    k3_multiply(c, &m->gate, x->gate_acts, columns, n, x->hidden_gate);
    k3_multiply(c, &m->up, x->up_acts, columns, n, x->hidden_up);
    show_rows(x, "ffn_moe_gate", i, x->hidden_gate, width);
    show_rows(x, "ffn_moe_up", i, x->hidden_up, width);
    k3_situ(c, x->hidden_gate, x->hidden_up, hp->situ_beta, hp->situ_linear_beta, n * width);
    show_rows(x, "ffn_moe_situ", i, x->hidden_gate, width);

    float *out = x->out + first * hp->latent;
    k3_matmul(c, &m->down, x->hidden_gate, n, out);
    show_rows(x, "ffn_moe_down", i, out, hp->latent);
}

static void sum_tokens(void *ctx, size_t begin, size_t end, int thread)
{
    const struct k3_experts *x = ctx;
    size_t width = x->hp->latent, top_k = x->hp->top_k;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        float *sum = x->sum + t * width;
        memset(sum, 0, width * sizeof *sum);
        for (size_t p = t * top_k; p < (t + 1) * top_k; p++) {
            const float *out = x->out + x->places[p] * width;
            float weight = x->routing.weights[p];
            x->c->vectors->add_scaled(sum, weight, out, width);
        }
    }
}

float *k3_experts_sum(struct k3_experts *x)
{
    k3_pool_run(x->c->pool, sum_tokens, x, x->n, 1);
    return x->sum;
}
