/* Products of many rows and columns: every implementation that this processor can run gives the bits of the portable one,
 * for every number of rows and columns, wherever they lie, and touches nothing else. What the bits of one row and
 * one column are: test_dot.c. */
#include "quant/quant_internal.h"

#include "data.h"
#include "random.h"

#include <math.h>

#define MAX_ROWS    70
#define MAX_COLUMNS 512
#define MAX_N       (14 * 256)
#define EXTRA       3      /* y_stride is longer than the rows by this */
#define UNTOUCHED   -77.0f /* what nobody may write over */

static const enum k3_type types[] = {K3_TYPE_F32,   K3_TYPE_F16,   K3_TYPE_BF16,   K3_TYPE_Q8_0,
                                     K3_TYPE_MXFP4, K3_TYPE_IQ1_M, K3_TYPE_IQ2_XXS};

struct shape {
    size_t rows, columns, n;
    bool listed; /* the columns are chosen by a list, with gaps and repetitions */
};

/* Random bytes are weights of every format but for scales that are no numbers, which no valid file has. */
static void fill_weights(struct test_random *r, enum k3_type type, uint8_t *row, size_t n)
{
    const struct k3_type_info *info = k3_type_info(type);
    test_random_bytes(r, row, n / info->block * info->block_bytes);
    for (size_t b = 0; b < n / info->block; b++) {
        uint8_t *block = row + b * info->block_bytes;
        float value = ldexpf(test_random_normal(r), (int)test_random_below(r, 12) - 6);
        uint16_t half = k3_f16_from_f32(value);
        if (type == K3_TYPE_F32) memcpy(block, &value, sizeof value);
        if (type == K3_TYPE_F16 || type == K3_TYPE_Q8_0 || type == K3_TYPE_IQ2_XXS)
            memcpy(block, &half, sizeof half);
        if (type == K3_TYPE_BF16) block[1] = (uint8_t)((block[1] & 0x83) | 0x3c);
        if (type == K3_TYPE_MXFP4) block[0] = (uint8_t)(118 + test_random_below(r, 20));
        if (type == K3_TYPE_IQ1_M)
            for (int k = 0; k < 4; k++)
                block[49 + 2 * k] = (uint8_t)((block[49 + 2 * k] & 15) | (half >> 4 * k & 15) << 4);
    }
}

struct subject {
    enum k3_type type;
    struct shape shape;
    struct k3_product product; /* y is set for each run */
    struct guarded rows, acts;
    uint32_t columns[MAX_COLUMNS];
};

/* Rows begin at an odd address and end K3_BUFFER_PAD bytes before a page that cannot be read; so do activations, but
 * at an aligned one. */
static void make_subject(struct subject *s, struct test_random *r, enum k3_type type, struct shape shape)
{
    const struct k3_type_info *info = k3_type_info(type);
    enum k3_act act = k3_act_for(type);
    size_t row_bytes = shape.n / info->block * info->block_bytes, act_bytes = k3_act_bytes(act, shape.n);
    s->type = type;
    s->shape = shape;
    s->rows = guarded_alloc(shape.rows * row_bytes + 1, K3_BUFFER_PAD - 1);
    s->acts = guarded_alloc(shape.columns * act_bytes, K3_BUFFER_PAD);
    for (size_t i = 0; i < shape.rows; i++) fill_weights(r, type, s->rows.bytes + i * row_bytes, shape.n);
    for (size_t c = 0; c < shape.columns; c++) {
        float x[MAX_N];
        float size = c % 7 == 6 ? 0.0f : ldexpf(1.0f, (int)test_random_below(r, 16) - 8);
        for (size_t i = 0; i < shape.n; i++) x[i] = size * test_random_normal(r);
        if (act == K3_ACT_F32)
            memcpy(s->acts.bytes + c * act_bytes, x, act_bytes);
        else
            k3_kernels_portable.round[act](x, s->acts.bytes + c * act_bytes, shape.n);
        s->columns[c] = (uint32_t)test_random_below(r, shape.columns);
    }
    s->product = (struct k3_product){.rows = s->rows.bytes,
                                     .row_bytes = row_bytes,
                                     .n_rows = shape.rows,
                                     .n = shape.n,
                                     .acts = s->acts.bytes,
                                     .act_stride = act_bytes,
                                     .columns = shape.listed ? s->columns : NULL,
                                     .n_columns = shape.columns,
                                     .y_stride = shape.rows + EXTRA};
}

