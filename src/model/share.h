/* share.h - a part of the dense model, for a device that has not all of it.
 *
 * What is divided are groups of tensors, each what one step of the walk needs: the token table, attention and FFN of every
 * layer, and the head. They are numbered in the order of the walk, so the stream changes devices wherever a group is
 * on another one than the group before. The state of a layer's attention is where the attention is. */
#ifndef K3_MODEL_SHARE_H
#define K3_MODEL_SHARE_H

#include "model/model.h"

#define K3_MAX_GROUPS (2 * K3_MAX_LAYERS + 2)

enum { K3_EMBEDDING_GROUP = 0 };

static inline uint32_t k3_attention_group(uint32_t layer)
{
    return 1 + 2 * layer;
}

/* With router, shared experts and latent space, if it is a MoE layer. */
static inline uint32_t k3_ffn_group(uint32_t layer)
{
    return 2 + 2 * layer;
}

/* With the last mix and norm. */
static inline uint32_t k3_head_group(uint32_t n_layers)
{
    return 1 + 2 * n_layers;
}

static inline uint32_t k3_n_groups(uint32_t n_layers)
{
    return 2 + 2 * n_layers;
}

/* Wherever a pointer to a share is taken, NULL is the whole model. */
struct k3_share {
    bool has[K3_MAX_GROUPS];
};

static inline bool k3_share_has(const struct k3_share *share, uint32_t group)
{
    return !share || share->has[group];
}

/* Whether it has the attention of a layer, and that is of this kind. */
static inline bool k3_share_has_attention(const struct k3_share *share, const struct k3_hparams *hp,
                                          uint32_t layer, bool is_mla)
{
    return k3_share_has(share, k3_attention_group(layer)) && hp->is_mla[layer] == is_mla;
}

/* How many groups it has. */
uint32_t k3_share_count(const struct k3_share *share, uint32_t n_layers);

/* What a share leaves. */
struct k3_share k3_share_rest(const struct k3_share *share, uint32_t n_layers);

/* The dense tensor of a role, if the share has it; NULL otherwise. Those of the whole model are in layer 0. */
const struct k3_gguf_tensor *k3_share_tensor(const struct k3_plan *plan, const struct k3_share *share,
                                             uint32_t layer, enum k3_role role);

/* Shares in words:
 *
 *     all             everything
 *     N               the last N layers and the head; 0: nothing
 *     item,item,...   these: A-B, or A, layers from 0 on, "embedding", "head"; after layers ".attention" or ".ffn"
 *                     is that part of each
 *
 * so a layer alone is A-A. K3_ERR_ARGUMENT: it is none of these, or the model lacks a layer. */
k3_status k3_share_parse(const char *text, uint32_t n_layers, struct k3_share *share, struct k3_error *err);

/* The words for a share; its beginning and "..." where they do not fit. */
void k3_share_format(const struct k3_share *share, uint32_t n_layers, char *out, size_t size);

#endif
