/* cpu_device.c - the CPU as a device: the walk's operations on a batch, made of the operations of this room. */
#include "ops/cpu_internal.h"

#include "base/memory.h"
#include "model/weights.h"
#include "ops/ffn.h"
#include "ops/mla.h"

#include <stdlib.h>
#include <string.h>

static struct k3_cpu_device *cpu(struct k3_device *dev)
{
    return (struct k3_cpu_device *)dev;
}

static size_t max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- create and free ---- */

static void lay_out(struct k3_cpu_scratch *s, struct k3_layout *l, const struct k3_hparams *hp, size_t batch,
                    int n_threads)
{
    size_t f = sizeof(float), heads = hp->n_heads;
    size_t n_bank = hp->res_block ? (hp->n_layers + hp->res_block - 1) / hp->res_block : 0;
    size_t wide = heads * max(hp->kda_dim, max(hp->qk_dim, hp->v_dim));
    size_t low = max(hp->kda_dim, hp->kv_rank + hp->pe_dim);
    size_t ffn = max(hp->n_ffn, hp->n_shared_ffn);

    s->p = k3_layout_add(l, batch * hp->n_embd, f);
    s->x = k3_layout_add(l, batch * hp->n_embd, f);
    s->y = k3_layout_add(l, batch * hp->n_embd, f);
    s->norm_rows = k3_layout_add(l, batch * hp->n_embd, f);
    s->low = k3_layout_add(l, batch * low, f);
    s->low_q = k3_layout_add(l, batch * hp->q_rank, f);
    s->beta = k3_layout_add(l, batch * heads, f);
    s->ffn_gate = k3_layout_add(l, batch * ffn, f);
    s->ffn_up = k3_layout_add(l, batch * ffn, f);
    s->router = k3_layout_add(l, batch * hp->n_experts, f);
    s->latent = k3_layout_add(l, batch * hp->latent, f);
    s->probs = k3_layout_add(l, batch * (n_bank + 1), f);
    s->mla = k3_layout_add(l, (size_t)n_threads * k3_mla_scratch(hp->kv_rank, hp->pe_dim, hp->qk_dim), f);
    s->ids = k3_layout_add(l, batch * hp->top_k, sizeof *s->ids);
    s->weights = k3_layout_add(l, batch * hp->top_k, f);
    for (size_t i = 0; i < sizeof s->wide / sizeof *s->wide; i++)
        s->wide[i] = k3_layout_add(l, (batch + hp->conv_taps - 1) * wide, f);
    for (size_t i = 0; i < n_bank; i++) s->bank[i] = k3_layout_add(l, batch * hp->n_embd, f);
}

size_t k3_longest_row(const struct k3_plan *plan)
{
    size_t longest = 0;
    for (uint32_t layer = 0; layer < plan->hp.n_layers; layer++)
        for (int role = 0; role < K3_ROLE_COUNT; role++) {
            const struct k3_gguf_tensor *t = k3_plan_tensor(plan, layer, role);
            if (t) longest = max(longest, t->ne[0]);
        }
    return longest;
}

static void cpu_free(struct k3_device *base)
{
    struct k3_cpu_device *dev = cpu(base);
    free(dev->scratch.buffer);
    k3_cpu_weights_free(&dev->weights);
    k3_compute_destroy(&dev->compute);
    free(dev);
}

static k3_status allocate_scratch(struct k3_cpu_device *dev, int n_threads, size_t batch,
                                  struct k3_error *err)
{
    struct k3_layout layout = {0};
    lay_out(&dev->scratch, &layout, dev->hp, batch, n_threads);
    layout.base = dev->scratch.buffer = k3_buffer_alloc(layout.bytes, 1);
    if (!layout.base) return k3_fail_memory(err, "the activations of a batch", layout.bytes);
    layout.bytes = 0;
    lay_out(&dev->scratch, &layout, dev->hp, batch, n_threads);
    return K3_OK;
}

k3_status k3_cpu_device_create(const struct k3_plan *plan, struct k3_pool *pool,
                               const struct k3_cpu_options *options, struct k3_device **out,
                               struct k3_error *err)
{
    struct k3_cpu_device *dev = calloc(1, sizeof *dev);
    if (!dev) return k3_fail_memory(err, "the CPU device", sizeof *dev);
    dev->base.ops = &k3_cpu_ops;
    dev->plan = plan;
    dev->hp = &plan->hp;
    dev->share = options->share;
    dev->exact = options->exact;

