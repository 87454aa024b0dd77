/* quant.h - the block formats of weights: decode rows, round activations, multiply the two.
 *
 * A row of n weights is n / block consecutive blocks (gguf/types.h has the sizes); n is always a multiple of
 * the block. Rows need no alignment; buffers that hold them are followed by K3_BUFFER_PAD readable bytes. */
#ifndef K3_QUANT_QUANT_H
#define K3_QUANT_QUANT_H

#include "gguf/types.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- rows to f32 ---- */

/* Writes the n weights of a row to y, bit for bit as quants.md defines them. */
typedef void (*k3_decode_fn)(const void *row, float *y, size_t n);

/* NULL for types that are known by size only (q8_1, q8_K, integers, f64, tq*, nvfp4, q1_0, q2_0). */
k3_decode_fn k3_decoder(enum k3_type type);

/* ---- activations ---- */

/* What the activations of a product are rounded to. */
enum k3_act {
    K3_ACT_F32,  /* not at all */
    K3_ACT_Q8_0, /* blocks of 32: struct k3_q8_0 */
    K3_ACT_Q8_K, /* blocks of 256: struct k3_q8_K */
};

struct k3_q8_0 {
    uint16_t d; /* f16: weight = d * q */
    int8_t q[32];
};

struct k3_q8_K {
    float d; /* often negative: the element of largest magnitude becomes -127 */
    int8_t q[256];
    int16_t sums[16]; /* of 16 consecutive q each */
};

/* Bytes of a row of n activations; n is a multiple of 32 for Q8_0 and of 256 for Q8_K. */
size_t k3_act_bytes(enum k3_act act, size_t n);

/* ---- products ---- */

/* The sum of w[i] * x[i] over n weights of a row and a row of activations in the format the type is paired
 * with. */
typedef float (*k3_dot_fn)(const void *row, const void *act, size_t n);

/* Rounds n activations. */
typedef void (*k3_act_fn)(const float *x, void *act, size_t n);

/* One implementation of the products, for one instruction set. Every implementation gives the same bits: sums
 * inside a block are exact integers, and the order in which blocks are added is part of the definition
 * (portable.c). */
struct k3_kernels {
    const char *name;             /* "portable" */
    k3_dot_fn dot[K3_TYPE_COUNT]; /* NULL: no direct product; decode the row and use dot[K3_TYPE_F32] */
    k3_act_fn round[3];           /* by enum k3_act; NULL for K3_ACT_F32 */
};

/* The best implementation for this processor; never NULL. */
const struct k3_kernels *k3_kernels_best(void);

/* The format that a type's direct product takes its activations in: Q8_K for iq1_m and iq2_xxs, Q8_0 for q8_0
 * and mxfp4, F32 for everything else. */
enum k3_act k3_act_for(enum k3_type type);

#endif
