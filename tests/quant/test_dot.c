/* What a product of one row and one column is: that of the portable kernels and of all that this processor can run.
 * Products of many rows and columns: test_products.c. */
#include "quant/quant_internal.h"

#include "data.h"
#include "random.h"

#include <math.h>

#define MAX_BLOCKS 9

/* One row times one column. */
static float product_of(const struct k3_kernels *kernels, enum k3_type type, const void *row, const void *act,
                        size_t n)
{
    float y;
    struct k3_product product = {
        .rows = row, .n_rows = 1, .n = n, .acts = act, .n_columns = 1, .y = &y, .y_stride = 1};
    kernels->product[type](&product);
    return y;
}

static const enum k3_type block_types[] = {K3_TYPE_Q8_0, K3_TYPE_MXFP4, K3_TYPE_IQ1_M, K3_TYPE_IQ2_XXS};
static const enum k3_type float_types[] = {K3_TYPE_F32, K3_TYPE_F16, K3_TYPE_BF16};

static size_t row_bytes(enum k3_type type, size_t n)
{
    const struct k3_type_info *info = k3_type_info(type);
    return n / info->block * info->block_bytes;
}

/* The product by a kernel, of copies that lie as badly as they may: the row at an odd address if `odd`, both
 * followed by K3_BUFFER_PAD bytes and then by a page that cannot be read. */
static float guarded_dot(const struct k3_kernels *kernels, enum k3_type type, const void *row,
                         const void *act, size_t n, size_t odd)
{
    size_t bytes = row_bytes(type, n), act_bytes = k3_act_bytes(k3_act_for(type), n);
    struct guarded w = guarded_alloc(bytes + odd, K3_BUFFER_PAD), x = guarded_alloc(act_bytes, K3_BUFFER_PAD);
    memcpy(w.bytes, row, bytes);
    memcpy(x.bytes, act, act_bytes);
    float result = product_of(kernels, type, w.bytes, x.bytes, n);
    guarded_free(&w);
    guarded_free(&x);
    return result;
}

static void check_bits(enum k3_type type, const void *row, const void *act, size_t n, float expected)
{
    const struct k3_kernels *kernels;
    for (size_t k = 0; (kernels = k3_kernels_at(k)); k++) {
        for (size_t odd = 0; odd < 2; odd++) {
            float result = guarded_dot(kernels, type, row, act, n, odd);
            if (k3_f32_bits(result) != k3_f32_bits(expected))
                fail_msg("%s, %s, n = %zu: %a, not %a", kernels->name, k3_type_info(type)->name, n, result,
                         expected);
        }
    }
}

/* ---- blocks ---- */

/* The factor before the sum of integers: dw, or dw / 8 for the grid types. */
static float block_scale(enum k3_type type, const uint8_t *block)
{
    unsigned d = k3_load_u16(block);
    if (type == K3_TYPE_MXFP4) return ldexpf(1.0f, block[0] - 128);
    if (type == K3_TYPE_Q8_0) return k3_f32_from_f16((uint16_t)d);
    if (type == K3_TYPE_IQ1_M)
        d = block[49] >> 4 | block[51] >> 4 << 4 | block[53] >> 4 << 8 | block[55] >> 4 << 12;
    return k3_f32_from_f16((uint16_t)d) / 8;
}

static void set_scale(enum k3_type type, uint8_t *block, uint16_t d, uint8_t e)
{
    if (type == K3_TYPE_MXFP4) {
        block[0] = e;
    } else if (type == K3_TYPE_IQ1_M) {
        for (int k = 0; k < 4; k++)
            block[49 + 2 * k] = (uint8_t)((block[49 + 2 * k] & 15) | (d >> 4 * k & 15) << 4);
    } else {
        memcpy(block, &d, sizeof d);
    }
}

struct reference {
    float bits;   /* by the formula at the head of portable.c */
    double exact; /* without rounding */
    double size;  /* sum of the magnitudes of the blocks' terms */
};