    k3_status status =
        k3_compute_create(&dev->compute, pool, options->exact, options->max_batch, k3_longest_row(plan), err);
    if (status == K3_OK) status = allocate_scratch(dev, k3_pool_threads(pool), options->max_batch, err);
    if (status == K3_OK) status = k3_cpu_weights_load(&dev->weights, plan, options, err);
    if (status != K3_OK) {
        cpu_free(&dev->base);
        return status;
    }
    *out = &dev->base;
    return K3_OK;
}

struct k3_compute *k3_cpu_device_compute(struct k3_device *device)
{
    return &cpu(device)->compute;
}

void k3_cpu_device_set_tap(struct k3_device *device, const struct k3_tap *tap)
{
    cpu(device)->compute.tap = tap;
}

struct k3_cpu_sizes k3_cpu_device_sizes(const struct k3_plan *plan, const struct k3_share *share,
                                        int n_threads, bool exact, size_t batch)
{
    const struct k3_hparams *hp = &plan->hp;
    struct k3_cpu_scratch scratch;
    struct k3_layout layout = {0};
    lay_out(&scratch, &layout, hp, batch, n_threads);
    struct k3_cpu_sizes sizes = {
        .dense = k3_dense_bytes(plan, share),
        .scratch = layout.bytes + k3_compute_bytes(batch, k3_longest_row(plan), n_threads),
    };
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        if (k3_share_has_attention(share, hp, i, true))
            sizes.token += k3_mla_row_bytes(hp->kv_rank, hp->pe_dim, !exact);
        if (k3_share_has_attention(share, hp, i, false))
            sizes.state += k3_cpu_recurrent_floats(hp) * sizeof(float);
    }
    return sizes;
}

/* ---- the walk ---- */

static void cpu_begin(struct k3_device *base, struct k3_state *state, const int32_t *tokens, size_t n,
                      size_t position)
{
    struct k3_cpu_device *dev = cpu(base);
    const struct k3_matrix *table = &dev->weights.model[K3_TOKEN_EMBD];
    size_t width = dev->hp->n_embd;
    dev->state = state;
    dev->n = n;
    dev->position = position;
    dev->n_bank = 0;
    if (!table->data) return; /* the rows are another device's */
    for (size_t t = 0; t < n; t++)
        k3_decoder(table->type)(table->data + (size_t)tokens[t] * table->row_bytes,
                                dev->scratch.p + t * width, width);
    k3_show(&dev->compute, "inp_embd", -1, 0, dev->scratch.p, n, width);
}

/* What a sublayer sees of bank and stream, rows[0 .. n-1] of the batch (NULL: all n): mixed, if there is
 * AttnRes and anything banked, and normed. */
static void mix_and_norm(struct k3_cpu_device *dev, int layer, const struct k3_matrix *score,
                         const struct k3_matrix *norm, const uint32_t *rows, size_t n, float *x)
{
    struct k3_compute *c = &dev->compute;
    struct k3_cpu_scratch *s = &dev->scratch;
    size_t width = dev->hp->n_embd;
    if (dev->n_bank) {
        struct k3_streams streams = {.n_bank = dev->n_bank, .p = s->p};
        for (size_t i = 0; i < dev->n_bank; i++) streams.bank[i] = s->bank[i];
        k3_mix(c, &streams, (const float *)score->data, dev->hp->eps, rows, n, width, x, s->probs);
        k3_show(c, "res_probs", layer, 0, s->probs, n, dev->n_bank + 1);
        k3_show(c, "res_mix", -1, 0, x, n, width);
    } else {
        for (size_t i = 0; i < n; i++)
            memcpy(x + i * width, s->p + (rows ? rows[i] : i) * width, width * sizeof *x);
    }
    k3_rms_norm(c, x, (const float *)norm->data, dev->hp->eps, n, width, x);
}

/* The stream as it is is banked, and the next one is where there was nothing. */
static void bank_stream(struct k3_cpu_device *dev)
{
    struct k3_cpu_scratch *s = &dev->scratch;
    float *free_rows = s->bank[dev->n_bank];
    s->bank[dev->n_bank++] = s->p;
    s->p = free_rows;
}

