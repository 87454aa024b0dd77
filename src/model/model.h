/* model.h - what a Kimi-K3 is: its hyper-parameters, the tensors it must have, and where they are in a file.
 *
 * k3_plan_open reads them from a GGUF and refuses a file that is no K3 or lacks a part. Names follow
 * architecture.md section 1; a plan holds no weights. */
#ifndef K3_MODEL_MODEL_H
#define K3_MODEL_MODEL_H

#include "gguf/gguf.h"
#include "gguf/write.h"

/* Larger files are refused: fixed arrays have these sizes. K3 has 93, 8, 16 and 128. */
#define K3_MAX_LAYERS  1024
#define K3_MAX_BANK    64 /* banked streams of AttnRes: layers / res_block, rounded up */
#define K3_MAX_TOP_K   64
#define K3_MAX_KDA_DIM 256

struct k3_hparams {
    uint32_t n_layers;       /* L */
    uint32_t n_embd;         /* D */
    uint32_t n_vocab;        /* V */
    uint32_t context_length; /* tokens the model was made for; 0 when the file does not say */
    uint32_t n_heads;        /* H, of KDA and MLA alike */
    float eps;               /* of all RMS norms */
    float eps_lora; /* of attn_q_a_norm and attn_kv_a_norm: kept apart, see architecture.md section 3 */

    uint32_t kda_dim;   /* dk: width of a KDA head's keys and values */
    uint32_t conv_taps; /* W */
    bool bounded_gate;  /* false: the softplus gate of architecture.md section 5 */
    float gate_floor;   /* glb, when bounded */

    uint32_t q_rank;  /* Rq; 0: no attn_q_a, one full attn_q */
    uint32_t kv_rank; /* Rk */
    uint32_t pe_dim;  /* dr: the part of an MLA key that all heads share; never rotated */
    uint32_t qk_dim;  /* dq: width of an MLA query or key head, pe_dim included */
    uint32_t v_dim;   /* dv: width of an MLA value head */

    uint32_t n_ffn;          /* F0: width of the dense layers' FFN */
    uint32_t n_dense_layers; /* nd */
    uint32_t n_experts;      /* E */
    uint32_t top_k;          /* K */
    uint32_t n_expert_ffn;   /* F */
    uint32_t n_shared_ffn;   /* Fs = shared experts * F */
    uint32_t latent;         /* Z; equals n_embd when the file has no latent space */
    bool has_latent;
    bool normalise_weights; /* of the chosen experts, to a sum of 1 */
    float weight_scale;     /* rs */
    float situ_beta;        /* b1 */
    float situ_linear_beta; /* b2; 0: the up branch passes unchanged */

    uint32_t res_block;         /* B; 0: plain residual stream */
    bool is_mla[K3_MAX_LAYERS]; /* else KDA */
};

/* The roles of tensors. Comments give the GGUF name and shape, ne order. */
enum k3_role {
    /* One in the model. */
    K3_TOKEN_EMBD,       /* token_embd [D, V] */
    K3_OUTPUT,           /* output [D, V] */
    K3_OUTPUT_NORM,      /* output_norm [D] */
    K3_OUTPUT_RES_SCORE, /* output_res_score [D], if res_block */

    /* One in a layer. */
    K3_ATTN_NORM,      /* attn_norm [D] */
    K3_FFN_NORM,       /* ffn_norm [D] */
    K3_ATTN_RES_SCORE, /* attn_res_score [D], if res_block */
    K3_FFN_RES_SCORE,  /* ffn_res_score [D], if res_block */
    K3_ATTN_OUTPUT,    /* attn_output [H*dk or H*dv, D] */

    K3_KDA_Q,      /* attn_q [D, H*dk] */
    K3_KDA_K,      /* attn_k */
    K3_KDA_V,      /* attn_v */
    K3_KDA_GATE,   /* ssm_g [D, H*dk] */
    K3_KDA_CONV_Q, /* ssm_conv1d_q, W values per channel, oldest tap first, H*dk channels */
    K3_KDA_CONV_K, /* ssm_conv1d_k */
    K3_KDA_CONV_V, /* ssm_conv1d_v */
    K3_KDA_F_A,    /* ssm_f_a [D, dk] */
    K3_KDA_F_B,    /* ssm_f_b [dk, H*dk] */
    K3_KDA_BETA,   /* ssm_beta [D, H] */
    K3_KDA_A,      /* ssm_a, at least H values */
    K3_KDA_DT,     /* ssm_dt.bias [H*dk] */
    K3_KDA_NORM,   /* ssm_norm [dk] */