static void free_subject(struct subject *s)
{
    guarded_free(&s->rows);
    guarded_free(&s->acts);
}

static float *run(struct subject *s, const struct k3_kernels *kernels)
{
    size_t n = s->shape.columns * s->product.y_stride;
    float *y = malloc(n * sizeof *y);
    assert_non_null(y);
    for (size_t i = 0; i < n; i++) y[i] = UNTOUCHED;
    s->product.y = y;
    kernels->product[s->type](&s->product);
    return y;
}

static void check_shape(struct test_random *r, enum k3_type type, struct shape shape)
{
    struct subject s;
    make_subject(&s, r, type, shape);
    float *expected = run(&s, &k3_kernels_portable);
    const struct k3_kernels *kernels;
    for (size_t k = 0; (kernels = k3_kernels_at(k)); k++) {
        float *y = run(&s, kernels);
        for (size_t c = 0; c < shape.columns; c++)
            for (size_t i = 0; i < s.product.y_stride; i++) {
                size_t at = c * s.product.y_stride + i;
                if (i >= shape.rows) assert_true(y[at] == UNTOUCHED);
                if (k3_f32_bits(y[at]) != k3_f32_bits(expected[at]))
                    fail_msg("%s, %s, %zu rows of %zu, %zu columns: row %zu, column %zu is %a, not %a",
                             kernels->name, k3_type_info(type)->name, shape.rows, shape.n, shape.columns, i,
                             c, y[at], expected[at]);
            }
        free(y);
    }
    free(expected);
    free_subject(&s);
}

/* ---- tests ---- */

static void every_number_of_rows_and_columns_gives_the_same_bits(void **state)
{
    (void)state;
    const size_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, MAX_ROWS};
    const size_t columns[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33};
    struct test_random r = {11};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
                check_shape(&r, types[t], (struct shape){rows[i], columns[c], 512, (i + c) % 2});
}

static void every_number_of_blocks_gives_the_same_bits(void **state)
{
    (void)state;
    struct test_random r = {12};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        size_t block = k3_type_info(types[t])->block;
        for (size_t n_blocks = 1; n_blocks <= 14; n_blocks++)
            for (size_t columns = 1; columns <= 33; columns += 4)
                check_shape(&r, types[t], (struct shape){19, columns, n_blocks * block, false});
    }
}

static void a_whole_batch_gives_the_same_bits(void **state)
{
    (void)state;
    struct test_random r = {13};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        check_shape(&r, types[t], (struct shape){18, MAX_COLUMNS, 512, true});
        check_shape(&r, types[t], (struct shape){16, 40, MAX_N, false});
    }
}

/* Floats need no whole number of 16. */
static void rows_of_any_length_give_the_same_bits(void **state)
{
    (void)state;
    struct test_random r = {14};
    for (size_t t = 0; t < 3; t++)
        for (size_t n = 1; n <= 70; n++)
            for (size_t columns = 1; columns <= 5; columns += 2)
                check_shape(&r, types[t], (struct shape){5, columns, n, false});
}