static void cpu_attention(struct k3_device *base, uint32_t layer)
{
    struct k3_cpu_device *dev = cpu(base);
    struct k3_compute *c = &dev->compute;
    struct k3_cpu_scratch *s = &dev->scratch;
    const struct k3_matrix *w = dev->weights.layers[layer];
    size_t n = dev->n, width = dev->hp->n_embd;
    bool fresh = dev->hp->res_block && layer % dev->hp->res_block == 0;

    mix_and_norm(dev, (int)layer, &w[K3_ATTN_RES_SCORE], &w[K3_ATTN_NORM], NULL, n, s->x);
    k3_show(c, "attn_norm", (int)layer, 0, s->x, n, width);

    /* On a bank layer the stream as it came in is banked and starts again with the attention's output. */
    if (fresh) bank_stream(dev);
    float *out = fresh ? s->p : s->y;
    if (dev->hp->is_mla[layer])
        k3_cpu_mla(dev, layer, out);
    else
        k3_cpu_kda(dev, layer, out);
    if (!fresh) k3_add(c, s->p, s->y, n * width);
    k3_show(c, "prefix_sum_attn", (int)layer, 0, s->p, n, width);
}

static void ffn_input(struct k3_cpu_device *dev, uint32_t layer)
{
    const struct k3_matrix *w = dev->weights.layers[layer];
    mix_and_norm(dev, (int)layer, &w[K3_FFN_RES_SCORE], &w[K3_FFN_NORM], NULL, dev->n, dev->scratch.x);
    k3_show(&dev->compute, "ffn_norm", (int)layer, 0, dev->scratch.x, dev->n, dev->hp->n_embd);
}

/* y = down situ(gate x, up x) */
static void mlp(struct k3_cpu_device *dev, const struct k3_matrix *gate, const struct k3_matrix *up,
                const struct k3_matrix *down)
{
    struct k3_compute *c = &dev->compute;
    struct k3_cpu_scratch *s = &dev->scratch;
    size_t n = dev->n, rows = gate->rows;
    struct k3_acts gate_acts = k3_round(c, gate->type, s->x, n, gate->cols, c->acts);
    struct k3_acts up_acts =
        up->type == gate->type ? gate_acts
                               : k3_round(c, up->type, s->x, n, up->cols, s->y); /* y is free until the end */
    struct k3_gate_up ffn = {{*gate, gate_acts, NULL, n, s->ffn_gate, rows, false},
                             {*up, up_acts, NULL, n, s->ffn_up, rows, false}};
    k3_gate_up(c, &ffn, 1, true, dev->hp->situ_beta, dev->hp->situ_linear_beta);
    k3_matmul(c, down, s->ffn_gate, n, s->y);
}

static void add_ffn_output(struct k3_cpu_device *dev, uint32_t layer)
{
    struct k3_cpu_scratch *s = &dev->scratch;
    k3_show(&dev->compute, "ffn_out", (int)layer, 0, s->y, dev->n, dev->hp->n_embd);
    k3_add(&dev->compute, s->p, s->y, dev->n * dev->hp->n_embd);
    k3_show(&dev->compute, "l_out", (int)layer, 0, s->p, dev->n, dev->hp->n_embd);
}

static void cpu_dense_ffn(struct k3_device *base, uint32_t layer)
{
    struct k3_cpu_device *dev = cpu(base);
    const struct k3_matrix *w = dev->weights.layers[layer];
    ffn_input(dev, layer);
    mlp(dev, &w[K3_FFN_GATE], &w[K3_FFN_UP], &w[K3_FFN_DOWN]);
    add_ffn_output(dev, layer);
}

static struct k3_routing cpu_route(struct k3_device *base, uint32_t layer)
{
    struct k3_cpu_device *dev = cpu(base);
    struct k3_compute *c = &dev->compute;
    struct k3_cpu_scratch *s = &dev->scratch;
    const struct k3_matrix *w = dev->weights.layers[layer];

    ffn_input(dev, layer);
    k3_matmul_f32(c, &w[K3_ROUTER], s->x, dev->n, s->router);
    k3_route(c, dev->hp, (const float *)w[K3_ROUTER_BIAS].data, s->router, dev->n, (int)layer, s->ids,
             s->weights);
    if (dev->hp->has_latent) k3_matmul(c, &w[K3_LATENT_DOWN], s->x, dev->n, s->latent);
    return (struct k3_routing){s->ids, s->weights, dev->hp->has_latent ? s->latent : s->x};
}

static void cpu_shared(struct k3_device *base, uint32_t layer)
{
    struct k3_cpu_device *dev = cpu(base);
    const struct k3_matrix *w = dev->weights.layers[layer];
    mlp(dev, &w[K3_SHARED_GATE], &w[K3_SHARED_UP], &w[K3_SHARED_DOWN]);
    k3_show(&dev->compute, "ffn_shexp", (int)layer, 0, dev->scratch.y, dev->n, dev->hp->n_embd);
}

