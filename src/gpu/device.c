/* device.c - the GPU as a device: the walk's operations on a batch, as launches on one stream.
 *
 * The host waits for the device where it needs what was computed: at the end of route, guess and finish. What it gives is
 * the tokens, the sum of the experts and the rows of logits that are wanted. */
#include "gpu/gpu_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct k3_gpu_device *gpu(struct k3_device *dev)
{
    return (struct k3_gpu_device *)dev;
}

static size_t max(size_t a, size_t b)
{
    return a > b ? a : b;
}

void k3_gpu_settle(struct k3_gpu_device *dev)
{
    const char *problem = k3_gpu_wait(dev->stream);
    if (problem && !dev->problem[0]) snprintf(dev->problem, sizeof dev->problem, "%s", problem);
}

/* ---- create and free ---- */

/* Values of a token in the longest row that is rounded for a product. */
static size_t longest_acts(const struct k3_plan *plan, const struct k3_share *share)
{
    const struct k3_hparams *hp = &plan->hp;
    size_t longest = (size_t)hp->n_heads * max(hp->kv_rank, hp->qk_dim);
    for (uint32_t layer = 0; layer < hp->n_layers; layer++)
        for (int role = 0; role < K3_FIRST_EXPERT_ROLE; role++) {
            const struct k3_gguf_tensor *t = k3_share_tensor(plan, share, layer, role);
            if (t) longest = max(longest, t->ne[0]);
        }
    return longest;
}

/* Of a token, as kernels leave it and route copies it. */
static size_t routing_floats(const struct k3_hparams *hp)
{
    return 2 * (size_t)hp->top_k + hp->latent;
}

static void lay_out(struct k3_gpu_scratch *s, const struct k3_plan *plan, const struct k3_share *share,
                    size_t batch)
{
    const struct k3_hparams *hp = &plan->hp;
    struct k3_gpu_arrays *a = &s->arrays;
    size_t f = sizeof(float), width = hp->n_embd, heads = hp->n_heads, acts = longest_acts(plan, share);
    size_t n_streams = 1 + (hp->res_block ? (hp->n_layers + hp->res_block - 1) / hp->res_block : 0);
    size_t wide = heads * max(hp->kda_dim, max(hp->qk_dim, hp->v_dim));
    size_t ffn = max(hp->n_ffn, hp->n_shared_ffn);

    s->streams = k3_gpu_array(a, "streams", n_streams * batch * width, f);
    s->roots = k3_gpu_array(a, "roots", n_streams * batch, f);
    s->x = k3_gpu_array(a, "x", batch * width, f);
    s->y = k3_gpu_array(a, "y", batch * width, f);
    s->product = k3_gpu_array(a, "product", batch * width, f);
    for (size_t i = 0; i < 2; i++) s->dots[i] = k3_gpu_array(a, "dots", n_streams * batch, f);
    if (width % 32 == 0) {
        s->x_acts.q = k3_gpu_array(a, "x_acts.q", batch, width);
        s->x_acts.d = k3_gpu_array(a, "x_acts.d", batch * (width / 32), f);
    }
    for (size_t i = 0; i < sizeof s->wide / sizeof *s->wide; i++)
        s->wide[i] = k3_gpu_array(a, "wide", batch * wide, f);
    s->low = k3_gpu_array(a, "low", batch * max(hp->kda_dim, hp->kv_rank + hp->pe_dim), f);
    s->low_q = k3_gpu_array(a, "low_q", batch * hp->q_rank, f);
    s->beta = k3_gpu_array(a, "beta", batch * heads, f);
    s->absorbed = k3_gpu_array(a, "absorbed", batch * heads * hp->kv_rank, f);
    s->z = k3_gpu_array(a, "z", batch * heads * hp->kv_rank, f);
    s->ffn_gate = k3_gpu_array(a, "ffn_gate", batch * ffn, f);
    s->ffn_up = k3_gpu_array(a, "ffn_up", batch * ffn, f);
    s->router = k3_gpu_array(a, "router", batch * hp->n_experts, f);
    s->routing = k3_gpu_array(a, "routing", batch * routing_floats(hp), f);
    s->sum = k3_gpu_array(a, "sum", batch * hp->latent, f);
    s->logits = k3_gpu_array(a, "logits", (size_t)K3_GPU_LOGIT_ROWS * hp->n_vocab, f);
    s->rows = k3_gpu_array(a, "rows", batch, sizeof *s->rows);
    s->guesses = k3_gpu_array(a, "guesses", K3_GPU_MAX_TOP_K, sizeof *s->guesses);
    s->guess_weights = k3_gpu_array(a, "guess_weights", K3_GPU_MAX_TOP_K, f);
    s->tokens = k3_gpu_array(a, "tokens", batch, sizeof *s->tokens);
    s->acts.q = k3_gpu_array(a, "acts.q", batch, acts);
    s->acts.d = k3_gpu_array(a, "acts.d", batch * (acts / 32 + 1), f);
}

