/* synth.c - writes a model with random weights: the sizes, and the file from beginning to end. */
#include "synth.h"

#include "base/memory.h"
#include "base/threads.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_BYTES ((size_t)8 << 20) /* filled together, then written */

/* architecture.md section 1 */
static const struct k3_hparams real_sizes = {
    .n_layers = 4,
    .n_embd = 7168,
    .n_vocab = 4096,
    .context_length = 1048576,
    .n_heads = 96,
    .eps = 1e-5f,
    .kda_dim = 128,
    .conv_taps = 4,
    .bounded_gate = true,
    .gate_floor = -5,
    .q_rank = 1536,
    .kv_rank = 512,
    .pe_dim = 64,
    .qk_dim = 192,
    .v_dim = 128,
    .n_ffn = 33792,
    .n_dense_layers = 1,
    .n_experts = 400,
    .top_k = 16,
    .n_expert_ffn = 3072,
    .n_shared_ffn = 2 * 3072,
    .latent = 3584,
    .has_latent = true,
    .normalise_weights = true,
    .weight_scale = 1,
    .situ_beta = 4,
    .situ_linear_beta = 25,
    .res_block = 12,
};

/* The smallest widths that the block formats and the classes of the stream (synth_weights.c) allow. */
static struct k3_hparams tiny_sizes(void)
{
    struct k3_hparams hp = real_sizes;
    hp.n_embd = 256;
    hp.n_vocab = 1024;
    hp.context_length = 4096;
    hp.n_heads = 4;
    hp.kda_dim = 32;
    hp.q_rank = hp.kv_rank = 64;
    hp.pe_dim = 32;
    hp.qk_dim = 64;
    hp.v_dim = 32;
    hp.n_ffn = 512;
    hp.n_experts = 32;
    hp.top_k = 4;
    hp.n_expert_ffn = 256;
    hp.n_shared_ffn = 2 * 256;
    hp.latent = 256;
    return hp;
}

/* Every fourth layer is MLA, and the last. */
static void choose_kinds(struct k3_hparams *hp)
{
    for (uint32_t i = 0; i < hp->n_layers; i++) hp->is_mla[i] = i % 4 == 3 || i == hp->n_layers - 1;
}

struct k3_hparams k3_synth_real_sizes(uint32_t layers)
{
    struct k3_hparams hp = real_sizes;
    hp.n_layers = layers;
    hp.n_vocab = K3_SYNTH_VOCAB_MAX;
    choose_kinds(&hp);
    return hp;
}

static k3_status choose(const char *what, uint32_t given, uint32_t min, uint32_t max, uint32_t *value,
                        struct k3_error *err)
{
    if (!given) return K3_OK;
    if (given < min || given > max)
        return k3_fail(err, K3_ERR_ARGUMENT,
                       "a model with %" PRIu32 " %s cannot be: %" PRIu32 " to %" PRIu32 " are possible",
                       given, what, min, max);
    *value = given;
    return K3_OK;
}

static k3_status choose_sizes(const struct k3_synth_options *o, struct k3_hparams *hp, struct k3_error *err)
{
    *hp = o->tiny ? tiny_sizes() : real_sizes;
    k3_status status = choose("layers", o->layers, 2, K3_MAX_LAYERS, &hp->n_layers, err);
    if (status == K3_OK)
        status = choose("experts in a layer", o->experts, hp->top_k, 1 << 12, &hp->n_experts, err);
    if (status == K3_OK)
        status = choose("tokens", o->vocab, K3_SYNTH_VOCAB_MIN, K3_SYNTH_VOCAB_MAX, &hp->n_vocab, err);
    choose_kinds(hp);
    return status;
}

struct synth {
    const struct k3_synth_options *options;
    struct k3_hparams hp;
    struct k3_synth_vocab vocab;
    struct k3_gguf_writer *writer;
    struct k3_pool *pool;
    double units[K3_TYPE_COUNT]; /* see k3_synth_unit */
    unsigned char *batch;        /* rows being filled */
    uint64_t written;            /* bytes of tensors */

    /* What the threads fill now. */
    const struct k3_synth_tensor *tensor;
    uint64_t first_row;
};

/* ---- header ---- */

static k3_status put_general_keys(struct synth *s, struct k3_error *err)
{
    char text[160];
    snprintf(text, sizeof text,
             "Random weights by k3tool synth (%s), seed %" PRIu64 ", skew %g: for measurements only",
             k3_version(), s->options->seed, (double)s->options->skew);
    k3_status status = k3_gguf_put_string(s->writer, "general.architecture", "kimi-k3", err);
    if (status == K3_OK) status = k3_gguf_put_string(s->writer, "general.name", "synthetic K3", err);
    if (status == K3_OK) status = k3_gguf_put_string(s->writer, "general.description", text, err);
    if (status == K3_OK) status = k3_gguf_put_u32(s->writer, "general.file_type", 31, err); /* mostly iq1_m */
    if (status == K3_OK) status = k3_gguf_put_u32(s->writer, "general.quantization_version", 2, err);
    return status;
}

typedef k3_status (*tensor_fn)(struct synth *s, const struct k3_synth_tensor *tensor, const char *name,
                               const uint64_t *ne, uint32_t n_dims, struct k3_error *err);

