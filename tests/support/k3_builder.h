/* k3_builder.h - describes a whole K3 of any size, written down from gguf.md sections 3 and 4 and not from
 * src/model/. */
#ifndef K3_TEST_K3_BUILDER_H
#define K3_TEST_K3_BUILDER_H

#include "gguf_builder.h"

struct k3_size {
    uint32_t layers, embd, vocab, heads, kda_dim, q_rank, kv_rank, pe_dim, qk_dim, v_dim;
    uint32_t ffn, dense_layers, experts, top_k, expert_ffn, shared_experts, latent, res_block;
    enum k3_type dense, gate_up, down;
    const uint32_t *mla; /* layers that are MLA, in order */
    uint32_t n_mla;
};

/* Four layers: dense KDA, MLA, KDA, MLA. A file of some 90 KB. */
extern const struct k3_size k3_tiny;

/* Kimi-K3 with 400 of its 896 experts: 93 layers, 319 GiB if its weights were written. */
extern const struct k3_size k3_reap55;

/* Adds all keys and tensors, without data. */
void gb_add_k3(struct gb *gb, const struct k3_size *size);

#endif