/* From decoded weights, which are exact multiples of the block's scale, and so are sums of them in f64. */
static struct reference reference_dot(enum k3_type type, const uint8_t *row, const void *act, size_t n)
{
    const struct k3_type_info *info = k3_type_info(type);
    struct k3_rounded x = k3_rounded_row(k3_act_for(type), act, n);
    struct reference r = {0};
    float w[256];
    for (size_t b = 0; b < n / info->block; b++) {
        const uint8_t *block = row + b * info->block_bytes;
        const int8_t *q = x.q + b * info->block;
        float dw = block_scale(type, block), dx = x.d[b];
        k3_decoder(type)(block, w, info->block);
        double sum = 0;
        for (size_t j = 0; j < info->block; j++) sum += (double)w[j] * q[j];
        double whole = dw == 0 ? 0 : sum / dw;
        assert_true(whole == rint(whole));
        r.bits += dw * dx * (float)whole;
        r.exact += sum * dx;
        r.size += fabs(sum * dx);
    }
    return r;
}

struct row {
    uint8_t bytes[MAX_BLOCKS * 66];
    float x[MAX_BLOCKS * 256];
    _Alignas(64) unsigned char act[MAX_BLOCKS * 384];
};

static void check_blocks(enum k3_type type, struct row *row, size_t n)
{
    k3_kernels_portable.round[k3_act_for(type)](row->x, row->act, n);
    check_bits(type, row->bytes, row->act, n, reference_dot(type, row->bytes, row->act, n).bits);
}

static void products_of_random_blocks_are_as_defined(void **state)
{
    (void)state;
    struct test_random r = {2};
    for (int round = 0; round < 40; round++) {
        for (size_t t = 0; t < 4; t++) {
            const struct k3_type_info *info = k3_type_info(block_types[t]);
            for (size_t n_blocks = 1; n_blocks <= MAX_BLOCKS; n_blocks++) {
                struct row row;
                size_t n = n_blocks * info->block;
                test_random_bytes(&r, row.bytes, n_blocks * info->block_bytes);
                for (size_t b = 0; b < n_blocks; b++)
                    set_scale(block_types[t], row.bytes + b * info->block_bytes,
                              k3_f16_from_f32(test_random_float(&r)),
                              (uint8_t)(118 + test_random_below(&r, 20)));
                for (size_t i = 0; i < n; i++) row.x[i] = test_random_normal(&r);
                check_blocks(block_types[t], &row, n);

                struct reference ref = reference_dot(block_types[t], row.bytes, row.act, n);
                float result = product_of(k3_kernels_best(), block_types[t], row.bytes, row.act, n);
                if (fabs(result - ref.exact) > 1e-6 * ref.size + 1e-12)
                    fail_msg("%s, n = %zu: %.9g, exactly %.9g", info->name, n, result, ref.exact);
            }
        }
    }
}

/* Uniform bytes, the scales that are furthest out, and activations that all have the sign of their weight (or
 * the other), so that nothing cancels in the integer sums. */
static void products_of_extreme_blocks_are_as_defined(void **state)
{
    (void)state;
    const uint8_t fills[] = {0x00, 0x7f, 0x80, 0xff, 0x0f, 0xf0}, exponents[] = {0, 1, 2, 127, 252};
    const uint16_t scales[] = {0x0000, 0x0001, 0x03ff, 0xfbff, 0x7bff};
    for (size_t t = 0; t < 4; t++) {
        const struct k3_type_info *info = k3_type_info(block_types[t]);
        for (size_t c = 0; c < sizeof fills * sizeof exponents; c++) {
            struct row row;
            size_t n = MAX_BLOCKS * info->block;
            memset(row.bytes, fills[c / sizeof exponents], sizeof row.bytes);
            for (size_t b = 0; b < MAX_BLOCKS; b++)
                set_scale(block_types[t], row.bytes + b * info->block_bytes, scales[c % sizeof exponents],
                          exponents[c % sizeof exponents]);
            float w[MAX_BLOCKS * 256];
            k3_decoder(block_types[t])(row.bytes, w, n);
            for (float magnitude = 1e-30f; magnitude < 1e31f; magnitude *= 1e15f) {
                for (size_t i = 0; i < n; i++) row.x[i] = w[i] < 0 ? -magnitude : magnitude;
                check_blocks(block_types[t], &row, n);
                for (size_t i = 0; i < n; i++) row.x[i] = -row.x[i];
                check_blocks(block_types[t], &row, n);
            }
        }
    }
}

