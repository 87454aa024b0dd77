/* weights.c - dense weights: placed in device memory, read and uploaded.
 *
 * q8_0 goes as it is in the file, in pieces through memory of the host that the device copies from by itself, and is
 * taken apart there (split_q8_0.cu); while a piece is under way the next one is read. Everything else is small where
 * matrices are q8_0: it is read whole, checked and made f32 on the host.
 *
 * To verify is to read back what lies in device memory in the end, and to compare every byte with what was read from
 * the file: a checksum could miss something, and the bus is faster than the drive. */
#include "gpu/gpu_internal.h"

#include "base/memory.h"
#include "model/weights.h"
#include "quant/quant.h"

#include <stdlib.h>
#include <string.h>

#define LANES        2
#define BLOCK_BYTES  ((size_t)34)
#define PIECE_BLOCKS ((size_t)1 << 18) /* 8.5 MiB */

/* A piece of a q8_0 tensor on its way. */
struct lane {
    k3_stream stream;
    unsigned char *host;
    void *device;
    unsigned char *back;    /* to verify: weights of n_back blocks, then their scales */
    size_t n_back, at_back; /* those read back, the first of them in the tensor */
    const char *tensor;
};

struct loader {
    struct k3_gpu_weights *w;
    struct k3_dense_reader reader;
    struct lane lanes[LANES];
    struct k3_gpu_arrays staging;
    size_t n_pieces;
    bool verify;
    struct k3_error *err;
};

static size_t rows_of(const struct k3_gguf_tensor *t)
{
    return t->ne[1] * t->ne[2] * t->ne[3];
}

/* ---- places ---- */

static struct k3_gpu_matrix place(struct k3_gpu_arrays *arrays, const char *name, bool q8_0, size_t rows,
                                  size_t cols)
{
    struct k3_gpu_matrix m = {.rows = rows, .cols = cols};
    if (q8_0) {
        int8_t *q = k3_gpu_array(arrays, name, rows, cols);
        uint16_t *d = k3_gpu_array(arrays, name, rows * (cols / 32), sizeof *d);
        m.q8_0 = (struct k3_gpu_q8_0){q, d, rows, cols};
    } else {
        m.f32 = k3_gpu_array(arrays, name, rows * cols, sizeof(float));
    }
    return m;
}

/* What a tensor becomes: one matrix, or the two halves of attn_kv_b. */
static void place_tensor(struct k3_gpu_arrays *arrays, const struct k3_hparams *hp,
                         const struct k3_gguf_tensor *t, enum k3_role role, struct k3_gpu_matrix *m)
{
    bool q8_0 = k3_gpu_keeps_q8_0(t, role);
    if (role != K3_MLA_KV_B) {
        m[role] = place(arrays, t->name, q8_0, rows_of(t), t->ne[0]);
        return;
    }
    size_t heads = hp->n_heads, rank = hp->kv_rank;
    m[K3_MLA_K_B] = place(arrays, t->name, false, heads * rank, hp->qk_dim - hp->pe_dim);
    m[K3_MLA_V_B] = place(arrays, t->name, q8_0, heads * hp->v_dim, rank);
}

uint64_t k3_gpu_weights_bytes(const struct k3_plan *plan, const struct k3_share *share)
{
    struct k3_gpu_arrays arrays = {0};
    for (uint32_t i = 0; i < plan->hp.n_layers; i++)
        for (int role = 0; role < K3_FIRST_EXPERT_ROLE; role++) {
            struct k3_gpu_matrix unused[K3_FIRST_EXPERT_ROLE];
            const struct k3_gguf_tensor *t = k3_share_tensor(plan, share, i, role);
            if (t) place_tensor(&arrays, &plan->hp, t, role, unused);
        }
    return arrays.bytes;
}

uint64_t k3_gpu_staging_bytes(void)
{
    return LANES * PIECE_BLOCKS * BLOCK_BYTES;
}

/* ---- uploads ---- */

static k3_status wait_for(struct loader *l, k3_stream stream)
{
    const char *problem = k3_gpu_wait(stream);
    return problem ? k3_fail(l->err, K3_ERR_IO, "uploading weights to the GPU: %s", problem) : K3_OK;
}

static k3_status fail_difference(struct loader *l, const char *tensor, size_t weight)
{
    return k3_fail(
        l->err, K3_ERR_IO,
        "tensor %s: weight %zu of it in the GPU's memory is not what was uploaded; this memory or the "
        "way to it makes errors",
        tensor, weight);
}

