/* hparams.c - from keys to hyper-parameters (gguf.md section 3).
 *
 * Every key is looked at even if another one is wrong; what could not be read stays 0, which bind.c takes for
 * "not known". Limits keep products of two widths far from 32 bits, so that nobody downstream needs to check.
 */
#include "model/model_internal.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define WIDTH_MAX   ((uint32_t)1 << 20) /* of a head, a rank, a layer; K3's largest is 33792 */
#define PRODUCT_MAX ((uint64_t)1 << 24) /* heads times width; K3's largest is 24576 */
#define VOCAB_MAX   ((uint32_t)1 << 24)
#define EXPERTS_MAX ((uint32_t)1 << 16)

enum how {
    REQUIRED,
    OPTIONAL,  /* absent: 0 */
    PER_LAYER, /* required; also accepted as an array with one value for all MoE layers */
};

static const struct {
    const char *key;
    size_t at; /* in struct k3_hparams */
    enum how how;
    uint32_t min, max;
} u32_keys[] = {
#define FIELD(name) offsetof(struct k3_hparams, name)
    {K3_KEY("block_count"), FIELD(n_layers), REQUIRED, 1, K3_MAX_LAYERS},
    {K3_KEY("leading_dense_block_count"), FIELD(n_dense_layers), REQUIRED, 0, K3_MAX_LAYERS},
    {K3_KEY("context_length"), FIELD(context_length), OPTIONAL, 0, UINT32_MAX},
    {K3_KEY("embedding_length"), FIELD(n_embd), REQUIRED, 1, WIDTH_MAX},
    {K3_KEY("feed_forward_length"), FIELD(n_ffn), REQUIRED, 1, WIDTH_MAX},
    {K3_KEY("attention.head_count"), FIELD(n_heads), REQUIRED, 1, WIDTH_MAX},
    {K3_KEY("kda.head_dim"), FIELD(kda_dim), REQUIRED, 1, K3_MAX_KDA_DIM},
    {K3_KEY("ssm.conv_kernel"), FIELD(conv_taps), REQUIRED, 1, 1024},
    {K3_KEY("attention.q_lora_rank"), FIELD(q_rank), OPTIONAL, 0, WIDTH_MAX},
    {K3_KEY("attention.kv_lora_rank"), FIELD(kv_rank), REQUIRED, 1, WIDTH_MAX},
    {K3_KEY("rope.dimension_count"), FIELD(pe_dim), REQUIRED, 1, WIDTH_MAX},
    {K3_KEY("attention.key_length_mla"), FIELD(qk_dim), REQUIRED, 1, WIDTH_MAX},
    {K3_KEY("attention.value_length_mla"), FIELD(v_dim), REQUIRED, 1, WIDTH_MAX},
    {K3_KEY("expert_count"), FIELD(n_experts), REQUIRED, 1, EXPERTS_MAX},
    {K3_KEY("expert_used_count"), FIELD(top_k), PER_LAYER, 1, K3_MAX_TOP_K},
    {K3_KEY("expert_feed_forward_length"), FIELD(n_expert_ffn), PER_LAYER, 1, WIDTH_MAX},
    {K3_KEY("expert_latent_length"), FIELD(latent), OPTIONAL, 0, WIDTH_MAX},
    {K3_KEY("attn_res.block_size"), FIELD(res_block), OPTIONAL, 0, K3_MAX_LAYERS},
#undef FIELD
};

static bool is_int_array(const struct k3_gguf_value *v)
{
    if (v->kind != K3_GGUF_ARRAY) return false;
    switch (v->array.kind) {
    case K3_GGUF_STRING:
    case K3_GGUF_F32:
    case K3_GGUF_F64:
    case K3_GGUF_BOOL:
    case K3_GGUF_ARRAY:
        return false;
    default:
        return true;
    }
}

/* One number for all MoE layers. What the array says of dense layers has no meaning. */
static bool get_equal(struct k3_exam *exam, const struct k3_gguf_value *v, uint32_t *value)
{
    uint32_t first = exam->hp.n_dense_layers;
    if (v->array.n != exam->hp.n_layers || first >= v->array.n) {
        k3_exam_note(exam, K3_ERR_FORMAT, "key %s has %" PRIu64 " values for %" PRIu32 " layers", v->key,
                     v->array.n, exam->hp.n_layers);
        return false;
    }
    int64_t x = k3_gguf_array_int(v, first);
    for (uint64_t i = first; i < v->array.n; i++) {
        if (k3_gguf_array_int(v, i) == x) continue;
        k3_exam_note(exam, K3_ERR_UNSUPPORTED, "key %s differs between layers %" PRIu32 " and %" PRIu64,
                     v->key, first, i);
        return false;
    }
    if (x < 0 || x > UINT32_MAX) {
        k3_exam_note(exam, K3_ERR_FORMAT, "key %s is %" PRIi64 " for layer %" PRIu32, v->key, x, first);
        return false;
    }
    *value = (uint32_t)x;
    return true;
}

