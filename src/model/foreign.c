/* foreign.c - recognises files that name the same things otherwise (gguf.md section 6).
 *
 * Their layout was seen only in forks of converters. Running one half understood would give plausible
 * nonsense, so they are refused by name rather than by what then seems to be missing. */
#include "model/model_internal.h"

#include <string.h>

static const struct {
    const char *key, *kind;
} keys[] = {
    {K3_KEY("attn_res_block_size"), "with a fork's names of hyper-parameters"},
    {K3_KEY("situ_beta"), "with a fork's names of hyper-parameters"},
    {K3_KEY("situ_linear_beta"), "with a fork's names of hyper-parameters"},
    {K3_KEY("moe_latent_size"), "with a fork's names of hyper-parameters"},
    {K3_KEY("attention.kda_head_dim"), "of a synthetic export with other names of hyper-parameters"},
    {K3_KEY("attention.gate_lower_bound"), "of a synthetic export with other names of hyper-parameters"},
    {K3_KEY("activation_situ_beta"), "of a synthetic export with other names of hyper-parameters"},
    {K3_KEY("routed_expert_hidden_size"), "of a synthetic export with other names of hyper-parameters"},
};

static const struct {
    const char *name, *kind; /* name without "blk.N." and ".weight" */
} tensors[] = {
    {"attn_res_norm", "that keeps the two factors of residual scores apart"},
    {"attn_res_proj", "that keeps the two factors of residual scores apart"},
    {"ffn_res_norm", "that keeps the two factors of residual scores apart"},
    {"ffn_res_proj", "that keeps the two factors of residual scores apart"},
    {"output_res_norm", "that keeps the two factors of residual scores apart"},
    {"output_res_proj", "that keeps the two factors of residual scores apart"},
    {"ffn_latent_down", "with a fork's names of the latent projections"},
    {"ffn_latent_up", "with a fork's names of the latent projections"},
    {"ffn_latent_norm", "with a fork's names of the latent projections"},
};

bool k3_split_name(const char *name, uint32_t *layer, const char **rest)
{
    if (strncmp(name, "blk.", 4) != 0) return false;
    const char *s = name + 4;
    uint32_t n = 0;
    while (*s >= '0' && *s <= '9' && n < K3_MAX_LAYERS) n = n * 10 + (uint32_t)(*s++ - '0');
    if (s == name + 4 || *s != '.' || n >= K3_MAX_LAYERS) return false;
    *layer = n;
    *rest = s + 1;
    return true;
}

/* What kind of file a tensor tells of; NULL for tensors of standard files. */
static const char *foreign_kind(const struct k3_gguf *gguf, const char *name)
{
    uint32_t layer;
    const char *rest = name;
    bool in_layer = k3_split_name(name, &layer, &rest);
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        size_t n = strlen(tensors[i].name);
        if (!strncmp(rest, tensors[i].name, n) && (!rest[n] || !strcmp(rest + n, ".weight")))
            return tensors[i].kind;
    }
    if (in_layer && !strcmp(rest, "attn_gate.weight")) {
        /* Right in an MLA layer. A KDA layer is known by its convolution, whatever the keys say. */
        char conv[K3_GGUF_NAME_MAX + 1];
        k3_role_tensor_name(K3_KDA_CONV_Q, layer, conv);
        if (k3_gguf_find_tensor(gguf, conv)) return "with a fork's name of the gate of KDA layers, ssm_g";
    }
    return NULL;
}

void k3_exam_foreign(struct k3_exam *exam)
{
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!k3_gguf_find(exam->gguf, keys[i].key)) continue;
        k3_exam_note(exam, K3_ERR_UNSUPPORTED, "key %s is that of a file %s; convert the model again",
                     keys[i].key, keys[i].kind);
        break;
    }
    for (size_t i = 0; i < exam->gguf->n_tensors; i++) {
        const char *kind = foreign_kind(exam->gguf, exam->gguf->tensors[i].name);
        if (!kind) continue;
        k3_exam_note(exam, K3_ERR_UNSUPPORTED, "tensor %s is that of a file %s; convert the model again",
                     exam->gguf->tensors[i].name, kind);
        break;
    }
}
