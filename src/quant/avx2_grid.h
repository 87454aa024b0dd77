/* avx2_grid.h - iq1_m and iq2_xxs with AVX2, and with AVX-VNNI where that is compiled for.
 *
 * FORMULA. portable.c has it. All products of bytes are of a weight made unsigned and a signed activation q:
 *     iq1_m    8 * digit - 7 or - 9, times the odd scale of 16 weights
 *     iq2_xxs  (43 + w) - 43, w one of -43, -25, -8, 8, 25, 43, times the odd scale of a record of 32
 * and what was added is taken away again with the sums of q, where a sum begins.
 *
 * LAYOUT. A row is blocks of 56 or 66 bytes at any address; activations are struct k3_rounded in blocks of
 * 256. Nothing is read beyond them; prefetches ask for addresses that may be anywhere.
 *
 * MAPPING. A code is 16 bits, eight digits of two. Two gathers of eight make a vector of 16 codes. Shifts by
 * 0, 2, 4 and 6 then put one digit into each byte: vector k of four has digits k and k + 4 of each code, 32
 * of 128 weights, so that spreading takes 8 operations for 128 weights. A dword of all four holds two groups
 * of 8 that share a scale.
 *   A few columns: the activations of a block are put into that order (struct spread) once for 16 rows. The
 *   lanes of 8 rows' sums are then added up and become the lanes of one vector, on which the sum of floats
 *   goes from left to right.
 *   Many columns: 16 rows of a block become a tile, in which a vector has four neighbouring weights of 8
 *   rows; the same four activations are in all lanes of the other factor, so that the lanes of sums are rows
 *   from the start.
 *   Signs of iq2_xxs go into bits 2 and 6 of bytes that hold two digits in bits 0, 1 and 4, 5, and VPSHUFB
 *   looks 43 + w up.
 *
 * COST, for one row and column of 256 weights, in vector operations (three a cycle at best):
 *     iq1_m    58 (67 without AVX-VNNI) and four gathers of 8, 0.22 bytes a weight
 *     iq2_xxs  76 (92 without) and four gathers, 0.26 bytes a weight
 *   A gather takes 5 cycles when nothing else runs. Of the operations 3 are for adding the lanes of 8 rows up
 *   and 2.5 for the order of the activations. In a tile a row and column costs 10 multiply-adds (iq1_m), 8
 *   and 3 others (iq2_xxs), two a cycle, and making the tile about 60 operations more a row. */
#ifndef K3_QUANT_AVX2_GRID_H
#define K3_QUANT_AVX2_GRID_H

#include "quant/avx2_internal.h"
#include "quant/grids.h"

/* ---- what both types share ---- */

/* The weights of a block. */
struct weights {
    __m256i u[2][4];  /* made unsigned; the vectors of 16 codes, then of the other 16 */
    __m256i minus[2]; /* iq1_m: a word for each group, 1 if its delta is -1/8 */
    __m256i scale; /* iq1_m: a word for each 16 weights; iq2_xxs: a dword for each record, 0 1 4 5 2 3 6 7 */
};

/* Where in a block the 16 weights begin that are dword j of the four vectors u[h]; those of dword 4 + j, in
 * the upper 128 bits, begin `high` further. */
struct order {
    unsigned char first[2][4], high;
};

/* A column's activations of a block. */
struct spread {
    __m256i q[2][4]; /* in the order of the weights */
    __m256i base[2]; /* what a sum begins with */
    __m256i delta[2];
};

/* Byte j of 16 goes to byte j / 4 of dword j % 4. */
#define BY_DIGIT                                                                                             \
    _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15))

K3_INLINE void spread_activations(const int8_t *q, const struct order *order, __m256i out[2][4])
{
    for (int h = 0; h < 2; h++) {
        __m256i v[4];
        for (int j = 0; j < 4; j++) {
            const int8_t *first = q + order->first[h][j];
            v[j] = _mm256_shuffle_epi8(k3_load_halves(first, first + order->high), BY_DIGIT);
        }
        k3_transpose_4(v, out[h]);
    }
}

/* The codes at 16 indices: those at `even` in the low halves of the dwords, at `odd` in the upper ones. */
K3_INLINE __m256i look_up(const uint16_t *book, __m256i even, __m256i odd)
{
    /* What is read above a code's 16 bits is not used. */
    __m256i a = _mm256_i32gather_epi32((const int *)book, even, 2);
    __m256i b = _mm256_i32gather_epi32((const int *)book, odd, 2);
    return _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa);
}

