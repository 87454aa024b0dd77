/* matmul.c - products of weight matrices and activations on the CPU.
 *
 * A product rounds its activations once to the format the weight type is paired with, then threads take rows
 * of the matrix. Types without a direct product, and all types in exact arithmetic, are decoded row by row to
 * f32. */
#include "ops/compute.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#define ROW_GRAIN 16

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
    k3_pool_run(c->pool, round_rows, &r, n, 4);
    return (struct k3_acts){buffer, stride};
}

struct work {
    const struct k3_compute *c;
    struct k3_product product; /* of all rows */
    k3_decode_fn decode;       /* NULL: multiply the rows as they are */
    k3_product_fn multiply;
};

/* Rows begin .. end - 1, decoded one at a time if they are decoded. */
static void multiply_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct work *w = ctx;
    struct k3_product part = w->product;
    part.rows += begin * part.row_bytes;
    part.y += begin;
    part.n_rows = end - begin;
    if (!w->decode) {
        w->multiply(&part);
        return;
    }
    float *decoded = (float *)(w->c->rows + (size_t)thread * w->c->row_bytes);
    part.rows = (const unsigned char *)decoded;
    part.n_rows = 1;
    for (size_t r = begin; r < end; r++, part.y++) {
        w->decode(w->product.rows + r * w->product.row_bytes, decoded, part.n);
        w->multiply(&part);
    }
}

/* `f32`: the activations are f32 whatever the type. */
static struct work make_work(const struct k3_compute *c, const struct k3_matrix *w, struct k3_acts acts,
                             const uint32_t *columns, size_t n, float *y, bool f32)
{
    bool direct = w->type == K3_TYPE_F32 || (!f32 && c->kernels->product[w->type]);
    return (struct work){
        .c = c,
        .product = {.rows = w->data,
                    .row_bytes = w->row_bytes,
                    .n_rows = w->rows,
                    .n = w->cols,
                    .acts = acts.rows,
                    .act_stride = acts.stride,
                    .columns = columns,
                    .n_columns = n,
                    .y = y,
                    .y_stride = w->rows},
        .decode = direct ? NULL : k3_decoder(w->type),
        .multiply = c->kernels->product[direct ? w->type : K3_TYPE_F32],
    };
}

void k3_multiply(struct k3_compute *c, const struct k3_matrix *w, struct k3_acts acts,
                 const uint32_t *columns, size_t n, float *y)
{
    struct work work = make_work(c, w, acts, columns, n, y, c->exact);
    k3_pool_run(c->pool, multiply_rows, &work, w->rows, ROW_GRAIN);
}

void k3_matmul(struct k3_compute *c, const struct k3_matrix *w, const float *x, size_t n, float *y)
{
    k3_multiply(c, w, k3_round(c, w->type, x, n, w->cols, c->acts), NULL, n, y);
}

void k3_matmul_f32(struct k3_compute *c, const struct k3_matrix *w, const float *x, size_t n, float *y)
{
    struct k3_acts acts = {(const unsigned char *)x, w->cols * sizeof(float)};
    struct work work = make_work(c, w, acts, NULL, n, y, true);
    k3_pool_run(c->pool, multiply_rows, &work, w->rows, ROW_GRAIN);
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
    struct work work = make_work(c, w, acts, NULL, n, y, c->exact);
    work.product.y_stride = y_stride;
    multiply_rows(&work, 0, w->rows, thread);
}