/* Sums that are as large as they can be: activations of one magnitude, and weights of one bit pattern. */
static void the_largest_sums_give_the_same_bits(void **state)
{
    (void)state;
    const uint8_t fills[] = {0x00, 0x7f, 0x80, 0xff, 0x0f, 0xf0, 0x55, 0xaa};
    struct test_random r = {15};
    for (size_t t = 3; t < sizeof types / sizeof *types; t++)
        for (size_t f = 0; f < sizeof fills; f++) {
            struct subject s;
            make_subject(&s, &r, types[t], (struct shape){17, 19, 512, false});
            size_t block_bytes = k3_type_info(types[t])->block_bytes;
            for (size_t b = 0; b < 17 * s.product.row_bytes / block_bytes; b++) {
                uint8_t *block = s.rows.bytes + b * block_bytes, scale[2] = {block[0], block[1]};
                bool first = types[t] == K3_TYPE_Q8_0 || types[t] == K3_TYPE_IQ2_XXS;
                memset(block, fills[f], block_bytes);
                if (first) memcpy(block, scale, 2);
                if (types[t] == K3_TYPE_MXFP4) block[0] = 127;
                if (types[t] == K3_TYPE_IQ1_M)
                    for (int k = 0; k < 4; k++)
                        block[49 + 2 * k] = (uint8_t)((fills[f] & 15) | (k < 3 ? 0 : 0x30));
            }
            float w[512], x[512];
            k3_decoder(types[t])(s.rows.bytes, w, 512);
            for (size_t c = 0; c < 19; c++) {
                for (size_t i = 0; i < 512; i++)
                    x[i] = (c % 2 ? -1.0f : 1.0f) * (c < 10 ? copysignf(1.0f, w[i]) : i % 2 ? 1.0f : -1.0f);
                enum k3_act act = k3_act_for(types[t]);
                k3_kernels_portable.round[act](x, s.acts.bytes + c * s.product.act_stride, 512);
            }
            float *expected = run(&s, &k3_kernels_portable);
            const struct k3_kernels *kernels;
            for (size_t k = 0; (kernels = k3_kernels_at(k)); k++) {
                float *y = run(&s, kernels);
                if (memcmp(y, expected, 19 * s.product.y_stride * sizeof *y) != 0)
                    fail_msg("%s, %s: blocks of 0x%02x differ", kernels->name, k3_type_info(types[t])->name,
                             fills[f]);
                free(y);
            }
            free(expected);
            free_subject(&s);
        }
}

static void every_rounding_gives_the_same_bytes(void **state)
{
    (void)state;
    struct test_random r = {16};
    for (int round = 0; round < 400; round++) {
        float x[512];
        _Alignas(64) unsigned char expected[1024], result[1024];
        int kind = round % 8;
        for (size_t i = 0; i < 512; i++) {
            x[i] = ldexpf(test_random_normal(&r), kind < 4 ? 0 : (int)test_random_below(&r, 250) - 125);
            if (kind == 1) x[i] = (float)((int)test_random_below(&r, 255) - 127) / 2; /* halves: ties */
            if (kind == 2) x[i] = 0;
            if (kind == 3 && i == 77) x[i] = round % 16 < 8 ? NAN : -INFINITY;
            if (kind == 5) x[i] *= 0x1p-126f;
        }
        const struct k3_kernels *kernels;
        for (size_t k = 0; (kernels = k3_kernels_at(k)); k++)
            for (int act = K3_ACT_Q8_0; act <= K3_ACT_Q8_K; act++) {
                size_t bytes = k3_act_bytes(act, 512);
                memset(expected, 0, sizeof expected);
                memset(result, 0, sizeof result);
                k3_kernels_portable.round[act](x, expected, 512);
                kernels->round[act](x, result, 512);
                if (memcmp(expected, result, bytes) != 0)
                    fail_msg("%s, format %d, round %d", kernels->name, act, round);
            }
    }
}

static void kernels_are_chosen_by_name(void **state)
{
    (void)state;
    struct k3_error err;
    assert_int_equal(k3_kernels_use("", &err), K3_OK);
    assert_int_equal(k3_kernels_use(NULL, &err), K3_OK);
    assert_ptr_equal(k3_kernels_best(), k3_kernels_at(0));
    const struct k3_kernels *kernels;
    for (size_t k = 0; (kernels = k3_kernels_at(k)); k++) {
        assert_int_equal(k3_kernels_use(kernels->name, &err), K3_OK);
        assert_ptr_equal(k3_kernels_best(), kernels);
    }
    assert_ptr_equal(k3_kernels_best(), &k3_kernels_portable); /* the last one */
    assert_int_equal(k3_kernels_use("sse9", &err), K3_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "there are no kernels called \"sse9\""));
    assert_ptr_equal(k3_kernels_best(), &k3_kernels_portable);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_rows_and_columns_gives_the_same_bits),
        cmocka_unit_test(every_number_of_blocks_gives_the_same_bits),
        cmocka_unit_test(a_whole_batch_gives_the_same_bits),
        cmocka_unit_test(rows_of_any_length_give_the_same_bits),
        cmocka_unit_test(the_largest_sums_give_the_same_bits),
        cmocka_unit_test(every_rounding_gives_the_same_bytes),
        cmocka_unit_test(kernels_are_chosen_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
