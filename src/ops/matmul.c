/* matmul.c - products of weight matrices and activations on the CPU.
 *
 * A product rounds its activations once to the format the weight type is paired with, then threads take rows
 * of the matrix. Types without a direct product, and all types in exact arithmetic, are decoded row by row to
 * f32. */
#include "ops/compute.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#define ROUND_GRAIN 4096 /* values that are worth a piece of work */

struct k3_matrix k3_matrix_make(enum k3_type type, size_t rows, size_t cols, const void *data)
{
    const struct k3_type_info *info = k3_type_info(type);
    return (struct k3_matrix){type, rows, cols, cols / info->block * info->block_bytes, data};
}

struct k3_matrix k3_matrix_slice(const struct k3_matrix *m, size_t first, size_t rows)
{
    return (struct k3_matrix){m->type, rows, m->cols, m->row_bytes, m->data + first * m->row_bytes};
}

/* Rounded activations are never longer than f32 ones, and a decoded row is f32. */
static size_t scratch_row(size_t max_cols)
{
    return (max_cols * sizeof(float) + 63) / 64 * 64;
}

size_t k3_compute_bytes(size_t max_batch, size_t max_cols, int n_threads)
{
    return (max_batch + (size_t)n_threads) * scratch_row(max_cols);
}

k3_status k3_compute_create(struct k3_compute *c, struct k3_pool *pool, bool exact, size_t max_batch,
                            size_t max_cols, struct k3_error *err)
{
    *c = (struct k3_compute){.pool = pool, .kernels = k3_kernels_best(), .exact = exact};
    c->vectors = k3_vectors_for(c->kernels);
    c->max_batch = max_batch;
    c->max_cols = max_cols;
    c->row_bytes = scratch_row(max_cols);
    c->acts_bytes = max_batch * c->row_bytes;
    c->acts = k3_buffer_alloc(c->acts_bytes, 1);
    c->rows = k3_buffer_alloc((size_t)k3_pool_threads(pool), c->row_bytes);
    if (c->acts && c->rows) return K3_OK;
    k3_compute_destroy(c);
    return k3_fail_memory(err, "the activations of a batch", max_batch * max_cols * sizeof(float));
}

void k3_compute_destroy(struct k3_compute *c)
{
    free(c->acts);
    free(c->rows);
    c->acts = c->rows = NULL;
}

/* The format in which this type's product wants its activations here. */
static enum k3_act act_of(const struct k3_compute *c, enum k3_type type)
{
    return c->exact || !c->kernels->product[type] ? K3_ACT_F32 : k3_act_for(type);
}

struct rounding {
    k3_act_fn round;
    const float *x;
    unsigned char *to;
    size_t x_stride, stride; /* floats and bytes from one row to the next */
    size_t cols;
};

static void round_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct rounding *r = ctx;
    (void)thread;
    for (size_t i = begin; i < end; i++) r->round(r->x + i * r->x_stride, r->to + i * r->stride, r->cols);
}

struct k3_acts k3_round(struct k3_compute *c, enum k3_type type, const float *x, size_t n, size_t cols,
                        void *buffer)
{
    enum k3_act act = act_of(c, type);
    size_t stride = k3_act_bytes(act, cols);
    if (act == K3_ACT_F32) return (struct k3_acts){(const unsigned char *)x, stride};
    struct rounding r = {c->kernels->round[act], x, buffer, cols, stride, cols};
    k3_pool_run(c->pool, round_rows, &r, n, cols < ROUND_GRAIN ? ROUND_GRAIN / cols : 1);
    return (struct k3_acts){buffer, stride};
}

void k3_multiply_rows(const struct k3_compute *c, const struct k3_job *job, size_t begin, size_t end,
                      int thread)
{
    const struct k3_matrix *w = &job->w;
    bool direct = w->type == K3_TYPE_F32 || (!c->exact && !job->f32 && c->kernels->product[w->type]);
    k3_product_fn multiply = c->kernels->product[direct ? w->type : K3_TYPE_F32];
    struct k3_product part = {.rows = w->data + begin * w->row_bytes,
                              .row_bytes = w->row_bytes,
                              .n_rows = end - begin,
                              .n = w->cols,
                              .acts = job->acts.rows,
                              .act_stride = job->acts.stride,
                              .columns = job->columns,
                              .n_columns = job->n,
                              .y = job->y + begin,
                              .y_stride = job->y_stride};
    if (direct) {
        multiply(&part);
        return;
    }
    k3_decode_fn decode = k3_decoder(w->type);
    float *decoded = (float *)(c->rows + (size_t)thread * c->row_bytes);
    part.rows = (const unsigned char *)decoded;
    part.n_rows = 1;
    for (size_t r = begin; r < end; r++, part.y++) {
        decode(w->data + r * w->row_bytes, decoded, w->cols);
        multiply(&part);
    }
}

