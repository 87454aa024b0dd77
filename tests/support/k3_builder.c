/* k3_builder.c - all keys and tensors of a K3. */
#include "k3_builder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const uint32_t tiny_mla[] = {1, 3};
static const uint32_t reap55_mla[] = {3,  7,  11, 15, 19, 23, 27, 31, 35, 39, 43, 47,
                                      51, 55, 59, 63, 67, 71, 75, 79, 83, 87, 91, 92};

const struct k3_size k3_tiny = {
    .layers = 4,
    .embd = 32,
    .vocab = 16,
    .heads = 2,
    .kda_dim = 32,
    .q_rank = 32,
    .kv_rank = 32,
    .pe_dim = 32,
    .qk_dim = 64,
    .v_dim = 32,
    .ffn = 64,
    .dense_layers = 1,
    .experts = 4,
    .top_k = 2,
    .expert_ffn = 32,
    .shared_experts = 2,
    .latent = 32,
    .res_block = 2,
    .dense = K3_TYPE_Q8_0,
    .gate_up = K3_TYPE_MXFP4,
    .down = K3_TYPE_Q4_0,
    .mla = tiny_mla,
    .n_mla = 2,
};

const struct k3_size k3_reap55 = {
    .layers = 93,
    .embd = 7168,
    .vocab = 163840,
    .heads = 96,
    .kda_dim = 128,
    .q_rank = 1536,
    .kv_rank = 512,
    .pe_dim = 64,
    .qk_dim = 192,
    .v_dim = 128,
    .ffn = 33792,
    .dense_layers = 1,
    .experts = 400,
    .top_k = 16,
    .expert_ffn = 3072,
    .shared_experts = 2,
    .latent = 3584,
    .res_block = 12,
    .dense = K3_TYPE_Q8_0,
    .gate_up = K3_TYPE_IQ1_M,
    .down = K3_TYPE_IQ2_XXS,
    .mla = reap55_mla,
    .n_mla = 24,
};

static bool is_mla(const struct k3_size *s, uint32_t layer)
{
    for (uint32_t i = 0; i < s->n_mla; i++)
        if (s->mla[i] == layer) return true;
    return false;
}

static void add_hparams(struct gb *gb, const struct k3_size *s)
{
    int32_t *kv = calloc(s->layers, sizeof *kv);
    for (uint32_t i = 0; i < s->layers; i++) kv[i] = is_mla(s, i);
    gb_add_string(gb, "general.architecture", "kimi-k3");
    gb_add_u32(gb, "kimi-k3.block_count", s->layers);
    gb_add_u32(gb, "kimi-k3.context_length", 4096);
    gb_add_u32(gb, "kimi-k3.embedding_length", s->embd);
    gb_add_u32(gb, "kimi-k3.feed_forward_length", s->ffn);
    gb_add_u32(gb, "kimi-k3.vocab_size", s->vocab);
    gb_add_u32(gb, "kimi-k3.attention.head_count", s->heads);
    gb_add_array(gb, "kimi-k3.attention.head_count_kv", K3_GGUF_I32, kv, s->layers, sizeof *kv);
    gb_add_f32(gb, "kimi-k3.attention.layer_norm_rms_epsilon", 1e-5f);
    gb_add_u32(gb, "kimi-k3.attention.key_length", s->kv_rank + s->pe_dim);
    gb_add_u32(gb, "kimi-k3.attention.value_length", s->kv_rank);
    gb_add_u32(gb, "kimi-k3.attention.key_length_mla", s->qk_dim);
    gb_add_u32(gb, "kimi-k3.attention.value_length_mla", s->v_dim);
    gb_add_u32(gb, "kimi-k3.attention.q_lora_rank", s->q_rank);
    gb_add_u32(gb, "kimi-k3.attention.kv_lora_rank", s->kv_rank);
    gb_add_u32(gb, "kimi-k3.rope.dimension_count", s->pe_dim);
    gb_add_u32(gb, "kimi-k3.ssm.conv_kernel", 4);
    gb_add_u32(gb, "kimi-k3.kda.head_dim", s->kda_dim);
    gb_add_f32(gb, "kimi-k3.kda.gate_lower_bound", -5);
    gb_add_u32(gb, "kimi-k3.expert_count", s->experts);
    gb_add_u32(gb, "kimi-k3.expert_used_count", s->top_k);
    gb_add_u32(gb, "kimi-k3.expert_shared_count", s->shared_experts);
    gb_add_u32(gb, "kimi-k3.expert_feed_forward_length", s->expert_ffn);
    gb_add_u32(gb, "kimi-k3.expert_latent_length", s->latent);
    gb_add_u32(gb, "kimi-k3.expert_gating_func", 2);
    gb_add_bool(gb, "kimi-k3.expert_weights_norm", true);
    gb_add_f32(gb, "kimi-k3.expert_weights_scale", 1);
    gb_add_u32(gb, "kimi-k3.leading_dense_block_count", s->dense_layers);
    gb_add_u32(gb, "kimi-k3.attn_res.block_size", s->res_block);
    gb_add_f32(gb, "kimi-k3.activation.situ_beta", 4);
    gb_add_f32(gb, "kimi-k3.activation.situ_linear_beta", 25);
    free(kv);
}

