/* cpu_attention.c - one KDA or MLA sublayer for the current batch: from its normed input to its output. */
#include "ops/cpu_internal.h"

#include "ops/ffn.h"
#include "ops/kda.h"
#include "ops/mla.h"
#include "ops/vmath.h"

#include <string.h>

static const float *vector(const struct k3_cpu_device *dev, uint32_t layer, enum k3_role role)
{
    return (const float *)dev->weights.layers[layer][role].data;
}

/* Runs the convolution over the projection z, which has room for the rows kept from the batch before in front, and
 * keeps the last rows for the batch after. history: [W-1][width]. */
static void convolve(struct k3_cpu_device *dev, uint32_t layer, enum k3_role taps, float *history, float *z,
                     float *u)
{
    size_t n_taps = dev->hp->conv_taps, width = (size_t)dev->hp->n_heads * dev->hp->kda_dim;
    size_t kept = (n_taps - 1) * width;
    memcpy(z, history, kept * sizeof *z);
    k3_kda_conv(&dev->compute, z, vector(dev, layer, taps), n_taps, dev->n, width, u);
    memcpy(history, z + dev->n * width, kept * sizeof *z);
}

static void transpose(float *x, size_t dim)
{
    for (size_t i = 0; i < dim; i++)
        for (size_t j = 0; j < i; j++) {
            float swap = x[i * dim + j];
            x[i * dim + j] = x[j * dim + i];
            x[j * dim + i] = swap;
        }
}

/* Taps see the state as the reference has it: [value][key]. */
static void show_state(const struct k3_compute *c, int layer, float *state, size_t heads, size_t dim)
{
    if (!c->tap) return;
    for (size_t h = 0; h < heads; h++) transpose(state + h * dim * dim, dim);
    k3_show(c, "kda_state", layer, 0, state, heads * dim, dim);
    for (size_t h = 0; h < heads; h++) transpose(state + h * dim * dim, dim);
}

/* architecture.md section 5, steps 1 to 9 */
void k3_cpu_kda(struct k3_cpu_device *dev, uint32_t layer, float *out)
{
    struct k3_compute *c = &dev->compute;
    const struct k3_hparams *hp = dev->hp;
    struct k3_matrix *w = dev->weights.layers[layer];
    size_t n = dev->n, heads = hp->n_heads, dim = hp->kda_dim, wide = heads * dim;
    float *x = dev->scratch.x, *beta = dev->scratch.beta, *low = dev->scratch.low;
    float **wide_rows = dev->scratch.wide, *zq = wide_rows[0], *zk = wide_rows[1], *zv = wide_rows[2];
    /* Each array takes the place of one that is not needed any more. */
    float *q = wide_rows[3], *k = zq, *v = zk, *o = zv, *alpha = wide_rows[4], *gate = wide_rows[5];
    float *state = k3_cpu_kda_state(dev->state, layer), *history = state + wide * dim;
    size_t kept = (hp->conv_taps - 1) * wide;

    const struct k3_target targets[] = {{&w[K3_KDA_Q], zq + kept}, {&w[K3_KDA_K], zk + kept},
                                        {&w[K3_KDA_V], zv + kept}, {&w[K3_KDA_GATE], gate},
                                        {&w[K3_KDA_F_A], low},     {&w[K3_KDA_BETA], beta}};
    k3_matmul_all(c, targets, sizeof targets / sizeof *targets, x, n);
    convolve(dev, layer, K3_KDA_CONV_Q, history, zq, q);
    convolve(dev, layer, K3_KDA_CONV_K, history + kept, zk, k);
    convolve(dev, layer, K3_KDA_CONV_V, history + 2 * kept, zv, v);
    k3_show(c, "kda_q_conv", (int)layer, 0, q, n, wide);
    k3_show(c, "kda_k_conv", (int)layer, 0, k, n, wide);
    k3_show(c, "kda_v_conv", (int)layer, 0, v, n, wide);
    k3_kda_normalise(c, q, n, heads, dim, 1.0f / sqrtf((float)dim));
    k3_kda_normalise(c, k, n, heads, dim, 1.0f);

    k3_matmul(c, &w[K3_KDA_F_B], low, n, alpha);
    k3_kda_gate(c, alpha, vector(dev, layer, K3_KDA_A), vector(dev, layer, K3_KDA_DT), hp->bounded_gate,
                hp->gate_floor, n, heads, dim);
    k3_show(c, "kda_g1", (int)layer, 0, alpha, n, wide);
    k3_exp(c, alpha, n * wide);

    k3_sigmoids(c, beta, n * heads);
    k3_show(c, "kda_beta", (int)layer, 0, beta, n, heads);

    k3_kda_recur(c, q, k, v, alpha, beta, n, heads, dim, state, o);
    show_state(c, (int)layer, state, heads, dim);
    k3_show(c, "kda_scan_out", (int)layer, 0, o, n, wide);

    k3_rms_norm(c, o, vector(dev, layer, K3_KDA_NORM), hp->eps, n * heads, dim, o);
    k3_show(c, "kda_normed", (int)layer, 0, o, n, wide);
    k3_show(c, "kda_g2", (int)layer, 0, gate, n, wide);
    k3_gate(c, o, gate, n * wide);
    k3_matmul(c, &w[K3_ATTN_OUTPUT], o, n, out);
    k3_show(c, "kda_out", (int)layer, 0, out, n, hp->n_embd);
}