struct k3_gpu_sizes k3_gpu_device_sizes(const struct k3_plan *plan, const struct k3_share *share,
                                        size_t max_batch)
{
    struct k3_gpu_scratch counted = {0};
    lay_out(&counted, plan, share, max_batch);
    struct k3_gpu_sizes sizes = {.dense = k3_gpu_weights_bytes(plan, share),
                                 .scratch = counted.arrays.bytes + k3_gpu_staging_bytes()};
    k3_gpu_state_sizes(&plan->hp, share, &sizes);
    return sizes;
}

static void free_device(struct k3_device *base)
{
    struct k3_gpu_device *dev = gpu(base);
    k3_gpu_select(dev->gpu.index);
    if (dev->stream) k3_gpu_wait(dev->stream);
    k3_gpu_free_host(dev->routing);
    k3_gpu_weights_free(&dev->weights);
    k3_gpu_arrays_free(&dev->s.arrays);
    k3_gpu_stream_free(dev->stream);
    free(dev);
}

static k3_status allocate(struct k3_gpu_device *dev, size_t batch, struct k3_error *err)
{
    const struct k3_hparams *hp = dev->hp;
    dev->stream = k3_gpu_stream_create();
    dev->routing = k3_gpu_alloc_host(batch * routing_floats(hp) * sizeof(float));
    if (!dev->stream || !dev->routing)
        return k3_fail_memory(err, "what the GPU gives to the host",
                              batch * routing_floats(hp) * sizeof(float));
    dev->s.arrays.allocate = true;
    lay_out(&dev->s, dev->plan, dev->share, batch);
    return k3_gpu_arrays_check(&dev->s.arrays, err);
}

static const struct k3_device_ops ops;

k3_status k3_gpu_device_create(const struct k3_plan *plan, const struct k3_gpu *device,
                               const struct k3_gpu_options *options, struct k3_device **out,
                               struct k3_error *err)
{
    struct k3_gpu_device *dev = calloc(1, sizeof *dev);
    if (!dev) return k3_fail_memory(err, "the GPU device", sizeof *dev);
    dev->base.ops = &ops;
    dev->plan = plan;
    dev->hp = &plan->hp;
    dev->share = options->share;
    dev->gpu = *device;
    dev->sizes = k3_gpu_device_sizes(plan, options->share, options->max_batch);
    k3_gpu_select(device->index);
    k3_status status = allocate(dev, options->max_batch, err);
    if (status == K3_OK) status = k3_gpu_weights_load(&dev->weights, plan, options, err);
    if (status != K3_OK) {
        free_device(&dev->base);
        return status;
    }
    *out = &dev->base;
    return K3_OK;
}

/* ---- the walk ---- */

/* The residual stream p. */
static float *stream_rows(const struct k3_gpu_device *dev)
{
    return dev->s.streams + dev->n_bank * dev->n * dev->hp->n_embd;
}

