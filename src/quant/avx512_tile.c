/* avx512_tile.c - decodes weights of 16 rows into tiles (avx512_tile.h).
 *
 * LAYOUT. 16 rows of blocks (quant_internal.h) in; out come vectors of 16 rows x 4 weights.
 *
 * MAPPING. Rows become lanes before anything is decoded, while codes are still small (a quarter of a byte a
 * weight in the grid types): words of 32 bits of 16 rows are transposed, and from then on an instruction
 * decodes for 16 rows. In the grid types digit t of each byte of codes becomes a vector of its own by a
 * shift; together with bits for sign and factor the digit is an index into a table of 64 bytes in one
 * register, whose entries are the bytes of the tile: scaling costs nothing.
 *
 * COST, in instructions for the two ports that do vector arithmetic, for 16 rows x 256 weights (64 vectors):
 *   iq1_m    80 transpose + 64 x (shift, select, look up) + 16 x 13 for indices;
 *            32 gathers of 16 codes, 6 cycles each
 *   iq2_xxs  80 transpose + 64 x (shift, rotate, select, look up) + 8 x 25 for codes and signs;
 *            in two parts 64 x 3 more
 *   q8_0     320 transpose + 64 x exclusive or; 8 gathers of scales
 *   mxfp4    160 transpose + 64 x 1.5; 8 gathers of scales
 * and 64 stores to a tile that is in L2. Arithmetic alone would be 130 to 360 cycles, or 3 to 8 ns for 256
 * weights of one row at 2.7 GHz; measured on a Sapphire Rapids core 8 (iq1_m), 10 (iq2_xxs, 12 in two parts),
 * 8 (q8_0) and 7 ns (mxfp4). */
#include "quant/avx512_tile.h"
#include "quant/grids.h"

/* a where `mask` has bits, else b. */
static inline __m512i select_bits(__m512i mask, __m512i a, __m512i b)
{
    return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}

/* ---- rows into lanes ---- */

/* 16 rows at the first block of a tile; where a product has less, the last one stands for those that are
 * missing. */
struct rows {
    const unsigned char *at[16];
};

/* Words of 32 bits 0 to 3 at `offset` of each row, lanes are rows. Rows r, r + 4, r + 8, r + 12 are put into
 * one register as they are loaded, which takes no port for shuffles; then words have to change places within
 * 128 bits only. */
static inline void load_4_words(const struct rows *rows, size_t offset, __m512i *v)
{
    __m512i t[4];
#pragma GCC unroll 4
    for (size_t r = 0; r < 4; r++) {
        t[r] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(rows->at[r] + offset)));
        t[r] = _mm512_inserti32x4(t[r], _mm_loadu_si128((const __m128i *)(rows->at[r + 4] + offset)), 1);
        t[r] = _mm512_inserti32x4(t[r], _mm_loadu_si128((const __m128i *)(rows->at[r + 8] + offset)), 2);
        t[r] = _mm512_inserti32x4(t[r], _mm_loadu_si128((const __m128i *)(rows->at[r + 12] + offset)), 3);
    }
    const __m512i a = _mm512_unpacklo_epi32(t[0], t[1]), b = _mm512_unpackhi_epi32(t[0], t[1]);
    const __m512i c = _mm512_unpacklo_epi32(t[2], t[3]), d = _mm512_unpackhi_epi32(t[2], t[3]);
    v[0] = _mm512_unpacklo_epi64(a, c);
    v[1] = _mm512_unpackhi_epi64(a, c);
    v[2] = _mm512_unpacklo_epi64(b, d);
    v[3] = _mm512_unpackhi_epi64(b, d);
}

/* Words 0 to 15. */
static inline void load_16_words(const struct rows *rows, size_t offset, __m512i v[16])
{
#pragma GCC unroll 4
    for (size_t k = 0; k < 4; k++) load_4_words(rows, offset + 16 * k, v + 4 * k);
}

/* Where rows begin, for gathers. */
static inline __m512i row_offsets(const struct rows *rows)
{
    _Alignas(64) int32_t offset[16];
    for (size_t r = 0; r < 16; r++) offset[r] = (int32_t)(rows->at[r] - rows->at[0]);
    return _mm512_load_si512(offset);
}

/* The 32 bits at `offset` of each row. */
static inline __m512i load_word(const struct rows *rows, __m512i offsets, size_t offset)
{
    return _mm512_i32gather_epi32(offsets, (const int *)(rows->at[0] + offset), 1);
}

