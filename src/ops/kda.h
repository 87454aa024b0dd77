/* kda.h - Kimi Delta Attention: convolution, decay gate and the delta-rule recurrence (architecture.md
 * section 5). */
#ifndef K3_OPS_KDA_H
#define K3_OPS_KDA_H

#include "ops/compute.h"

/* Tokens that the recurrence takes together. The state is read and written once per chunk instead of once per
 * token; the work inside a chunk grows with its square. */
#define K3_KDA_CHUNK 16

/* u[t][c] = silu(sum_j taps[c][j] * z[t + j][c]), j = 0 .. n_taps-1, for n tokens and `width` channels.
 * z: [n_taps-1 + n][width], the raw projections, the n_taps-1 rows before the batch first. */
void k3_kda_conv(struct k3_compute *c, const float *z, const float *taps, size_t n_taps, size_t n,
                 size_t width, float *u);

/* Divides each head of n rows by its length, sqrt(sum of squares + 1e-6), and multiplies it by `scale`.
 * x: [n][n_heads][dim], in place. */
void k3_kda_normalise(struct k3_compute *c, float *x, size_t n, size_t n_heads, size_t dim, float scale);

/* r: [n][n_heads][dim] becomes the log decay:
 *   bounded:  floor * sigmoid(-a[h] * (r + dt))        else:  a[h] * softplus(r + dt)
 * with a[h] = -exp(A_log[h]) (negative) per head and dt per channel. */
void k3_kda_gate(struct k3_compute *c, float *r, const float *a, const float *dt, bool bounded, float floor,
                 size_t n, size_t n_heads, size_t dim);

/* The recurrence over n tokens for every head, all arrays [n][n_heads][dim] but beta [n][n_heads]:
 *   S = diag(alpha) S;  d = beta (v - S^T k);  S = S + k d^T;  o = S^T q
 * alpha is the decay itself, not its logarithm. `state`: [n_heads][key dim][value dim],
 * updated. Same result, up to rounding, however a sequence is divided into calls. */
void k3_kda_recur(struct k3_compute *c, const float *q, const float *k, const float *v, const float *alpha,
                  const float *beta, size_t n, size_t n_heads, size_t dim, float *state, float *o);

#endif
