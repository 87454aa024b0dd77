/* mla.h - Multi-head Latent Attention in its absorbed form (architecture.md section 6).
 *
 * What is cached of a token is one row of kv_rank + pe_dim values, shared by all heads: the compressed c,
 * which is both key and value, then the part of the key that no head transforms. */
#ifndef K3_OPS_MLA_H
#define K3_OPS_MLA_H

#include "ops/compute.h"

/* Queries (a head of a token) that share a block of keys once it is in f32. */
#define K3_MLA_QUERIES 32

struct k3_mla {
    size_t n_heads, qk_dim, pe_dim, v_dim, kv_rank;
    struct k3_matrix k_b; /* [n_heads * kv_rank][qk_dim - pe_dim] */
    struct k3_matrix v_b; /* [n_heads * v_dim][kv_rank] */
    bool f16;             /* the cache holds f16, not f32 */
    const void *cache;    /* [position + n][kv_rank + pe_dim] */
};

/* Bytes of one row of the cache. */
size_t k3_mla_row_bytes(size_t kv_rank, size_t pe_dim, bool f16);

/* Appends n rows ([n][width] f32) to a cache that has `position` rows. */
void k3_mla_store(void *cache, bool f16, size_t position, const float *rows, size_t n, size_t width);

/* Floats of scratch memory that one thread needs. */
size_t k3_mla_scratch(size_t kv_rank, size_t pe_dim, size_t qk_dim);

/* For n tokens after `position` earlier ones, all of them in the cache:
 *   score[s] = qk_dim^-1/2 * ((k_b q_nope) . c[s] + q_pe . k_pe[s])   for s <= token
 *   o        = v_b sum_s softmax(score)[s] c[s]
 * q: [n][n_heads][qk_dim], each head's nope part first; o: [n][n_heads][v_dim].
 * scratch: [threads][k3_mla_scratch()], at a multiple of 64 bytes. */
void k3_mla_attend(struct k3_compute *c, const struct k3_mla *mla, const float *q, size_t n, size_t position,
                   float *o, float *scratch);

#endif
