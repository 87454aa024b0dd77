/* avx512_internal.h - what the AVX-512 kernels share. Only files compiled for AVX-512 may include it. */
#ifndef K3_QUANT_AVX512_INTERNAL_H
#define K3_QUANT_AVX512_INTERNAL_H

#include "quant/quant_internal.h"

#include <immintrin.h>

#define K3_INLINE __attribute__((always_inline)) static inline

/* Products of a few columns: the kernels of rows. Any number of either is right; from about 5 columns on,
 * more is calculated than need be. */
void k3_avx512_iq1_m(const struct k3_product *p);   /* avx512_grid.c */
void k3_avx512_iq2_xxs(const struct k3_product *p); /* avx512_grid.c */
void k3_avx512_q8_0(const struct k3_product *p);    /* avx512_blocks.c */
void k3_avx512_mxfp4(const struct k3_product *p);   /* avx512_blocks.c */
void k3_avx512_f32(const struct k3_product *p);     /* avx512_floats.c */
void k3_avx512_f16(const struct k3_product *p);
void k3_avx512_bf16(const struct k3_product *p);
void k3_avx512_round_q8_0(const float *x, void *act, size_t n); /* avx512_round.c */
void k3_avx512_round_q8_K(const float *x, void *act, size_t n);

/* Products of many columns: a tile of weights is spread out once for all of them (avx512_batch.c). Any number of
 * either is right. */
void k3_avx512_batch_q8_0(const struct k3_product *p);
void k3_avx512_batch_mxfp4(const struct k3_product *p);
void k3_avx512_batch_iq1_m(const struct k3_product *p);
void k3_avx512_batch_iq2_xxs(const struct k3_product *p);

/* The kernel for few columns, or from `least` columns on that for many. Inlined, so that what is known is called
 * directly. */
K3_INLINE void k3_by_columns(const struct k3_product *p, size_t least, k3_product_fn few, k3_product_fn many)
{
    if (p->n_columns < least)
        few(p);
    else
        many(p);
}

/* Columns that are worked on at once: the activations of more would not stay in registers. */
#define K3_MAX_COLUMNS 4

/* Calls group(..., column, columns) for all columns, K3_MAX_COLUMNS at a time, with a constant for `columns`:
 * the loops over them are unrolled. */
#define K3_FOR_COLUMNS(group, product, ...)                                                                  \
    for (size_t column = 0; column < (product)->n_columns; column += K3_MAX_COLUMNS) {                       \
        switch ((product)->n_columns - column) {                                                             \
        case 1:                                                                                              \
            group(product, __VA_ARGS__, column, 1);                                                          \
            break;                                                                                           \
        case 2:                                                                                              \
            group(product, __VA_ARGS__, column, 2);                                                          \
            break;                                                                                           \
        case 3:                                                                                              \
            group(product, __VA_ARGS__, column, 3);                                                          \
            break;                                                                                           \
        default:                                                                                             \
            group(product, __VA_ARGS__, column, K3_MAX_COLUMNS);                                             \
        }                                                                                                    \
    }

/* Lane l of the result is the sum of the lanes of v[l]: pairs of vectors are added and interleaved at once.
 * */
K3_INLINE __m512i k3_sums_of_16(const __m512i v[16])
{
    __m512i four[4]; /* 128-bit lane k of four[i] has the sums over lane k of v[4i] to v[4i + 3] */
    for (int i = 0; i < 4; i++) {
        const __m512i *a = v + 4 * i;
        __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a[0], a[1]), _mm512_unpackhi_epi32(a[0], a[1]));
        __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(a[2], a[3]), _mm512_unpackhi_epi32(a[2], a[3]));
        four[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    }
    __m512i low = _mm512_add_epi32(_mm512_shuffle_i64x2(four[0], four[1], 0x88),
                                   _mm512_shuffle_i64x2(four[0], four[1], 0xdd));
    __m512i high = _mm512_add_epi32(_mm512_shuffle_i64x2(four[2], four[3], 0x88),
                                    _mm512_shuffle_i64x2(four[2], four[3], 0xdd));
    return _mm512_add_epi32(_mm512_shuffle_i64x2(low, high, 0x88), _mm512_shuffle_i64x2(low, high, 0xdd));
}

#endif