/* d / 8 of 8 rows. */
K3_INLINE __m256 eighths(const uint16_t d[K3_LANES])
{
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_load_si128((const __m128i *)d)), _mm256_set1_ps(0.125f));
}

#define TILE_VECTORS 2 /* of 8 rows each */
#define TILE_COLUMNS 2 /* that a tile is multiplied with at once */

/* A block of 16 rows: lane r of vector v is row 8v + r. */
struct tile {
    __m256i w[TILE_VECTORS][64];     /* four neighbouring weights, made unsigned */
    __m256i scale[TILE_VECTORS][16]; /* of 16 weights (iq1_m) or of 32 (iq2_xxs) */
    __m256 d[TILE_VECTORS];          /* d / 8 */
};

/* What differs between the types. All of it is inlined. */
struct grid {
    size_t block_bytes;
    struct order order;
    struct weights (*weights)(const uint8_t *block);
    uint16_t (*d)(const uint8_t *block);
    /* A row and a column: the lanes of sum() add up to the block's integer. */
    void (*spread)(const struct k3_rounded *x, size_t b, struct spread *out);
    __m256i (*sum)(const struct weights *w, const struct spread *x);
    /* A tile and columns: lanes of tile_sums() are rows. */
    void (*finish_weights)(struct weights *w);
    void (*tile_scales)(const struct weights w[K3_LANES], __m256i scale[16]);
    void (*tile_sums)(const struct tile *tile, const struct k3_rounded x[], size_t b,
                      __m256i sums[TILE_VECTORS][TILE_COLUMNS], const size_t columns);
};

/* ---- iq1_m ---- */

K3_INLINE struct weights iq1_m_weights(const uint8_t *block)
{
    struct weights w;
    __m256i qs = _mm256_loadu_si256((const __m256i *)block);
    __m256i qh = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(block + 32)));
    qh = _mm256_and_si256(_mm256_or_si256(qh, _mm256_slli_epi16(qh, 4)), _mm256_set1_epi8(15));
    const __m256i index_bits = _mm256_set1_epi32(0x7ff), digit = _mm256_set1_epi8(3 << 3);
    for (int h = 0; h < 2; h++) {
        __m256i words = h ? _mm256_unpackhi_epi8(qs, qh) : _mm256_unpacklo_epi8(qs, qh);
        __m256i codes = look_up(k3_grid_iq1s, _mm256_and_si256(words, index_bits),
                                _mm256_and_si256(_mm256_srli_epi32(words, 16), index_bits));
        w.minus[h] = _mm256_srli_epi16(words, 11);
        w.u[h][0] = _mm256_and_si256(_mm256_slli_epi16(codes, 3), digit);
        w.u[h][1] = _mm256_and_si256(_mm256_slli_epi16(codes, 1), digit);
        w.u[h][2] = _mm256_and_si256(_mm256_srli_epi16(codes, 1), digit);
        w.u[h][3] = _mm256_and_si256(_mm256_srli_epi16(codes, 3), digit);
    }
    /* Word B of sc / 4, moved so that its scale is in bits 9 to 11. */
    const __m256i word = _mm256_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 4, 5, 4, 5, 4, 5, 4,
                                          5, 6, 7, 6, 7, 6, 7, 6, 7);
    const __m256i move = _mm256_set1_epi64x(0x0001000800400200);
    __m256i sc = _mm256_set1_epi64x((long long)k3_load_u64(block + 48));
    sc = _mm256_srli_epi16(_mm256_mullo_epi16(_mm256_shuffle_epi8(sc, word), move), 8);
    w.scale = _mm256_or_si256(_mm256_and_si256(sc, _mm256_set1_epi16(7 << 1)), _mm256_set1_epi16(1));
    return w;
}

/* The bits of d: the upper four of each word of sc. */
K3_INLINE uint16_t iq1_m_d(const uint8_t *block)
{
    return (uint16_t)_pext_u64(k3_load_u64(block + 48), 0xf000f000f000f000);
}

#define IQ1_M_ORDER                                                                                          \
    {                                                                                                        \
        {{0, 16, 32, 48}, {64, 80, 96, 112}}, 128                                                            \
    }