    K3_MLA_Q,         /* attn_q [D, H*dq], if no q_rank */
    K3_MLA_Q_A,       /* attn_q_a [D, Rq], if q_rank */
    K3_MLA_Q_A_NORM,  /* attn_q_a_norm [Rq], if q_rank */
    K3_MLA_Q_B,       /* attn_q_b [Rq, H*dq], if q_rank */
    K3_MLA_KV_A,      /* attn_kv_a_mqa [D, Rk+dr] */
    K3_MLA_KV_A_NORM, /* attn_kv_a_norm [Rk] */
    K3_MLA_K_B,       /* attn_k_b [dn, Rk, H], dn = dq-dr; absent if K3_MLA_KV_B is there */
    K3_MLA_V_B,       /* attn_v_b [Rk, dv, H]; absent if K3_MLA_KV_B is there */
    K3_MLA_KV_B,      /* attn_kv_b [Rk, H*(dn+dv)]: per head dn key rows, then dv value rows */
    K3_MLA_GATE,      /* attn_gate [D, H*dv]; may be absent */

    K3_FFN_GATE, /* ffn_gate [D, F0], in dense layers */
    K3_FFN_UP,   /* ffn_up [D, F0] */
    K3_FFN_DOWN, /* ffn_down [F0, D] */

    K3_ROUTER,       /* ffn_gate_inp [D, E], in MoE layers */
    K3_ROUTER_BIAS,  /* exp_probs_b.bias [E] */
    K3_LATENT_DOWN,  /* ffn_routed_down [D, Z], if has_latent */
    K3_LATENT_UP,    /* ffn_routed_up [Z, D], if has_latent */
    K3_LATENT_NORM,  /* ffn_routed_norm [Z]; may be absent */
    K3_SHARED_GATE,  /* ffn_gate_shexp [D, Fs] */
    K3_SHARED_UP,    /* ffn_up_shexp [D, Fs] */
    K3_SHARED_DOWN,  /* ffn_down_shexp [Fs, D] */
    K3_EXPERTS_GATE, /* ffn_gate_exps [Z, F, E] */
    K3_EXPERTS_UP,   /* ffn_up_exps [Z, F, E] */
    K3_EXPERTS_DOWN, /* ffn_down_exps [F, Z, E] */

    K3_ROLE_COUNT,
    K3_FIRST_LAYER_ROLE = K3_ATTN_NORM,
    K3_FIRST_EXPERT_ROLE = K3_EXPERTS_GATE,
};

struct k3_plan {
    struct k3_gguf *gguf; /* owned; stays open for reading tensors */
    struct k3_hparams hp;
    const struct k3_gguf_tensor **tensors; /* [n_layers][K3_ROLE_COUNT], owned; use k3_plan_tensor */
};

/* Opens a model file (any shard of a set), checks that it is a K3 this program runs and finds its tensors.
 * Tensors that no role asks for are reported through the log and otherwise ignored. */
k3_status k3_plan_open(const char *path, struct k3_plan **plan, struct k3_error *err);
void k3_plan_close(struct k3_plan *plan);

/* NULL where the layer or model has none. `layer` is ignored for roles of the whole model. */
const struct k3_gguf_tensor *k3_plan_tensor(const struct k3_plan *plan, uint32_t layer, enum k3_role role);

/* The GGUF name of a role, "blk.%u." and suffix left out: "attn_norm". */
const char *k3_role_name(enum k3_role role);

/* Whether a complete K3 with these hyper-parameters has a tensor of this role in this layer, and then its name and
 * shape as files have them. Of tensors that may be stored in two ways it is the usual one: attn_k_b and attn_v_b, not
 * attn_kv_b. `name` has room for K3_GGUF_NAME_MAX + 1 bytes. */
bool k3_role_describe(const struct k3_hparams *hp, enum k3_role role, uint32_t layer, char *name,
                      uint64_t ne[K3_GGUF_MAX_DIMS], uint32_t *n_dims);

/* Adds the keys that say what these hyper-parameters are; all but context_length must be set. */
k3_status k3_hparams_write(const struct k3_hparams *hp, struct k3_gguf_writer *writer, struct k3_error *err);

/* Checks the values of an f32 vector just read from `tensor`: all finite, a norm not all zero, ssm_a of one
 * sign. */
k3_status k3_check_values(const struct k3_plan *plan, const struct k3_gguf_tensor *tensor, enum k3_role role,
                          const float *values, size_t n, struct k3_error *err);

#endif
