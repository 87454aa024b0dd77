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
    x->max_rows = batch + K3_EXPERT_ROWS - 1; /* the last one of a group may have all tokens */
    x->hidden_gate = k3_layout_add(l, x->max_rows, hidden);
    x->hidden_up = k3_layout_add(l, x->max_rows, hidden);
    x->down_buffer = k3_layout_add(l, x->max_rows, hidden);
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

static size_t rows_of(const struct k3_experts *x, const struct k3_ready_expert *e)
{
    return x->first[e->index + 1] - x->first[e->index];
}

bool k3_experts_fit(const struct k3_experts *x, const struct k3_ready_expert *list, size_t n)
{
    size_t rows = 0;
    for (size_t i = 0; i < n; i++) rows += rows_of(x, &list[i]);
    return rows < K3_EXPERT_ROWS;
}

/* Once per layer: its experts have the same types. */
static void round_latent(struct k3_experts *x, const struct k3_expert_matrices *m)
{
    if (x->rounded) return;
    x->gate_acts = k3_round(x->c, m->gate.type, x->routing.latent, x->n, x->hp->latent, x->gate_buffer);
    x->up_acts = m->up.type == m->gate.type
                     ? x->gate_acts
                     : k3_round(x->c, m->up.type, x->routing.latent, x->n, x->hp->latent, x->up_buffer);
    x->rounded = true;
}

static void show_experts(const struct k3_experts *x, const char *name, const struct k3_ready_expert *list,
                         size_t n, const float *rows)
{
    for (size_t i = 0; i < n; rows += rows_of(x, &list[i++]) * x->hp->n_expert_ffn)
        show_rows(x, name, list[i].index, rows, x->hp->n_expert_ffn);
}

void k3_experts_compute(struct k3_experts *x, const struct k3_ready_expert *list, size_t n)
{
    struct k3_compute *c = x->c;
    const struct k3_hparams *hp = x->hp;
    size_t width = hp->n_expert_ffn, n_rows = 0;
    struct k3_gate_up hidden[K3_EXPERT_ROWS];
    struct k3_job down[K3_EXPERT_ROWS];

    round_latent(x, &list[0].m);
    for (size_t i = 0; i < n; n_rows += rows_of(x, &list[i++])) {
        const uint32_t *tokens = x->tokens + x->first[list[i].index];
        size_t n_e = rows_of(x, &list[i]), at = n_rows * width;
        hidden[i].gate =
            (struct k3_job){list[i].m.gate, x->gate_acts, tokens, n_e, x->hidden_gate + at, width, false};
        hidden[i].up =
            (struct k3_job){list[i].m.up, x->up_acts, tokens, n_e, x->hidden_up + at, width, false};
    }
    k3_gate_up(c, hidden, n, !c->tap, hp->situ_beta, hp->situ_linear_beta);
    if (c->tap) {
        show_experts(x, "ffn_moe_gate", list, n, x->hidden_gate);
        show_experts(x, "ffn_moe_up", list, n, x->hidden_up);
        k3_situ(c, x->hidden_gate, x->hidden_up, hp->situ_beta, hp->situ_linear_beta, n_rows * width);
        show_experts(x, "ffn_moe_situ", list, n, x->hidden_gate);
    }

    struct k3_acts acts = k3_round(c, list[0].m.down.type, x->hidden_gate, n_rows, width, x->down_buffer);
    for (size_t i = 0; i < n; acts.rows += rows_of(x, &list[i++]) * acts.stride)
        down[i] = (struct k3_job){
            list[i].m.down, acts, NULL, rows_of(x, &list[i]), x->out + x->first[list[i].index] * hp->latent,
            hp->latent,     false};
    k3_multiply(c, down, n);
    for (size_t i = 0; i < n; i++)
        show_rows(x, "ffn_moe_down", list[i].index, x->out + x->first[list[i].index] * hp->latent,
                  hp->latent);
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
