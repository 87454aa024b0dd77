/* roles.c - the table of tensors that a K3 has (gguf.md section 4). */
#include "model/model_internal.h"

#include <stdio.h>

enum where {
    IN_MODEL,
    IN_LAYERS,
    IN_KDA,
    IN_MLA,
    IN_DENSE,
    IN_MOE,
};

enum dim {
    DIM_NONE, /* 1 */
    DIM_EMBD,
    DIM_VOCAB,
    DIM_HEADS,
    DIM_KDA_HEAD,
    DIM_KDA,  /* all heads */
    DIM_ATTN, /* what attention gives, by the kind of the layer */
    DIM_TAPS,
    DIM_Q_RANK,
    DIM_KV_RANK,
    DIM_KV_PE,
    DIM_QUERIES,
    DIM_NOPE,
    DIM_V_HEAD,
    DIM_VALUES,
    DIM_NOPE_VALUES,
    DIM_FFN,
    DIM_EXPERTS,
    DIM_EXPERT_FFN,
    DIM_SHARED_FFN,
    DIM_LATENT,
};

struct role {
    const char *name, *suffix;
    enum where where;
    enum k3_part part;
    enum k3_form form;
    enum dim shape[K3_SHAPE_MAX];
};

#define ROW(where, part, form, name, ...)                                                                    \
    {                                                                                                        \
        name, ".weight", IN_##where, K3_PART_##part, K3_FORM_##form,                                         \
        {                                                                                                    \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }
#define MATRIX(where, part, ...) ROW(where, part, MATRIX, __VA_ARGS__)
#define VECTOR(where, part, ...) ROW(where, part, VECTOR, __VA_ARGS__)
#define CONV(where, part, ...)   ROW(where, part, CONV, __VA_ARGS__)

static const struct role roles[K3_ROLE_COUNT] = {
    [K3_TOKEN_EMBD] = MATRIX(MODEL, ALWAYS, "token_embd", DIM_EMBD, DIM_VOCAB),
    [K3_OUTPUT] = MATRIX(MODEL, ALWAYS, "output", DIM_EMBD, DIM_VOCAB),
    [K3_OUTPUT_NORM] = VECTOR(MODEL, ALWAYS, "output_norm", DIM_EMBD),
    [K3_OUTPUT_RES_SCORE] = VECTOR(MODEL, RES, "output_res_score", DIM_EMBD),

    [K3_ATTN_NORM] = VECTOR(LAYERS, ALWAYS, "attn_norm", DIM_EMBD),
    [K3_FFN_NORM] = VECTOR(LAYERS, ALWAYS, "ffn_norm", DIM_EMBD),
    [K3_ATTN_RES_SCORE] = VECTOR(LAYERS, RES, "attn_res_score", DIM_EMBD),
    [K3_FFN_RES_SCORE] = VECTOR(LAYERS, RES, "ffn_res_score", DIM_EMBD),
    [K3_ATTN_OUTPUT] = MATRIX(LAYERS, ALWAYS, "attn_output", DIM_ATTN, DIM_EMBD),

    [K3_KDA_Q] = MATRIX(KDA, ALWAYS, "attn_q", DIM_EMBD, DIM_KDA),
    [K3_KDA_K] = MATRIX(KDA, ALWAYS, "attn_k", DIM_EMBD, DIM_KDA),
    [K3_KDA_V] = MATRIX(KDA, ALWAYS, "attn_v", DIM_EMBD, DIM_KDA),
    [K3_KDA_GATE] = MATRIX(KDA, ALWAYS, "ssm_g", DIM_EMBD, DIM_KDA),
    [K3_KDA_CONV_Q] = CONV(KDA, ALWAYS, "ssm_conv1d_q", DIM_TAPS, DIM_KDA),
    [K3_KDA_CONV_K] = CONV(KDA, ALWAYS, "ssm_conv1d_k", DIM_TAPS, DIM_KDA),
    [K3_KDA_CONV_V] = CONV(KDA, ALWAYS, "ssm_conv1d_v", DIM_TAPS, DIM_KDA),
    [K3_KDA_F_A] = MATRIX(KDA, ALWAYS, "ssm_f_a", DIM_EMBD, DIM_KDA_HEAD),
    [K3_KDA_F_B] = MATRIX(KDA, ALWAYS, "ssm_f_b", DIM_KDA_HEAD, DIM_KDA),
    [K3_KDA_BETA] = MATRIX(KDA, ALWAYS, "ssm_beta", DIM_EMBD, DIM_HEADS),
    [K3_KDA_A] = {"ssm_a", "", IN_KDA, K3_PART_ALWAYS, K3_FORM_AT_LEAST, {DIM_HEADS}},
    [K3_KDA_DT] = {"ssm_dt", ".bias", IN_KDA, K3_PART_ALWAYS, K3_FORM_VECTOR, {DIM_KDA}},
    [K3_KDA_NORM] = VECTOR(KDA, ALWAYS, "ssm_norm", DIM_KDA_HEAD),

    [K3_MLA_Q] = MATRIX(MLA, Q_FULL, "attn_q", DIM_EMBD, DIM_QUERIES),
    [K3_MLA_Q_A] = MATRIX(MLA, Q_LOW, "attn_q_a", DIM_EMBD, DIM_Q_RANK),
    [K3_MLA_Q_A_NORM] = VECTOR(MLA, Q_LOW, "attn_q_a_norm", DIM_Q_RANK),
    [K3_MLA_Q_B] = MATRIX(MLA, Q_LOW, "attn_q_b", DIM_Q_RANK, DIM_QUERIES),
    [K3_MLA_KV_A] = MATRIX(MLA, ALWAYS, "attn_kv_a_mqa", DIM_EMBD, DIM_KV_PE),
    [K3_MLA_KV_A_NORM] = VECTOR(MLA, ALWAYS, "attn_kv_a_norm", DIM_KV_RANK),
    [K3_MLA_K_B] = MATRIX(MLA, KV_SPLIT, "attn_k_b", DIM_NOPE, DIM_KV_RANK, DIM_HEADS),
    [K3_MLA_V_B] = MATRIX(MLA, KV_SPLIT, "attn_v_b", DIM_KV_RANK, DIM_V_HEAD, DIM_HEADS),
    [K3_MLA_KV_B] = MATRIX(MLA, KV_JOINT, "attn_kv_b", DIM_KV_RANK, DIM_NOPE_VALUES),
    [K3_MLA_GATE] = MATRIX(MLA, MLA_GATE, "attn_gate", DIM_EMBD, DIM_VALUES),

    [K3_FFN_GATE] = MATRIX(DENSE, ALWAYS, "ffn_gate", DIM_EMBD, DIM_FFN),
    [K3_FFN_UP] = MATRIX(DENSE, ALWAYS, "ffn_up", DIM_EMBD, DIM_FFN),
    [K3_FFN_DOWN] = MATRIX(DENSE, ALWAYS, "ffn_down", DIM_FFN, DIM_EMBD),

    [K3_ROUTER] = MATRIX(MOE, ALWAYS, "ffn_gate_inp", DIM_EMBD, DIM_EXPERTS),
    [K3_ROUTER_BIAS] = {"exp_probs_b", ".bias", IN_MOE, K3_PART_ALWAYS, K3_FORM_VECTOR, {DIM_EXPERTS}},
    [K3_LATENT_DOWN] = MATRIX(MOE, LATENT, "ffn_routed_down", DIM_EMBD, DIM_LATENT),
    [K3_LATENT_UP] = MATRIX(MOE, LATENT, "ffn_routed_up", DIM_LATENT, DIM_EMBD),
    [K3_LATENT_NORM] = VECTOR(MOE, LATENT_NORM, "ffn_routed_norm", DIM_LATENT),
    [K3_SHARED_GATE] = MATRIX(MOE, ALWAYS, "ffn_gate_shexp", DIM_EMBD, DIM_SHARED_FFN),
    [K3_SHARED_UP] = MATRIX(MOE, ALWAYS, "ffn_up_shexp", DIM_EMBD, DIM_SHARED_FFN),
    [K3_SHARED_DOWN] = MATRIX(MOE, ALWAYS, "ffn_down_shexp", DIM_SHARED_FFN, DIM_EMBD),
    [K3_EXPERTS_GATE] = MATRIX(MOE, ALWAYS, "ffn_gate_exps", DIM_LATENT, DIM_EXPERT_FFN, DIM_EXPERTS),
    [K3_EXPERTS_UP] = MATRIX(MOE, ALWAYS, "ffn_up_exps", DIM_LATENT, DIM_EXPERT_FFN, DIM_EXPERTS),
    [K3_EXPERTS_DOWN] = MATRIX(MOE, ALWAYS, "ffn_down_exps", DIM_EXPERT_FFN, DIM_LATENT, DIM_EXPERTS),
};

/* In words of the keys, for messages. */
static const char *const dim_text[] = {
    [DIM_EMBD] = "embedding_length",
    [DIM_VOCAB] = "number of tokens",
    [DIM_HEADS] = "head_count",
    [DIM_KDA_HEAD] = "kda.head_dim",
    [DIM_KDA] = "head_count x kda.head_dim",
    [DIM_ATTN] = "head_count x width of a head",
    [DIM_TAPS] = "ssm.conv_kernel",
    [DIM_Q_RANK] = "q_lora_rank",
    [DIM_KV_RANK] = "kv_lora_rank",
    [DIM_KV_PE] = "kv_lora_rank + rope.dimension_count",
    [DIM_QUERIES] = "head_count x key_length_mla",
    [DIM_NOPE] = "key_length_mla - rope.dimension_count",
    [DIM_V_HEAD] = "value_length_mla",
    [DIM_VALUES] = "head_count x value_length_mla",
    [DIM_NOPE_VALUES] = "head_count x (key_length_mla - rope.dimension_count + value_length_mla)",
    [DIM_FFN] = "feed_forward_length",
    [DIM_EXPERTS] = "expert_count",
    [DIM_EXPERT_FFN] = "expert_feed_forward_length",
    [DIM_SHARED_FFN] = "expert_shared_count x expert_feed_forward_length",
    [DIM_LATENT] = "expert_latent_length",
};

/* 0 when a hyper-parameter it needs is 0, that is, not known. */
static uint64_t dim_value(const struct k3_hparams *hp, enum dim dim, uint32_t layer)
{
    uint64_t heads = hp->n_heads, nope = hp->pe_dim && hp->qk_dim > hp->pe_dim ? hp->qk_dim - hp->pe_dim : 0;
    switch (dim) {
    case DIM_NONE:
        return 1;
    case DIM_EMBD:
        return hp->n_embd;
    case DIM_VOCAB:
        return hp->n_vocab;
    case DIM_HEADS:
        return heads;
    case DIM_KDA_HEAD:
        return hp->kda_dim;
    case DIM_KDA:
        return heads * hp->kda_dim;
    case DIM_ATTN:
        return heads * (hp->is_mla[layer] ? hp->v_dim : hp->kda_dim);
    case DIM_TAPS:
        return hp->conv_taps;
    case DIM_Q_RANK:
        return hp->q_rank;
    case DIM_KV_RANK:
        return hp->kv_rank;
    case DIM_KV_PE:
        return hp->kv_rank && hp->pe_dim ? (uint64_t)hp->kv_rank + hp->pe_dim : 0;
    case DIM_QUERIES:
        return heads * hp->qk_dim;
    case DIM_NOPE:
        return nope;
    case DIM_V_HEAD:
        return hp->v_dim;
    case DIM_VALUES:
        return heads * hp->v_dim;
    case DIM_NOPE_VALUES:
        return nope && hp->v_dim ? heads * (nope + hp->v_dim) : 0;
    case DIM_FFN:
        return hp->n_ffn;
    case DIM_EXPERTS:
        return hp->n_experts;
    case DIM_EXPERT_FFN:
        return hp->n_expert_ffn;
    case DIM_SHARED_FFN:
        return hp->n_shared_ffn;
    case DIM_LATENT:
        return hp->latent;
    }
    return 0;
}

bool k3_role_in_layer(const struct k3_exam *exam, enum k3_role role, uint32_t layer)
{
    switch (roles[role].where) {
    case IN_MODEL:
        return layer == 0;
    case IN_LAYERS:
        return true;
    case IN_KDA:
        return exam->kinds_known && !exam->hp.is_mla[layer];
    case IN_MLA:
        return exam->kinds_known && exam->hp.is_mla[layer];
    case IN_DENSE:
        return layer < exam->hp.n_dense_layers;
    case IN_MOE:
        return layer >= exam->hp.n_dense_layers;
    }
    return false;
}

enum k3_part k3_role_part(enum k3_role role)
{
    return roles[role].part;
}

enum k3_form k3_role_form(enum k3_role role)
{
    return roles[role].form;
}

struct k3_shape k3_role_shape(const struct k3_exam *exam, enum k3_role role, uint32_t layer)
{
    struct k3_shape shape;
    for (int i = 0; i < K3_SHAPE_MAX; i++) {
        enum dim dim = roles[role].shape[i];
        bool known = dim != DIM_ATTN || exam->kinds_known;
        shape.ne[i] = known ? dim_value(&exam->hp, dim, layer) : 0;
        shape.text[i] = dim_text[dim];
    }
    return shape;
}

bool k3_role_is_norm(enum k3_role role)
{
    switch (role) {
    case K3_OUTPUT_NORM:
    case K3_ATTN_NORM:
    case K3_FFN_NORM:
    case K3_KDA_NORM:
    case K3_MLA_Q_A_NORM:
    case K3_MLA_KV_A_NORM:
    case K3_LATENT_NORM:
        return true;
    default:
        return false;
    }
}

const char *k3_role_name(enum k3_role role)
{
    return roles[role].name;
}

void k3_role_tensor_name(enum k3_role role, uint32_t layer, char name[K3_GGUF_NAME_MAX + 1])
{
    const struct role *r = &roles[role];
    if (r->where == IN_MODEL)
        snprintf(name, K3_GGUF_NAME_MAX + 1, "%s%s", r->name, r->suffix);
    else
        snprintf(name, K3_GGUF_NAME_MAX + 1, "blk.%" PRIu32 ".%s%s", layer, r->name, r->suffix);
}

/* Whether a complete model has the part. */
static bool usual_part(const struct k3_hparams *hp, enum k3_part part)
{
    switch (part) {
    case K3_PART_RES:
        return hp->res_block != 0;
    case K3_PART_Q_LOW:
        return hp->q_rank != 0;
    case K3_PART_Q_FULL:
        return hp->q_rank == 0;
    case K3_PART_LATENT:
    case K3_PART_LATENT_NORM:
        return hp->has_latent;
    case K3_PART_KV_JOINT:
        return false;
    default:
        return true;
    }
}

bool k3_role_describe(const struct k3_hparams *hp, enum k3_role role, uint32_t layer, char *name,
                      uint64_t ne[K3_GGUF_MAX_DIMS], uint32_t *n_dims)
{
    const struct k3_exam exam = {.hp = *hp, .kinds_known = true};
    if (!k3_role_in_layer(&exam, role, layer) || !usual_part(hp, roles[role].part)) return false;
    struct k3_shape shape = k3_role_shape(&exam, role, layer);
    *n_dims = 0;
    for (int i = 0; i < K3_GGUF_MAX_DIMS; i++) {
        ne[i] = i < K3_SHAPE_MAX ? shape.ne[i] : 1;
        if (i < K3_SHAPE_MAX && roles[role].shape[i] != DIM_NONE) *n_dims = (uint32_t)i + 1;
    }
    if (roles[role].form == K3_FORM_CONV) { /* [taps, 1, channels] */
        ne[2] = ne[1];
        ne[1] = 1;
        *n_dims = 3;
    }
    k3_role_tensor_name(role, layer, name);
    return true;
}