/* A weight is 8 * digit - 7, or 8 * digit - 9. */
K3_INLINE void iq1_m_spread(const struct k3_rounded *x, size_t b, struct spread *out)
{
    const struct order order = IQ1_M_ORDER;
    spread_activations(x->q + 256 * b, &order, out->q);
    for (int h = 0; h < 2; h++) {
        const int16_t *s = x->sums + 32 * b + 8 * h;
        __m256i sums = k3_load_halves(s, s + 16);
        out->base[h] = _mm256_madd_epi16(sums, _mm256_set1_epi16(-7));
        out->delta[h] = _mm256_mullo_epi16(sums, _mm256_set1_epi16(-2));
    }
}

/* The lanes add up to the block's integer. The sum of a sub-block is at most 16 * 9 * 127: 16 bits. */
K3_INLINE __m256i iq1_m_sum(const struct weights *w, const struct spread *x)
{
    __m256i half[2];
    for (int h = 0; h < 2; h++) {
        __m256i base = k3_add_words(x->base[h], w->minus[h], x->delta[h]), small = k3_small_begin(base);
        for (int k = 0; k < 4; k++) small = k3_small_add(small, w->u[h][k], x->q[h][k]);
        half[h] = k3_small_end(small, base);
    }
    return _mm256_madd_epi16(_mm256_packs_epi32(half[0], half[1]), w->scale);
}

/* In a tile a weight is u - 9: u is 8 * digit, and 2 more if its delta is 1/8. */
K3_INLINE void iq1_m_finish(struct weights *w)
{
    for (int h = 0; h < 2; h++) {
        __m256i plus =
            _mm256_sub_epi16(_mm256_set1_epi16(1), _mm256_and_si256(w->minus[h], _mm256_set1_epi16(1)));
        __m256i twos = _mm256_mullo_epi16(plus, _mm256_set1_epi16(0x0202));
        for (int k = 0; k < 4; k++) w->u[h][k] = _mm256_or_si256(w->u[h][k], twos);
    }
}

/* The upper half of each dword is 0. */
K3_INLINE void iq1_m_tile_scales(const struct weights w[K3_LANES], __m256i scale[16])
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i v[2][K3_LANES], out[8];
    for (int r = 0; r < K3_LANES; r++) {
        v[0][r] = _mm256_unpacklo_epi16(w[r].scale, zero);
        v[1][r] = _mm256_unpackhi_epi16(w[r].scale, zero);
    }
    for (int i = 0; i < 2; i++) {
        k3_transpose_8(v[i], out);
        for (int k = 0; k < 4; k++) {
            scale[4 * i + k] = out[k];
            scale[8 + 4 * i + k] = out[4 + k];
        }
    }
}

K3_INLINE void iq1_m_tile_sums(const struct tile *tile, const struct k3_rounded x[], size_t b,
                               __m256i sums[TILE_VECTORS][TILE_COLUMNS], const size_t columns)
{
    _Alignas(32) int32_t base[TILE_COLUMNS][16];
    for (size_t c = 0; c < columns; c++) {
        const __m256i *s = (const __m256i *)(x[c].sums + 32 * b);
        for (int i = 0; i < 2; i++)
            _mm256_store_si256((__m256i *)(base[c] + 8 * i),
                               _mm256_madd_epi16(_mm256_loadu_si256(s + i), _mm256_set1_epi16(-9)));
        for (int v = 0; v < TILE_VECTORS; v++) sums[v][c] = _mm256_setzero_si256();
    }
    for (int i = 0; i < 16; i++) {
        __m256i t[TILE_VECTORS][TILE_COLUMNS];
        for (int v = 0; v < TILE_VECTORS; v++)
            for (size_t c = 0; c < columns; c++) t[v][c] = k3_small_begin(_mm256_set1_epi32(base[c][i]));
        for (int k = 0; k < 4; k++)
            for (size_t c = 0; c < columns; c++) {
                __m256i q = k3_four(x[c].q + 256 * b + 16 * i + 4 * k);
                for (int v = 0; v < TILE_VECTORS; v++)
                    t[v][c] = k3_small_add(t[v][c], tile->w[v][4 * i + k], q);
            }
        for (int v = 0; v < TILE_VECTORS; v++)
            for (size_t c = 0; c < columns; c++) {
                __m256i sum = k3_small_end(t[v][c], _mm256_set1_epi32(base[c][i]));
                sums[v][c] = k3_add_words(sums[v][c], sum, tile->scale[v][i]); /* 16 bits, as in iq1_m_sum */
            }
    }
}

