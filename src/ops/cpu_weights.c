/* cpu_weights.c - reads the dense weights into memory, in the form the operations want. */
#include "ops/cpu_internal.h"

#include "base/memory.h"
#include "model/weights.h"

#include <stdlib.h>
#include <string.h>

struct loader {
    struct k3_cpu_weights *w;
    const struct k3_share *share;
    struct k3_dense_reader reader;
    struct k3_error *err;
};

static void *new_buffer(struct loader *l, const char *name, size_t bytes)
{
    void *buffer = k3_buffer_alloc(bytes, 1);
    if (!buffer) {
        k3_fail_memory(l->err, name, bytes);
        return NULL;
    }
    l->w->buffers[l->w->n_buffers++] = buffer;
    return buffer;
}

static k3_status read_tensor(struct loader *l, const struct k3_gguf_tensor *t, enum k3_role role,
                             struct k3_matrix *m)
{
    void *data = new_buffer(l, t->name, t->bytes);
    if (!data) return K3_ERR_MEMORY;
    k3_status status = k3_dense_read_whole(&l->reader, t, role, data, l->err);
    if (status == K3_OK) *m = k3_matrix_make(t->type, t->ne[1] * t->ne[2] * t->ne[3], t->ne[0], data);
    return status;
}

static k3_status split_kv_b(struct loader *l, const struct k3_gguf_tensor *t, struct k3_matrix *layer)
{
    const struct k3_hparams *hp = &l->reader.plan->hp;
    const struct k3_matrix *kv = &layer[K3_MLA_KV_B];
    size_t nope = hp->qk_dim - hp->pe_dim, rank = hp->kv_rank, heads = hp->n_heads;
    float *k_b = new_buffer(l, "attn_k_b", heads * rank * nope * sizeof *k_b);
    void *v_b = new_buffer(l, "attn_v_b", heads * hp->v_dim * kv->row_bytes);
    if (!k_b || !v_b) return K3_ERR_MEMORY;
    layer[K3_MLA_K_B] = k3_matrix_make(K3_TYPE_F32, heads * rank, nope, k_b);
    layer[K3_MLA_V_B] = k3_matrix_make(kv->type, heads * hp->v_dim, rank, v_b);
    return k3_split_kv_b(hp, t, kv->data, k_b, v_b, l->err);
}

static k3_status load_layer(struct loader *l, uint32_t layer)
{
    struct k3_matrix *m = l->w->layers[layer];
    k3_status status = K3_OK;
    for (int role = K3_FIRST_LAYER_ROLE; role < K3_FIRST_EXPERT_ROLE && status == K3_OK; role++) {
        const struct k3_gguf_tensor *t = k3_share_tensor(l->reader.plan, l->share, layer, role);
        if (t) status = read_tensor(l, t, role, &m[role]);
        if (t && status == K3_OK && role == K3_MLA_KV_B) status = split_kv_b(l, t, m);
    }
    return status;
}

k3_status k3_cpu_weights_load(struct k3_cpu_weights *w, const struct k3_plan *plan,
                              const struct k3_cpu_options *o, struct k3_error *err)
{
    size_t n_layers = plan->hp.n_layers;
    struct loader l = {w, o->share, k3_dense_reader(plan, o->share, o->progress, o->progress_ctx), err};
    w->max_buffers = K3_FIRST_LAYER_ROLE + n_layers * (K3_FIRST_EXPERT_ROLE + 2); /* split_kv_b makes two */
    w->buffers = calloc(w->max_buffers, sizeof *w->buffers);
    w->layers = calloc(n_layers, sizeof *w->layers);
    if (!w->buffers || !w->layers)
        return k3_fail_memory(err, "the list of weights", w->max_buffers * sizeof(void *));

    const struct k3_gguf_tensor *t;
    k3_status status = K3_OK;
    for (int role = 0; role < K3_FIRST_LAYER_ROLE && status == K3_OK; role++)
        if ((t = k3_share_tensor(plan, o->share, 0, role)))
            status = read_tensor(&l, t, role, &w->model[role]);
    for (uint32_t i = 0; i < n_layers && status == K3_OK; i++) status = load_layer(&l, i);
    return status;
}

void k3_cpu_weights_free(struct k3_cpu_weights *w)
{
    for (size_t i = 0; i < w->n_buffers; i++) free(w->buffers[i]);
    free(w->buffers);
    free(w->layers);
    memset(w, 0, sizeof *w);
}
