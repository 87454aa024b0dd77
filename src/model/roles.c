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
    const char *text; /* the shape in words of the keys, for messages */
};

#define W ".weight"

static const struct role roles[K3_ROLE_COUNT] = {
    [K3_TOKEN_EMBD] = {"token_embd",
                       W,
                       IN_MODEL,
                       K3_PART_ALWAYS,
                       K3_FORM_MATRIX,
                       {DIM_EMBD, DIM_VOCAB},
                       "embedding_length, number of tokens"},
    [K3_OUTPUT] = {"output",
                   W,
                   IN_MODEL,
                   K3_PART_ALWAYS,
                   K3_FORM_MATRIX,
                   {DIM_EMBD, DIM_VOCAB},
                   "embedding_length, number of tokens"},
    [K3_OUTPUT_NORM] =
        {"output_norm", W, IN_MODEL, K3_PART_ALWAYS, K3_FORM_VECTOR, {DIM_EMBD}, "embedding_length"},
    [K3_OUTPUT_RES_SCORE] =
        {"output_res_score", W, IN_MODEL, K3_PART_RES, K3_FORM_VECTOR, {DIM_EMBD}, "embedding_length"},

    [K3_ATTN_NORM] =
        {"attn_norm", W, IN_LAYERS, K3_PART_ALWAYS, K3_FORM_VECTOR, {DIM_EMBD}, "embedding_length"},
    [K3_FFN_NORM] =
        {"ffn_norm", W, IN_LAYERS, K3_PART_ALWAYS, K3_FORM_VECTOR, {DIM_EMBD}, "embedding_length"},
    [K3_ATTN_RES_SCORE] =
        {"attn_res_score", W, IN_LAYERS, K3_PART_RES, K3_FORM_VECTOR, {DIM_EMBD}, "embedding_length"},
    [K3_FFN_RES_SCORE] =
        {"ffn_res_score", W, IN_LAYERS, K3_PART_RES, K3_FORM_VECTOR, {DIM_EMBD}, "embedding_length"},
    [K3_ATTN_OUTPUT] = {"attn_output",
                        W,
                        IN_LAYERS,
                        K3_PART_ALWAYS,
                        K3_FORM_MATRIX,
                        {DIM_ATTN, DIM_EMBD},
                        "head_count x head width, embedding_length"},

    [K3_KDA_Q] = {"attn_q",
                  W,
                  IN_KDA,
                  K3_PART_ALWAYS,
                  K3_FORM_MATRIX,
                  {DIM_EMBD, DIM_KDA},
                  "embedding_length, head_count x kda.head_dim"},
    [K3_KDA_K] = {"attn_k",
                  W,
                  IN_KDA,
                  K3_PART_ALWAYS,
                  K3_FORM_MATRIX,
                  {DIM_EMBD, DIM_KDA},
                  "embedding_length, head_count x kda.head_dim"},
    [K3_KDA_V] = {"attn_v",
                  W,
                  IN_KDA,
                  K3_PART_ALWAYS,
                  K3_FORM_MATRIX,
                  {DIM_EMBD, DIM_KDA},
                  "embedding_length, head_count x kda.head_dim"},
    [K3_KDA_GATE] = {"ssm_g",
                     W,
                     IN_KDA,
                     K3_PART_ALWAYS,
                     K3_FORM_MATRIX,
                     {DIM_EMBD, DIM_KDA},
                     "embedding_length, head_count x kda.head_dim"},
    [K3_KDA_CONV_Q] = {"ssm_conv1d_q",
                       W,
                       IN_KDA,
                       K3_PART_ALWAYS,
                       K3_FORM_CONV,
                       {DIM_TAPS, DIM_KDA},
                       "ssm.conv_kernel, head_count x kda.head_dim"},
    [K3_KDA_CONV_K] = {"ssm_conv1d_k",
                       W,
                       IN_KDA,
                       K3_PART_ALWAYS,
                       K3_FORM_CONV,
                       {DIM_TAPS, DIM_KDA},
                       "ssm.conv_kernel, head_count x kda.head_dim"},
    [K3_KDA_CONV_V] = {"ssm_conv1d_v",
                       W,
                       IN_KDA,
                       K3_PART_ALWAYS,
                       K3_FORM_CONV,
                       {DIM_TAPS, DIM_KDA},
                       "ssm.conv_kernel, head_count x kda.head_dim"},
    [K3_KDA_F_A] = {"ssm_f_a",
                    W,
                    IN_KDA,
                    K3_PART_ALWAYS,
                    K3_FORM_MATRIX,
                    {DIM_EMBD, DIM_KDA_HEAD},
                    "embedding_length, kda.head_dim"},
    [K3_KDA_F_B] = {"ssm_f_b",
                    W,
                    IN_KDA,
                    K3_PART_ALWAYS,
                    K3_FORM_MATRIX,
                    {DIM_KDA_HEAD, DIM_KDA},
                    "kda.head_dim, head_count x kda.head_dim"},
    [K3_KDA_BETA] = {"ssm_beta",
                     W,
                     IN_KDA,
                     K3_PART_ALWAYS,
                     K3_FORM_MATRIX,
                     {DIM_EMBD, DIM_HEADS},
                     "embedding_length, head_count"},
    [K3_KDA_A] = {"ssm_a", "", IN_KDA, K3_PART_ALWAYS, K3_FORM_AT_LEAST, {DIM_HEADS}, "at least head_count"},
    [K3_KDA_DT] =
        {"ssm_dt", ".bias", IN_KDA, K3_PART_ALWAYS, K3_FORM_VECTOR, {DIM_KDA}, "head_count x kda.head_dim"},
    [K3_KDA_NORM] = {"ssm_norm", W, IN_KDA, K3_PART_ALWAYS, K3_FORM_VECTOR, {DIM_KDA_HEAD}, "kda.head_dim"},

    [K3_MLA_Q] = {"attn_q",
                  W,
                  IN_MLA,
                  K3_PART_Q_FULL,
                  K3_FORM_MATRIX,
                  {DIM_EMBD, DIM_QUERIES},
                  "embedding_length, head_count x key_length_mla"},
    [K3_MLA_Q_A] = {"attn_q_a",
                    W,
                    IN_MLA,
                    K3_PART_Q_LOW,
                    K3_FORM_MATRIX,
                    {DIM_EMBD, DIM_Q_RANK},
                    "embedding_length, q_lora_rank"},
    [K3_MLA_Q_A_NORM] =
        {"attn_q_a_norm", W, IN_MLA, K3_PART_Q_LOW, K3_FORM_VECTOR, {DIM_Q_RANK}, "q_lora_rank"},
    [K3_MLA_Q_B] = {"attn_q_b",
                    W,
                    IN_MLA,
                    K3_PART_Q_LOW,
                    K3_FORM_MATRIX,
                    {DIM_Q_RANK, DIM_QUERIES},
                    "q_lora_rank, head_count x key_length_mla"},
    [K3_MLA_KV_A] = {"attn_kv_a_mqa",
                     W,
                     IN_MLA,
                     K3_PART_ALWAYS,
                     K3_FORM_MATRIX,
                     {DIM_EMBD, DIM_KV_PE},
                     "embedding_length, kv_lora_rank + rope.dimension_count"},
    [K3_MLA_KV_A_NORM] =
        {"attn_kv_a_norm", W, IN_MLA, K3_PART_ALWAYS, K3_FORM_VECTOR, {DIM_KV_RANK}, "kv_lora_rank"},
    [K3_MLA_K_B] = {"attn_k_b",
                    W,
                    IN_MLA,
                    K3_PART_KV_SPLIT,
                    K3_FORM_MATRIX,
                    {DIM_NOPE, DIM_KV_RANK, DIM_HEADS},
                    "key_length_mla - rope.dimension_count, kv_lora_rank, head_count"},
    [K3_MLA_V_B] = {"attn_v_b",
                    W,
                    IN_MLA,
                    K3_PART_KV_SPLIT,
                    K3_FORM_MATRIX,
                    {DIM_KV_RANK, DIM_V_HEAD, DIM_HEADS},
                    "kv_lora_rank, value_length_mla, head_count"},
    [K3_MLA_KV_B] = {"attn_kv_b",
                     W,
                     IN_MLA,
                     K3_PART_KV_JOINT,
                     K3_FORM_MATRIX,
                     {DIM_KV_RANK, DIM_NOPE_VALUES},
                     "kv_lora_rank, head_count x (key_length_mla - rope.dimension_count + value_length_mla)"},
    [K3_MLA_GATE] = {"attn_gate",
                     W,
                     IN_MLA,
                     K3_PART_MLA_GATE,
                     K3_FORM_MATRIX,
                     {DIM_EMBD, DIM_VALUES},
                     "embedding_length, head_count x value_length_mla"},

    [K3_FFN_GATE] = {"ffn_gate",
                     W,
                     IN_DENSE,
                     K3_PART_ALWAYS,
                     K3_FORM_MATRIX,
                     {DIM_EMBD, DIM_FFN},
                     "embedding_length, feed_forward_length"},
    [K3_FFN_UP] = {"ffn_up",
                   W,
                   IN_DENSE,
                   K3_PART_ALWAYS,
                   K3_FORM_MATRIX,
                   {DIM_EMBD, DIM_FFN},
                   "embedding_length, feed_forward_length"},
    [K3_FFN_DOWN] = {"ffn_down",
                     W,
                     IN_DENSE,
                     K3_PART_ALWAYS,
                     K3_FORM_MATRIX,
                     {DIM_FFN, DIM_EMBD},
                     "feed_forward_length, embedding_length"},

    [K3_ROUTER] = {"ffn_gate_inp",
                   W,
                   IN_MOE,
                   K3_PART_ALWAYS,
                   K3_FORM_MATRIX,
                   {DIM_EMBD, DIM_EXPERTS},
                   "embedding_length, expert_count"},
    [K3_ROUTER_BIAS] =
        {"exp_probs_b", ".bias", IN_MOE, K3_PART_ALWAYS, K3_FORM_VECTOR, {DIM_EXPERTS}, "expert_count"},
    [K3_LATENT_DOWN] = {"ffn_routed_down",
                        W,
                        IN_MOE,
                        K3_PART_LATENT,
                        K3_FORM_MATRIX,
                        {DIM_EMBD, DIM_LATENT},
                        "embedding_length, expert_latent_length"},
    [K3_LATENT_UP] = {"ffn_routed_up",
                      W,
                      IN_MOE,
                      K3_PART_LATENT,
                      K3_FORM_MATRIX,
                      {DIM_LATENT, DIM_EMBD},
                      "expert_latent_length, embedding_length"},
    [K3_LATENT_NORM] = {"ffn_routed_norm",
                        W,
                        IN_MOE,
                        K3_PART_LATENT_NORM,
                        K3_FORM_VECTOR,
                        {DIM_LATENT},
                        "expert_latent_length"},
    [K3_SHARED_GATE] = {"ffn_gate_shexp",
                        W,
                        IN_MOE,
                        K3_PART_ALWAYS,
                        K3_FORM_MATRIX,
                        {DIM_EMBD, DIM_SHARED_FFN},
                        "embedding_length, expert_shared_count x expert_feed_forward_length"},
    [K3_SHARED_UP] = {"ffn_up_shexp",
                      W,
                      IN_MOE,
                      K3_PART_ALWAYS,
                      K3_FORM_MATRIX,
                      {DIM_EMBD, DIM_SHARED_FFN},
                      "embedding_length, expert_shared_count x expert_feed_forward_length"},
    [K3_SHARED_DOWN] = {"ffn_down_shexp",
                        W,
                        IN_MOE,
                        K3_PART_ALWAYS,
                        K3_FORM_MATRIX,
                        {DIM_SHARED_FFN, DIM_EMBD},
                        "expert_shared_count x expert_feed_forward_length, embedding_length"},
    [K3_EXPERTS_GATE] = {"ffn_gate_exps",
                         W,
                         IN_MOE,
                         K3_PART_ALWAYS,
                         K3_FORM_MATRIX,
                         {DIM_LATENT, DIM_EXPERT_FFN, DIM_EXPERTS},
                         "expert_latent_length, expert_feed_forward_length, expert_count"},
    [K3_EXPERTS_UP] = {"ffn_up_exps",
                       W,
                       IN_MOE,
                       K3_PART_ALWAYS,
                       K3_FORM_MATRIX,
                       {DIM_LATENT, DIM_EXPERT_FFN, DIM_EXPERTS},
                       "expert_latent_length, expert_feed_forward_length, expert_count"},
    [K3_EXPERTS_DOWN] = {"ffn_down_exps",
                         W,
                         IN_MOE,
                         K3_PART_ALWAYS,
                         K3_FORM_MATRIX,
                         {DIM_EXPERT_FFN, DIM_LATENT, DIM_EXPERTS},
                         "expert_feed_forward_length, expert_latent_length, expert_count"},
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
    struct k3_shape shape = {.text = roles[role].text};
    for (int i = 0; i < K3_SHAPE_MAX; i++) {
        enum dim dim = roles[role].shape[i];
        bool known = dim != DIM_ATTN || exam->kinds_known;
        shape.ne[i] = known ? dim_value(&exam->hp, dim, layer) : 0;
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