static void cpu_guess(struct k3_device *base, uint32_t layer, size_t n, uint32_t *ids)
{
    struct k3_cpu_device *dev = cpu(base);
    const struct k3_matrix *w = dev->weights.layers[layer];
    const float *x = dev->scratch.x + (dev->n - 1) * dev->hp->n_embd;
    k3_guess_experts(&dev->compute, dev->hp, &w[K3_ROUTER], (const float *)w[K3_ROUTER_BIAS].data, x, n,
                     dev->scratch.router, ids);
}

static void cpu_join(struct k3_device *base, uint32_t layer, float *sum)
{
    struct k3_cpu_device *dev = cpu(base);
    struct k3_compute *c = &dev->compute;
    struct k3_cpu_scratch *s = &dev->scratch;
    const struct k3_matrix *w = dev->weights.layers[layer];
    size_t n = dev->n;

    k3_show(c, "ffn_moe_out", (int)layer, 0, sum, n, dev->hp->latent);
    if (w[K3_LATENT_NORM].data)
        k3_rms_norm(c, sum, (const float *)w[K3_LATENT_NORM].data, dev->hp->eps, n, dev->hp->latent, sum);
    float *routed = sum;
    if (dev->hp->has_latent) {
        routed = s->norm_rows;
        k3_matmul(c, &w[K3_LATENT_UP], sum, n, routed);
    }
    k3_add(c, s->y, routed, n * dev->hp->n_embd);
    add_ffn_output(dev, layer);
}

static void cpu_logits(struct k3_device *base, const uint32_t *rows, size_t n_rows, float *logits)
{
    struct k3_cpu_device *dev = cpu(base);
    float *x = dev->scratch.norm_rows;
    mix_and_norm(dev, -1, &dev->weights.model[K3_OUTPUT_RES_SCORE], &dev->weights.model[K3_OUTPUT_NORM], rows,
                 n_rows, x);
    k3_show(&dev->compute, "result_norm", -1, 0, x, n_rows, dev->hp->n_embd);
    k3_matmul(&dev->compute, &dev->weights.model[K3_OUTPUT], x, n_rows, logits);
    k3_show(&dev->compute, "result_output", -1, 0, logits, n_rows, dev->hp->n_vocab);
}

/* ---- handing over ---- */

static void cpu_give_input(struct k3_device *base, float *x)
{
    struct k3_cpu_device *dev = cpu(base);
    size_t width = dev->hp->n_embd;
    memcpy(x, dev->scratch.x + (dev->n - 1) * width, width * sizeof *x);
}

static void cpu_take_input(struct k3_device *base, const float *x)
{
    struct k3_cpu_device *dev = cpu(base);
    size_t width = dev->hp->n_embd;
    memcpy(dev->scratch.x + (dev->n - 1) * width, x, width * sizeof *x);
}

static size_t cpu_n_streams(const struct k3_device *base)
{
    return ((const struct k3_cpu_device *)base)->n_bank + 1;
}

static void cpu_give_stream(struct k3_device *base, size_t i, float *rows)
{
    struct k3_cpu_device *dev = cpu(base);
    const float *from = i < dev->n_bank ? dev->scratch.bank[i] : dev->scratch.p;
    memcpy(rows, from, dev->n * dev->hp->n_embd * sizeof *rows);
}

static void cpu_take_stream(struct k3_device *base, size_t i, const float *rows)
{
    struct k3_cpu_device *dev = cpu(base);
    if (i > dev->n_bank) bank_stream(dev);
    memcpy(dev->scratch.p, rows, dev->n * dev->hp->n_embd * sizeof *rows);
}

/* Everything was computed when it was asked for, and nothing of it can fail. */
static k3_status cpu_finish(struct k3_device *base, struct k3_error *err)
{
    (void)base;
    (void)err;
    return K3_OK;
}

const struct k3_device_ops k3_cpu_ops = {
    .free = cpu_free,
    .state_create = k3_cpu_state_create,
    .state_free = k3_cpu_state_free,
    .state_reset = k3_cpu_state_reset,
    .state_save = k3_cpu_state_save,
    .state_load = k3_cpu_state_load,
    .saved_free = k3_cpu_saved_free,
    .begin = cpu_begin,
    .attention = cpu_attention,
    .dense_ffn = cpu_dense_ffn,
    .route = cpu_route,
    .shared = cpu_shared,
    .guess = cpu_guess,
    .give_input = cpu_give_input,
    .take_input = cpu_take_input,
    .join = cpu_join,
    .logits = cpu_logits,
    .n_streams = cpu_n_streams,
    .give_stream = cpu_give_stream,
    .take_stream = cpu_take_stream,
    .finish = cpu_finish,
};