static void begin(struct k3_device *base, struct k3_state *state, const int32_t *tokens, size_t n,
                  size_t position)
{
    struct k3_gpu_device *dev = gpu(base);
    const struct k3_gpu_matrix *table = &dev->weights.model[K3_TOKEN_EMBD];
    size_t width = dev->hp->n_embd;
    k3_gpu_select(dev->gpu.index);
    dev->state = state;
    dev->n = n;
    dev->position = position;
    dev->n_bank = 0;
    dev->scored = NULL;
    dev->problem[0] = 0;
    if (table->q8_0.q) {
        k3_gpu_put(dev->s.tokens, tokens, n * sizeof *tokens, dev->stream);
        k3_gpu_rows_q8_0(&table->q8_0, dev->s.tokens, n, dev->s.streams, dev->stream);
        return;
    }
    if (!table->f32) return; /* the rows are another device's */
    for (size_t t = 0; t < n; t++)
        k3_gpu_copy(dev->s.streams + t * width, table->f32 + (size_t)tokens[t] * width, width * sizeof(float),
                    dev->stream);
}

struct k3_gpu_input k3_gpu_normed(const struct k3_gpu_device *dev)
{
    return (struct k3_gpu_input){dev->s.x, dev->s.x_acts.q ? &dev->s.x_acts : NULL};
}

/* The mix of n rows (NULL: all of the batch), normed, to x. `next`: the score of the mix to come, or NULL. */
static void mix(struct k3_gpu_device *dev, const float *score, const float *norm, const float *next,
                const uint32_t *rows, size_t n)
{
    struct k3_gpu_scratch *s = &dev->s;
    const struct k3_gpu_mixing m = {.streams = s->streams,
                                    .roots = s->roots,
                                    .n_bank = dev->n_bank,
                                    .batch = dev->n,
                                    .width = dev->hp->n_embd,
                                    .score = score,
                                    .eps = dev->hp->eps,
                                    .rows = rows,
                                    .n = n,
                                    .known = dev->scored == score ? s->dots[0] : NULL,
                                    .next = next,
                                    .next_dots = s->dots[1],
                                    .norm = norm,
                                    .y = s->x,
                                    .acts = k3_gpu_normed(dev).acts};
    k3_gpu_mix(&m, dev->stream);
    float *dots = s->dots[0];
    s->dots[0] = s->dots[1];
    s->dots[1] = dots;
    dev->scored = next;
}

/* What a sublayer sees of bank and stream: mixed, if there is AttnRes, and normed. */
static void mix_and_norm(struct k3_gpu_device *dev, const struct k3_gpu_matrix *score,
                         const struct k3_gpu_matrix *norm, const struct k3_gpu_matrix *next)
{
    size_t width = dev->hp->n_embd;
    if (dev->hp->res_block)
        mix(dev, score->f32, norm->f32, next->f32, NULL, dev->n);
    else
        k3_gpu_rms_norm(stream_rows(dev), norm->f32, dev->hp->eps, dev->n, width, width, NULL, dev->s.x,
                        k3_gpu_normed(dev).acts, dev->stream);
}

static void mix_before_ffn(struct k3_gpu_device *dev, uint32_t layer)
{
    const struct k3_gpu_matrix *w = dev->weights.layers[layer];
    const struct k3_gpu_matrix *next = layer + 1 < dev->hp->n_layers
                                           ? &dev->weights.layers[layer + 1][K3_ATTN_RES_SCORE]
                                           : &dev->weights.model[K3_OUTPUT_RES_SCORE];
    mix_and_norm(dev, &w[K3_FFN_RES_SCORE], &w[K3_FFN_NORM], next);
}

static void attention(struct k3_device *base, uint32_t layer)
{
    struct k3_gpu_device *dev = gpu(base);
    const struct k3_gpu_matrix *w = dev->weights.layers[layer];
    bool fresh = dev->hp->res_block && layer % dev->hp->res_block == 0;

    mix_and_norm(dev, &w[K3_ATTN_RES_SCORE], &w[K3_ATTN_NORM], &w[K3_FFN_RES_SCORE]);
    /* On a bank layer the stream as it came in is banked and starts again with the attention's output. */
    if (fresh) dev->n_bank++;
    if (dev->hp->is_mla[layer])
        k3_gpu_mla(dev, layer, !fresh, stream_rows(dev));
    else
        k3_gpu_kda(dev, layer, !fresh, stream_rows(dev));
}

