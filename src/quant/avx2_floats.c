/* avx2_floats.c - f32, f16 and bf16 with AVX2.
 *
 * FORMULA. portable.c has it: 16 partial sums for each row and column, a multiplication and then an addition,
 * each rounded: no fused multiply-add.
 *
 * LAYOUT. Rows and activations at any address, of any length; nothing beyond their ends is read.
 *
 * MAPPING. The partial sums of a row and column are two vectors. Three rows and two columns, or four rows and
 * one column, are worked on at once: twelve or eight chains of additions, which hide the latency, and what is
 * loaded (and widened, for 16 bits) is used two, three or four times.
 *
 * COST. A multiplication and an addition for 8 weights, on two ports each of three: 12 weights a cycle at
 * best. One column is bound by memory for rows that are not in cache. */
#include "quant/avx2_internal.h"

/* ---- elements ---- */

/* How a weight is widened. All of it is inlined. */
struct element {
    size_t bytes;
    __m256 (*load_8)(const uint8_t *w);
    float (*load)(const uint8_t *w);
};

K3_INLINE __m256 load_8_f32(const uint8_t *w)
{
    return _mm256_loadu_ps((const float *)w);
}

K3_INLINE float load_f32(const uint8_t *w)
{
    return k3_f32_from_bits(k3_load_u32(w));
}

K3_INLINE __m256 load_8_f16(const uint8_t *w)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)w));
}

K3_INLINE float load_f16(const uint8_t *w)
{
    return k3_load_f16(w);
}

K3_INLINE __m256 load_8_bf16(const uint8_t *w)
{
    __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)w));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}

K3_INLINE float load_bf16(const uint8_t *w)
{
    return k3_f32_from_bf16(k3_load_u16(w));
}

static const struct element f32 = {4, load_8_f32, load_f32};
static const struct element f16 = {2, load_8_f16, load_f16};
static const struct element bf16 = {2, load_8_bf16, load_bf16};

/* ---- products ---- */

/* The 16 partial sums added in pairs. */
K3_INLINE float sum_of_16(__m256 low, __m256 high)
{
    __m256 s = _mm256_add_ps(low, high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#define MAX_ROWS    4
#define MAX_COLUMNS 2

K3_INLINE void multiply_group(const struct k3_product *p, const struct element *type, size_t row,
                              size_t column, const size_t rows, const size_t columns)
{
    const uint8_t *w[MAX_ROWS];
    const float *x[MAX_COLUMNS];
    __m256 s[MAX_ROWS][MAX_COLUMNS][2];
    for (size_t r = 0; r < rows; r++) w[r] = p->rows + (row + r) * p->row_bytes;
    for (size_t c = 0; c < columns; c++) x[c] = k3_product_acts(p, column + c);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) s[r][c][0] = s[r][c][1] = _mm256_setzero_ps();

    size_t i = 0;
    for (; i + 16 <= p->n; i += 16)
        for (size_t h = 0; h < 2; h++) {
            __m256 activations[MAX_COLUMNS];
            for (size_t c = 0; c < columns; c++) activations[c] = _mm256_loadu_ps(x[c] + i + 8 * h);
            for (size_t r = 0; r < rows; r++) {
                __m256 weights = type->load_8(w[r] + (i + 8 * h) * type->bytes);
                for (size_t c = 0; c < columns; c++)
                    s[r][c][h] = _mm256_add_ps(s[r][c][h], _mm256_mul_ps(weights, activations[c]));
            }
        }

    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) {
            float sum = sum_of_16(s[r][c][0], s[r][c][1]);
            for (size_t k = i; k < p->n; k++) sum += type->load(w[r] + k * type->bytes) * x[c][k];
            p->y[(column + c) * p->y_stride + row + r] = sum;
        }
}

K3_INLINE void multiply_rows(const struct k3_product *p, const struct element *type, size_t column,
                             const size_t rows, const size_t columns)
{
    size_t row = 0;
    for (; row + rows <= p->n_rows; row += rows) multiply_group(p, type, row, column, rows, columns);
    for (; row < p->n_rows; row++) multiply_group(p, type, row, column, 1, columns);
}

K3_INLINE void multiply(const struct k3_product *p, const struct element *type)
{
    size_t column = 0;
    for (; column + 2 <= p->n_columns; column += 2) multiply_rows(p, type, column, 3, 2);
    if (column < p->n_columns) multiply_rows(p, type, column, 4, 1);
}

void k3_avx2_f32(const struct k3_product *p)
{
    multiply(p, &f32);
}

void k3_avx2_f16(const struct k3_product *p)
{
    multiply(p, &f16);
}

void k3_avx2_bf16(const struct k3_product *p)
{
    multiply(p, &bf16);
}