/* architecture.md section 6 */
void k3_cpu_mla(struct k3_cpu_device *dev, uint32_t layer, float *out)
{
    struct k3_compute *c = &dev->compute;
    const struct k3_hparams *hp = dev->hp;
    struct k3_matrix *w = dev->weights.layers[layer];
    size_t n = dev->n, width = hp->kv_rank + hp->pe_dim, wide = (size_t)hp->n_heads * hp->v_dim;
    float *x = dev->scratch.x, *low = dev->scratch.low;
    float *q = dev->scratch.wide[1], *o = dev->scratch.wide[2], *gate = dev->scratch.wide[3];
    float *low_q = dev->scratch.low_q;
    void *cache = dev->state->caches[layer];

    struct k3_target targets[3] = {{&w[K3_MLA_KV_A], low}, {&w[K3_MLA_Q], q}};
    size_t n_targets = 2;
    if (hp->q_rank) targets[1] = (struct k3_target){&w[K3_MLA_Q_A], low_q};
    if (w[K3_MLA_GATE].data) targets[n_targets++] = (struct k3_target){&w[K3_MLA_GATE], gate};
    k3_matmul_all(c, targets, n_targets, x, n);
    if (hp->q_rank) {
        k3_rms_norm(c, low_q, vector(dev, layer, K3_MLA_Q_A_NORM), hp->eps_lora, n, hp->q_rank, low_q);
        k3_matmul(c, &w[K3_MLA_Q_B], low_q, n, q);
    }
    for (size_t t = 0; t < n; t++)
        k3_rms_norm_row(c, low + t * width, vector(dev, layer, K3_MLA_KV_A_NORM), hp->eps_lora, hp->kv_rank,
                        low + t * width);
    k3_mla_store(cache, !dev->exact, dev->position, low, n, width);

    struct k3_mla mla = {hp->n_heads,   hp->qk_dim,    hp->pe_dim,  hp->v_dim, hp->kv_rank,
                         w[K3_MLA_K_B], w[K3_MLA_V_B], !dev->exact, cache};
    k3_mla_attend(c, &mla, q, n, dev->position, o, dev->scratch.mla);
    if (w[K3_MLA_GATE].data) k3_gate(c, o, gate, n * wide);
    k3_show(c, "mla_gated", (int)layer, 0, o, n, wide);
    k3_matmul(c, &w[K3_ATTN_OUTPUT], o, n, out);
    k3_show(c, "mla_out", (int)layer, 0, out, n, hp->n_embd);
}
