/* Rows to f32. */
#include "quant/half.h"
#include "quant/quant.h"

#include "data.h"

#include <math.h>
#include <string.h>

/* Types with vectors, and how far the row NAME.enc, which a good encoder made of src.f32, is from it:
 * relative RMSE plain and weighted by imatrix.f32. The figures are those of
 * tests/data/quant/vectors/README.md. */
static const struct vector {
    enum k3_type type;
    double plain, weighted;
} vectors[] = {
    {K3_TYPE_Q8_0, .00529, .00536},  {K3_TYPE_IQ1_M, .4833, .3883},  {K3_TYPE_IQ2_XXS, .3704, .3089},
    {K3_TYPE_MXFP4, .1179, .1117},   {K3_TYPE_Q2_K, .2682, .2264},   {K3_TYPE_Q3_K, .1480, .1351},
    {K3_TYPE_Q4_K, .0711, .0628},    {K3_TYPE_Q5_K, .0353, .0320},   {K3_TYPE_Q6_K, .0179, .0165},
    {K3_TYPE_IQ1_S, .5065, .4374},   {K3_TYPE_IQ2_XS, .3210, .2651}, {K3_TYPE_IQ2_S, .2587, .2199},
    {K3_TYPE_IQ3_XXS, .2069, .1561}, {K3_TYPE_IQ3_S, .1435, .1192},  {K3_TYPE_IQ4_NL, .0751, .0692},
    {K3_TYPE_IQ4_XS, .0758, .0701},  {K3_TYPE_Q4_0, .0816, .0757},   {K3_TYPE_Q4_1, .0708, .0619},
    {K3_TYPE_Q5_0, .0394, .0361},    {K3_TYPE_Q5_1, .0345, .0306},
};
#define N_VECTORS (sizeof vectors / sizeof *vectors)

static size_t row_bytes(enum k3_type type, size_t n)
{
    const struct k3_type_info *info = k3_type_info(type);
    return n / info->block * info->block_bytes;
}

/* The rows are laid at the addresses that are hardest for the decoder: odd ones, before a page that cannot be
 * read. */
static void random_blocks_decode_to_the_last_bit(void **state)
{
    (void)state;
    for (const struct vector *v = vectors; v < vectors + N_VECTORS; v++) {
        const char *name = k3_type_info(v->type)->name;
        size_t bytes = row_bytes(v->type, VECTOR_N);
        void *row = read_vector(name, ".rnd", bytes);
        float *expected = read_vector(name, ".rnd.f32", VECTOR_N * sizeof(float)), y[VECTOR_N];
        for (size_t odd = 0; odd < 2; odd++) {
            struct guarded place = guarded_alloc(bytes + odd, K3_BUFFER_PAD);
            memcpy(place.bytes, row, bytes);
            k3_decoder(v->type)(place.bytes, y, VECTOR_N);
            for (size_t i = 0; i < VECTOR_N; i++)
                if (k3_f32_bits(y[i]) != k3_f32_bits(expected[i]))
                    fail_msg("%s: weight %zu is %a, not %a", name, i, y[i], expected[i]);
            guarded_free(&place);
        }
        free(row);
        free(expected);
    }
}

static double relative_rmse(const float *y, const float *x, const float *importance)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < VECTOR_N; i++) {
        double w = importance ? importance[i] : 1, d = (double)y[i] - x[i];
        error += w * d * d;
        size += w * x[i] * x[i];
    }
    return sqrt(error / size);
}

static void encoded_rows_are_as_near_to_their_source_as_stated(void **state)
{
    (void)state;
    float *source = read_vector("src", ".f32", VECTOR_N * sizeof(float));
    float *importance = read_vector("imatrix", ".f32", VECTOR_N * sizeof(float)), y[VECTOR_N];
    for (const struct vector *v = vectors; v < vectors + N_VECTORS; v++) {
        const char *name = k3_type_info(v->type)->name;
        void *row = read_vector(name, ".enc", row_bytes(v->type, VECTOR_N));
        k3_decoder(v->type)(row, y, VECTOR_N);
        double plain = relative_rmse(y, source, NULL), weighted = relative_rmse(y, source, importance);
        if (fabs(plain - v->plain) > 0.005 * v->plain || fabs(weighted - v->weighted) > 0.005 * v->weighted)
            fail_msg("%s: %.5f / %.5f, stated %.5f / %.5f", name, plain, weighted, v->plain, v->weighted);
        free(row);
    }
    free(source);
    free(importance);
}

static void plain_floats_are_widened(void **state)
{
    (void)state;
    unsigned char row[4 * 7 + 1], *odd = row + 1;
    float y[7];
    const float x[7] = {0.0f, -0.0f, 1.0f, -2.5f, 0x1p-20f, 65504.0f, 0x1p-14f};
    memcpy(odd, x, sizeof x);
    k3_decoder(K3_TYPE_F32)(odd, y, 7);
    assert_memory_equal(y, x, sizeof x);
    for (int i = 0; i < 7; i++) memcpy(odd + 2 * i, &(uint16_t){k3_f16_from_f32(x[i])}, 2);
    k3_decoder(K3_TYPE_F16)(odd, y, 7);
    assert_memory_equal(y, x, sizeof x);
    for (int i = 0; i < 7; i++) memcpy(odd + 2 * i, &(uint16_t){(uint16_t)(k3_f32_bits(x[i]) >> 16)}, 2);
    k3_decoder(K3_TYPE_BF16)(odd, y, 7);
    const float cut[7] = {0.0f, -0.0f, 1.0f, -2.5f, 0x1p-20f, 65280.0f, 0x1p-14f};
    assert_memory_equal(y, cut, sizeof cut);
}

/* Code and scale pairs that random bytes seldom hold. */
static void mxfp4_scales_reach_from_subnormal_to_the_top(void **state)
{
    (void)state;
    const float twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12};
    for (int e = 0; e <= 252; e++) { /* above, 12 * 2^(e-128) is no f32 */
        uint8_t block[17] = {(uint8_t)e};
        float y[32];
        for (int j = 0; j < 16; j++) block[1 + j] = (uint8_t)(j | (15 - j) << 4);
        k3_decoder(K3_TYPE_MXFP4)(block, y, 32);
        for (int j = 0; j < 16; j++) {
            assert_true((double)y[j] == ldexp(twice[j], e - 128));
            assert_true((double)y[16 + j] == ldexp(twice[15 - j], e - 128));
        }
    }
}

static void types_known_by_size_alone_have_no_decoder(void **state)
{
    (void)state;
    int n = 0;
    for (int type = 0; type < K3_TYPE_COUNT; type++) n += k3_decoder((enum k3_type)type) != NULL;
    assert_int_equal(n, N_VECTORS + 3);
    assert_null(k3_decoder(K3_TYPE_Q8_1));
    assert_null(k3_decoder(K3_TYPE_Q8_K));
    assert_null(k3_decoder(K3_TYPE_I32));
    assert_null(k3_decoder(K3_TYPE_COUNT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_blocks_decode_to_the_last_bit),
        cmocka_unit_test(encoded_rows_are_as_near_to_their_source_as_stated),
        cmocka_unit_test(plain_floats_are_widened),
        cmocka_unit_test(mxfp4_scales_reach_from_subnormal_to_the_top),
        cmocka_unit_test(types_known_by_size_alone_have_no_decoder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
