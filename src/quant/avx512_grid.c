/* avx512_grid.c - iq1_m and iq2_xxs times a few columns, 16 rows at a time.
 *
 * FORMULA. portable.c has it. With digits u of the code book (grids.h) and sums S of 8 activations, a block's
 * integer is
 *     iq1_m    8 * sum of s[B] u[i] q[i]  +  sum over groups g of s[g / 2] (-7 or -9) S[g]
 *              for a weight is 8 (u - 1) + 1 or 8 (u - 1) - 1, times the odd scale s of 16
 *     iq2_xxs  sum over records j of s[j] (sum of (43 + w[i]) q[i]  -  43 * sum of q[i])
 *              where 43 + w, w one of -43, -25, -8, 8, 25, 43, is not negative
 * so that all products of bytes are of an unsigned weight and a signed activation, which VPDPBUSD adds up by
 * fours.
 *
 * LAYOUT. A row is blocks of 56 or 66 bytes at any address; activations are struct k3_rounded in blocks of
 * 256. A load of 64 bytes at the last block of iq1_m reads 8 bytes of the padding that follows every buffer.
 *
 * MAPPING. Work on a block is integer until one int32 is left for each row and column. 16 rows are worked on
 * block by block; then their 16 vectors of partial sums become one vector, its lanes the rows, and so is the
 * sum of floats, which must go from left to right: one multiplication, one more and one addition for 16 rows.
 * The activations of the block are put into the order in which the weights appear once for all 16 rows. The
 * next 16 rows are prefetched meanwhile.
 *   A group is 8 weights, one code of the book, 16 bits. VPMULTISHIFTQB spreads a code that is anywhere in 64
 *   bits to 8 bytes. Each 64-bit lane works on 4 neighbouring groups, group k in vector k of four:
 *     - iq2_xxs: record j of the format, indices and signs, is the 64-bit lane j of one load;
 *     - iq1_m: groups k = 0, 1 and k = 2, 3 are two sub-blocks of the format, so that two vectors can
 *       be added up before they are scaled.
 *   The book of iq2_xxs is 256 codes, which stay in 8 registers as two planes of bytes; VPERMI2B looks 64
 *   indices up, those of two rows, while the two rows before them are multiplied. The book of iq1_m is 4 KiB:
 *   gathers.
 *   The signs of iq2_xxs: VGF2P8AFFINEQB multiplies bit matrices. Byte j of the vector has just bit j, or
 *   bits 0 to 6 in byte 7; the matrix has the seven stored bits of four groups as rows; so one bit of byte j
 *   of the product is the sign of weight j of group k, and in byte 7 the parity of the seven, the eighth sign.
 *
 * COST, for one row and column of 256 weights, in vector operations, of which two run in a cycle at 512 bits:
 *     iq1_m    25 and two gathers of 16. A gather is microcode of about 26 operations and 6 cycles that
 *              overlap with nothing. 12 + 17 cycles: at 3 GHz 26 G weights/s, 5.8 GB/s
 *     iq2_xxs  34, of which 14 only run on the port for shuffles. 22 cycles: 35 G weights/s, 9 GB/s
 *   2.8 for the sums of 16 and 1.2 for the activations included. Each further column costs 7 (iq1_m) or 6 and
 *   the sums. Neither is bound by memory. */
#include "quant/avx512_internal.h"
#include "quant/grids.h"

/* ---- what both types share ---- */

#define ROWS 16 /* of a group */

/* A column's activations of a block, in the order of the weights. */
struct spread {
    __m512i q[4];
    __m512i sums[2]; /* of activations, times what the type needs */
    float d;
};

/* Where VPMULTISHIFTQB finds the eight digits of a code: at bits `at` and up. */
#define DIGITS_AT(at) _mm512_set1_epi64((long long)(0x0e0c0a0806040200u + 0x0101010101010101u * (at)))

/* 64-bit lane j of out[k] is group k + 4 * (the place of j in the order): 0 1 2 3 4 5 6 7 if b is the second
 * quarter of a block and c the third, 0 4 1 5 2 6 3 7 with `alternate` and the third and the second. */