/* All factors and all weights at their largest: beyond 2^24, where f32 no longer holds every integer. */
static void the_largest_sum_of_iq2_xxs_is_whole(void **state)
{
    (void)state;
    struct row row;
    float w[256];
    double sum = 0;
    for (int k = 0; k < 8;
         k++) { /* entry 255 is the last code; the signs of all but every eighth weight are set */
        memset(row.bytes + 2 + 8 * k, 255, 8);
    }
    set_scale(K3_TYPE_IQ2_XXS, row.bytes, 0x3c00, 0);
    k3_decoder(K3_TYPE_IQ2_XXS)(row.bytes, w, 256);
    for (int i = 0; i < 256; i++) row.x[i] = copysignf(1.0f, w[i]), sum += 127 * fabs(w[i]) * 8;
    assert_true(sum > 0x1p24);
    check_blocks(K3_TYPE_IQ2_XXS, &row, 256);
}

static void products_agree_with_the_vectors(void **state)
{
    (void)state;
    float *x = read_vector("act", ".f32", VECTOR_N * sizeof(float));
    _Alignas(64) unsigned char act[4 * 384];
    k3_kernels_portable.round[K3_ACT_Q8_K](x, act, VECTOR_N); /* test_round.c: these are the vectors' */
    FILE *file = fopen(K3_TEST_DATA "/quant/vectors/dots.txt", "r");
    assert_non_null(file);
    char type_name[16], kind[8];
    double scalar, avx2, exact, unrounded;
    int lines = 0;
    while (fscanf(file, "%15[^.]%7s scalar=%lf avx2=%lf exact_q8=%lf exact_f32act=%lf ", type_name, kind,
                  &scalar, &avx2, &exact, &unrounded) == 6) {
        enum k3_type type = strcmp(type_name, "iq1_m") == 0 ? K3_TYPE_IQ1_M : K3_TYPE_IQ2_XXS;
        uint8_t *row = read_vector(type_name, kind, row_bytes(type, VECTOR_N));
        struct reference ref = reference_dot(type, row, act, VECTOR_N);
        assert_true(fabs(ref.exact - exact) <= 1e-7 * fabs(exact));
        check_bits(type, row, act, VECTOR_N, ref.bits);
        double tolerance = 1e-5 * ref.size + 1e-12;
        if (fabs(ref.bits - exact) > tolerance || fabs(ref.bits - scalar) > tolerance ||
            fabs(ref.bits - avx2) > tolerance)
            fail_msg("%s%s: %.9g, stated %.9g %.9g %.9g", type_name, kind, ref.bits, scalar, avx2, exact);
        free(row);
        lines++;
    }
    assert_int_equal(lines, 4);
    fclose(file);
    free(x);
}

static void a_nan_in_the_activations_is_seen_in_the_product(void **state)
{
    (void)state;
    for (size_t t = 0; t < 4; t++) {
        const struct k3_type_info *info = k3_type_info(block_types[t]);
        struct row row = {.x = {[3] = NAN}};
        const struct k3_kernels *kernels;
        for (size_t k = 0; (kernels = k3_kernels_at(k)); k++) {
            kernels->round[k3_act_for(block_types[t])](row.x, row.act, 2 * info->block);
            assert_true(isnan(product_of(kernels, block_types[t], row.bytes, row.act, 2 * info->block)));
        }
    }
}

/* ---- floats ---- */

static float reference_floats(const float *w, const float *x, size_t n)
{
    float s[16] = {0};
    size_t whole = n / 16 * 16;
    for (size_t i = 0; i < whole; i++) s[i % 16] += w[i] * x[i];
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++) s[l] += s[l + half];
    for (size_t i = whole; i < n; i++) s[0] += w[i] * x[i];
    return s[0];
}