static bool get_u32(struct k3_exam *exam, const char *key, enum how how, uint32_t *value)
{
    struct k3_error err;
    const struct k3_gguf_value *v = k3_gguf_find(exam->gguf, key);
    if (!v && how == OPTIONAL) return false;
    if (v && how == PER_LAYER && is_int_array(v)) return get_equal(exam, v, value);
    if (k3_gguf_get_u32(exam->gguf, key, value, &err) == K3_OK) return true;
    k3_exam_note_error(exam, &err);
    return false;
}

static void read_u32_keys(struct k3_exam *exam)
{
    for (size_t i = 0; i < sizeof u32_keys / sizeof u32_keys[0]; i++) {
        const char *key = u32_keys[i].key;
        uint32_t value = 0, min = u32_keys[i].min, max = u32_keys[i].max;
        if (!get_u32(exam, key, u32_keys[i].how, &value)) continue;
        if (value < min || value > max)
            k3_exam_note(exam, K3_ERR_FORMAT, "key %s is %" PRIu32 "; %" PRIu32 " to %" PRIu32 " are allowed",
                         key, value, min, max);
        else
            memcpy((char *)&exam->hp + u32_keys[i].at, &value, sizeof value);
    }
}

/* ---- other kinds ---- */

/* Leaves *value as it is when the key is absent and optional, or wrong. */
static bool get_f32(struct k3_exam *exam, const char *key, bool required, float min, float max, float *value)
{
    struct k3_error err;
    float f;
    if (!required && !k3_gguf_find(exam->gguf, key)) return false;
    if (k3_gguf_get_f32(exam->gguf, key, &f, &err) != K3_OK) {
        k3_exam_note_error(exam, &err);
        return false;
    }
    if (!(f >= min && f <= max)) { /* also when it is not a number */
        k3_exam_note(exam, K3_ERR_FORMAT, "key %s is %g; %g to %g are allowed", key, (double)f, (double)min,
                     (double)max);
        return false;
    }
    *value = f;
    return true;
}

static void read_f32_keys(struct k3_exam *exam)
{
    struct k3_hparams *hp = &exam->hp;
    get_f32(exam, K3_KEY("attention.layer_norm_rms_epsilon"), true, 1e-12f, 1e-1f, &hp->eps);
    hp->eps_lora = hp->eps; /* architecture.md section 3: what the peer does */
    hp->bounded_gate = get_f32(exam, K3_KEY("kda.gate_lower_bound"), false, -80, -1e-3f, &hp->gate_floor);
    get_f32(exam, K3_KEY("activation.situ_beta"), true, 1e-3f, 1e6f, &hp->situ_beta);
    get_f32(exam, K3_KEY("activation.situ_linear_beta"), true, 0, 1e6f, &hp->situ_linear_beta);
    get_f32(exam, K3_KEY("expert_weights_scale"), false, 0, 1e6f, &hp->weight_scale);
    if (hp->weight_scale == 0) hp->weight_scale = 1;
}

static void read_router_keys(struct k3_exam *exam)
{
    struct k3_error err;
    uint32_t gating = 0, groups = 1;
    if (k3_gguf_get_bool(exam->gguf, K3_KEY("expert_weights_norm"), &exam->hp.normalise_weights, &err) !=
        K3_OK)
        k3_exam_note_error(exam, &err);
    if (get_u32(exam, K3_KEY("expert_gating_func"), REQUIRED, &gating) && gating != 2)
        k3_exam_note(exam, K3_ERR_UNSUPPORTED,
                     "key " K3_KEY("expert_gating_func") " is %" PRIu32 "; only 2 (sigmoid) is known",
                     gating);
    if (get_u32(exam, K3_KEY("expert_group_count"), OPTIONAL, &groups) && groups > 1)
        k3_exam_note(exam, K3_ERR_UNSUPPORTED,
                     "key " K3_KEY("expert_group_count") " is %" PRIu32 "; groups of experts are not known",
                     groups);
}

