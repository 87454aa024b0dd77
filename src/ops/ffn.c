/* ffn.c - SiTU, gates and the router. */
#include "ops/ffn.h"

/* Elements that are worth a piece of work: those of exp and the like, and those of additions. */
#define FUNCTION_GRAIN 1024
#define ADD_GRAIN      16384

struct elements {
    const struct k3_vectors *vectors;
    float *x;
    const float *y;
    float b1, b2;
};

static void situ_elements(void *ctx, size_t begin, size_t end, int thread)
{
    const struct elements *e = ctx;
    (void)thread;
    e->vectors->situ(e->x + begin, e->y + begin, e->b1, e->b2, end - begin);
}

void k3_situ(struct k3_compute *c, float *g, const float *u, float b1, float b2, size_t n)
{
    struct elements e = {c->vectors, g, u, b1, b2};
    k3_pool_run(c->pool, situ_elements, &e, n, FUNCTION_GRAIN);
}

/* Pieces of rows, one FFN after the other; all have as many rows. */
struct gate_up {
    const struct k3_compute *c;
    const struct k3_gate_up *list;
    size_t grain, n_pieces; /* rows in a piece; pieces of each FFN */
    bool activate;
    float b1, b2;
};

static void gate_up_pieces(void *ctx, size_t begin, size_t end, int thread)
{
    const struct gate_up *w = ctx;
    for (size_t piece = begin; piece < end; piece++) {
        const struct k3_job *gate = &w->list[piece / w->n_pieces].gate,
                            *up = &w->list[piece / w->n_pieces].up;
        size_t row = piece % w->n_pieces * w->grain, left = gate->w.rows - row;
        size_t n_rows = left < w->grain ? left : w->grain;
        k3_multiply_rows(w->c, gate, row, row + n_rows, thread);
        k3_multiply_rows(w->c, up, row, row + n_rows, thread);
        for (size_t i = 0; i < gate->n && w->activate; i++)
            w->c->vectors->situ(gate->y + i * gate->y_stride + row, up->y + i * up->y_stride + row, w->b1,
                                w->b2, n_rows);
    }
}

void k3_gate_up(struct k3_compute *c, const struct k3_gate_up *list, size_t n_list, bool activate, float b1,
                float b2)
{
    struct gate_up w = {.c = c, .list = list, .activate = activate, .b1 = b1, .b2 = b2};
    w.grain = k3_row_grain(list->gate.n);
    w.n_pieces = (list->gate.w.rows + w.grain - 1) / w.grain;
    k3_pool_run(c->pool, gate_up_pieces, &w, n_list * w.n_pieces, 1);
}

static void gate_elements(void *ctx, size_t begin, size_t end, int thread)
{
    const struct elements *e = ctx;
    (void)thread;
    e->vectors->gate(e->x + begin, e->y + begin, end - begin);
}

void k3_gate(struct k3_compute *c, float *x, const float *gate, size_t n)
{
    struct elements e = {.vectors = c->vectors, .x = x, .y = gate};
    k3_pool_run(c->pool, gate_elements, &e, n, FUNCTION_GRAIN);
}

static void exp_elements(void *ctx, size_t begin, size_t end, int thread)
{
    const struct elements *e = ctx;
    (void)thread;
    e->vectors->exp(e->x + begin, end - begin);
}

void k3_exp(struct k3_compute *c, float *x, size_t n)
{
    struct elements e = {.vectors = c->vectors, .x = x};
    k3_pool_run(c->pool, exp_elements, &e, n, FUNCTION_GRAIN);
}

static void sigmoid_elements(void *ctx, size_t begin, size_t end, int thread)
{
    const struct elements *e = ctx;
    (void)thread;
    e->vectors->sigmoid(e->x + begin, end - begin);
}

void k3_sigmoids(struct k3_compute *c, float *x, size_t n)
{
    struct elements e = {.vectors = c->vectors, .x = x};
    k3_pool_run(c->pool, sigmoid_elements, &e, n, FUNCTION_GRAIN);
}