static struct k3_synth_tensor describe(const struct synth *s, enum k3_role role, uint32_t layer,
                                       const uint64_t *ne)
{
    const struct k3_type_info *type = k3_type_info(k3_synth_type(role));
    uint64_t weights = ne[0] * ne[1] * ne[2], columns = k3_synth_is_vector(role) ? weights : ne[0];
    /* Layers and roles have numbers of their own, and seeds are far apart from each other. */
    uint64_t number = (uint64_t)layer * K3_ROLE_COUNT + (uint64_t)role;
    return (struct k3_synth_tensor){
        .role = role,
        .type = k3_synth_type(role),
        .mla = s->hp.is_mla[layer],
        .columns = columns,
        .rows = weights / columns,
        .row_bytes = (size_t)(columns / type->block * type->block_bytes),
        .inputs = role == K3_MLA_K_B ? ne[1] : columns, /* its keys are sums over the rows of a head */
        .stream = (s->options->seed + 1) * 0xd1342543de82ef95u ^ number << 40,
        .n_text = s->vocab.n_text,
        .conv_taps = s->hp.conv_taps,
        .skew = s->options->skew,
        .unit = s->units[k3_synth_type(role)],
    };
}

/* Every tensor in the order of the file. */
static k3_status for_tensors(struct synth *s, tensor_fn fn, struct k3_error *err)
{
    k3_status status = K3_OK;
    for (uint32_t layer = 0; layer < s->hp.n_layers; layer++)
        for (int role = 0; status == K3_OK && role < K3_ROLE_COUNT; role++) {
            char name[K3_GGUF_NAME_MAX + 1];
            uint64_t ne[K3_GGUF_MAX_DIMS];
            uint32_t n_dims;
            if (!k3_role_describe(&s->hp, (enum k3_role)role, layer, name, ne, &n_dims)) continue;
            struct k3_synth_tensor tensor = describe(s, (enum k3_role)role, layer, ne);
            status = fn(s, &tensor, name, ne, n_dims, err);
        }
    return status;
}

static k3_status put_tensor(struct synth *s, const struct k3_synth_tensor *tensor, const char *name,
                            const uint64_t *ne, uint32_t n_dims, struct k3_error *err)
{
    return k3_gguf_put_tensor(s->writer, name, tensor->type, n_dims, ne, err);
}

/* ---- data ---- */

static void fill_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct synth *s = ctx;
    (void)thread;
    for (size_t i = begin; i < end; i++)
        k3_synth_fill(s->tensor, s->first_row + i, s->batch + i * s->tensor->row_bytes);
}

static k3_status write_tensor(struct synth *s, const struct k3_synth_tensor *tensor, const char *name,
                              const uint64_t *ne, uint32_t n_dims, struct k3_error *err)
{
    const struct k3_synth_options *o = s->options;
    size_t at_once = BATCH_BYTES / tensor->row_bytes;
    k3_status status = K3_OK;
    (void)name, (void)ne, (void)n_dims;
    s->tensor = tensor;
    for (s->first_row = 0; status == K3_OK && s->first_row < tensor->rows; s->first_row += at_once) {
        uint64_t left = tensor->rows - s->first_row;
        size_t n = left < at_once ? (size_t)left : at_once, bytes = n * tensor->row_bytes;
        k3_pool_run(s->pool, fill_rows, s, n, 1 + at_once / 64);
        status = k3_gguf_put_data(s->writer, s->batch, bytes, err);
        s->written += bytes;
        if (status == K3_OK && o->progress &&
            !o->progress(o->progress_ctx, "writing", s->written, k3_gguf_writer_bytes(s->writer)))
            status = k3_fail(err, K3_ERR_CANCELLED, "writing was stopped");
    }
    return status;
}

k3_status k3_synth_write(const char *path, const struct k3_synth_options *options, struct k3_error *err)
{
    struct synth s = {.options = options};
    k3_status status = choose_sizes(options, &s.hp, err);
    if (status != K3_OK) return status;
    for (int type = 0; type < K3_TYPE_COUNT; type++)
        if (type == K3_TYPE_Q8_0 || type == K3_TYPE_IQ1_M || type == K3_TYPE_IQ2_XXS)
            s.units[type] = k3_synth_unit((enum k3_type)type);
    s.batch = k3_buffer_alloc(BATCH_BYTES, 1);
    if (!s.batch) status = k3_fail_memory(err, "rows of weights", BATCH_BYTES);

    if (status == K3_OK) status = k3_pool_create(options->threads, &s.pool, err);
    if (status == K3_OK) status = k3_synth_vocab_make(&s.vocab, s.hp.n_vocab, err);
    if (status == K3_OK) status = k3_gguf_writer_create(path, &s.writer, err);
    if (status == K3_OK) status = put_general_keys(&s, err);
    if (status == K3_OK) status = k3_hparams_write(&s.hp, s.writer, err);
    if (status == K3_OK) status = k3_synth_vocab_put(&s.vocab, s.writer, err);
    if (status == K3_OK) status = for_tensors(&s, put_tensor, err);
    if (status == K3_OK) status = for_tensors(&s, write_tensor, err);
    if (status == K3_OK) status = k3_gguf_writer_commit(s.writer, err);

    k3_gguf_writer_free(s.writer);
    k3_synth_vocab_free(&s.vocab);
    k3_pool_free(s.pool);
    free(s.batch);
    return status;
}