static void read_shared_width(struct k3_exam *exam)
{
    uint32_t shared = 0;
    if (!get_u32(exam, K3_KEY("expert_shared_count"), REQUIRED, &shared) || !exam->hp.n_expert_ffn) return;
    uint64_t width = (uint64_t)shared * exam->hp.n_expert_ffn;
    if (width < 1 || width > WIDTH_MAX)
        k3_exam_note(exam, K3_ERR_FORMAT,
                     "key " K3_KEY("expert_shared_count") " is %" PRIu32
                                                          ", which makes a shared expert of width %" PRIu64,
                     shared, width);
    else
        exam->hp.n_shared_ffn = (uint32_t)width;
}

static void read_layer_kinds(struct k3_exam *exam)
{
    const char *key = K3_KEY("attention.head_count_kv");
    const struct k3_gguf_value *v = k3_gguf_find(exam->gguf, key);
    struct k3_hparams *hp = &exam->hp;
    if (!v || !is_int_array(v)) {
        k3_exam_note(exam, K3_ERR_FORMAT, "key %s is %s; an array of integers is expected", key,
                     v ? k3_gguf_kind_name(v->kind) : "missing");
        return;
    }
    if (v->array.n != hp->n_layers) {
        k3_exam_note(exam, K3_ERR_FORMAT, "key %s has %" PRIu64 " values for %" PRIu32 " layers", key,
                     v->array.n, hp->n_layers);
        return;
    }
    uint32_t n_mla = 0;
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        int64_t x = k3_gguf_array_int(v, i);
        if (x < 0 || x > 1) {
            k3_exam_note(exam, K3_ERR_FORMAT,
                         "key %s is %" PRIi64 " for layer %" PRIu32 "; 0 (KDA) and 1 (MLA) are known", key, x,
                         i);
            return;
        }
        hp->is_mla[i] = x == 1;
        n_mla += x == 1;
    }
    if (n_mla == 0 || n_mla == hp->n_layers)
        k3_exam_note(exam, K3_ERR_FORMAT, "key %s makes all layers %s; a K3 has both kinds", key,
                     n_mla ? "MLA" : "KDA");
    exam->kinds_known = true;
}

/* ---- what must fit together ---- */

static void check_product(struct k3_exam *exam, const char *key, uint64_t width)
{
    uint64_t product = width * exam->hp.n_heads;
    if (product > PRODUCT_MAX)
        k3_exam_note(exam, K3_ERR_FORMAT,
                     "key " K3_KEY("attention.head_count") ": %" PRIu32 " heads of %s %" PRIu64
                                                           " are %" PRIu64 " values; at most %" PRIu64
                                                           " are allowed",
                     exam->hp.n_heads, key, width, product, PRODUCT_MAX);
}

static void check_together(struct k3_exam *exam)
{
    struct k3_hparams *hp = &exam->hp;
    uint32_t key_length = 0;
    if (hp->qk_dim && hp->qk_dim <= hp->pe_dim)
        k3_exam_note(
            exam, K3_ERR_FORMAT,
            "key " K3_KEY("attention.key_length_mla") " is %" PRIu32
                                                      ", not more than rope.dimension_count (%" PRIu32 ")",
            hp->qk_dim, hp->pe_dim);
    if (hp->n_experts && hp->top_k > hp->n_experts)
        k3_exam_note(exam, K3_ERR_FORMAT,
                     "key " K3_KEY("expert_used_count") " is %" PRIu32 ", more than the %" PRIu32
                                                        " experts there are",
                     hp->top_k, hp->n_experts);
    if (hp->n_layers && hp->n_dense_layers >= hp->n_layers)
        k3_exam_note(exam, K3_ERR_FORMAT,
                     "key " K3_KEY("leading_dense_block_count") " is %" PRIu32
                                                                ", which leaves none of %" PRIu32
                                                                " layers for experts",
                     hp->n_dense_layers, hp->n_layers);
    if (get_u32(exam, K3_KEY("attention.key_length"), OPTIONAL, &key_length) && hp->kv_rank && hp->pe_dim &&
        key_length != hp->kv_rank + hp->pe_dim)
        k3_exam_note(
            exam, K3_ERR_FORMAT,
            "key " K3_KEY("attention.key_length") " is %" PRIu32
                                                  ", not kv_lora_rank + rope.dimension_count (%" PRIu32 ")",
            key_length, hp->kv_rank + hp->pe_dim);
    if (hp->res_block && (hp->n_layers - 1) / hp->res_block >= K3_MAX_BANK)
        k3_exam_note(exam, K3_ERR_UNSUPPORTED,
                     "key " K3_KEY("attn_res.block_size") " is %" PRIu32 ", which banks the stream more than %d times "
                     "in %" PRIu32 " layers", hp->res_block, K3_MAX_BANK, hp->n_layers);
    check_product(exam, "kda.head_dim", hp->kda_dim);
    check_product(exam, "attention.key_length_mla", hp->qk_dim);
    check_product(exam, "attention.value_length_mla", hp->v_dim);
}