/* The low 16 bits of each lane as f16. */
static inline __m512 f32_from_f16(__m512i words)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
}

/* ---- q8_0 ---- */

static void tile_q8_0(const struct rows *rows, size_t n, enum k3_tile_kind kind, struct k3_tile *tile)
{
    const __m512i bias = _mm512_set1_epi8(kind == K3_TILE_UNSIGNED ? (char)K3_BIAS_Q8_0 : 0);
    const __m512i offsets = row_offsets(rows);
    for (size_t b = 0; b < n / 32; b++) {
        const size_t offset = b * sizeof(struct k3_block_q8_0);
        __m512i v[8];
        load_4_words(rows, offset + 2, v);
        load_4_words(rows, offset + 18, v + 4);
#pragma GCC unroll 8
        for (size_t j = 0; j < 8; j++) _mm512_store_si512(tile->w[8 * b + j], _mm512_xor_si512(v[j], bias));
        _mm512_store_ps(tile->scale[b], f32_from_f16(load_word(rows, offsets, offset)));
    }
}

/* ---- mxfp4 ---- */

/* k3_mxfp4_scale. */
static inline __m512 mxfp4_scale(__m512i e)
{
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    __mmask16 is_normal = _mm512_cmpge_epu32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(small, is_normal, normal));
}

static void tile_mxfp4(const struct rows *rows, size_t n, enum k3_tile_kind kind, struct k3_tile *tile)
{
    _Alignas(64)
        int8_t bytes_of_codes[64]; /* VPERMB looks at 6 bits, of which the upper two are not the code's */
    for (uint8_t i = 0; i < 64; i++)
        bytes_of_codes[i] =
            (int8_t)(k3_mxfp4_weight(i & 15) + (kind == K3_TILE_UNSIGNED ? K3_BIAS_MXFP4 : 0));
    const __m512i table = _mm512_load_si512(bytes_of_codes), offsets = row_offsets(rows);
    for (size_t b = 0; b < n / 32; b++) {
        const size_t offset = b * sizeof(struct k3_block_mxfp4);
        __m512i v[4];
        load_4_words(rows, offset + 1, v);
#pragma GCC unroll 4
        for (size_t j = 0; j < 4; j++) {
            _mm512_store_si512(tile->w[8 * b + j], _mm512_permutexvar_epi8(v[j], table));
            _mm512_store_si512(tile->w[8 * b + 4 + j],
                               _mm512_permutexvar_epi8(_mm512_srli_epi32(v[j], 4), table));
        }
        __m512i e = _mm512_and_si512(load_word(rows, offsets, offset), _mm512_set1_epi32(255));
        _mm512_store_ps(tile->scale[b], mxfp4_scale(e));
    }
}

/* ---- iq1_m ---- */

/* For VPMULTISHIFTQB: byte i of every lane of 32 bits gets the 8 bits that begin at bit s[i] of that lane. */
static inline __m512i shifts(int s0, int s1, int s2, int s3)
{
    const unsigned odd = 0x20202020u; /* the second lane of 64 bits begins at bit 32 */
    unsigned even = (unsigned)(s0 & 63) | (unsigned)(s1 & 63) << 8 | (unsigned)(s2 & 63) << 16 |
                    (unsigned)(s3 & 63) << 24;
    return _mm512_set1_epi64((long long)((uint64_t)(even ^ odd) << 32 | even));
}

/* The byte of each digit (bits 0, 1), sign of delta (bit 2, set: negative) and factor (bits 3 to 5):
 *     (factor * (8 * (digit - 1) + delta) + 135) / 2 */
static inline __m512i iq1_m_table(void)
{
    _Alignas(64) uint8_t table[64];
    for (int i = 0; i < 64; i++) {
        int digit = i & 3, delta = i & 4 ? -1 : 1, factor = 2 * (i >> 3) + 1;
        table[i] = (uint8_t)((factor * (8 * (digit - 1) + delta) + K3_BIAS_IQ1_M) / 2);
    }
    return _mm512_load_si512(table);
}

/* d / 8; the bits of d are the upper four of each 16. */
static inline __m512 iq1_m_scale(__m512i words_0_1, __m512i words_2_3)
{
    const __m512i low = _mm512_set1_epi32(0x000f), second = _mm512_set1_epi32(0x00f0);
    const __m512i third = _mm512_set1_epi32(0x0f00);
    __m512i d = select_bits(low, _mm512_srli_epi32(words_0_1, 12), _mm512_srli_epi32(words_0_1, 24));
    d = _mm512_and_si512(d, _mm512_or_si512(low, second));
    d = select_bits(third, _mm512_srli_epi32(words_2_3, 4), d);
    d = select_bits(_mm512_set1_epi32(0xf000), _mm512_srli_epi32(words_2_3, 16), d);
    return _mm512_mul_ps(_mm512_set1_ps(0.125f), f32_from_f16(d));
}