/* situ(gate x, up x), and the input of the product with down. */
static struct k3_gpu_input mlp(struct k3_gpu_device *dev, const struct k3_gpu_matrix *gate,
                               const struct k3_gpu_matrix *up, const struct k3_gpu_matrix *down)
{
    struct k3_gpu_scratch *s = &dev->s;
    const struct k3_gpu_target targets[] = {{gate, s->ffn_gate}, {up, s->ffn_up}};
    struct k3_gpu_input in = k3_gpu_normed(dev), hidden = {s->ffn_gate, k3_gpu_acts_for(dev, down)};
    k3_gpu_matmul_all(dev, targets, 2, &in, dev->n);
    k3_gpu_situ(s->ffn_gate, s->ffn_up, dev->hp->situ_beta, dev->hp->situ_linear_beta, dev->n * gate->rows,
                hidden.acts, dev->stream);
    return hidden;
}

static void dense_ffn(struct k3_device *base, uint32_t layer)
{
    struct k3_gpu_device *dev = gpu(base);
    const struct k3_gpu_matrix *w = dev->weights.layers[layer];
    mix_before_ffn(dev, layer);
    struct k3_gpu_input hidden = mlp(dev, &w[K3_FFN_GATE], &w[K3_FFN_UP], &w[K3_FFN_DOWN]);
    k3_gpu_matmul_add(dev, &w[K3_FFN_DOWN], &hidden, dev->n, NULL, stream_rows(dev));
}

/* After a failure the walk goes on to its end with choices that can be followed. */
static void choose_any(struct k3_gpu_device *dev)
{
    size_t top_k = dev->hp->top_k;
    memset(dev->routing, 0, dev->n * routing_floats(dev->hp) * sizeof(float));
    for (size_t i = 0; i < dev->n * top_k; i++) ((uint32_t *)dev->routing)[i] = (uint32_t)(i % top_k);
}

static struct k3_routing route(struct k3_device *base, uint32_t layer)
{
    struct k3_gpu_device *dev = gpu(base);
    struct k3_gpu_scratch *s = &dev->s;
    const struct k3_hparams *hp = dev->hp;
    const struct k3_gpu_matrix *w = dev->weights.layers[layer];
    size_t n_chosen = dev->n * hp->top_k, n_latent = dev->n * hp->latent;
    float *weights = s->routing + n_chosen, *latent = weights + n_chosen;
    struct k3_gpu_input in;

    mix_before_ffn(dev, layer);
    in = k3_gpu_normed(dev);
    k3_gpu_matmul(dev, &w[K3_ROUTER], &in, dev->n, s->router);
    k3_gpu_route(s->router, w[K3_ROUTER_BIAS].f32, dev->n, hp->n_experts, hp->top_k, hp->normalise_weights,
                 hp->weight_scale, (uint32_t *)s->routing, weights, dev->stream);
    if (hp->has_latent)
        k3_gpu_matmul(dev, &w[K3_LATENT_DOWN], &in, dev->n, latent);
    else
        k3_gpu_copy(latent, s->x, n_latent * sizeof *latent, dev->stream);
    k3_gpu_get(dev->routing, s->routing, (2 * n_chosen + n_latent) * sizeof(float), dev->stream);
    k3_gpu_settle(dev);
    if (dev->problem[0]) choose_any(dev);
    return (struct k3_routing){(uint32_t *)dev->routing, dev->routing + n_chosen,
                               dev->routing + 2 * n_chosen};
}