K3_INLINE void spread_groups(const int8_t *q, bool alternate, __m512i out[4])
{
    const __m512i low =
        alternate ? _mm512_setr_epi64(0, 8, 4, 12, 1, 9, 5, 13) : _mm512_setr_epi64(0, 4, 8, 12, 1, 5, 9, 13);
    const __m512i high = _mm512_add_epi64(low, _mm512_set1_epi64(2));
    __m512i a = _mm512_load_si512(q), b = _mm512_load_si512(q + (alternate ? 128 : 64));
    __m512i c = _mm512_load_si512(q + (alternate ? 64 : 128)), d = _mm512_load_si512(q + 192);
    __m512i ab01 = _mm512_permutex2var_epi64(a, low, b), ab23 = _mm512_permutex2var_epi64(a, high, b);
    __m512i cd01 = _mm512_permutex2var_epi64(c, low, d), cd23 = _mm512_permutex2var_epi64(c, high, d);
    out[0] = _mm512_shuffle_i64x2(ab01, cd01, 0x44);
    out[1] = _mm512_shuffle_i64x2(ab01, cd01, 0xee);
    out[2] = _mm512_shuffle_i64x2(ab23, cd23, 0x44);
    out[3] = _mm512_shuffle_i64x2(ab23, cd23, 0xee);
}

/* acc + d / 8 * dx * sum in each lane, which is a row. */
K3_INLINE __m512 add_block(__m512 acc, const uint16_t d[ROWS], float dx, const __m512i sums[ROWS])
{
    __m512 dw = _mm512_mul_ps(_mm512_cvtph_ps(_mm256_load_si256((const __m256i *)d)), _mm512_set1_ps(0.125f));
    __m512 scale = _mm512_mul_ps(dw, _mm512_set1_ps(dx));
    return _mm512_add_ps(acc, _mm512_mul_ps(scale, _mm512_cvtepi32_ps(k3_sums_of_16(sums))));
}

K3_INLINE void store_rows(const struct k3_product *p, size_t row, size_t rows, size_t column, __m512 sums)
{
    _mm512_mask_storeu_ps(p->y + column * p->y_stride + row, (__mmask16)((1u << rows) - 1), sums);
}

/* Asks for a part of the next 16 rows, as long as a block is, while block b of row r is worked on: rows that
 * come from memory arrive in order and in time. */
K3_INLINE void prefetch_next(const struct k3_product *p, size_t row, size_t b, size_t r, size_t block_bytes)
{
    _mm_prefetch((const char *)(p->rows + (row + ROWS) * p->row_bytes + (b * ROWS + r) * block_bytes),
                 _MM_HINT_T0);
}

/* ---- iq1_m ---- */

/* 64-bit lane j holds four groups, 4m to 4m + 3 for m = 0 4 1 5 2 6 3 7: half of qh, 4 bits a group, then
 * stands where it is needed when 128 bits of it are copied to all lanes. In a lane the groups are 0 2 1 3, so
 * that the words belong to sub-blocks 0 1 0 1 and the dwords have one group of the first and one of the
 * second. */
#define BY_FOURS(f) _mm512_setr_epi64(f(0), f(4), f(1), f(5), f(2), f(6), f(3), f(7))

/* The number of each word's group. */
#define GROUPS(m) (0x0003000100020000 + 0x0004000400040004 * (m))
/* For the upper byte of a word: where its group's 4 bits begin in half of qh. */
#define HIGH_AT(m) (0x0c00040008000000 + 0x1000100010001000 * ((m) % 4))
/* For the lower byte: one bit below the 3 bits of its sub-block's scale in sc, 64 standing for 0. */
#define SCALE_AT(m) (0x0042003f0042003f + 0x0001000100010001 * ((m) / 2 * 16 + (m) % 2 * 6))

struct iq1_m_weights {
    __m512i u[4];    /* 8 * digit: groups 0, 1, 2, 3 of each lane */
    __m512i scale;   /* a word for each group */
    __mmask32 minus; /* groups whose delta is -1/8 */
};

