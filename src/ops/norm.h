/* norm.h - RMS norm, and the mix of AttnRes that stands before every norm. */
#ifndef K3_OPS_NORM_H
#define K3_OPS_NORM_H

#include "ops/compute.h"

/* y[t][i] = w[i] * x[t][i] / sqrt(mean_i(x[t][i]^2) + eps) for n rows of `width` (architecture.md section 3).
 * y may be x. */
void k3_rms_norm(struct k3_compute *c, const float *x, const float *w, float eps, size_t n, size_t width,
                 float *y);

/* One row, by one thread. */
void k3_rms_norm_row(const struct k3_compute *c, const float *x, const float *w, float eps, size_t width,
                     float *y);

/* The stream and the bank of a batch, as mix needs them: n rows of `width` each. */
struct k3_streams {
    const float *bank[K3_MAX_BANK]; /* oldest first */
    size_t n_bank;
    const float *p; /* the running stream */
};

/* y[t] = sum_i prob_i c_i[t] over bank and stream, prob = softmax_i(s . c_i / rms(c_i)) (architecture.md
 * section 4). `rows` chooses rows of the streams (NULL: 0 .. n-1); y: [n][width]. probs: [n][n_bank + 1], may
 * be NULL. */
void k3_mix(struct k3_compute *c, const struct k3_streams *streams, const float *score, float eps,
            const uint32_t *rows, size_t n, size_t width, float *y, float *probs);

#endif