/* Waits for a lane, and compares what was read back from it. */
static k3_status wait_for_lane(struct loader *l, struct lane *lane)
{
    const unsigned char *q = lane->back, *d = q + lane->n_back * 32, *block = lane->host;
    size_t n = lane->n_back;
    lane->n_back = 0;
    k3_status status = wait_for(l, lane->stream);
    for (size_t i = 0; i < n && status == K3_OK; i++, q += 32, d += 2, block += BLOCK_BYTES)
        if (memcmp(d, block, 2) != 0 || memcmp(q, block + 2, 32) != 0)
            status = fail_difference(l, lane->tensor, (lane->at_back + i) * 32);
    return status;
}

static void read_back(struct lane *lane, const char *tensor, const struct k3_gpu_q8_0 *m, size_t at, size_t n)
{
    k3_gpu_get(lane->back, m->q + at * 32, n * 32, lane->stream);
    k3_gpu_get(lane->back + n * 32, m->d + at, n * sizeof *m->d, lane->stream);
    lane->tensor = tensor;
    lane->at_back = at;
    lane->n_back = n;
}

/* From `bytes` on the host or, where that is NULL, from the tensor in the file. */
static k3_status upload_q8_0(struct loader *l, const struct k3_gguf_tensor *t, const unsigned char *bytes,
                             const struct k3_gpu_q8_0 *m)
{
    size_t n_blocks = m->rows * (m->cols / 32);
    for (size_t at = 0; at < n_blocks; at += PIECE_BLOCKS) {
        struct lane *lane = &l->lanes[l->n_pieces++ % LANES];
        size_t n = n_blocks - at < PIECE_BLOCKS ? n_blocks - at : PIECE_BLOCKS;
        k3_status status = wait_for_lane(l, lane);
        if (status == K3_OK && !bytes)
            status = k3_dense_read(&l->reader, t, at * BLOCK_BYTES, lane->host, n * BLOCK_BYTES, l->err);
        if (status != K3_OK) return status;
        if (bytes) memcpy(lane->host, bytes + at * BLOCK_BYTES, n * BLOCK_BYTES);
        k3_gpu_put(lane->device, lane->host, n * BLOCK_BYTES, lane->stream);
        k3_gpu_split_q8_0(lane->device, n, (int8_t *)m->q + at * 32, (uint16_t *)m->d + at, lane->stream);
        if (l->verify) read_back(lane, t->name, m, at, n);
    }
    return K3_OK;
}

static k3_status verify_f32(struct loader *l, const char *tensor, const float *want, const float *device,
                            size_t n)
{
    float *got = k3_buffer_alloc(n, sizeof *got);
    if (!got) return k3_fail_memory(l->err, tensor, n * sizeof *got);
    k3_gpu_get(got, device, n * sizeof *got, l->lanes[0].stream);
    k3_status status = wait_for(l, l->lanes[0].stream);
    for (size_t i = 0; i < n && status == K3_OK; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0) status = fail_difference(l, tensor, i);
    free(got);
    return status;
}

/* Rows of any type, in memory of the host, which may change afterwards. */
static k3_status upload(struct loader *l, const struct k3_gguf_tensor *t, const void *bytes,
                        const struct k3_gpu_matrix *m)
{
    if (m->q8_0.q) return upload_q8_0(l, t, bytes, &m->q8_0);
    size_t n = m->rows * m->cols;
    float *values = NULL;
    const float *from = bytes;
    if (t->type != K3_TYPE_F32) {
        values = k3_buffer_alloc(n, sizeof *values);
        if (!values) return k3_fail_memory(l->err, t->name, n * sizeof *values);
        k3_decoder(t->type)(bytes, values, n);
        from = values;
    }
    k3_status status = wait_for_lane(l, &l->lanes[0]);
    if (status == K3_OK) {
        k3_gpu_put((void *)m->f32, from, n * sizeof *from, l->lanes[0].stream);
        status = wait_for(l, l->lanes[0].stream);
    }
    if (status == K3_OK && l->verify) status = verify_f32(l, t->name, from, m->f32, n);
    free(values);
    return status;
}