static void shared(struct k3_device *base, uint32_t layer)
{
    struct k3_gpu_device *dev = gpu(base);
    const struct k3_gpu_matrix *w = dev->weights.layers[layer];
    struct k3_gpu_input hidden = mlp(dev, &w[K3_SHARED_GATE], &w[K3_SHARED_UP], &w[K3_SHARED_DOWN]);
    k3_gpu_matmul(dev, &w[K3_SHARED_DOWN], &hidden, dev->n, dev->s.y);
}

static void guess(struct k3_device *base, uint32_t layer, size_t n, uint32_t *ids)
{
    struct k3_gpu_device *dev = gpu(base);
    struct k3_gpu_scratch *s = &dev->s;
    const struct k3_gpu_matrix *w = dev->weights.layers[layer];
    struct k3_gpu_input last = {.x = s->x + (dev->n - 1) * dev->hp->n_embd};
    k3_gpu_matmul(dev, &w[K3_ROUTER], &last, 1, s->router);
    k3_gpu_route(s->router, w[K3_ROUTER_BIAS].f32, 1, dev->hp->n_experts, n, 0, 1, s->guesses,
                 s->guess_weights, dev->stream);
    k3_gpu_get(ids, s->guesses, n * sizeof *ids, dev->stream);
    k3_gpu_settle(dev);
    for (size_t i = 0; dev->problem[0] && i < n; i++) ids[i] = (uint32_t)i;
}

static void join(struct k3_device *base, uint32_t layer, float *sum)
{
    struct k3_gpu_device *dev = gpu(base);
    struct k3_gpu_scratch *s = &dev->s;
    const struct k3_hparams *hp = dev->hp;
    const struct k3_gpu_matrix *w = dev->weights.layers[layer];
    size_t values = dev->n * hp->n_embd;

    k3_gpu_put(s->sum, sum, dev->n * hp->latent * sizeof *sum, dev->stream);
    struct k3_gpu_input in = {.x = s->sum};
    if (w[K3_LATENT_NORM].rows) {
        in.acts = k3_gpu_acts_for(dev, &w[K3_LATENT_UP]);
        k3_gpu_rms_norm(s->sum, w[K3_LATENT_NORM].f32, hp->eps, dev->n, hp->latent, hp->latent, NULL, s->sum,
                        in.acts, dev->stream);
    }
    if (hp->has_latent) {
        k3_gpu_matmul_add(dev, &w[K3_LATENT_UP], &in, dev->n, s->y, stream_rows(dev));
        return;
    }
    k3_gpu_add(s->y, s->sum, values, dev->stream);
    k3_gpu_add(stream_rows(dev), s->y, values, dev->stream);
}

/* The mix of the wanted rows, normed, to x. */
static void gather(struct k3_gpu_device *dev, const uint32_t *rows, size_t n_rows)
{
    size_t width = dev->hp->n_embd;
    const float *norm = dev->weights.model[K3_OUTPUT_NORM].f32;
    if (dev->n_bank) {
        k3_gpu_put(dev->s.rows, rows, n_rows * sizeof *rows, dev->stream);
        mix(dev, dev->weights.model[K3_OUTPUT_RES_SCORE].f32, norm, NULL, dev->s.rows, n_rows);
        return;
    }
    for (size_t i = 0; i < n_rows; i++)
        k3_gpu_copy(dev->s.x + i * width, stream_rows(dev) + rows[i] * width, width * sizeof(float),
                    dev->stream);
    k3_gpu_rms_norm(dev->s.x, norm, dev->hp->eps, n_rows, width, width, NULL, dev->s.x,
                    k3_gpu_normed(dev).acts, dev->stream);
}

