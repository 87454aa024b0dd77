/* avx512_tile.h - weights of 16 rows, decoded and interleaved for products of many columns.
 *
 * For AVX-512 and AMX alike: what one 64-byte register holds for VPDPBUSD (lanes are rows) is also one row of
 * the right operand of the tile products. */
#ifndef K3_QUANT_AVX512_TILE_H
#define K3_QUANT_AVX512_TILE_H

#include "quant/avx512_internal.h"

#define K3_TILE_ROWS    16
#define K3_TILE_WEIGHTS 2048 /* of a row, at most: two tiles and their activations stay in a small L2 */

/* Integers for each weight, scales for each block. The order of the weights is that of decoding fastest;
 * activations are brought into the same order with k3_tile_order. */
struct k3_tile {
    _Alignas(64) uint8_t w[K3_TILE_WEIGHTS / 4][K3_TILE_ROWS][4];
    uint8_t high[K3_TILE_WEIGHTS / 4][K3_TILE_ROWS][4]; /* only of K3_TILE_SIGNED iq2_xxs */
    float scale[K3_TILE_WEIGHTS / 32][K3_TILE_ROWS];    /* of each 32 (q8_0, mxfp4) or each 256 */
    int32_t factor[K3_TILE_WEIGHTS / 32][K3_TILE_ROWS]; /* only of K3_TILE_UNSIGNED iq2_xxs */
};

/* What the bytes of a tile are for an integer weight v; qw, factor: as portable.c has them.
 *             v                 K3_TILE_UNSIGNED (VNNI)    K3_TILE_SIGNED (AMX)
 *   q8_0      qw                v + 128                    v
 *   mxfp4     qw                v + 12                     v
 *   iq1_m     factor * qw       (v + 135) / 2              the same: v is odd and |v| <= 135
 *   iq2_xxs   factor * qw       qw + 43, and factor        v = 16 * high + w */
enum k3_tile_kind { K3_TILE_UNSIGNED, K3_TILE_SIGNED };

#define K3_BIAS_Q8_0    128
#define K3_BIAS_MXFP4   12
#define K3_BIAS_IQ1_M   135
#define K3_BIAS_IQ2_XXS 43

/* For VPERMB: where byte i of 64 of a tile's row lies among the 64 weights. Weights t, t + 4, t + 8, t + 12
 * of 16 make up one step of iq1_m, and t, t + 8, t + 16, t + 24 of 32 one of iq2_xxs: so shifts spread the
 * codes. */
static inline __m512i k3_tile_order(enum k3_type type)
{
    _Alignas(64) uint8_t order[64];
    for (unsigned i = 0; i < 64; i++) {
        unsigned step = i / 4, byte = i % 4;
        order[i] = (uint8_t)i;
        if (type == K3_TYPE_IQ1_M) order[i] = (uint8_t)(step / 4 * 16 + byte * 4 + step % 4);
        if (type == K3_TYPE_IQ2_XXS) order[i] = (uint8_t)(step / 8 * 32 + byte * 8 + step % 8);
    }
    return _mm512_load_si512(order);
}

/* Brings n activations (a multiple of 32, at most 256) into that order; `to` is aligned and has room for 256.
 * */
static inline void k3_tile_activations(const int8_t *q, size_t n, __m512i order, int8_t *to)
{
    for (size_t i = 0; i < n; i += 64) {
        const __mmask64 there = n - i >= 64 ? ~(__mmask64)0 : 0xffffffffu;
        _mm512_store_si512(to + i, _mm512_permutexvar_epi8(order, _mm512_maskz_loadu_epi8(there, q + i)));
    }
}

/* ---- a product, some tiles at a time ---- */

#define K3_TILE_PAIRS 2 /* tiles are multiplied two by two, and 64 rows share what is done for activations */

/* Tiles of a call, and where they are in it. */
struct k3_tiles {
    const struct k3_product *product;
    size_t row, n_rows; /* rows of the tiles */
    size_t first, n;    /* weights of these rows: a multiple of the block, and at most K3_TILE_WEIGHTS */
    const struct k3_tile *pairs[K3_TILE_PAIRS][2]; /* of 32 rows; the last one may be one tile twice */
};

static inline size_t k3_tiles_pairs(const struct k3_tiles *t)
{
    return (t->n_rows + 31) / 32;
}

/* Adds the products of tiles and all columns to y; y counts as 0 if `first` is 0. */
typedef void (*k3_tiles_fn)(const struct k3_tiles *tiles);

/* Decodes all rows of a product and hands them to `multiply`. */
void k3_tile_product(const struct k3_product *p, enum k3_type type, enum k3_tile_kind kind,
                     k3_tiles_fn multiply);

/* The elements of y that belong to tiles and n_columns from c0 on: sums[32-row pair][column][tile], with
 * `columns` of them for each pair. */
void k3_tiles_load(const struct k3_tiles *t, size_t c0, size_t n_columns, size_t columns, __m512 (*sums)[2]);
void k3_tiles_store(const struct k3_tiles *t, size_t c0, size_t n_columns, size_t columns,
                    const __m512 (*sums)[2]);

/* sum + dw * dx * integer, each rounded. */
static inline __m512 k3_tile_add_block(__m512 sum, __m512 dw, float dx, __m512i integer)
{
    const __m512 scale = _mm512_mul_ps(dw, _mm512_set1_ps(dx));
    return _mm512_add_ps(sum, _mm512_mul_ps(scale, _mm512_cvtepi32_ps(integer)));
}

#endif
