/* attention.c - one KDA or MLA sublayer for the current batch: from its normed input to its output. */
#include "gpu/gpu_internal.h"

static const float *vector(const struct k3_gpu_device *dev, uint32_t layer, enum k3_role role)
{
    return dev->weights.layers[layer][role].f32;
}

/* The sublayer's last product. `o` was rounded by what made it, if the matrix takes that. */
static void project(struct k3_gpu_device *dev, uint32_t layer, const float *o, bool add, float *out)
{
    const struct k3_gpu_matrix *w = &dev->weights.layers[layer][K3_ATTN_OUTPUT];
    struct k3_gpu_input in = {o, k3_gpu_acts_for(dev, w)};
    if (add)
        k3_gpu_matmul_add(dev, w, &in, dev->n, NULL, out);
    else
        k3_gpu_matmul(dev, w, &in, dev->n, out);
}

/* architecture.md section 5, steps 1 to 9 */
void k3_gpu_kda(struct k3_gpu_device *dev, uint32_t layer, bool add, float *out)
{
    const struct k3_hparams *hp = dev->hp;
    const struct k3_gpu_matrix *w = dev->weights.layers[layer];
    size_t n = dev->n, heads = hp->n_heads, dim = hp->kda_dim;
    float **rows = dev->s.wide, *zq = rows[0], *zk = rows[1], *zv = rows[2];
    float *q = rows[3], *k = rows[4], *v = rows[5], *alpha = rows[6], *gate = rows[7];
    float *o = zq, *beta = dev->s.beta; /* z is not needed any more */
    float *state = dev->state->recurrent + k3_gpu_recurrent_place(hp, dev->share, layer);
    struct k3_gpu_input in = k3_gpu_normed(dev), low = {.x = dev->s.low};

    const struct k3_gpu_target targets[] = {{&w[K3_KDA_Q], zq},           {&w[K3_KDA_K], zk},
                                            {&w[K3_KDA_V], zv},           {&w[K3_KDA_GATE], gate},
                                            {&w[K3_KDA_F_A], dev->s.low}, {&w[K3_KDA_BETA], beta}};
    k3_gpu_matmul_all(dev, targets, sizeof targets / sizeof *targets, &in, n);
    bool apart = !w[K3_KDA_F_B].q8_0.q;
    if (apart) k3_gpu_matmul(dev, &w[K3_KDA_F_B], &low, n, alpha);
    const struct k3_gpu_kda kda = {.n = n,
                                   .n_heads = heads,
                                   .dim = dim,
                                   .n_taps = hp->conv_taps,
                                   .z = {zq, zk, zv},
                                   .taps = {vector(dev, layer, K3_KDA_CONV_Q),
                                            vector(dev, layer, K3_KDA_CONV_K),
                                            vector(dev, layer, K3_KDA_CONV_V)},
                                   .u = {q, k, v},
                                   .history = state + heads * dim * dim,
                                   .alpha = alpha,
                                   .beta = beta,
                                   .low = apart ? NULL : low.x,
                                   .f_b = w[K3_KDA_F_B].q8_0,
                                   .a = vector(dev, layer, K3_KDA_A),
                                   .dt = vector(dev, layer, K3_KDA_DT),
                                   .bounded = hp->bounded_gate,
                                   .floor = hp->gate_floor};
    k3_gpu_kda_prepare(&kda, dev->stream);
    k3_gpu_kda_recur(q, k, v, alpha, beta, n, heads, dim, state, o, dev->stream);
    k3_gpu_rms_norm(o, vector(dev, layer, K3_KDA_NORM), hp->eps, n * heads, dim, dim, gate, o,
                    k3_gpu_acts_for(dev, &w[K3_ATTN_OUTPUT]), dev->stream);
    project(dev, layer, o, add, out);
}

/* Whether a session has room for the scores of n tokens and n_keys keys. */
static bool have_room(size_t max_tokens, size_t n, size_t n_keys)
{
    return n * n_keys <= max_tokens * K3_GPU_SCORES &&
           n * k3_gpu_mla_group_floats(n_keys) <= k3_gpu_mla_group_floats(max_tokens) * K3_GPU_SCORES;
}

