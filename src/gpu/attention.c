/* attention.c - one KDA or MLA sublayer for the current batch: from its normed input to its output. */
#include "gpu/gpu_internal.h"

#include <math.h>

static const float *vector(const struct k3_gpu_device *dev, uint32_t layer, enum k3_role role)
{
    return dev->weights.layers[layer][role].f32;
}

/* Runs the convolution over the projection z, which has room for the rows kept from the batch before in front, and
 * keeps the last rows for the batch after. history: [W-1][width]. */
static void convolve(struct k3_gpu_device *dev, uint32_t layer, enum k3_role taps, float *history, float *z,
                     float *u)
{
    size_t n_taps = dev->hp->conv_taps, width = (size_t)dev->hp->n_heads * dev->hp->kda_dim;
    size_t kept_bytes = (n_taps - 1) * width * sizeof *z;
    k3_gpu_copy(z, history, kept_bytes, dev->stream);
    k3_gpu_kda_conv(z, vector(dev, layer, taps), n_taps, dev->n, width, u, dev->stream);
    k3_gpu_copy(history, z + dev->n * width, kept_bytes, dev->stream);
}

/* architecture.md section 5, steps 1 to 9 */
void k3_gpu_kda(struct k3_gpu_device *dev, uint32_t layer, float *out)
{
    const struct k3_hparams *hp = dev->hp;
    const struct k3_gpu_matrix *w = dev->weights.layers[layer];
    size_t n = dev->n, heads = hp->n_heads, dim = hp->kda_dim, wide = heads * dim;
    float **rows = dev->s.wide, *zq = rows[0], *zk = rows[1], *zv = rows[2];
    /* Each array takes the place of one that is not needed any more. */
    float *q = rows[3], *k = zq, *v = zk, *o = zv, *alpha = rows[4], *gate = rows[5];
    float *state = dev->state->recurrent + k3_gpu_recurrent_place(hp, dev->share, layer),
          *history = state + wide * dim;
    size_t kept = (hp->conv_taps - 1) * wide;
    k3_stream stream = dev->stream;

    const struct k3_gpu_target targets[] = {{&w[K3_KDA_Q], zq + kept},    {&w[K3_KDA_K], zk + kept},
                                            {&w[K3_KDA_V], zv + kept},    {&w[K3_KDA_GATE], gate},
                                            {&w[K3_KDA_F_A], dev->s.low}, {&w[K3_KDA_BETA], dev->s.beta}};
    k3_gpu_matmul_all(dev, targets, sizeof targets / sizeof *targets, dev->s.x, n);
    convolve(dev, layer, K3_KDA_CONV_Q, history, zq, q);
    convolve(dev, layer, K3_KDA_CONV_K, history + kept, zk, k);
    convolve(dev, layer, K3_KDA_CONV_V, history + 2 * kept, zv, v);
    k3_gpu_kda_normalise(q, n * heads, dim, 1.0f / sqrtf((float)dim), stream);
    k3_gpu_kda_normalise(k, n * heads, dim, 1.0f, stream);

    k3_gpu_matmul(dev, &w[K3_KDA_F_B], dev->s.low, n, alpha);
    k3_gpu_kda_decay(alpha, vector(dev, layer, K3_KDA_A), vector(dev, layer, K3_KDA_DT), hp->bounded_gate,
                     hp->gate_floor, n, heads, dim, stream);
    k3_gpu_sigmoid(dev->s.beta, n * heads, stream);
    k3_gpu_kda_recur(q, k, v, alpha, dev->s.beta, n, heads, dim, state, o, stream);

    k3_gpu_rms_norm(o, vector(dev, layer, K3_KDA_NORM), hp->eps, n * heads, dim, dim, o, stream);
    k3_gpu_gate(o, gate, n * wide, stream);
    k3_gpu_matmul(dev, &w[K3_ATTN_OUTPUT], o, n, out);
}

/* Attention over the cache, from q to z: as many tokens at a time as the session has scores for. */
static void attend(struct k3_gpu_device *dev, const uint16_t *cache, const float *q)
{
    const struct k3_hparams *hp = dev->hp;
    size_t heads = hp->n_heads, room = dev->state->max_tokens * K3_GPU_SCORES;
    for (size_t t = 0, n; t < dev->n; t += n) {
        size_t position = dev->position + t;
        for (n = 1; t + n < dev->n && (n + 1) * (position + n + 1) <= room;) n++;
        struct k3_gpu_mla mla = {heads, hp->qk_dim, hp->pe_dim, hp->kv_rank, cache, position, n};
        k3_gpu_mla_scores(&mla, dev->s.absorbed + t * heads * hp->kv_rank, q + t * heads * hp->qk_dim,
                          dev->state->scores, dev->stream);
        k3_gpu_mla_values(&mla, dev->state->scores, dev->s.z + t * heads * hp->kv_rank, dev->stream);
    }
}

/* architecture.md section 6 */
void k3_gpu_mla(struct k3_gpu_device *dev, uint32_t layer, float *out)
{
    const struct k3_hparams *hp = dev->hp;
    const struct k3_gpu_matrix *w = dev->weights.layers[layer];
    size_t n = dev->n, heads = hp->n_heads, width = hp->kv_rank + hp->pe_dim;
    float *low = dev->s.low, *low_q = dev->s.low_q;
    float *q = dev->s.wide[1], *o = dev->s.wide[2], *gate = dev->s.wide[3];
    bool gated = w[K3_MLA_GATE].rows > 0;
    uint16_t *cache = dev->state->caches[layer];

    struct k3_gpu_target targets[3] = {{&w[K3_MLA_KV_A], low}, {&w[K3_MLA_Q], q}};
    size_t n_targets = 2;
    if (hp->q_rank) targets[1] = (struct k3_gpu_target){&w[K3_MLA_Q_A], low_q};
    if (gated) targets[n_targets++] = (struct k3_gpu_target){&w[K3_MLA_GATE], gate};
    k3_gpu_matmul_all(dev, targets, n_targets, dev->s.x, n);
    if (hp->q_rank) {
        k3_gpu_rms_norm(low_q, vector(dev, layer, K3_MLA_Q_A_NORM), hp->eps_lora, n, hp->q_rank, hp->q_rank,
                        low_q, dev->stream);
        k3_gpu_matmul(dev, &w[K3_MLA_Q_B], low_q, n, q);
    }
    k3_gpu_rms_norm(low, vector(dev, layer, K3_MLA_KV_A_NORM), hp->eps_lora, n, hp->kv_rank, width, low,
                    dev->stream);
    k3_gpu_mla_store(low, n, width, dev->position, cache, dev->stream);

    k3_gpu_matmul_heads(dev, &w[K3_MLA_K_B], q, hp->qk_dim, n, dev->s.absorbed);
    attend(dev, cache, q);
    k3_gpu_matmul_heads(dev, &w[K3_MLA_V_B], dev->s.z, hp->kv_rank, n, o);
    if (gated) k3_gpu_gate(o, gate, n * heads * hp->v_dim, dev->stream);
    k3_gpu_matmul(dev, &w[K3_ATTN_OUTPUT], o, n, out);
}