static void add_elements(void *ctx, size_t begin, size_t end, int thread)
{
    const struct elements *e = ctx;
    (void)thread;
    e->vectors->add(e->x + begin, e->y + begin, end - begin);
}

void k3_add(struct k3_compute *c, float *x, const float *y, size_t n)
{
    struct elements e = {.vectors = c->vectors, .x = x, .y = y};
    k3_pool_run(c->pool, add_elements, &e, n, ADD_GRAIN);
}

/* The top_k indices of the largest probs[i] + bias[i], by insertion into a short sorted list. */
static void choose(const float *probs, const float *bias, size_t n_experts, size_t top_k, uint32_t *ids)
{
    float scores[K3_MAX_TOP_K];
    size_t n = 0;
    for (size_t e = 0; e < n_experts; e++) {
        float score = probs[e] + bias[e];
        if (n == top_k && !(score > scores[n - 1])) continue;
        size_t at = n < top_k ? n++ : n - 1;
        for (; at > 0 && score > scores[at - 1]; at--) {
            scores[at] = scores[at - 1];
            ids[at] = ids[at - 1];
        }
        scores[at] = score;
        ids[at] = (uint32_t)e;
    }
}

/* Taps take floats; ids are small enough to be exact. */
static void show_ids(const struct k3_compute *c, int layer, const uint32_t *ids, size_t n, size_t top_k)
{
    if (!c->tap) return;
    for (size_t t = 0; t < n; t++) {
        float row[K3_MAX_TOP_K];
        for (size_t i = 0; i < top_k; i++) row[i] = (float)ids[t * top_k + i];
        k3_show(c, "ffn_moe_topk", layer, t, row, 1, top_k);
    }
}

void k3_guess_experts(struct k3_compute *c, const struct k3_hparams *hp, const struct k3_matrix *router,
                      const float *bias, const float *x, size_t n, float *scores, uint32_t *ids)
{
    k3_matmul_f32(c, router, x, 1, scores);
    k3_sigmoids(c, scores, hp->n_experts);
    choose(scores, bias, hp->n_experts, n, ids);
}

struct choice {
    const struct k3_hparams *hp;
    const float *bias, *probs;
    uint32_t *ids;
    float *weights;
};

static void choose_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct choice *x = ctx;
    size_t n_experts = x->hp->n_experts, top_k = x->hp->top_k;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        const float *probs = x->probs + t * n_experts;
        uint32_t *ids = x->ids + t * top_k;
        choose(probs, x->bias, n_experts, top_k, ids);
        for (size_t i = 0; i < top_k; i++) x->weights[t * top_k + i] = probs[ids[i]];
    }
}

void k3_route(struct k3_compute *c, const struct k3_hparams *hp, const float *bias, float *logits, size_t n,
              int layer, uint32_t *ids, float *weights)
{
    size_t n_experts = hp->n_experts, top_k = hp->top_k;
    k3_show(c, "ffn_moe_logits", layer, 0, logits, n, n_experts);
    k3_sigmoids(c, logits, n * n_experts);
    k3_show(c, "ffn_moe_probs", layer, 0, logits, n, n_experts);

    struct choice choice = {hp, bias, logits, ids, weights};
    k3_pool_run(c->pool, choose_rows, &choice, n, 4);
    show_ids(c, layer, ids, n, top_k);
    k3_show(c, "ffn_moe_weights", layer, 0, weights, n, top_k);

    for (size_t t = 0; t < n && hp->normalise_weights; t++) {
        float *w = weights + t * top_k, sum = 0;
        for (size_t i = 0; i < top_k; i++) sum += w[i];
        for (size_t i = 0; i < top_k; i++) w[i] /= sum + 1e-20f;
    }
    k3_show(c, "ffn_moe_weights_norm", layer, 0, weights, n, top_k);
    for (size_t i = 0; i < n * top_k; i++) weights[i] *= hp->weight_scale;
    k3_show(c, "ffn_moe_weights_scaled", layer, 0, weights, n, top_k);
}