/* Codes of two groups, side by side. low: byte 0 and byte 2 are the low bytes of the indices; high: bytes 1
 * and 3 have the three bits above. */
static inline __m512i iq1_m_codes(__m512i low, __m512i high)
{
    __m512i index = select_bits(_mm512_set1_epi32(0x00ff00ff), low, high);
    index = _mm512_and_si512(index, _mm512_set1_epi32(0x07ff07ff));
    __m512i a = _mm512_i32gather_epi32(_mm512_and_si512(index, _mm512_set1_epi32(0xffff)),
                                       (const int *)k3_grid_iq1s, 2);
    __m512i b = _mm512_i32gather_epi32(_mm512_srli_epi32(index, 16), (const int *)k3_grid_iq1s, 2);
    return _mm512_mask_mov_epi16(a, 0xaaaaaaaau, _mm512_slli_epi32(b, 16));
}

static void tile_iq1_m(const struct rows *rows, size_t n, enum k3_tile_kind kind, struct k3_tile *tile)
{
    (void)kind;
    const __m512i table = iq1_m_table();
    for (size_t b = 0; b < n / 256; b++) {
        __m512i v[16]; /* words 0 .. 7 are qs, 8 .. 11 qh, 12 and 13 sc; the rest is the next block */
        load_16_words(rows, b * sizeof(struct k3_block_iq1_m), v);
        _mm512_store_ps(tile->scale[b], iq1_m_scale(v[12], v[13]));
#pragma GCC unroll 16
        for (int k = 0; k < 16; k++) { /* 16 weights: two groups, one factor */
            const int at = 8 * (k % 4);
            __m512i low =
                _mm512_multishift_epi64_epi8(shifts(16 * (k % 2), 0, 16 * (k % 2) + 8, 0), v[k / 2]);
            __m512i high = _mm512_multishift_epi64_epi8(shifts(0, at, 0, at + 4), v[8 + k / 4]);
            __m512i codes = iq1_m_codes(low, high);
            __m512i sign = _mm512_multishift_epi64_epi8(shifts(at + 1, at + 1, at + 5, at + 5), v[8 + k / 4]);
            const int f = 16 * (k / 4 % 2) + 3 * (k % 4) - 3;
            __m512i factor = _mm512_multishift_epi64_epi8(shifts(f, f, f, f), v[12 + k / 8]);
            __m512i upper = select_bits(_mm512_set1_epi8(4), sign, factor);
#pragma GCC unroll 4
            for (unsigned t = 0; t < 4; t++) {
                __m512i index = select_bits(_mm512_set1_epi8(3), _mm512_srli_epi32(codes, 2 * t), upper);
                _mm512_store_si512(tile->w[64 * b + 4 * (size_t)k + t],
                                   _mm512_permutexvar_epi8(index, table));
            }
        }
    }
}

/* ---- iq2_xxs ---- */

/* One byte of each of the 256 codes. */
struct plane {
    __m512i v[4];
};

static inline struct plane code_plane(unsigned shift)
{
    struct plane p;
    for (int i = 0; i < 4; i++) {
        const uint16_t *codes = k3_grid_iq2xxs + 64 * i;
        __m512i a = _mm512_srl_epi16(_mm512_loadu_si512(codes), _mm_cvtsi32_si128((int)shift));
        __m512i b = _mm512_srl_epi16(_mm512_loadu_si512(codes + 32), _mm_cvtsi32_si128((int)shift));
        p.v[i] =
            _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(a)), _mm512_cvtepi16_epi8(b), 1);
    }
    return p;
}

static inline __m512i look_up(const struct plane *p, __m512i index)
{
    __m512i low = _mm512_permutex2var_epi8(p->v[0], index, p->v[1]);
    __m512i high = _mm512_permutex2var_epi8(p->v[2], index, p->v[3]);
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(index), high);
}

/* The 28 bits of four groups to 32: k3_grid_signs for each. */
static inline __m512i iq2_signs(__m512i a)
{
    const __m512i seven = _mm512_set1_epi8(0x7f);
    __m512i bits = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts(0, 7, 14, 21), a), seven);
    return select_bits(seven, bits, _mm512_slli_epi16(_mm512_popcnt_epi8(bits), 7));
}