static const struct grid iq1_m = {
    .block_bytes = sizeof(struct k3_block_iq1_m),
    .order = IQ1_M_ORDER,
    .weights = iq1_m_weights,
    .d = iq1_m_d,
    .spread = iq1_m_spread,
    .sum = iq1_m_sum,
    .finish_weights = iq1_m_finish,
    .tile_scales = iq1_m_tile_scales,
    .tile_sums = iq1_m_tile_sums,
};

/* ---- iq2_xxs ---- */

/* Two vectors of codes; dword j of the first has the codes of groups 0 and 1 of a record, the second
 * those of groups 2 and 3. */
#define IQ2_XXS_ORDER                                                                                        \
    {                                                                                                        \
        {{0, 32, 128, 160}, {16, 48, 144, 176}}, 64                                                          \
    }

/* 16 bytes for VPSHUFB, in both halves. */
#define TABLE(...) _mm256_broadcastsi128_si256(_mm_setr_epi8(__VA_ARGS__))

/* Eight signs for each group of each record: byte 0 group 0, byte 1 group 2, byte 2 group 1, byte 3 group 3.
 * `a` has seven bits for each group, and the eighth makes their number even. */
K3_INLINE __m256i iq2_xxs_signs(__m256i a)
{
    __m256i even = _mm256_blend_epi16(a, _mm256_slli_epi32(a, 9), 0xaa);
    __m256i odd = _mm256_blend_epi16(_mm256_srli_epi32(a, 6), _mm256_slli_epi32(a, 3), 0xaa);
    __m256i seven = _mm256_or_si256(_mm256_and_si256(even, _mm256_set1_epi16(0x007f)),
                                    _mm256_and_si256(odd, _mm256_set1_epi16(0x7f00)));
    const __m256i parity = TABLE(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0);
    __m256i folded = _mm256_xor_si256(seven, _mm256_srli_epi16(seven, 4));
    folded = _mm256_and_si256(folded, _mm256_set1_epi8(15));
    return _mm256_or_si256(seven, _mm256_shuffle_epi8(parity, folded));
}

/* The weights of 16 codes, plus 43. A word of `signs` is the signs of one code. */
K3_INLINE void iq2_xxs_half(__m256i codes, __m256i signs, __m256i u[4])
{
    const __m256i half = _mm256_set1_epi8(15), digits = _mm256_set1_epi8(0x33);
    /* Bits 0 and 2, or 1 and 3, moved to bits 2 and 6: above two digits. */
    const __m256i even_signs = TABLE(0, 4, 0, 4, 64, 68, 64, 68, 0, 4, 0, 4, 64, 68, 64, 68);
    const __m256i odd_signs = TABLE(0, 0, 4, 4, 0, 0, 4, 4, 64, 64, 68, 68, 64, 64, 68, 68);
    const __m256i weight =
        TABLE(43 + 8, 43 + 25, 43 + 43, 0, 43 - 8, 43 - 25, 43 - 43, 0, 0, 0, 0, 0, 0, 0, 0, 0);

    signs = _mm256_and_si256(_mm256_or_si256(signs, _mm256_slli_epi16(signs, 4)), half);
    __m256i even = _mm256_or_si256(_mm256_and_si256(codes, digits), _mm256_shuffle_epi8(even_signs, signs));
    __m256i odd = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(codes, 2), digits),
                                  _mm256_shuffle_epi8(odd_signs, signs));
    /* VPSHUFB takes the lower four bits if bit 7 is 0, and bits 3 and 7 are 0 in all bytes. */
    u[0] = _mm256_shuffle_epi8(weight, even);
    u[1] = _mm256_shuffle_epi8(weight, odd);
    u[2] = _mm256_shuffle_epi8(weight, _mm256_srli_epi16(even, 4));
    u[3] = _mm256_shuffle_epi8(weight, _mm256_srli_epi16(odd, 4));
}

