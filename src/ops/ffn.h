/* ffn.h - what the feed-forward halves of the layers are made of: SiTU, gates, the router and routed experts
 * (architecture.md section 7). */
#ifndef K3_OPS_FFN_H
#define K3_OPS_FFN_H

#include "ops/compute.h"

/* g[i] = b1 tanh(g[i] / b1) sigmoid(g[i]) * b2 tanh(u[i] / b2); u[i] itself if b2 is 0. */
void k3_situ(struct k3_compute *c, float *g, const float *u, float b1, float b2, size_t n);

/* The first half of an FFN: g = situ(gate x, up x). Without `activate` g and u are left as the products. */
struct k3_gate_up {
    struct k3_job gate, up; /* n and the rows are the same */
};

/* Computes up to K3_MAX_JOBS of them in one go: SiTU is applied to a piece of rows while it is in the nearest cache. */
void k3_gate_up(struct k3_compute *c, const struct k3_gate_up *list, size_t n_list, bool activate, float b1,
                float b2);

/* x[i] *= sigmoid(gate[i]) */
void k3_gate(struct k3_compute *c, float *x, const float *gate, size_t n);

/* x[i] = exp(x[i]) */
void k3_exp(struct k3_compute *c, float *x, size_t n);

/* x[i] = sigmoid(x[i]) */
void k3_sigmoids(struct k3_compute *c, float *x, size_t n);

/* x[i] += y[i] */
void k3_add(struct k3_compute *c, float *x, const float *y, size_t n);

/* Chooses top_k experts for each of n tokens: those of largest sigmoid(logit) + bias, the lower index where
 * two are equal, best first. Their weights are sigmoid(logit), divided by their sum if hp->normalise_weights,
 * times hp->weight_scale. logits: [n][n_experts], become the sigmoids; ids, weights: [n][top_k]. */
void k3_route(struct k3_compute *c, const struct k3_hparams *hp, const float *bias, float *logits, size_t n,
              int layer, uint32_t *ids, float *weights);

/* The n experts of largest biased score for one row x, best first, as a router that is not this layer's would choose.
 * scores: [n_experts], scratch; n <= K3_MAX_TOP_K. */
void k3_guess_experts(struct k3_compute *c, const struct k3_hparams *hp, const struct k3_matrix *router,
                      const float *bias, const float *x, size_t n, float *scores, uint32_t *ids);

#endif