static void logits(struct k3_device *base, const uint32_t *rows, size_t n_rows, float *out)
{
    struct k3_gpu_device *dev = gpu(base);
    size_t width = dev->hp->n_embd, n_vocab = dev->hp->n_vocab;
    struct k3_gpu_input normed;
    gather(dev, rows, n_rows);
    normed = k3_gpu_normed(dev);
    for (size_t i = 0; i < n_rows; i += K3_GPU_LOGIT_ROWS) {
        size_t n = n_rows - i < K3_GPU_LOGIT_ROWS ? n_rows - i : K3_GPU_LOGIT_ROWS;
        struct k3_gpu_acts acts = {dev->s.x_acts.q + i * width, dev->s.x_acts.d + i * width / 32};
        struct k3_gpu_input in = {normed.x + i * width, normed.acts ? &acts : NULL};
        k3_gpu_matmul(dev, &dev->weights.model[K3_OUTPUT], &in, n, dev->s.logits);
        k3_gpu_get(out + i * n_vocab, dev->s.logits, n * n_vocab * sizeof *out, dev->stream);
    }
}

/* ---- handing over ---- */

/* Floats for another device. After a failure the walk goes on to its end with any that are numbers. */
static void give(struct k3_gpu_device *dev, const float *from, size_t n, float *to)
{
    k3_gpu_get(to, from, n * sizeof *to, dev->stream);
    k3_gpu_settle(dev);
    if (dev->problem[0]) memset(to, 0, n * sizeof *to);
}

static float *last_input(struct k3_gpu_device *dev)
{
    return dev->s.x + (dev->n - 1) * dev->hp->n_embd;
}

static void give_input(struct k3_device *base, float *x)
{
    struct k3_gpu_device *dev = gpu(base);
    give(dev, last_input(dev), dev->hp->n_embd, x);
}

static void take_input(struct k3_device *base, const float *x)
{
    struct k3_gpu_device *dev = gpu(base);
    k3_gpu_put(last_input(dev), x, dev->hp->n_embd * sizeof *x, dev->stream);
}

static size_t n_streams(const struct k3_device *base)
{
    return ((const struct k3_gpu_device *)base)->n_bank + 1;
}

static void give_stream(struct k3_device *base, size_t i, float *rows)
{
    struct k3_gpu_device *dev = gpu(base);
    size_t floats = dev->n * dev->hp->n_embd;
    give(dev, dev->s.streams + i * floats, floats, rows);
}

/* What is banked needs its root. A mix of the stream alone, as if nothing was banked, finds it as ever; nothing else of it
 * is used, so that any vector will do for the score: the first row. */
static void take_stream(struct k3_device *base, size_t i, const float *rows)
{
    struct k3_gpu_device *dev = gpu(base);
    size_t width = dev->hp->n_embd;
    dev->n_bank = i;
    float *stream = stream_rows(dev);
    k3_gpu_put(stream, rows, dev->n * width * sizeof *rows, dev->stream);
    dev->scored = NULL; /* it has no dot for the mix to come */
    if (!dev->hp->res_block) return;
    const struct k3_gpu_mixing m = {.streams = stream,
                                    .roots = dev->s.roots + i * dev->n,
                                    .batch = dev->n,
                                    .width = width,
                                    .score = stream,
                                    .eps = dev->hp->eps,
                                    .n = dev->n,
                                    .y = dev->s.x};
    k3_gpu_mix(&m, dev->stream);
}

static k3_status finish(struct k3_device *base, struct k3_error *err)
{
    struct k3_gpu_device *dev = gpu(base);
    k3_gpu_settle(dev);
    if (!dev->problem[0]) return K3_OK;
    return k3_fail(err, K3_ERR_IO, "GPU %d (%s) failed: %s", dev->gpu.index, dev->gpu.name, dev->problem);
}

static const struct k3_device_ops ops = {
    .free = free_device,
    .state_create = k3_gpu_state_create,
    .state_free = k3_gpu_state_free,
    .state_reset = k3_gpu_state_reset,
    .state_save = k3_gpu_state_save,
    .state_load = k3_gpu_state_load,
    .saved_free = k3_gpu_saved_free,
    .begin = begin,
    .attention = attention,
    .dense_ffn = dense_ffn,
    .route = route,
    .shared = shared,
    .guess = guess,
    .give_input = give_input,
    .take_input = take_input,
    .join = join,
    .logits = logits,
    .n_streams = n_streams,
    .give_stream = give_stream,
    .take_stream = take_stream,
    .finish = finish,
};