K3_INLINE struct weights iq2_xxs_weights(const uint8_t *block)
{
    struct weights w;
    __m256 low = _mm256_loadu_ps((const float *)(block + 2)),
           high = _mm256_loadu_ps((const float *)(block + 34));
    __m256i index = _mm256_castps_si256(_mm256_shuffle_ps(low, high, 0x88)); /* of records 0 1 4 5, 2 3 6 7 */
    __m256i a = _mm256_castps_si256(_mm256_shuffle_ps(low, high, 0xdd));
    const __m256i byte = _mm256_set1_epi32(255), even_bytes = _mm256_set1_epi16(0x00ff);
    __m256i signs = iq2_xxs_signs(a);
    __m256i codes01 = look_up(k3_grid_iq2xxs, _mm256_and_si256(index, byte),
                              _mm256_and_si256(_mm256_srli_epi32(index, 8), byte));
    __m256i codes23 = look_up(k3_grid_iq2xxs, _mm256_and_si256(_mm256_srli_epi32(index, 16), byte),
                              _mm256_srli_epi32(index, 24));
    iq2_xxs_half(codes01, _mm256_and_si256(signs, even_bytes), w.u[0]);
    iq2_xxs_half(codes23, _mm256_srli_epi16(signs, 8), w.u[1]);
    w.minus[0] = w.minus[1] = _mm256_setzero_si256();
    /* Bits 28 to 31 doubled, and 1. */
    w.scale = _mm256_or_si256(_mm256_srli_epi32(a, 27), _mm256_set1_epi32(1));
    return w;
}

K3_INLINE uint16_t iq2_xxs_d(const uint8_t *block)
{
    return k3_load_u16(block);
}

/* -43 * the sums of the activations of each record, in the order of the halves' dwords. */
K3_INLINE __m256i iq2_xxs_base(const struct k3_rounded *x, size_t b)
{
    const __m256i *sums = (const __m256i *)(x->sums + 32 * b);
    const __m256i factor = _mm256_set1_epi16(-43);
    __m256i low = _mm256_madd_epi16(_mm256_loadu_si256(sums), factor);
    __m256i high = _mm256_madd_epi16(_mm256_loadu_si256(sums + 1), factor);
    return _mm256_hadd_epi32(low, high);
}

K3_INLINE void iq2_xxs_spread(const struct k3_rounded *x, size_t b, struct spread *out)
{
    const struct order order = IQ2_XXS_ORDER;
    spread_activations(x->q + 256 * b, &order, out->q);
    out->base[0] = iq2_xxs_base(x, b);
}

K3_INLINE __m256i iq2_xxs_sum(const struct weights *w, const struct spread *x)
{
    __m256i sum = x->base[0];
    for (int h = 0; h < 2; h++)
        for (int k = 0; k < 4; k++) sum = k3_add_products(sum, w->u[h][k], x->q[h][k]);
    return _mm256_mullo_epi32(sum, w->scale);
}

K3_INLINE void iq2_xxs_finish(struct weights *w)
{
    (void)w;
}

K3_INLINE void iq2_xxs_tile_scales(const struct weights w[K3_LANES], __m256i scale[16])
{
    const unsigned char record[8] = {0, 1, 4, 5, 2, 3, 6, 7};
    __m256i v[K3_LANES], out[8];
    for (int r = 0; r < K3_LANES; r++) v[r] = w[r].scale;
    k3_transpose_8(v, out);
    for (int i = 0; i < 8; i++) scale[record[i]] = out[i];
}

K3_INLINE void iq2_xxs_tile_sums(const struct tile *tile, const struct k3_rounded x[], size_t b,
                                 __m256i sums[TILE_VECTORS][TILE_COLUMNS], const size_t columns)
{
    _Alignas(32) int32_t base[TILE_COLUMNS][8];
    for (size_t c = 0; c < columns; c++) {
        /* Records 0 1 4 5, 2 3 6 7 in order. */
        __m256i ordered = _mm256_permute4x64_epi64(iq2_xxs_base(&x[c], b), 0xd8);
        _mm256_store_si256((__m256i *)base[c], ordered);
        for (int v = 0; v < TILE_VECTORS; v++) sums[v][c] = _mm256_setzero_si256();
    }
    for (int i = 0; i < 8; i++) {
        /* Two chains of additions for each vector and column: that hides their latency. */
        __m256i t[2][TILE_VECTORS][TILE_COLUMNS];
        for (int v = 0; v < TILE_VECTORS; v++)
            for (size_t c = 0; c < columns; c++) {
                t[0][v][c] = _mm256_set1_epi32(base[c][i]);
                t[1][v][c] = _mm256_setzero_si256();
            }
        for (int k = 0; k < 8; k++)
            for (size_t c = 0; c < columns; c++) {
                __m256i q = k3_four(x[c].q + 256 * b + 32 * i + 4 * k);
                for (int v = 0; v < TILE_VECTORS; v++)
                    t[k % 2][v][c] = k3_add_products(t[k % 2][v][c], tile->w[v][8 * i + k], q);
            }
        for (int v = 0; v < TILE_VECTORS; v++)
            for (size_t c = 0; c < columns; c++) {
                __m256i sum = _mm256_add_epi32(t[0][v][c], t[1][v][c]);
                sums[v][c] = _mm256_add_epi32(sums[v][c], _mm256_mullo_epi32(sum, tile->scale[v][i]));
            }
    }
}