static k3_status upload_kv_b(struct loader *l, const struct k3_gguf_tensor *t, const void *bytes,
                             const struct k3_gpu_matrix *m)
{
    const struct k3_gpu_matrix *to_k = &m[K3_MLA_K_B], *to_v = &m[K3_MLA_V_B];
    size_t k_floats = to_k->rows * to_k->cols, v_bytes = to_v->rows * (t->bytes / rows_of(t));
    struct k3_gguf_tensor f32 = {.name = t->name, .type = K3_TYPE_F32};
    float *k_b = k3_buffer_alloc(k_floats, sizeof *k_b);
    void *v_b = k3_buffer_alloc(v_bytes, 1);
    k3_status status = K3_OK;
    if (!k_b || !v_b) status = k3_fail_memory(l->err, t->name, k_floats * sizeof *k_b + v_bytes);
    if (status == K3_OK) status = k3_split_kv_b(&l->reader.plan->hp, t, bytes, k_b, v_b, l->err);
    if (status == K3_OK) status = upload(l, &f32, k_b, to_k);
    if (status == K3_OK) status = upload(l, t, v_b, to_v);
    free(k_b);
    free(v_b);
    return status;
}

static k3_status load_tensor(struct loader *l, const struct k3_gguf_tensor *t, enum k3_role role,
                             struct k3_gpu_matrix *m)
{
    place_tensor(&l->w->arrays, &l->reader.plan->hp, t, role, m);
    k3_status status = k3_gpu_arrays_check(&l->w->arrays, l->err);
    if (status != K3_OK) return status;
    if (m[role].q8_0.q) return upload_q8_0(l, t, NULL, &m[role].q8_0);

    void *bytes = k3_buffer_alloc(t->bytes, 1);
    if (!bytes) return k3_fail_memory(l->err, t->name, t->bytes);
    status = k3_dense_read_whole(&l->reader, t, role, bytes, l->err);
    if (status == K3_OK)
        status = role == K3_MLA_KV_B ? upload_kv_b(l, t, bytes, m) : upload(l, t, bytes, &m[role]);
    free(bytes);
    return status;
}

static k3_status load_share(struct loader *l, const struct k3_share *share)
{
    const struct k3_plan *plan = l->reader.plan;
    k3_status status = K3_OK;
    for (uint32_t i = 0; i < plan->hp.n_layers; i++)
        for (int role = 0; role < K3_FIRST_EXPERT_ROLE && status == K3_OK; role++) {
            bool of_model = role < K3_FIRST_LAYER_ROLE;
            const struct k3_gguf_tensor *t = k3_share_tensor(plan, share, i, role);
            if (t) status = load_tensor(l, t, role, of_model ? l->w->model : l->w->layers[i]);
        }
    for (int i = 0; i < LANES && status == K3_OK; i++) status = wait_for_lane(l, &l->lanes[i]);
    return status;
}

static k3_status open_lanes(struct loader *l)
{
    l->staging.allocate = true;
    for (int i = 0; i < LANES; i++) {
        struct lane *lane = &l->lanes[i];
        *lane = (struct lane){
            .stream = k3_gpu_stream_create(),
            .host = k3_gpu_alloc_host(PIECE_BLOCKS * BLOCK_BYTES),
            .device = k3_gpu_array(&l->staging, "a piece of a tensor", PIECE_BLOCKS, BLOCK_BYTES)};
        if (l->verify) lane->back = k3_gpu_alloc_host(PIECE_BLOCKS * BLOCK_BYTES);
        if (!lane->stream || !lane->host || (l->verify && !lane->back))
            return k3_fail_memory(l->err, "uploading weights to the GPU", PIECE_BLOCKS * BLOCK_BYTES);
    }
    return k3_gpu_arrays_check(&l->staging, l->err);
}

static void close_lanes(struct loader *l)
{
    for (int i = 0; i < LANES; i++) {
        if (l->lanes[i].stream) k3_gpu_wait(l->lanes[i].stream);
        k3_gpu_stream_free(l->lanes[i].stream);
        k3_gpu_free_host(l->lanes[i].back);
        k3_gpu_free_host(l->lanes[i].host);
    }
    k3_gpu_arrays_free(&l->staging);
}

k3_status k3_gpu_weights_load(struct k3_gpu_weights *w, const struct k3_plan *plan,
                              const struct k3_gpu_options *options, struct k3_error *err)
{
    struct loader l = {.w = w,
                       .reader =
                           k3_dense_reader(plan, options->share, options->progress, options->progress_ctx),
                       .verify = options->verify,
                       .err = err};
    w->arrays.allocate = true;
    w->layers = calloc(plan->hp.n_layers, sizeof *w->layers);
    if (!w->layers) return k3_fail_memory(err, "the list of weights", plan->hp.n_layers * sizeof *w->layers);
    k3_status status = open_lanes(&l);
    if (status == K3_OK) status = load_share(&l, options->share);
    close_lanes(&l);
    return status;
}

void k3_gpu_weights_free(struct k3_gpu_weights *w)
{
    k3_gpu_arrays_free(&w->arrays);
    free(w->layers);
}