static void add_tokenizer(struct gb *gb, const struct k3_size *s)
{
    char(*names)[12] = calloc(s->vocab, sizeof *names);
    const char **tokens = calloc(s->vocab, sizeof *tokens);
    int32_t *types = calloc(s->vocab, sizeof *types);
    for (uint32_t i = 0; i < s->vocab; i++) {
        snprintf(names[i], sizeof names[i], "t%" PRIu32, i);
        tokens[i] = names[i];
        types[i] = 1;
    }
    gb_add_string(gb, "tokenizer.ggml.model", "gpt2");
    gb_add_string(gb, "tokenizer.ggml.pre", "kimi-k2");
    gb_add_strings(gb, "tokenizer.ggml.tokens", tokens, s->vocab);
    gb_add_array(gb, "tokenizer.ggml.token_type", K3_GGUF_I32, types, s->vocab, sizeof *types);
    gb_add_u32(gb, "tokenizer.ggml.bos_token_id", s->vocab - 3);
    gb_add_u32(gb, "tokenizer.ggml.eos_token_id", s->vocab - 2);
    free(types);
    free(tokens);
    free(names);
}

/* ---- tensors ---- */

struct layer {
    struct gb *gb;
    const struct k3_size *size;
    uint32_t number;
};

static void add(const struct layer *l, const char *name, enum k3_type type, uint64_t a, uint64_t b,
                uint64_t c)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%" PRIu32 ".%s", l->number, name);
    gb_add_tensor(l->gb, full, type, c ? 3 : b ? 2 : 1, (uint64_t[]){a, b, c});
}

static void add_kda(const struct layer *l)
{
    const struct k3_size *s = l->size;
    uint64_t wide = (uint64_t)s->heads * s->kda_dim;
    add(l, "attn_q.weight", s->dense, s->embd, wide, 0);
    add(l, "attn_k.weight", s->dense, s->embd, wide, 0);
    add(l, "attn_v.weight", s->dense, s->embd, wide, 0);
    add(l, "ssm_g.weight", s->dense, s->embd, wide, 0);
    add(l, "attn_output.weight", s->dense, wide, s->embd, 0);
    add(l, "ssm_conv1d_q.weight", K3_TYPE_F32, 4, 1, wide);
    add(l, "ssm_conv1d_k.weight", K3_TYPE_F32, 4, 1, wide);
    add(l, "ssm_conv1d_v.weight", K3_TYPE_F32, 4, 1, wide);
    add(l, "ssm_f_a.weight", s->dense, s->embd, s->kda_dim, 0);
    add(l, "ssm_f_b.weight", s->dense, s->kda_dim, wide, 0);
    add(l, "ssm_beta.weight", s->dense, s->embd, s->heads, 0);
    add(l, "ssm_a", K3_TYPE_F32, s->heads, 0, 0);
    add(l, "ssm_dt.bias", K3_TYPE_F32, wide, 0, 0);
    add(l, "ssm_norm.weight", K3_TYPE_F32, s->kda_dim, 0, 0);
}