/* Attention over the cache, from q to z, which is rounded too if acts are not NULL: as many tokens at a time as the session has scores for. */
static void attend(struct k3_gpu_device *dev, const uint16_t *cache, const float *q,
                   const struct k3_gpu_acts *acts)
{
    const struct k3_hparams *hp = dev->hp;
    size_t heads = hp->n_heads, max_tokens = dev->state->max_tokens;
    for (size_t t = 0, n; t < dev->n; t += n) {
        size_t position = dev->position + t;
        for (n = 1; t + n < dev->n && have_room(max_tokens, n + 1, position + n + 1);) n++;
        struct k3_gpu_mla mla = {heads, hp->qk_dim, hp->pe_dim, hp->kv_rank, cache, position, n};
        k3_gpu_mla_scores(&mla, dev->s.absorbed + t * heads * hp->kv_rank, q + t * heads * hp->qk_dim,
                          dev->state->scores, dev->state->groups, dev->stream);
        size_t done = t * heads * hp->kv_rank;
        struct k3_gpu_acts rest = {dev->s.acts.q + done, dev->s.acts.d + done / 32};
        k3_gpu_mla_values(&mla, dev->state->scores, dev->state->groups, dev->s.z + done, acts ? &rest : NULL,
                          dev->stream);
    }
}

/* architecture.md section 6 */
void k3_gpu_mla(struct k3_gpu_device *dev, uint32_t layer, bool add, float *out)
{
    const struct k3_hparams *hp = dev->hp;
    const struct k3_gpu_matrix *w = dev->weights.layers[layer];
    size_t n = dev->n, heads = hp->n_heads, width = hp->kv_rank + hp->pe_dim;
    float *low = dev->s.low, *low_q = dev->s.low_q;
    float *q = dev->s.wide[1], *o = dev->s.wide[2], *gate = dev->s.wide[3];
    bool gated = w[K3_MLA_GATE].rows > 0;
    uint16_t *cache = dev->state->caches[layer];
    struct k3_gpu_input in = k3_gpu_normed(dev);

    struct k3_gpu_target targets[3] = {{&w[K3_MLA_KV_A], low}, {&w[K3_MLA_Q], q}};
    size_t n_targets = 2;
    if (hp->q_rank) targets[1] = (struct k3_gpu_target){&w[K3_MLA_Q_A], low_q};
    if (gated) targets[n_targets++] = (struct k3_gpu_target){&w[K3_MLA_GATE], gate};
    k3_gpu_matmul_all(dev, targets, n_targets, &in, n);
    if (hp->q_rank) {
        k3_gpu_rms_norm(low_q, vector(dev, layer, K3_MLA_Q_A_NORM), hp->eps_lora, n, hp->q_rank, hp->q_rank,
                        NULL, low_q, k3_gpu_acts_for(dev, &w[K3_MLA_Q_B]), dev->stream);
        struct k3_gpu_input of_q = {low_q, k3_gpu_acts_for(dev, &w[K3_MLA_Q_B])};
        k3_gpu_matmul(dev, &w[K3_MLA_Q_B], &of_q, n, q);
    }
    k3_gpu_rms_norm(low, vector(dev, layer, K3_MLA_KV_A_NORM), hp->eps_lora, n, hp->kv_rank, width, NULL, low,
                    NULL, dev->stream);
    k3_gpu_mla_store(low, n, width, dev->position, cache, dev->stream);

    k3_gpu_matmul_heads(dev, &w[K3_MLA_K_B], q, NULL, hp->qk_dim, n, dev->s.absorbed);
    attend(dev, cache, q, k3_gpu_acts_for(dev, &w[K3_MLA_V_B]));
    k3_gpu_matmul_heads(dev, &w[K3_MLA_V_B], dev->s.z, k3_gpu_acts_for(dev, &w[K3_MLA_V_B]), hp->kv_rank, n,
                        o);
    const struct k3_gpu_acts *acts = k3_gpu_acts_for(dev, &w[K3_ATTN_OUTPUT]);
    if (gated)
        k3_gpu_gate(o, gate, n * heads * hp->v_dim, acts, dev->stream);
    else if (acts)
        k3_gpu_round_q8_0(o, n, heads * hp->v_dim, heads * hp->v_dim, acts, dev->stream);
    project(dev, layer, o, add, out);
}
