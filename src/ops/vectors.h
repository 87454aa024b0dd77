/* vectors.h - the inner loops over floats, compiled once for each instruction set.
 *
 * There is one source for all sets (vectors.c, vectors_kda.c, vectors_mla.c), so that they cannot disagree in what they
 * calculate, and no operation in it depends on how many lanes a register has: elements are independent of each other,
 * and sums that are spread over lanes have 16 partial sums everywhere (the dot product of quant/portable.c). With fused
 * multiply-adds forbidden (-ffp-contract=off) every set gives the same bits. */
#ifndef K3_OPS_VECTORS_H
#define K3_OPS_VECTORS_H

#include "quant/quant.h"

/* One head of the KDA recurrence (kda.h): rows of `dim` values, each `stride` floats after the one before. */
struct k3_kda_head {
    const float *q, *k, *v, *alpha; /* [n] rows */
    const float *beta;              /* [n], beta_stride floats apart */
    size_t n, dim, stride, beta_stride;
    float *state; /* [key dim][value dim] */
    float *o;     /* [n] rows */
};

/* Channels of a convolution (kda.h): rows of `n_channels` values, `stride` floats apart. */
struct k3_conv {
    const float *z;    /* [n_taps - 1 + n] rows */
    const float *taps; /* [n_channels][n_taps] */
    size_t n, n_taps, n_channels, stride;
    float *u; /* [n] rows */
};

/* Keys that attention takes together. */
#define K3_MLA_KEYS 64

/* Queries that see the same keys, and their running softmax (mla.c). */
struct k3_mla_queries {
    size_t n, rank, width; /* values are the first `rank` of a key's `width` */
    float scale;
    const float *q; /* [n][width] */
    float *z;       /* [n][rank]: sums of exp(score - top) * value */
    float *top;     /* [n] the largest score */
    float *sum;     /* [n] of exp(score - top) */
    float *scores;  /* [n][K3_MLA_KEYS], scratch */
};

struct k3_vectors {
    const char *name;

    /* a . b */
    float (*dot)(const float *a, const float *b, size_t n);
    /* x . x and w . x */
    void (*square_and_dot)(const float *x, const float *w, size_t n, float *square, float *dot);

    void (*exp)(float *x, size_t n);                                                /* x = exp(x) */
    void (*sigmoid)(float *x, size_t n);                                            /* x = sigmoid(x) */
    void (*gate)(float *x, const float *gate, size_t n);                            /* x *= sigmoid(gate) */
    void (*situ)(float *g, const float *u, float b1, float b2, size_t n);           /* as k3_situ */
    void (*add)(float *x, const float *y, size_t n);                                /* x += y */
    void (*add_scaled)(float *x, float factor, const float *y, size_t n);           /* x += factor * y */
    void (*norm)(const float *x, const float *w, float factor, float *y, size_t n); /* y = w * (x * factor) */
    void (*scale)(float *x, float factor, size_t n);                                /* x *= factor */
    void (*decay)(float *g, const float *dt, float a, float floor,
                  size_t n); /* g = floor * sigmoid(-a (g + dt)) */
    void (*from_f16)(const uint16_t *h, float *x, size_t n);

    void (*conv)(const struct k3_conv *conv);
    void (*kda_head)(const struct k3_kda_head *head);
    /* Adds n_keys <= K3_MLA_KEYS keys ([n_keys][width]) to all queries; query i sees the first seen[i] of them. */
    void (*mla_keys)(const struct k3_mla_queries *queries, const float *keys, const size_t *seen);
};

/* The set without any instructions that not every processor has: what the others are tested against. */
extern const struct k3_vectors k3_vectors_plain;

/* The loops that belong to an implementation of the products. */
const struct k3_vectors *k3_vectors_for(const struct k3_kernels *kernels);

/* Set i of those that this processor can run, best first; NULL after the last. */
const struct k3_vectors *k3_vectors_at(size_t i);

#endif