K3_INLINE struct iq1_m_weights iq1_m_weights(const uint8_t *block)
{
    const __m512i lower = DIGITS_AT(64 - 3), upper = DIGITS_AT(32 - 3); /* 3 bits below: times 8 */
    const __m512i digit = _mm512_set1_epi8(3 << 3);
    struct iq1_m_weights w;

    __m512i qs = _mm512_permutexvar_epi8(BY_FOURS(GROUPS), _mm512_loadu_si512(block));
    __m512i qh = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(block + 32)));
    __m512i index = _mm512_mask_multishift_epi64_epi8(qs, 0xaaaaaaaaaaaaaaaa, BY_FOURS(HIGH_AT), qh);
    w.minus = _mm512_test_epi16_mask(index, _mm512_set1_epi16(8 << 8));

    /* What is read above a code's 16 bits is not used. */
    const __m512i mask = _mm512_set1_epi32(0x7ff);
    __m512i c01 = _mm512_i32gather_epi32(_mm512_and_si512(index, mask), k3_grid_iq1s, 2);
    __m512i c23 =
        _mm512_i32gather_epi32(_mm512_and_si512(_mm512_srli_epi32(index, 16), mask), k3_grid_iq1s, 2);
    w.u[0] = _mm512_and_si512(_mm512_multishift_epi64_epi8(lower, c01), digit);
    w.u[1] = _mm512_and_si512(_mm512_multishift_epi64_epi8(upper, c01), digit);
    w.u[2] = _mm512_and_si512(_mm512_multishift_epi64_epi8(lower, c23), digit);
    w.u[3] = _mm512_and_si512(_mm512_multishift_epi64_epi8(upper, c23), digit);

    __m512i sc = _mm512_set1_epi64((long long)k3_load_u64(block + 48));
    sc = _mm512_multishift_epi64_epi8(BY_FOURS(SCALE_AT), sc);
    w.scale =
        _mm512_ternarylogic_epi32(sc, _mm512_set1_epi16(7 << 1), _mm512_set1_epi16(1), 0xea); /* a & b | c */
    return w;
}

K3_INLINE void iq1_m_spread(const struct k3_rounded *x, size_t b, struct spread *out)
{
    spread_groups(x->q + 256 * b, true, out->q);
    __m512i sums = _mm512_permutexvar_epi16(BY_FOURS(GROUPS), _mm512_loadu_si512(x->sums + 32 * b));
    out->sums[0] = _mm512_mullo_epi16(sums, _mm512_set1_epi16(-7));
    out->sums[1] = _mm512_mullo_epi16(sums, _mm512_set1_epi16(-9));
    out->d = x->d[b];
}

/* The lanes add up to the block's integer. Sums of 8 products, 16 * 127 at most each, fit 16 bits. */
K3_INLINE __m512i iq1_m_sum(const struct iq1_m_weights *w, const struct spread *x)
{
    const __m512i zero = _mm512_setzero_si512();
    __m512i first = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, w->u[0], x->q[0]), w->u[1], x->q[1]);
    __m512i second = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, w->u[2], x->q[2]), w->u[3], x->q[3]);
    __m512i both = _mm512_mask_blend_epi16(0xaaaaaaaa, first, _mm512_slli_epi32(second, 16));
    __m512i offset = _mm512_mask_blend_epi16(w->minus, x->sums[0], x->sums[1]);
    return _mm512_dpwssd_epi32(_mm512_dpwssd_epi32(zero, both, w->scale), offset, w->scale);
}

K3_INLINE void iq1_m_group(const struct k3_product *p, size_t row, size_t rows, size_t column,
                           const size_t columns)
{
    const uint8_t *first = p->rows + row * p->row_bytes;
    __m512 acc[K3_MAX_COLUMNS];
    __m512i sums[K3_MAX_COLUMNS][ROWS] = {0};
    _Alignas(32) uint16_t d[ROWS] = {0};
    struct spread x[K3_MAX_COLUMNS];
    for (size_t c = 0; c < columns; c++) acc[c] = _mm512_setzero_ps();

    for (size_t b = 0; b < p->n / 256; b++) {
        const uint8_t *block = first + b * sizeof(struct k3_block_iq1_m);
        for (size_t c = 0; c < columns; c++) {
            struct k3_rounded act = k3_rounded_row(K3_ACT_Q8_K, k3_product_acts(p, column + c), p->n);
            iq1_m_spread(&act, b, &x[c]);
        }
        for (size_t r = 0; r < rows; r++)
            d[r] = (uint16_t)_pext_u64(k3_load_u64(block + r * p->row_bytes + 48), 0xf000f000f000f000);
        for (size_t r = 0; r < rows; r++) {
            prefetch_next(p, row, b, r, sizeof(struct k3_block_iq1_m));
            struct iq1_m_weights w = iq1_m_weights(block + r * p->row_bytes);
            for (size_t c = 0; c < columns; c++) sums[c][r] = iq1_m_sum(&w, &x[c]);
        }
        for (size_t c = 0; c < columns; c++) acc[c] = add_block(acc[c], d, x[c].d, sums[c]);
    }
    for (size_t c = 0; c < columns; c++) store_rows(p, row, rows, column + c, acc[c]);
}

