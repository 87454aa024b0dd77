/* weights.c - see weights.h. */
#include "model/weights.h"

#include "base/memory.h"
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define READ_PIECE ((uint64_t)16 << 20) /* between two reports of progress */

uint64_t k3_dense_bytes(const struct k3_plan *plan, const struct k3_share *share)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->hp.n_layers; i++)
        for (int role = 0; role < K3_FIRST_EXPERT_ROLE; role++) {
            const struct k3_gguf_tensor *t = k3_share_tensor(plan, share, i, role);
            if (t) bytes += t->bytes;
        }
    return bytes;
}

struct k3_dense_reader k3_dense_reader(const struct k3_plan *plan, const struct k3_share *share,
                                       k3_progress_fn progress, void *progress_ctx)
{
    return (struct k3_dense_reader){plan, progress, progress_ctx, 0, k3_dense_bytes(plan, share)};
}

k3_status k3_dense_read(struct k3_dense_reader *r, const struct k3_gguf_tensor *t, uint64_t at, void *data,
                        size_t n, struct k3_error *err)
{
    k3_status status = k3_gguf_read(r->plan->gguf, t, at, data, n, err);
    if (status != K3_OK) return status;
    r->done += n;
    if (r->progress && !r->progress(r->progress_ctx, "loading weights", r->done, r->total))
        return k3_fail(err, K3_ERR_CANCELLED, "loading was cancelled");
    return K3_OK;
}

k3_status k3_dense_read_whole(struct k3_dense_reader *r, const struct k3_gguf_tensor *t, enum k3_role role,
                              void *data, struct k3_error *err)
{
    unsigned char *to = data;
    float *values = data;
    size_t n = t->bytes / sizeof *values;
    for (uint64_t at = 0; at < t->bytes; at += READ_PIECE) {
        uint64_t piece = t->bytes - at < READ_PIECE ? t->bytes - at : READ_PIECE;
        k3_status status = k3_dense_read(r, t, at, to + at, (size_t)piece, err);
        if (status != K3_OK) return status;
    }
    if (t->type != K3_TYPE_F32) return K3_OK;
    k3_status status = k3_check_values(r->plan, t, role, values, n, err);
    /* Some files store +exp(A_log) where -exp(A_log) is meant; the check saw that all have one sign. */
    for (size_t i = 0; role == K3_KDA_A && i < n; i++) values[i] = -fabsf(values[i]);
    return status;
}

k3_status k3_split_kv_b(const struct k3_hparams *hp, const struct k3_gguf_tensor *t, const void *kv_b,
                        float *k_b, void *v_b, struct k3_error *err)
{
    size_t nope = hp->qk_dim - hp->pe_dim, rank = hp->kv_rank, v_dim = hp->v_dim;
    size_t row_bytes = t->bytes / (hp->n_heads * (nope + v_dim));
    float *row = k3_buffer_alloc(rank, sizeof *row);
    if (!row) return k3_fail_memory(err, "a row of attn_kv_b", rank * sizeof *row);
    for (size_t h = 0; h < hp->n_heads; h++) {
        const unsigned char *from = (const unsigned char *)kv_b + h * (nope + v_dim) * row_bytes;
        for (size_t n = 0; n < nope; n++) {
            k3_decoder(t->type)(from + n * row_bytes, row, rank);
            for (size_t r = 0; r < rank; r++) k_b[(h * rank + r) * nope + n] = row[r];
        }
        memcpy((unsigned char *)v_b + h * v_dim * row_bytes, from + nope * row_bytes, v_dim * row_bytes);
    }
    free(row);
    return K3_OK;
}
