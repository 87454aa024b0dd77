/* cpu_internal.h - what the files of the CPU device share. */
#ifndef K3_OPS_CPU_INTERNAL_H
#define K3_OPS_CPU_INTERNAL_H

#include "ops/cpu_device.h"
#include "ops/norm.h"

/* Weights by role; the roles of the whole model are in `model`. A role that model or share lack has data NULL. */
struct k3_cpu_weights {
    struct k3_matrix model[K3_FIRST_LAYER_ROLE];
    struct k3_matrix (*layers)[K3_FIRST_EXPERT_ROLE]; /* [n_layers], owned */
    void **buffers;                                   /* what the matrices point into; owned */
    size_t n_buffers, max_buffers;
};

k3_status k3_cpu_weights_load(struct k3_cpu_weights *w, const struct k3_plan *plan,
                              const struct k3_cpu_options *options, struct k3_error *err);
void k3_cpu_weights_free(struct k3_cpu_weights *w);

/* Activations of a batch of B tokens. `wide` arrays hold what is as wide as all heads together. */
struct k3_cpu_scratch {
    float *p;                 /* [B][D] residual stream */
    float *bank[K3_MAX_BANK]; /* [B][D] each */
    float *x;                 /* [B][D] mixed and normed input of a sublayer */
    float *y;                 /* [B][D] its output */
    float *wide[6];           /* [B + W - 1][max(H*dk, H*dq, H*dv)] */
    float *low;               /* [B][max(dk, Rk+dr)] */
    float *low_q;             /* [B][Rq] */
    float *beta;              /* [B][H] */
    float *ffn_gate, *ffn_up; /* [B][max(F0, Fs)] */
    float *router;            /* [B][E] */
    float *latent;            /* [B][Z] */
    float *probs;             /* [B][bank + 1], for taps */
    float *mla;               /* [threads][k3_mla_scratch] */
    float *norm_rows;         /* [B][D] input of the head; also the routed part of a MoE sum */
    uint32_t *ids;            /* [B][top_k] */
    float *weights;           /* [B][top_k] */
    void *buffer;             /* all of the above are pieces of it; owned */
};

struct k3_cpu_device {
    struct k3_device base;
    struct k3_compute compute;
    const struct k3_plan *plan;
    const struct k3_hparams *hp;
    const struct k3_share *share;
    bool exact;
    struct k3_cpu_weights weights;
    struct k3_cpu_scratch scratch;

    /* The current batch. */
    struct k3_state *state;
    size_t n, position, n_bank;
};

struct k3_state {
    struct k3_cpu_device *device;
    /* KDA state [H][key dk][value dk] of every KDA layer here, then its three convolution histories [W-1][H*dk]. */
    float *recurrent;
    size_t recurrent_floats;
    void **caches; /* [n_layers], NULL where there is no MLA layer: rows of k3_mla_row_bytes */
};

/* Floats of the recurrent part of one KDA layer. */
size_t k3_cpu_recurrent_floats(const struct k3_hparams *hp);

/* Where a KDA layer's part of a state begins. */
float *k3_cpu_kda_state(const struct k3_state *state, uint32_t layer);

size_t k3_cpu_cache_row_bytes(const struct k3_cpu_device *dev);

extern const struct k3_device_ops k3_cpu_ops;

k3_status k3_cpu_state_create(struct k3_device *dev, size_t max_tokens, struct k3_state **state,
                              struct k3_error *err);
void k3_cpu_state_free(struct k3_state *state);
void k3_cpu_state_reset(struct k3_state *state);
k3_status k3_cpu_state_save(const struct k3_state *state, size_t n_tokens, bool cache,
                            struct k3_saved_state **saved, struct k3_error *err);
void k3_cpu_state_load(struct k3_state *state, const struct k3_saved_state *saved);
void k3_cpu_saved_free(struct k3_saved_state *saved);

void k3_cpu_kda(struct k3_cpu_device *dev, uint32_t layer, float *out);
void k3_cpu_mla(struct k3_cpu_device *dev, uint32_t layer, float *out);

#endif
