/* weights.h - reads the dense weights of a plan: what every device does before it takes them in its own form. */
#ifndef K3_MODEL_WEIGHTS_H
#define K3_MODEL_WEIGHTS_H

#include "model/share.h"

/* Bytes of the tensors that a device reads: all of its share but the experts. */
uint64_t k3_dense_bytes(const struct k3_plan *plan, const struct k3_share *share);

/* Reading them, one after the other; `done` counts up to k3_dense_bytes. */
struct k3_dense_reader {
    const struct k3_plan *plan;
    k3_progress_fn progress; /* in bytes; may be NULL */
    void *progress_ctx;
    uint64_t done, total;
};

struct k3_dense_reader k3_dense_reader(const struct k3_plan *plan, const struct k3_share *share,
                                       k3_progress_fn progress, void *progress_ctx);

/* Bytes at .. at + n - 1 of a tensor. K3_ERR_CANCELLED when progress says so. */
k3_status k3_dense_read(struct k3_dense_reader *reader, const struct k3_gguf_tensor *tensor, uint64_t at,
                        void *data, size_t n, struct k3_error *err);

/* The whole tensor. Values of f32 are checked, and those of ssm_a come out negative. */
k3_status k3_dense_read_whole(struct k3_dense_reader *reader, const struct k3_gguf_tensor *tensor,
                              enum k3_role role, void *data, struct k3_error *err);

/* Divides attn_kv_b, per head dn key rows and dv value rows of Rk, into what attn_k_b and attn_v_b would be. The key
 * part is transposed and therefore decoded, k_b: [H][Rk][dn]; the value rows stay as they are, v_b: [H][dv] rows. */
k3_status k3_split_kv_b(const struct k3_hparams *hp, const struct k3_gguf_tensor *tensor, const void *kv_b,
                        float *k_b, void *v_b, struct k3_error *err);

#endif