/* ---- tokens: how many there are. What they are is text/'s matter, but a model without is no model. ---- */

static const struct k3_gguf_value *find_array(struct k3_exam *exam, const char *key, bool strings)
{
    const struct k3_gguf_value *v = k3_gguf_find(exam->gguf, key);
    bool fits =
        v && (strings ? v->kind == K3_GGUF_ARRAY && v->array.kind == K3_GGUF_STRING : is_int_array(v));
    if (!v)
        k3_exam_note(exam, K3_ERR_FORMAT, "key %s is missing", key);
    else if (!fits)
        k3_exam_note(exam, K3_ERR_FORMAT, "key %s is no array of %s", key, strings ? "strings" : "integers");
    return fits ? v : NULL;
}

static void read_vocabulary_size(struct k3_exam *exam)
{
    uint32_t stated;
    const struct k3_gguf_value *tokens = find_array(exam, "tokenizer.ggml.tokens", true);
    if (!tokens) return;
    uint64_t n = tokens->array.n;
    if (n < 1 || n > VOCAB_MAX) {
        k3_exam_note(exam, K3_ERR_FORMAT,
                     "key tokenizer.ggml.tokens has %" PRIu64 " tokens; 1 to %" PRIu32 " are allowed", n,
                     VOCAB_MAX);
        return;
    }
    exam->hp.n_vocab = (uint32_t)n;
    if (get_u32(exam, K3_KEY("vocab_size"), OPTIONAL, &stated) && stated != n)
        k3_exam_note(exam, K3_ERR_FORMAT,
                     "key " K3_KEY("vocab_size") " is %" PRIu32 " but there are %" PRIu64 " tokens", stated,
                     n);
    const struct k3_gguf_value *types = find_array(exam, "tokenizer.ggml.token_type", false);
    if (types && types->array.n != n)
        k3_exam_note(exam, K3_ERR_FORMAT,
                     "key tokenizer.ggml.token_type has %" PRIu64 " values for %" PRIu64 " tokens",
                     types->array.n, n);
}

static void check_tokenizer_keys(struct k3_exam *exam)
{
    static const char *const names[] = {"tokenizer.ggml.model", "tokenizer.ggml.pre"};
    static const char *const ids[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"};
    for (size_t i = 0; i < 2; i++) {
        struct k3_gguf_string s;
        struct k3_error err;
        uint32_t id;
        if (k3_gguf_get_string(exam->gguf, names[i], &s, &err) != K3_OK) k3_exam_note_error(exam, &err);
        if (get_u32(exam, ids[i], REQUIRED, &id) && exam->hp.n_vocab && id >= exam->hp.n_vocab)
            k3_exam_note(exam, K3_ERR_FORMAT, "key %s is %" PRIu32 " but there are %" PRIu32 " tokens",
                         ids[i], id, exam->hp.n_vocab);
    }
}

bool k3_exam_architecture(struct k3_exam *exam)
{
    struct k3_gguf_string name;
    struct k3_error err;
    if (k3_gguf_get_string(exam->gguf, "general.architecture", &name, &err) != K3_OK) {
        k3_exam_note_error(exam, &err);
        return false;
    }
    if (!strcmp(name.text, "kimi-k3")) return true;
    k3_exam_note(exam, K3_ERR_UNSUPPORTED, "is a model of architecture %.60s; only kimi-k3 is known",
                 name.text);
    return false;
}

void k3_exam_hparams(struct k3_exam *exam)
{
    read_u32_keys(exam);
    exam->hp.has_latent = exam->hp.latent != 0;
    if (!exam->hp.has_latent) exam->hp.latent = exam->hp.n_embd;
    read_f32_keys(exam);
    read_router_keys(exam);
    read_shared_width(exam);
    read_layer_kinds(exam);
    check_together(exam);
    read_vocabulary_size(exam);
    check_tokenizer_keys(exam);
}