/* The byte of each digit (bits 0, 1) and sign (bit 2): 43 +- weight; the upper bits are not the index's. */
static inline __m512i iq2_unsigned_table(void)
{
    static const uint8_t weight[4] = {8, 25, 43, 0};
    _Alignas(64) uint8_t table[64];
    for (int i = 0; i < 64; i++)
        table[i] = (uint8_t)(K3_BIAS_IQ2_XXS + (i & 4 ? -weight[i & 3] : weight[i & 3]));
    return _mm512_load_si512(table);
}

/* The parts of each digit (bits 0, 1) and factor (bits 2 to 5). */
static inline void iq2_signed_tables(__m512i *low, __m512i *high)
{
    static const uint8_t weight[4] = {8, 25, 43, 0};
    _Alignas(64) uint8_t l[64], h[64];
    for (int i = 0; i < 64; i++) {
        int v = weight[i & 3] * (2 * (i >> 2) + 1);
        l[i] = (uint8_t)(v % 16);
        h[i] = (uint8_t)(v / 16);
    }
    *low = _mm512_load_si512(l);
    *high = _mm512_load_si512(h);
}

/* 32 weights; codes are of the four groups' first or second halves, bits `at` and on of each byte of `signs`
 * are theirs. */
static inline void iq2_unsigned_half(__m512i codes, __m512i signs, int at, __m512i table, uint8_t (*w)[16][4])
{
    const __m512i digit = _mm512_set1_epi8(3);
#pragma GCC unroll 4
    for (int t = 0; t < 4; t++) {
        __m512i sign = _mm512_rolv_epi32(signs, _mm512_set1_epi32((2 - at - t) & 31)); /* to bit 2 */
        __m512i index = select_bits(digit, _mm512_srli_epi32(codes, 2 * (unsigned)t), sign);
        _mm512_store_si512(w[t], _mm512_permutexvar_epi8(index, table));
    }
}

static inline void iq2_signed_half(__m512i codes, __m512i factor, __m512i signs, int at, __m512i low,
                                   __m512i high, uint8_t (*w)[16][4], uint8_t (*w_high)[16][4])
{
    const __m512i digit = _mm512_set1_epi8(3), zero = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int t = 0; t < 4; t++) {
        __mmask64 negative = _mm512_test_epi8_mask(signs, _mm512_set1_epi8((char)(1 << (at + t))));
        __m512i index = select_bits(digit, _mm512_srli_epi32(codes, 2 * (unsigned)t), factor);
        __m512i l = _mm512_permutexvar_epi8(index, low), h = _mm512_permutexvar_epi8(index, high);
        _mm512_store_si512(w[t], _mm512_mask_sub_epi8(l, negative, zero, l));
        _mm512_store_si512(w_high[t], _mm512_mask_sub_epi8(h, negative, zero, h));
    }
}

/* Always inlined, so that each kind has a loop of its own. */
K3_INLINE void tile_iq2_xxs_as(const struct rows *rows, size_t n, enum k3_tile_kind kind,
                               struct k3_tile *tile)
{
    const struct plane first = code_plane(0), second = code_plane(8);
    const __m512i offsets = row_offsets(rows), table = iq2_unsigned_table();
    __m512i low, high;
    iq2_signed_tables(&low, &high);
    for (size_t b = 0; b < n / 256; b++) {
        const size_t offset = b * sizeof(struct k3_block_iq2_xxs);
        __m512i v[16]; /* for each 32 weights a word of indices, and one of signs and factor */
        load_16_words(rows, offset + 2, v);
        __m512 d = f32_from_f16(load_word(rows, offsets, offset));
        _mm512_store_ps(tile->scale[b], _mm512_mul_ps(_mm512_set1_ps(0.125f), d));
#pragma GCC unroll 8
        for (size_t k = 0; k < 8; k++) {
            __m512i codes_1 = look_up(&first, v[2 * k]), codes_2 = look_up(&second, v[2 * k]);
            __m512i a = v[2 * k + 1], signs = iq2_signs(a);
            uint8_t(*w)[16][4] = tile->w + 64 * b + 8 * k, (*w_high)[16][4] = tile->high + 64 * b + 8 * k;
            if (kind == K3_TILE_UNSIGNED) {
                __m512i s = _mm512_srli_epi32(a, 28);
                _mm512_store_si512(tile->factor[8 * b + k],
                                   _mm512_add_epi32(_mm512_add_epi32(s, s), _mm512_set1_epi32(1)));
                iq2_unsigned_half(codes_1, signs, 0, table, w);
                iq2_unsigned_half(codes_2, signs, 4, table, w + 4);
            } else {
                __m512i factor = _mm512_multishift_epi64_epi8(shifts(26, 26, 26, 26), a);
                iq2_signed_half(codes_1, factor, signs, 0, low, high, w, w_high);
                iq2_signed_half(codes_2, factor, signs, 4, low, high, w + 4, w_high + 4);
            }
        }
    }
}

