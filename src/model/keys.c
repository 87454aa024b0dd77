/* keys.c - from hyper-parameters to the keys of a file: hparams.c the other way round. */
#include "model/model_internal.h"

k3_status k3_hparams_write(const struct k3_hparams *hp, struct k3_gguf_writer *writer, struct k3_error *err)
{
    const struct {
        const char *key;
        uint32_t value;
    } counts[] = {
        {K3_KEY("block_count"), hp->n_layers},
        {K3_KEY("context_length"), hp->context_length},
        {K3_KEY("embedding_length"), hp->n_embd},
        {K3_KEY("feed_forward_length"), hp->n_ffn},
        {K3_KEY("vocab_size"), hp->n_vocab},
        {K3_KEY("attention.head_count"), hp->n_heads},
        {K3_KEY("attention.key_length"), hp->kv_rank + hp->pe_dim},
        {K3_KEY("attention.value_length"), hp->kv_rank},
        {K3_KEY("attention.key_length_mla"), hp->qk_dim},
        {K3_KEY("attention.value_length_mla"), hp->v_dim},
        {K3_KEY("attention.q_lora_rank"), hp->q_rank},
        {K3_KEY("attention.kv_lora_rank"), hp->kv_rank},
        {K3_KEY("rope.dimension_count"), hp->pe_dim},
        {K3_KEY("ssm.conv_kernel"), hp->conv_taps},
        {K3_KEY("kda.head_dim"), hp->kda_dim},
        {K3_KEY("expert_count"), hp->n_experts},
        {K3_KEY("expert_used_count"), hp->top_k},
        {K3_KEY("expert_shared_count"), hp->n_shared_ffn / hp->n_expert_ffn},
        {K3_KEY("expert_feed_forward_length"), hp->n_expert_ffn},
        {K3_KEY("expert_latent_length"), hp->has_latent ? hp->latent : 0},
        {K3_KEY("expert_gating_func"), 2}, /* sigmoid */
        {K3_KEY("attn_res.block_size"), hp->res_block},
    };
    const struct {
        const char *key;
        float value;
    } reals[] = {
        {K3_KEY("attention.layer_norm_rms_epsilon"), hp->eps},
        {K3_KEY("expert_weights_scale"), hp->weight_scale},
        {K3_KEY("activation.situ_beta"), hp->situ_beta},
        {K3_KEY("activation.situ_linear_beta"), hp->situ_linear_beta},
    };
    int32_t is_mla[K3_MAX_LAYERS];
    for (uint32_t i = 0; i < hp->n_layers; i++) is_mla[i] = hp->is_mla[i];

    /* 0 is a number of dense layers; elsewhere it means that the model lacks the part, as does an absent key. */
    k3_status status = k3_gguf_put_u32(writer, K3_KEY("leading_dense_block_count"), hp->n_dense_layers, err);
    for (size_t i = 0; status == K3_OK && i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value) status = k3_gguf_put_u32(writer, counts[i].key, counts[i].value, err);
    for (size_t i = 0; status == K3_OK && i < sizeof reals / sizeof *reals; i++)
        status = k3_gguf_put_f32(writer, reals[i].key, reals[i].value, err);
    if (status == K3_OK && hp->bounded_gate)
        status = k3_gguf_put_f32(writer, K3_KEY("kda.gate_lower_bound"), hp->gate_floor, err);
    if (status == K3_OK)
        status = k3_gguf_put_bool(writer, K3_KEY("expert_weights_norm"), hp->normalise_weights, err);
    if (status == K3_OK)
        status = k3_gguf_put_i32s(writer, K3_KEY("attention.head_count_kv"), is_mla, hp->n_layers, err);
    return status;
}