static const struct grid iq2_xxs = {
    .block_bytes = sizeof(struct k3_block_iq2_xxs),
    .order = IQ2_XXS_ORDER,
    .weights = iq2_xxs_weights,
    .d = iq2_xxs_d,
    .spread = iq2_xxs_spread,
    .sum = iq2_xxs_sum,
    .finish_weights = iq2_xxs_finish,
    .tile_scales = iq2_xxs_tile_scales,
    .tile_sums = iq2_xxs_tile_sums,
};

/* ---- a few columns: row by row ---- */

#define ROW_VECTORS 2 /* 16 rows share the work of spreading the activations */

K3_INLINE void rows_group(const struct k3_product *p, const struct grid *grid, size_t row, size_t column,
                          const size_t columns)
{
    size_t n_vectors = p->n_rows - row <= K3_LANES ? 1 : ROW_VECTORS;
    const uint8_t *rows[ROW_VECTORS][K3_LANES];
    __m256 acc[ROW_VECTORS][K3_GROUP_COLUMNS];
    struct k3_rounded x[K3_GROUP_COLUMNS];
    for (size_t v = 0; v < n_vectors; v++) {
        k3_lane_rows(p, row + v * K3_LANES, rows[v]);
        for (size_t c = 0; c < columns; c++) acc[v][c] = _mm256_setzero_ps();
    }
    for (size_t c = 0; c < columns; c++)
        x[c] = k3_rounded_row(K3_ACT_Q8_K, k3_product_acts(p, column + c), p->n);

    for (size_t b = 0; b < p->n / 256; b++) {
        struct spread spread[K3_GROUP_COLUMNS];
        for (size_t c = 0; c < columns; c++) grid->spread(&x[c], b, &spread[c]);
        for (size_t v = 0; v < n_vectors; v++) {
            _Alignas(16) uint16_t d[K3_LANES];
            __m256i sums[K3_GROUP_COLUMNS][K3_LANES];
            for (size_t r = 0; r < K3_LANES; r++) {
                const uint8_t *block = rows[v][r] + b * grid->block_bytes;
                k3_prefetch(block + ROW_VECTORS * K3_LANES * p->row_bytes);
                struct weights w = grid->weights(block);
                d[r] = grid->d(block);
                for (size_t c = 0; c < columns; c++) sums[c][r] = grid->sum(&w, &spread[c]);
            }
            __m256 dw = eighths(d);
            for (size_t c = 0; c < columns; c++)
                acc[v][c] = k3_add_block(acc[v][c], dw, x[c].d[b], k3_sums_of_8(sums[c]));
        }
    }
    for (size_t v = 0; v < n_vectors; v++)
        for (size_t c = 0; c < columns; c++) k3_store_lanes(p, row + v * K3_LANES, column + c, acc[v][c]);
}

K3_INLINE void multiply_rows(const struct k3_product *p, const struct grid *grid)
{
    for (size_t row = 0; row < p->n_rows; row += ROW_VECTORS * K3_LANES)
        K3_FOR_GROUPS(rows_group, p->n_columns, p, grid, row);
}

/* ---- many columns: tiles ---- */

#define BATCH 64 /* columns whose sums are kept while a tile is at hand */