void k3_avx512_iq1_m(const struct k3_product *p)
{
    for (size_t row = 0; row < p->n_rows; row += ROWS) {
        size_t rows = p->n_rows - row < ROWS ? p->n_rows - row : ROWS;
        K3_FOR_COLUMNS(iq1_m_group, p, row, rows);
    }
}

/* ---- iq2_xxs ---- */

/* The book: bytes 0 to 127 and 128 to 255 of the lower and of the upper halves of the codes. */
struct iq2_xxs_book {
    __m512i low[4], high[4];
};

static struct iq2_xxs_book iq2_xxs_book(void)
{
    struct iq2_xxs_book book;
    for (int i = 0; i < 4; i++) {
        __m512i a = _mm512_loadu_si512(k3_grid_iq2xxs + 64 * i),
                b = _mm512_loadu_si512(k3_grid_iq2xxs + 64 * i + 32);
        __m256i low[2] = {_mm512_cvtepi16_epi8(a), _mm512_cvtepi16_epi8(b)};
        __m256i high[2] = {_mm512_cvtepi16_epi8(_mm512_srli_epi16(a, 8)),
                           _mm512_cvtepi16_epi8(_mm512_srli_epi16(b, 8))};
        book.low[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low[0]), low[1], 1);
        book.high[i] = _mm512_inserti64x4(_mm512_castsi256_si512(high[0]), high[1], 1);
    }
    return book;
}

K3_INLINE __m512i look_up(const __m512i table[4], __m512i index, __mmask64 upper)
{
    return _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(table[0], index, table[1]),
                                  _mm512_permutex2var_epi8(table[2], index, table[3]));
}

#define ODD_DWORDS 0xaaaa

/* The blocks of two rows. 64-bit lane j of codes[i] is record j: the lower bytes of its four codes, then the
 * upper ones. */
struct iq2_xxs_pair {
    __m512i records[2], codes[2];
};

K3_INLINE struct iq2_xxs_pair iq2_xxs_pair(const struct iq2_xxs_book *book, const uint8_t *block,
                                           size_t to_second)
{
    struct iq2_xxs_pair p = {
        .records = {_mm512_loadu_si512(block + 2), _mm512_loadu_si512(block + to_second + 2)}};
    __m512i index = _mm512_mask_blend_epi32(ODD_DWORDS, p.records[0], _mm512_slli_epi64(p.records[1], 32));
    __mmask64 upper = _mm512_movepi8_mask(index);
    __m512i low = look_up(book->low, index, upper), high = look_up(book->high, index, upper);
    p.codes[0] = _mm512_mask_blend_epi32(ODD_DWORDS, low, _mm512_slli_epi64(high, 32));
    p.codes[1] = _mm512_mask_blend_epi32(ODD_DWORDS, _mm512_srli_epi64(low, 32), high);
    return p;
}

struct iq2_xxs_weights {
    __m512i u[4];  /* 43 + weight: groups 0, 1, 2, 3 of each record */
    __m512i scale; /* two dwords for each record */
};

/* Where the digits of code k are in a lane of codes. */
#define SPLIT_DIGITS_AT(k) _mm512_set1_epi64(0x2624222006040200 + 0x0808080808080808 * (k))

K3_INLINE struct iq2_xxs_weights iq2_xxs_weights(__m512i records, __m512i codes)
{
    /* 43 + weight for digits 0 to 2, not negative and negative, chosen by bit 2 or by bit 3 of an index. */
    const int plus = 0x00564433, minus = 0x00001223;
    const __m512i by_bit_2 = _mm512_set4_epi32(minus, plus, minus, plus);
    const __m512i by_bit_3 = _mm512_set4_epi32(minus, minus, plus, plus);
    const __m512i digit = _mm512_set1_epi8(3), own_bit = _mm512_set1_epi64(0x7f40201008040201);
    struct iq2_xxs_weights w;

    /* Row i of a matrix is byte 7 - i: the signs of groups 0 to 3 become bits 2 to 5. */
    __m512i rows = _mm512_maskz_multishift_epi64_epi8(0x3c3c3c3c3c3c3c3c,
                                                      _mm512_set1_epi64(0x000020272e350000), records);
    __m512i signs01 = _mm512_gf2p8affine_epi64_epi8(own_bit, rows, 0),
            signs23 = _mm512_srli_epi16(signs01, 2);
    for (int k = 0; k < 4; k++) {
        const __m512i at = SPLIT_DIGITS_AT(k);
        __m512i digits = _mm512_multishift_epi64_epi8(at, codes);
        __m512i index =
            _mm512_ternarylogic_epi32(digits, k < 2 ? signs01 : signs23, digit, 0xe4); /* c ? a : b */
        w.u[k] = _mm512_shuffle_epi8(k % 2 ? by_bit_3 : by_bit_2, index);
    }
    __m512i scale = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x0000003b0000003b), records);
    w.scale = _mm512_ternarylogic_epi32(scale, _mm512_set1_epi32(15 << 1), _mm512_set1_epi32(1), 0xea);
    return w;
}

