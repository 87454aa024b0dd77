/* avx512_floats.c - f32, f16 and bf16 times a few columns, 4 rows at a time.
 *
 * FORMULA. portable.c has it: 16 partial sums, one multiplication and one addition for each 16 weights, then
 * the sums in pairs, then what is left over. Never fused: a fused operation rounds once where the definition
 * rounds twice.
 *
 * LAYOUT. Rows of 4 or 2 bytes a weight at any address; activations are f32 at any address. Nothing is read
 * beyond either.
 *
 * MAPPING. The 16 partial sums are one vector. An addition takes 4 cycles, so 4 rows are worked on at once,
 * and columns as many as there are, to 4.
 *
 * COST, for 16 weights of a row and one column: two vector operations, and to widen the weights two more,
 * once for all columns; so 16 or 8 weights a cycle, 64 or 16 bytes, and memory is the bound. */
#include "quant/avx512_internal.h"

#define ROWS 4 /* of a group */

/* 16 weights from element i on. */
typedef __m512 (*load_fn)(const uint8_t *w, size_t i);

/* One weight. */
typedef float (*load_one_fn)(const uint8_t *w, size_t i);

struct type {
    load_fn load;
    load_one_fn load_one;
};

K3_INLINE __m512 load_f32(const uint8_t *w, size_t i)
{
    return _mm512_loadu_ps(w + 4 * i);
}

K3_INLINE float load_one_f32(const uint8_t *w, size_t i)
{
    return k3_f32_from_bits(k3_load_u32(w + 4 * i));
}

K3_INLINE __m512 load_f16(const uint8_t *w, size_t i)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(w + 2 * i)));
}

K3_INLINE float load_one_f16(const uint8_t *w, size_t i)
{
    return k3_load_f16(w + 2 * i);
}

K3_INLINE __m512 load_bf16(const uint8_t *w, size_t i)
{
    __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(w + 2 * i)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

K3_INLINE float load_one_bf16(const uint8_t *w, size_t i)
{
    return k3_f32_from_bf16(k3_load_u16(w + 2 * i));
}

static const struct type f32 = {load_f32, load_one_f32};
static const struct type f16 = {load_f16, load_one_f16};
static const struct type bf16 = {load_bf16, load_one_bf16};

/* s[l] += s[l + 8], s[l] += s[l + 4], s[l] += s[l + 2], s[0] += s[1]. */
K3_INLINE float sum_in_pairs(__m512 s)
{
    __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

/* rows[0], rows[1] .. times x[0], x[1] ..: y[c * y_stride + r]. Both numbers are constants. */
K3_INLINE void tile(const struct type *type, const uint8_t *const rows[], const size_t n_rows,
                    const float *const x[], const size_t columns, size_t n, float *y, size_t y_stride)
{
    __m512 sums[K3_MAX_COLUMNS][ROWS];
    for (size_t c = 0; c < columns; c++)
        for (size_t r = 0; r < n_rows; r++) sums[c][r] = _mm512_setzero_ps();
    size_t whole = n - n % 16;
    for (size_t i = 0; i < whole; i += 16)
        for (size_t r = 0; r < n_rows; r++) {
            __m512 w = type->load(rows[r], i);
            for (size_t c = 0; c < columns; c++)
                sums[c][r] = _mm512_add_ps(sums[c][r], _mm512_mul_ps(w, _mm512_loadu_ps(x[c] + i)));
        }
    for (size_t c = 0; c < columns; c++)
        for (size_t r = 0; r < n_rows; r++) {
            float sum = sum_in_pairs(sums[c][r]);
            for (size_t i = whole; i < n; i++) sum += type->load_one(rows[r], i) * x[c][i];
            y[c * y_stride + r] = sum;
        }
}

K3_INLINE void group(const struct k3_product *p, const struct type *type, size_t row, const size_t n_rows,
                     size_t column, const size_t columns)
{
    const uint8_t *rows[ROWS];
    const float *x[K3_MAX_COLUMNS];
    for (size_t r = 0; r < n_rows; r++) rows[r] = p->rows + (row + r) * p->row_bytes;
    for (size_t c = 0; c < columns; c++) x[c] = k3_product_acts(p, column + c);
    tile(type, rows, n_rows, x, columns, p->n, p->y + column * p->y_stride + row, p->y_stride);
}

K3_INLINE void multiply(const struct k3_product *p, const struct type *type)
{
    size_t row = 0;
    for (; row + ROWS <= p->n_rows; row += ROWS) K3_FOR_COLUMNS(group, p, type, row, ROWS);
    for (; row < p->n_rows; row++) K3_FOR_COLUMNS(group, p, type, row, 1);
}

void k3_avx512_f32(const struct k3_product *p)
{
    multiply(p, &f32);
}

void k3_avx512_f16(const struct k3_product *p)
{
    multiply(p, &f16);
}

void k3_avx512_bf16(const struct k3_product *p)
{
    multiply(p, &bf16);
}