static void products_of_floats_are_as_defined_for_any_length(void **state)
{
    (void)state;
    struct test_random r = {3};
    for (size_t n = 0; n <= 70; n++) {
        for (size_t t = 0; t < 3; t++) {
            for (int round = 0; round < 20; round++) {
                uint8_t row[70 * 4];
                float w[70], x[70];
                double exact = 0, size = 0;
                for (size_t i = 0; i < n; i++) {
                    float value = ldexpf(test_random_normal(&r), (int)test_random_below(&r, 12) - 6);
                    uint32_t bits = k3_f32_bits(value);
                    uint16_t half =
                        float_types[t] == K3_TYPE_F16 ? k3_f16_from_f32(value) : (uint16_t)(bits >> 16);
                    if (float_types[t] == K3_TYPE_F32)
                        memcpy(row + 4 * i, &bits, 4);
                    else
                        memcpy(row + 2 * i, &half, 2);
                    x[i] = test_random_normal(&r);
                }
                k3_decoder(float_types[t])(row, w, n);
                for (size_t i = 0; i < n; i++)
                    exact += (double)w[i] * x[i], size += fabs((double)w[i] * x[i]);
                float expected = reference_floats(w, x, n);
                assert_true(fabs(expected - exact) <= 20 * 0x1p-24 * size);
                check_bits(float_types[t], row, x, n, expected);
            }
        }
    }
}

/* ---- tables ---- */

static void every_direct_product_has_its_activations(void **state)
{
    (void)state;
    const struct k3_kernels *kernels;
    for (size_t k = 0; (kernels = k3_kernels_at(k)); k++) {
        assert_non_null(kernels->name);
        assert_null(kernels->round[K3_ACT_F32]);
        for (int type = 0; type < K3_TYPE_COUNT; type++) {
            enum k3_act act = k3_act_for((enum k3_type)type);
            if (!kernels->product[type]) assert_int_equal(act, K3_ACT_F32);
            if (act != K3_ACT_F32) assert_non_null(kernels->round[act]);
            assert_int_equal(k3_kernels_portable.product[type] != NULL, kernels->product[type] != NULL);
        }
    }
    assert_int_equal(k3_act_for(K3_TYPE_Q8_0), K3_ACT_Q8_0);
    assert_int_equal(k3_act_for(K3_TYPE_MXFP4), K3_ACT_Q8_0);
    assert_int_equal(k3_act_for(K3_TYPE_IQ1_M), K3_ACT_Q8_K);
    assert_int_equal(k3_act_for(K3_TYPE_IQ2_XXS), K3_ACT_Q8_K);
    assert_int_equal(k3_act_for(K3_TYPE_BF16), K3_ACT_F32);
    assert_int_equal(k3_act_for(K3_TYPE_Q4_K), K3_ACT_F32);
}

static void activations_have_the_bytes_of_their_blocks(void **state)
{
    (void)state;
    assert_int_equal(k3_act_bytes(K3_ACT_F32, 3584), 14336);
    assert_int_equal(k3_act_bytes(K3_ACT_Q8_0, 3584), 4288); /* 3584 + 112 * (4 + 2), rounded up to 64 */
    assert_int_equal(k3_act_bytes(K3_ACT_Q8_K, 3584), 4544); /* 3584 + 14 * (4 + 64), rounded up */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_random_blocks_are_as_defined),
        cmocka_unit_test(products_of_extreme_blocks_are_as_defined),
        cmocka_unit_test(the_largest_sum_of_iq2_xxs_is_whole),
        cmocka_unit_test(products_agree_with_the_vectors),
        cmocka_unit_test(a_nan_in_the_activations_is_seen_in_the_product),
        cmocka_unit_test(products_of_floats_are_as_defined_for_any_length),
        cmocka_unit_test(every_direct_product_has_its_activations),
        cmocka_unit_test(activations_have_the_bytes_of_their_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