K3_INLINE void iq2_xxs_spread(const struct k3_rounded *x, size_t b, struct spread *out)
{
    spread_groups(x->q + 256 * b, false, out->q);
    out->sums[0] = _mm512_madd_epi16(_mm512_loadu_si512(x->sums + 32 * b), _mm512_set1_epi16(-43));
    out->d = x->d[b];
}

K3_INLINE __m512i iq2_xxs_sum(const struct iq2_xxs_weights *w, const struct spread *x)
{
    __m512i sum = x->sums[0];
    for (int k = 0; k < 4; k++) sum = _mm512_dpbusd_epi32(sum, w->u[k], x->q[k]);
    return _mm512_mullo_epi32(sum, w->scale);
}

K3_INLINE void iq2_xxs_group(const struct k3_product *p, const struct iq2_xxs_book *book, size_t row,
                             size_t rows, size_t column, const size_t columns)
{
    const size_t block_bytes = sizeof(struct k3_block_iq2_xxs), n_blocks = p->n / 256;
    const uint8_t *first = p->rows + row * p->row_bytes, *block = first;
    __m512 acc[K3_MAX_COLUMNS];
    __m512i sums[K3_MAX_COLUMNS][ROWS] = {0};
    _Alignas(32) uint16_t d[ROWS] = {0};
    struct spread x[K3_MAX_COLUMNS];
    for (size_t c = 0; c < columns; c++) acc[c] = _mm512_setzero_ps();

    /* A row without a partner is its own. The codes of two rows are looked up while the two before them are
     * multiplied. */
    struct iq2_xxs_pair next = iq2_xxs_pair(book, first, rows > 1 ? p->row_bytes : 0);
    for (size_t b = 0; b < n_blocks; b++) {
        for (size_t c = 0; c < columns; c++) {
            struct k3_rounded act = k3_rounded_row(K3_ACT_Q8_K, k3_product_acts(p, column + c), p->n);
            iq2_xxs_spread(&act, b, &x[c]);
        }
        for (size_t r = 0; r < rows; r++) d[r] = k3_load_u16(block + r * p->row_bytes);
        for (size_t r = 0; r < rows; r += 2) {
            prefetch_next(p, row, b, r, block_bytes);
            prefetch_next(p, row, b, r + 1, block_bytes);
            /* The next two rows, or the first two of the next block, or the first of all once more. */
            size_t after = r + 2 < rows ? r + 2 : 0;
            if (after == 0) block = b + 1 < n_blocks ? block + block_bytes : first;
            const struct iq2_xxs_pair pair = next;
            next = iq2_xxs_pair(book, block + after * p->row_bytes, after + 1 < rows ? p->row_bytes : 0);
            for (size_t i = 0; i < 2; i++) {
                struct iq2_xxs_weights w = iq2_xxs_weights(pair.records[i], pair.codes[i]);
                for (size_t c = 0; c < columns; c++) sums[c][r + i] = iq2_xxs_sum(&w, &x[c]);
            }
        }
        for (size_t c = 0; c < columns; c++) acc[c] = add_block(acc[c], d, x[c].d, sums[c]);
    }
    for (size_t c = 0; c < columns; c++) store_rows(p, row, rows, column + c, acc[c]);
}

void k3_avx512_iq2_xxs(const struct k3_product *p)
{
    const struct iq2_xxs_book book = iq2_xxs_book();
    for (size_t row = 0; row < p->n_rows; row += ROWS) {
        size_t rows = p->n_rows - row < ROWS ? p->n_rows - row : ROWS;
        K3_FOR_COLUMNS(iq2_xxs_group, p, &book, row, rows);
    }
}