/* Vector v of a tile. */
K3_INLINE void fill_tile(struct tile *tile, size_t v, const struct grid *grid,
                         const uint8_t *const rows[K3_LANES], size_t b)
{
    struct weights w[K3_LANES];
    _Alignas(16) uint16_t d[K3_LANES];
    for (size_t r = 0; r < K3_LANES; r++) {
        const uint8_t *block = rows[r] + b * grid->block_bytes;
        w[r] = grid->weights(block);
        grid->finish_weights(&w[r]);
        d[r] = grid->d(block);
    }
    tile->d[v] = eighths(d);
    grid->tile_scales(w, tile->scale[v]);
    for (int h = 0; h < 2; h++) {
        __m256i natural[4][K3_LANES], out[8];
        for (int r = 0; r < K3_LANES; r++) {
            /* The digits of a group, which are in four vectors, become neighbours again. */
            const __m256i *u = w[r].u[h];
            __m256i low01 = _mm256_unpacklo_epi8(u[0], u[1]), high01 = _mm256_unpackhi_epi8(u[0], u[1]);
            __m256i low23 = _mm256_unpacklo_epi8(u[2], u[3]), high23 = _mm256_unpackhi_epi8(u[2], u[3]);
            natural[0][r] = _mm256_unpacklo_epi16(low01, low23);
            natural[1][r] = _mm256_unpackhi_epi16(low01, low23);
            natural[2][r] = _mm256_unpacklo_epi16(high01, high23);
            natural[3][r] = _mm256_unpackhi_epi16(high01, high23);
        }
        for (int j = 0; j < 4; j++) {
            __m256i *low = tile->w[v] + grid->order.first[h][j] / 4, *high = low + grid->order.high / 4;
            k3_transpose_8(natural[j], out);
            memcpy(low, out, 4 * sizeof *out);
            memcpy(high, out + 4, 4 * sizeof *out);
        }
    }
}

K3_INLINE void tile_group(const struct k3_product *p, const struct grid *grid, const struct tile *tile,
                          size_t b, size_t column, __m256 (*acc)[TILE_VECTORS], const size_t columns)
{
    struct k3_rounded x[TILE_COLUMNS];
    __m256i sums[TILE_VECTORS][TILE_COLUMNS];
    for (size_t c = 0; c < columns; c++)
        x[c] = k3_rounded_row(K3_ACT_Q8_K, k3_product_acts(p, column + c), p->n);
    grid->tile_sums(tile, x, b, sums, columns);
    for (size_t c = 0; c < columns; c++)
        for (size_t v = 0; v < TILE_VECTORS; v++)
            acc[c][v] = k3_add_block(acc[c][v], tile->d[v], x[c].d[b], sums[v][c]);
}

/* 16 rows, and the n columns from `first` on. */
K3_INLINE void multiply_batch(const struct k3_product *p, const struct grid *grid, size_t row, size_t first,
                              size_t n)
{
    const uint8_t *rows[TILE_VECTORS][K3_LANES];
    __m256 acc[BATCH][TILE_VECTORS];
    for (size_t v = 0; v < TILE_VECTORS; v++) {
        k3_lane_rows(p, row + v * K3_LANES, rows[v]);
        for (size_t c = 0; c < n; c++) acc[c][v] = _mm256_setzero_ps();
    }
    for (size_t b = 0; b < p->n / 256; b++) {
        struct tile tile;
        size_t c = 0;
        for (size_t v = 0; v < TILE_VECTORS; v++) fill_tile(&tile, v, grid, rows[v], b);
        for (; c + TILE_COLUMNS <= n; c += TILE_COLUMNS)
            tile_group(p, grid, &tile, b, first + c, acc + c, TILE_COLUMNS);
        if (c < n) tile_group(p, grid, &tile, b, first + c, acc + c, 1);
    }
    for (size_t v = 0; v < TILE_VECTORS && row + v * K3_LANES < p->n_rows; v++)
        for (size_t c = 0; c < n; c++) k3_store_lanes(p, row + v * K3_LANES, first + c, acc[c][v]);
}

K3_INLINE void multiply_tiles(const struct k3_product *p, const struct grid *grid)
{
    for (size_t first = 0; first < p->n_columns; first += BATCH) {
        size_t n = p->n_columns - first < BATCH ? p->n_columns - first : BATCH;
        for (size_t row = 0; row < p->n_rows; row += TILE_VECTORS * K3_LANES)
            multiply_batch(p, grid, row, first, n);
    }
}

/* ---- the products ---- */

static void product_iq1_m(const struct k3_product *p)
{
    if (p->n_columns <= K3_GROUP_COLUMNS)
        multiply_rows(p, &iq1_m);
    else
        multiply_tiles(p, &iq1_m);
}

static void product_iq2_xxs(const struct k3_product *p)
{
    if (p->n_columns <= K3_GROUP_COLUMNS)
        multiply_rows(p, &iq2_xxs);
    else
        multiply_tiles(p, &iq2_xxs);
}

#endif
