/* quant.h - the block formats of weights: decode rows, round activations, multiply the two.
 *
 * A row of n weights is n / block consecutive blocks (gguf/types.h has the sizes); n is always a multiple of
 * the block. Rows need no alignment; buffers that hold them are followed by K3_BUFFER_PAD readable bytes. */
#ifndef K3_QUANT_QUANT_H
#define K3_QUANT_QUANT_H

#include "base/error.h"
#include "gguf/types.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- rows to f32 ---- */

/* Writes the n weights of a row to y, bit for bit as quants.md defines them. */
typedef void (*k3_decode_fn)(const void *row, float *y, size_t n);

/* NULL for types that are known by size only (q8_1, q8_K, integers, f64, tq*, nvfp4, q1_0, q2_0). */
k3_decode_fn k3_decoder(enum k3_type type);

/* ---- activations ---- */

/* What the activations of a product are rounded to: value = d * q, d for each block.
 *
 * A row of n rounded activations is three arrays, one after the other (struct k3_rounded): all q, so that kernels load
 * them whole and aligned; the scales, as f32; and sums of q, which turn products of weights that were made unsigned
 * into those of the signed ones. */
enum k3_act {
    K3_ACT_F32,  /* not at all: n floats */
    K3_ACT_Q8_0, /* blocks of 32, sums of 32 */
    K3_ACT_Q8_K, /* blocks of 256, sums of 8 */
};

struct k3_rounded {
    int8_t *q;     /* [n] */
    float *d;      /* [n / block]; of Q8_0 they are values of f16, of Q8_K often negative */
    int16_t *sums; /* [n / 32] or [n / 8] */
};

/* Bytes of a row of n activations; n is a multiple of 32 for Q8_0 and of 256 for Q8_K. Rounded rows are multiples of 64
 * bytes, so that rows that follow each other are all aligned if the first is. */
size_t k3_act_bytes(enum k3_act act, size_t n);

/* The arrays of a rounded row. */
struct k3_rounded k3_rounded_row(enum k3_act act, const void *row, size_t n);

/* ---- products ---- */

/* Rows of weights times rows of activations, here called columns:
 *     y[c * y_stride + r] = sum of rows[r][i] * acts[columns[c]][i] over i < n,  r < n_rows, c < n_columns
 * The activations are in the format that the type of the weights is paired with. */
struct k3_product {
    const unsigned char *rows; /* at any address, row_bytes from one to the next */
    size_t row_bytes, n_rows;
    size_t n; /* weights in a row */

    const unsigned char *acts; /* at a multiple of 64, and act_stride is one, unless they are f32 */
    size_t act_stride;
    const uint32_t *columns; /* [n_columns]; NULL: 0, 1, 2 .. */
    size_t n_columns;

    float *y; /* overwritten */
    size_t y_stride;
};

typedef void (*k3_product_fn)(const struct k3_product *product);

/* Rounds n activations. */
typedef void (*k3_act_fn)(const float *x, void *act, size_t n);

/* One implementation of the products, for one instruction set. Every implementation gives the same bits, for any number
 * of rows and columns at once: sums inside a block are exact integers, and the order in which blocks are added is part
 * of the definition (portable.c). */
struct k3_kernels {
    const char *name;                     /* as K3_CPU has it: "portable" */
    k3_product_fn product[K3_TYPE_COUNT]; /* NULL: no direct product; decode the row and use that of f32 */
    k3_act_fn round[3];                   /* by enum k3_act; NULL for K3_ACT_F32 */
};

/* The best implementation for this processor, or the one that k3_kernels_use chose; never NULL. */
const struct k3_kernels *k3_kernels_best(void);

/* Implementation i of those that this processor can run, best first; NULL after the last. */
const struct k3_kernels *k3_kernels_at(size_t i);

/* For tests and measurements: from now on k3_kernels_best() is the implementation of that name. NULL or "" changes
 * nothing. Not to be called while anything computes. */
k3_status k3_kernels_use(const char *name, struct k3_error *err);

/* The format that a type's direct product takes its activations in: Q8_K for iq1_m and iq2_xxs, Q8_0 for q8_0
 * and mxfp4, F32 for everything else. */
enum k3_act k3_act_for(enum k3_type type);

#endif