static void add_mla(const struct layer *l)
{
    const struct k3_size *s = l->size;
    uint64_t values = (uint64_t)s->heads * s->v_dim;
    add(l, "attn_q_a.weight", s->dense, s->embd, s->q_rank, 0);
    add(l, "attn_q_a_norm.weight", K3_TYPE_F32, s->q_rank, 0, 0);
    add(l, "attn_q_b.weight", s->dense, s->q_rank, (uint64_t)s->heads * s->qk_dim, 0);
    add(l, "attn_kv_a_mqa.weight", s->dense, s->embd, s->kv_rank + s->pe_dim, 0);
    add(l, "attn_kv_a_norm.weight", K3_TYPE_F32, s->kv_rank, 0, 0);
    add(l, "attn_k_b.weight", s->dense, s->qk_dim - s->pe_dim, s->kv_rank, s->heads);
    add(l, "attn_v_b.weight", s->dense, s->kv_rank, s->v_dim, s->heads);
    add(l, "attn_gate.weight", s->dense, s->embd, values, 0);
    add(l, "attn_output.weight", s->dense, values, s->embd, 0);
}

static void add_dense_ffn(const struct layer *l)
{
    const struct k3_size *s = l->size;
    add(l, "ffn_gate.weight", s->dense, s->embd, s->ffn, 0);
    add(l, "ffn_up.weight", s->dense, s->embd, s->ffn, 0);
    add(l, "ffn_down.weight", s->dense, s->ffn, s->embd, 0);
}

static void add_moe(const struct layer *l)
{
    const struct k3_size *s = l->size;
    uint64_t shared = (uint64_t)s->shared_experts * s->expert_ffn;
    add(l, "ffn_gate_inp.weight", K3_TYPE_F32, s->embd, s->experts, 0);
    add(l, "exp_probs_b.bias", K3_TYPE_F32, s->experts, 0, 0);
    add(l, "ffn_routed_down.weight", s->dense, s->embd, s->latent, 0);
    add(l, "ffn_routed_up.weight", s->dense, s->latent, s->embd, 0);
    add(l, "ffn_routed_norm.weight", K3_TYPE_F32, s->latent, 0, 0);
    add(l, "ffn_gate_shexp.weight", s->dense, s->embd, shared, 0);
    add(l, "ffn_up_shexp.weight", s->dense, s->embd, shared, 0);
    add(l, "ffn_down_shexp.weight", s->dense, shared, s->embd, 0);
    add(l, "ffn_gate_exps.weight", s->gate_up, s->latent, s->expert_ffn, s->experts);
    add(l, "ffn_up_exps.weight", s->gate_up, s->latent, s->expert_ffn, s->experts);
    add(l, "ffn_down_exps.weight", s->down, s->expert_ffn, s->latent, s->experts);
}

void gb_add_k3(struct gb *gb, const struct k3_size *s)
{
    uint64_t table[2] = {s->embd, s->vocab};
    add_hparams(gb, s);
    add_tokenizer(gb, s);
    gb_add_tensor(gb, "token_embd.weight", s->dense, 2, table);
    gb_add_tensor(gb, "output.weight", s->dense, 2, table);
    gb_add_tensor(gb, "output_norm.weight", K3_TYPE_F32, 1, table);
    gb_add_tensor(gb, "output_res_score.weight", K3_TYPE_F32, 1, table);
    for (uint32_t i = 0; i < s->layers; i++) {
        struct layer l = {gb, s, i};
        add(&l, "attn_norm.weight", K3_TYPE_F32, s->embd, 0, 0);
        add(&l, "ffn_norm.weight", K3_TYPE_F32, s->embd, 0, 0);
        add(&l, "attn_res_score.weight", K3_TYPE_F32, s->embd, 0, 0);
        add(&l, "ffn_res_score.weight", K3_TYPE_F32, s->embd, 0, 0);
        if (is_mla(s, i))
            add_mla(&l);
        else
            add_kda(&l);
        if (i < s->dense_layers)
            add_dense_ffn(&l);
        else
            add_moe(&l);
    }
}
