/* lab.h - one type of weights, laid out so that its products can be timed: in the cache, and from memory. */
#ifndef K3_BENCH_LAB_H
#define K3_BENCH_LAB_H

#include "base/threads.h"
#include "quant/quant.h"

/* A piece is a few rows: small enough for a core's second cache, and what one call of a product takes. */
struct k3_lab {
    enum k3_type type;
    size_t n, row_bytes;            /* weights in a row */
    size_t piece_rows, piece_bytes; /* piece_bytes is a multiple of 64, and more than its rows */
    size_t max_columns;
    int max_threads;

    unsigned char *ring; /* [n_pieces] pieces; owned by k3_ring */
    size_t n_pieces;
    size_t next;             /* the piece that was not read for longest */
    unsigned char *resident; /* [max_threads] pieces */
    unsigned char *acts;     /* [max_columns] */
    size_t act_stride;
    float *y; /* [max_threads][max_columns][piece_rows] */
};

/* Memory that is larger than every cache, in huge pages if they can be had. */
struct k3_ring {
    unsigned char *bytes;
    size_t n;
};

k3_status k3_ring_create(size_t bytes, struct k3_ring *ring, struct k3_error *err);
void k3_ring_free(struct k3_ring *ring);

/* Fills the ring with rows of that type. The ring belongs to this lab until the next one is opened. */
k3_status k3_lab_open(enum k3_type type, size_t max_columns, int max_threads, const struct k3_ring *ring,
                      struct k3_lab *lab, struct k3_error *err);
void k3_lab_close(struct k3_lab *lab);

/* One thing to time: a product, or a plain read of the ring. */
struct k3_case {
    const struct k3_kernels *kernels; /* NULL: a plain read */
    size_t columns;
    bool streamed;
    size_t n_pieces; /* how many make up a repetition; 0: not known yet */
};

/* Does a case once, for about `seconds`, and returns pieces a second. The first time is a warm-up that finds out how many
 * pieces that takes. */
double k3_lab_run(struct k3_lab *lab, struct k3_case *c, struct k3_pool *pool, double seconds);

#endif