static void tile_iq2_xxs(const struct rows *rows, size_t n, enum k3_tile_kind kind, struct k3_tile *tile)
{
    if (kind == K3_TILE_UNSIGNED)
        tile_iq2_xxs_as(rows, n, K3_TILE_UNSIGNED, tile);
    else
        tile_iq2_xxs_as(rows, n, K3_TILE_SIGNED, tile);
}

/* ---- products ---- */

static inline size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void decode(enum k3_type type, const struct rows *rows, size_t n, enum k3_tile_kind kind,
                   struct k3_tile *tile)
{
    switch (type) {
    case K3_TYPE_Q8_0:
        tile_q8_0(rows, n, kind, tile);
        break;
    case K3_TYPE_MXFP4:
        tile_mxfp4(rows, n, kind, tile);
        break;
    case K3_TYPE_IQ1_M:
        tile_iq1_m(rows, n, kind, tile);
        break;
    default:
        tile_iq2_xxs(rows, n, kind, tile);
    }
}

void k3_tile_product(const struct k3_product *p, enum k3_type type, enum k3_tile_kind kind,
                     k3_tiles_fn multiply)
{
    const struct k3_type_info *info = k3_type_info(type);
    const size_t max_rows = 32 * K3_TILE_PAIRS;
    struct k3_tile tiles[2 * K3_TILE_PAIRS];
    for (size_t row = 0; row < p->n_rows; row += max_rows)
        for (size_t first = 0; first < p->n; first += K3_TILE_WEIGHTS) {
            struct k3_tiles t = {.product = p, .row = row, .first = first};
            t.n_rows = least(p->n_rows - row, max_rows);
            t.n = least(p->n - first, K3_TILE_WEIGHTS);
            const unsigned char *from =
                p->rows + row * p->row_bytes + first / info->block * info->block_bytes;
            for (size_t i = 0; 16 * i < t.n_rows; i++) {
                struct rows rows;
                for (size_t r = 0; r < 16; r++)
                    rows.at[r] = from + least(16 * i + r, t.n_rows - 1) * p->row_bytes;
                decode(type, &rows, t.n, kind, &tiles[i]);
                t.pairs[i / 2][i % 2] = &tiles[i];
                if (i % 2 == 0) t.pairs[i / 2][1] = &tiles[i];
            }
            multiply(&t);
        }
}

/* Which lanes of a tile are rows of the product. */
static __mmask16 lanes_of(const struct k3_tiles *t, size_t tile)
{
    size_t n = t->n_rows > 16 * tile ? t->n_rows - 16 * tile : 0;
    return n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);
}

void k3_tiles_load(const struct k3_tiles *t, size_t c0, size_t n_columns, size_t columns, __m512 (*sums)[2])
{
    const float *y = t->product->y + c0 * t->product->y_stride + t->row;
    for (size_t i = 0; i < 2 * k3_tiles_pairs(t); i++) {
        const __mmask16 lanes = t->first > 0 ? lanes_of(t, i) : 0;
        for (size_t c = 0; c < columns; c++)
            sums[i / 2 * columns + c][i % 2] =
                c < n_columns ? _mm512_maskz_loadu_ps(lanes, y + c * t->product->y_stride + 16 * i)
                              : _mm512_setzero_ps();
    }
}

void k3_tiles_store(const struct k3_tiles *t, size_t c0, size_t n_columns, size_t columns,
                    const __m512 (*sums)[2])
{
    float *y = t->product->y + c0 * t->product->y_stride + t->row;
    for (size_t i = 0; i < 2 * k3_tiles_pairs(t); i++)
        for (size_t c = 0; c < n_columns; c++)
            _mm512_mask_storeu_ps(y + c * t->product->y_stride + 16 * i, lanes_of(t, i),
                                  sums[i / 2 * columns + c][i % 2]);
}
