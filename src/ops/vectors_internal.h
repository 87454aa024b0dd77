/* vectors_internal.h - registers of floats, and how the files that are compiled for a set name their functions.
 *
 * K3_SET is that name: plain, avx2 or avx512. What these files share with none but themselves is static or gets the
 * name of the set as a suffix. */
#ifndef K3_OPS_VECTORS_INTERNAL_H
#define K3_OPS_VECTORS_INTERNAL_H

#include "ops/vectors.h"

#include <string.h>

#define K3_JOIN_(a, b)  a##_##b
#define K3_JOIN(a, b)   K3_JOIN_(a, b)
#define K3_OF_SET(name) K3_JOIN(name, K3_SET)

/* ---- registers ---- */

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

#define INLINE __attribute__((always_inline)) static inline

/* A loop over 0 .. n-1, unrolled; n is a constant. An array that only such loops index lies in registers. */
#define EACH(i, n) _Pragma("GCC unroll 16") for (size_t i = 0; i < (n); i++)

typedef float vec __attribute__((vector_size(4 * LANES)));

INLINE vec load(const float *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store(float *p, vec v)
{
    memcpy(p, &v, sizeof v);
}

INLINE vec all(float x)
{
    return x - (vec){0};
}

/* ---- dot products ---- */

/* Sixteen partial sums: element i goes to sum i % 16. */
#define PARTS (16 / LANES)

typedef float v8 __attribute__((vector_size(32)));
typedef float v4 __attribute__((vector_size(16)));

/* The partial sums, added in the order that quant/portable.c defines. */
INLINE float total(const vec s[PARTS])
{
#if LANES == 16
    v8 eight = __builtin_shufflevector(s[0], s[0], 0, 1, 2, 3, 4, 5, 6, 7) +
               __builtin_shufflevector(s[0], s[0], 8, 9, 10, 11, 12, 13, 14, 15);
    v4 four =
        __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
#elif LANES == 8
    v8 eight = s[0] + s[1];
    v4 four =
        __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
#else
    v4 four = (s[0] + s[2]) + (s[1] + s[3]);
#endif
    return (four[0] + four[2]) + (four[1] + four[3]);
}

/* Dot products of each of n_a rows with each of n_b: out[i * out_stride + j] = a[i] . b[j]. n_a and n_b are constants
 * whose product, times PARTS, is about eight: that many additions run at once. */
INLINE void dots(const float *a, size_t a_stride, size_t n_a, const float *b, size_t b_stride, size_t n_b,
                 size_t n, float *out, size_t out_stride)
{
    vec sums[4][2][PARTS] = {0};
    size_t whole = n / 16 * 16;
    for (size_t k = 0; k < whole; k += 16)
        EACH(l, PARTS)
            EACH(j, n_b) {
                vec y = load(b + j * b_stride + k + l * LANES);
                EACH(i, n_a) sums[i][j][l] += load(a + i * a_stride + k + l * LANES) * y;
            }
    EACH(i, n_a)
        EACH(j, n_b) {
            float sum = total(sums[i][j]);
            for (size_t k = whole; k < n; k++) sum += a[i * a_stride + k] * b[j * b_stride + k];
            out[i * out_stride + j] = sum;
        }
}

/* ---- what the table is made of ---- */

void K3_OF_SET(k3_kda_head)(const struct k3_kda_head *head);
void K3_OF_SET(k3_mla_keys)(const struct k3_mla_queries *queries, const float *keys, const size_t *seen);

extern const struct k3_vectors k3_vectors_avx2, k3_vectors_avx512;

#endif
