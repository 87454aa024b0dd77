/* compute.h - what every operation on the CPU works with: threads, kernels, scratch memory, and the product
 * of a weight matrix with activations.
 *
 * Results never depend on the number of threads: each output value is computed by one thread, in one order.
 */
#ifndef K3_OPS_COMPUTE_H
#define K3_OPS_COMPUTE_H

#include "base/threads.h"
#include "model/device.h"
#include "ops/vectors.h"
#include "quant/quant.h"

/* A weight matrix: `rows` rows of `cols` weights; y = W x has `rows` values. A stack of matrices (one per
 * head, one per expert) is one matrix with all their rows. */
struct k3_matrix {
    enum k3_type type;
    size_t rows, cols;
    size_t row_bytes;
    const unsigned char *data; /* owned by whoever made the matrix; NULL: the model has none */
};

struct k3_matrix k3_matrix_make(enum k3_type type, size_t rows, size_t cols, const void *data);

/* The matrix made of `rows` rows from row `first` on. */
struct k3_matrix k3_matrix_slice(const struct k3_matrix *m, size_t first, size_t rows);

struct k3_compute {
    struct k3_pool *pool; /* not owned */
    const struct k3_kernels *kernels;
    const struct k3_vectors *vectors; /* that go with them */
    bool exact;                       /* activations stay f32 and weights are decoded to f32 */
    const struct k3_tap *tap;         /* may be NULL */

    size_t max_batch, max_cols; /* tokens in a batch; values in the longest row */
    size_t acts_bytes, row_bytes;
    unsigned char *acts; /* acts_bytes: rounded activations of one product */
    unsigned char *rows; /* [threads] row_bytes: a decoded weight row */
};

k3_status k3_compute_create(struct k3_compute *c, struct k3_pool *pool, bool exact, size_t max_batch,
                            size_t max_cols, struct k3_error *err);
void k3_compute_destroy(struct k3_compute *c);

/* Bytes that k3_compute_create allocates. */
size_t k3_compute_bytes(size_t max_batch, size_t max_cols, int n_threads);

/* ---- products ---- */

/* Rows of activations in the format a weight type takes. */
struct k3_acts {
    const unsigned char *rows;
    size_t stride; /* bytes from one row to the next */
};

/* x: [n][cols]. Rounds into `buffer` (which then must live as long as the result), or points at x where the
 * type takes f32. `buffer` holds n * k3_act_bytes(k3_act_for(type), cols) bytes. */
struct k3_acts k3_round(struct k3_compute *c, enum k3_type type, const float *x, size_t n, size_t cols,
                        void *buffer);

/* y[i] = W acts[columns[i]] for i < n; columns NULL means 0 .. n-1. */
struct k3_job {
    struct k3_matrix w;
    struct k3_acts acts;
    const uint32_t *columns;
    size_t n;
    float *y; /* [n] rows, y_stride floats apart */
    size_t y_stride;
    bool f32; /* the activations are f32 whatever the type */
};

#define K3_MAX_JOBS 64

/* Computes up to K3_MAX_JOBS products, which do not depend on each other, in one go. */
void k3_multiply(struct k3_compute *c, const struct k3_job *jobs, size_t n_jobs);

/* Rows begin .. end - 1 of one, by one thread. */
void k3_multiply_rows(const struct k3_compute *c, const struct k3_job *job, size_t begin, size_t end,
                      int thread);

/* Rows that are a good piece of work where there are n columns: kernels for many columns share work among 64. */
static inline size_t k3_row_grain(size_t n)
{
    return n < 8 ? 16 : 64;
}

/* y = W x for n columns: x [n][cols], y [n][rows]. */
void k3_matmul(struct k3_compute *c, const struct k3_matrix *w, const float *x, size_t n, float *y);

/* The same for up to K3_MAX_JOBS matrices of one x, which is rounded once. */
struct k3_target {
    const struct k3_matrix *w;
    float *y;
};

void k3_matmul_all(struct k3_compute *c, const struct k3_target *targets, size_t n_targets, const float *x,
                   size_t n);

/* As k3_matmul, with f32 activations whatever the type: for what must be f32 (architecture.md section 9). */
void k3_matmul_f32(struct k3_compute *c, const struct k3_matrix *w, const float *x, size_t n, float *y);

/* As k3_matmul, by one thread, for work that is divided in another way. Rows of x and y are x_stride and y_stride floats
 * apart; `buffer` is that of k3_round, at a multiple of 64. */
void k3_matmul_serial(const struct k3_compute *c, const struct k3_matrix *w, const float *x, size_t x_stride,
                      size_t n, float *y, size_t y_stride, void *buffer, int thread);

/* ---- taps ---- */

static inline void k3_show(const struct k3_compute *c, const char *name, int layer, size_t row,
                           const float *values, size_t n_rows, size_t width)
{
    if (c->tap) c->tap->fn(c->tap->ctx, name, layer, row, values, n_rows, width);
}

#endif
