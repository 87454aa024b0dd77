/* cpu_weights.c - reads the dense weights into memory, in the form the operations want. */
#include "ops/cpu_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define READ_PIECE ((size_t)16 << 20) /* between two reports of progress */

struct loader {
    struct k3_cpu_weights *w;
    const struct k3_plan *plan;
    k3_progress_fn progress;
    void *progress_ctx;
    uint64_t done, total;
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
    unsigned char *data = new_buffer(l, t->name, t->bytes);
    if (!data) return K3_ERR_MEMORY;
    for (uint64_t at = 0; at < t->bytes; at += READ_PIECE) {
        size_t n = t->bytes - at < READ_PIECE ? (size_t)(t->bytes - at) : READ_PIECE;
        k3_status status = k3_gguf_read(l->plan->gguf, t, at, data + at, n, l->err);
        if (status != K3_OK) return status;
        l->done += n;
        if (l->progress && !l->progress(l->progress_ctx, "loading weights", l->done, l->total))
            return k3_fail(l->err, K3_ERR_CANCELLED, "loading was cancelled");
    }
    *m = k3_matrix_make(t->type, t->ne[1] * t->ne[2] * t->ne[3], t->ne[0], data);
    if (t->type != K3_TYPE_F32) return K3_OK;
    return k3_check_values(l->plan, t, role, (const float *)data, t->bytes / sizeof(float), l->err);
}

/* Some files store +exp(A_log) where -exp(A_log) is meant; k3_check_values saw that all have one sign. */
static void make_negative(const struct k3_matrix *m)
{
    float *a = (float *)m->data;
    for (size_t i = 0; i < m->rows * m->cols; i++) a[i] = -fabsf(a[i]);
}

/* Divides attn_kv_b, per head dn key rows and dv value rows of Rk, into what attn_k_b and attn_v_b would be.
 * The key part is transposed and therefore decoded; the value rows stay as they are. */
static k3_status split_kv_b(struct loader *l, struct k3_matrix *layer)
{
    const struct k3_hparams *hp = &l->plan->hp;
    const struct k3_matrix *kv = &layer[K3_MLA_KV_B];
    size_t nope = hp->qk_dim - hp->pe_dim, rank = hp->kv_rank, heads = hp->n_heads;
    float *k_b = new_buffer(l, "attn_k_b", heads * rank * nope * sizeof *k_b);
    unsigned char *v_b = new_buffer(l, "attn_v_b", heads * hp->v_dim * kv->row_bytes);
    float *row = k3_buffer_alloc(rank, sizeof *row);
    if (k_b && v_b && row) {
        for (size_t h = 0; h < heads; h++) {
            const unsigned char *from = kv->data + h * (nope + hp->v_dim) * kv->row_bytes;
            for (size_t n = 0; n < nope; n++) {
                k3_decoder(kv->type)(from + n * kv->row_bytes, row, rank);
                for (size_t r = 0; r < rank; r++) k_b[(h * rank + r) * nope + n] = row[r];
            }
            memcpy(v_b + h * hp->v_dim * kv->row_bytes, from + nope * kv->row_bytes,
                   hp->v_dim * kv->row_bytes);
        }
        layer[K3_MLA_K_B] = k3_matrix_make(K3_TYPE_F32, heads * rank, nope, k_b);
        layer[K3_MLA_V_B] = k3_matrix_make(kv->type, heads * hp->v_dim, rank, v_b);
    }
    free(row);
    if (!row) return k3_fail_memory(l->err, "a row of attn_kv_b", rank * sizeof *row);
    return k_b && v_b ? K3_OK : K3_ERR_MEMORY; /* new_buffer said which */
}

static k3_status load_layer(struct loader *l, uint32_t layer)
{
    struct k3_matrix *m = l->w->layers[layer];
    k3_status status = K3_OK;
    for (int role = K3_FIRST_LAYER_ROLE; role < K3_FIRST_EXPERT_ROLE && status == K3_OK; role++) {
        const struct k3_gguf_tensor *t = k3_plan_tensor(l->plan, layer, role);
        if (t) status = read_tensor(l, t, role, &m[role]);
    }
    if (status == K3_OK && m[K3_KDA_A].data) make_negative(&m[K3_KDA_A]);
    if (status == K3_OK && m[K3_MLA_KV_B].data) status = split_kv_b(l, m);
    return status;
}

uint64_t k3_cpu_weights_bytes(const struct k3_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->hp.n_layers; i++)
        for (int role = 0; role < K3_FIRST_EXPERT_ROLE; role++) {
            const struct k3_gguf_tensor *t = k3_plan_tensor(plan, i, role);
            if (t && (role >= K3_FIRST_LAYER_ROLE || i == 0)) bytes += t->bytes;
        }
    return bytes;
}

k3_status k3_cpu_weights_load(struct k3_cpu_weights *w, const struct k3_plan *plan, k3_progress_fn progress,
                              void *progress_ctx, struct k3_error *err)
{
    size_t n_layers = plan->hp.n_layers;
    struct loader l = {w, plan, progress, progress_ctx, 0, k3_cpu_weights_bytes(plan), err};
    w->max_buffers = K3_FIRST_LAYER_ROLE + n_layers * (K3_FIRST_EXPERT_ROLE + 2); /* split_kv_b makes two */
    w->buffers = calloc(w->max_buffers, sizeof *w->buffers);
    w->layers = calloc(n_layers, sizeof *w->layers);
    if (!w->buffers || !w->layers)
        return k3_fail_memory(err, "the list of weights", w->max_buffers * sizeof(void *));

    const struct k3_gguf_tensor *t;
    k3_status status = K3_OK;
    for (int role = 0; role < K3_FIRST_LAYER_ROLE && status == K3_OK; role++)
        if ((t = k3_plan_tensor(plan, 0, role))) status = read_tensor(&l, t, role, &w->model[role]);
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