/* ---- several at once ---- */

/* Pieces of all jobs, one job after the other. */
struct list {
    const struct k3_compute *c;
    const struct k3_job *jobs;
    size_t grain;
    size_t first[K3_MAX_JOBS + 1]; /* the number of a job's first piece */
};

static void multiply_pieces(void *ctx, size_t begin, size_t end, int thread)
{
    const struct list *list = ctx;
    size_t i = 0;
    while (begin < end) {
        while (begin >= list->first[i + 1]) i++;
        const struct k3_job *job = &list->jobs[i];
        size_t stop = end < list->first[i + 1] ? end : list->first[i + 1];
        size_t row = (begin - list->first[i]) * list->grain, last = (stop - list->first[i]) * list->grain;
        k3_multiply_rows(list->c, job, row, last < job->w.rows ? last : job->w.rows, thread);
        begin = stop;
    }
}

void k3_multiply(struct k3_compute *c, const struct k3_job *jobs, size_t n_jobs)
{
    struct list list = {.c = c, .jobs = jobs, .grain = k3_row_grain(jobs->n)};
    for (size_t i = 0; i < n_jobs; i++)
        list.first[i + 1] = list.first[i] + (jobs[i].w.rows + list.grain - 1) / list.grain;
    k3_pool_run(c->pool, multiply_pieces, &list, list.first[n_jobs], 1);
}

void k3_matmul_all(struct k3_compute *c, const struct k3_target *targets, size_t n_targets, const float *x,
                   size_t n)
{
    struct k3_job jobs[K3_MAX_JOBS];
    for (enum k3_act act = K3_ACT_F32; act <= K3_ACT_Q8_K;
         act++) { /* in one run, if the types are of one kind */
        size_t n_jobs = 0;
        struct k3_acts acts = {0};
        for (size_t i = 0; i < n_targets; i++) {
            const struct k3_matrix *w = targets[i].w;
            if (act_of(c, w->type) != act) continue;
            if (!n_jobs) acts = k3_round(c, w->type, x, n, w->cols, c->acts);
            jobs[n_jobs++] = (struct k3_job){*w, acts, NULL, n, targets[i].y, w->rows, false};
        }
        if (n_jobs) k3_multiply(c, jobs, n_jobs);
    }
}

void k3_matmul(struct k3_compute *c, const struct k3_matrix *w, const float *x, size_t n, float *y)
{
    struct k3_target target = {w, y};
    k3_matmul_all(c, &target, 1, x, n);
}

void k3_matmul_f32(struct k3_compute *c, const struct k3_matrix *w, const float *x, size_t n, float *y)
{
    struct k3_acts acts = {(const unsigned char *)x, w->cols * sizeof(float)};
    struct k3_job job = {*w, acts, NULL, n, y, w->rows, true};
    k3_multiply(c, &job, 1);
}

void k3_matmul_serial(const struct k3_compute *c, const struct k3_matrix *w, const float *x, size_t x_stride,
                      size_t n, float *y, size_t y_stride, void *buffer, int thread)
{
    enum k3_act act = act_of(c, w->type);
    struct k3_acts acts = {(const unsigned char *)x, x_stride * sizeof *x};
    if (act != K3_ACT_F32) {
        struct rounding r = {c->kernels->round[act],     x,      buffer, x_stride,
                             k3_act_bytes(act, w->cols), w->cols};
        round_rows(&r, 0, n, thread);
        acts = (struct k3_acts){buffer, r.stride};
    }
    struct k3_job job = {*w, acts, NULL, n, y, y_stride, false};
    k3_multiply_rows(c, &job, 0, w->rows, thread);
}
