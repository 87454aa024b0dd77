/* Activations to 8 bits. */
#include "quant/half.h"
#include "quant/quant.h"

#include "data.h"
#include "random.h"

#include <float.h>
#include <math.h>

#define MAX_N 1024

/* The formats as files of the field have them: here they are what results are compared with. */
struct q8_0 {
    uint16_t d;
    int8_t q[32];
};
struct q8_K {
    float d;
    int8_t q[256];
    int16_t sums[16]; /* of 16 each */
};

static void round_q8_0(const float *x, struct q8_0 *blocks, size_t n)
{
    _Alignas(64) unsigned char row[2 * MAX_N];
    k3_kernels_best()->round[K3_ACT_Q8_0](x, row, n);
    struct k3_rounded r = k3_rounded_row(K3_ACT_Q8_0, row, n);
    for (size_t b = 0; b < n / 32; b++) {
        int sum = 0;
        for (int j = 0; j < 32; j++) sum += r.q[32 * b + j];
        assert_int_equal(r.sums[b], sum);
        blocks[b].d = k3_f16_from_f32(r.d[b]);
        memcpy(blocks[b].q, r.q + 32 * b, 32);
        assert_true(isnan(r.d[b]) || k3_f32_from_f16(blocks[b].d) == r.d[b]);
    }
}

static void round_q8_K(const float *x, struct q8_K *blocks, size_t n)
{
    _Alignas(64) unsigned char row[2 * MAX_N];
    k3_kernels_best()->round[K3_ACT_Q8_K](x, row, n);
    struct k3_rounded r = k3_rounded_row(K3_ACT_Q8_K, row, n);
    for (size_t b = 0; b < n / 256; b++) {
        blocks[b].d = r.d[b];
        memcpy(blocks[b].q, r.q + 256 * b, 256);
        for (int k = 0; k < 16; k++)
            blocks[b].sums[k] = (int16_t)(r.sums[32 * b + 2 * k] + r.sums[32 * b + 2 * k + 1]);
        for (int k = 0; k < 32; k++) {
            int sum = 0;
            for (int j = 0; j < 8; j++) sum += blocks[b].q[8 * k + j];
            assert_int_equal(r.sums[32 * b + k], sum);
        }
    }
}

static void q8_K_is_that_of_the_vectors(void **state)
{
    (void)state;
    float *x = read_vector("act", ".f32", VECTOR_N * sizeof(float));
    struct q8_K *expected = read_vector("act", ".q8_K", 4 * sizeof *expected), blocks[4];
    round_q8_K(x, blocks, VECTOR_N);
    assert_memory_equal(blocks, expected, sizeof blocks);
    free(x);
    free(expected);
}

/* The vectors were made by the scalar formula, which may differ by 1. */
static void q8_0_is_that_of_the_vectors_but_for_one(void **state)
{
    (void)state;
    float *x = read_vector("act", ".f32", VECTOR_N * sizeof(float));
    struct q8_0 *expected = read_vector("act", ".q8_0", 32 * sizeof *expected), blocks[32];
    round_q8_0(x, blocks, VECTOR_N);
    for (int b = 0; b < 32; b++) {
        assert_int_equal(blocks[b].d, expected[b].d);
        for (int j = 0; j < 32; j++) assert_true(abs(blocks[b].q[j] - expected[b].q[j]) <= 1);
    }
    free(x);
    free(expected);
}

/* With 127 as the largest magnitude the factor is 1 and elements are rounded as they are. */
static void halves_go_to_the_even_number(void **state)
{
    (void)state;
    for (int k = -127; k < 127; k++) {
        float x[256] = {-127.0f, (float)k + 0.5f, (float)k, nextafterf((float)k + 0.5f, -200),
                        nextafterf((float)k + 0.5f, 200)};
        int even = k % 2 ? k + 1 : k;
        struct q8_0 small;
        struct q8_K large;
        round_q8_0(x, &small, 32);
        round_q8_K(x, &large, 256);
        assert_int_equal(small.d, 0x3c00);
        assert_true(large.d == 1.0f);
        const int8_t expected[5] = {-127, (int8_t)even, (int8_t)k, (int8_t)k, (int8_t)(k + 1)};
        assert_memory_equal(small.q, expected, 5);
        assert_memory_equal(large.q, expected, 5);
    }
}

static void the_first_of_the_largest_becomes_minus_127(void **state)
{
    (void)state;
    float x[256] = {0};
    struct q8_K block;
    x[3] = 2.0f, x[200] = -2.0f, x[201] = 2.0f;
    round_q8_K(x, &block, 256);
    assert_true(block.d < 0);
    assert_int_equal(block.q[3], -127);
    assert_int_equal(block.q[200], 127);
    assert_int_equal(block.q[201], -127);
    x[3] = -2.0f;
    round_q8_K(x, &block, 256);
    assert_true(block.d > 0);
    assert_int_equal(block.q[3], -127);
    assert_int_equal(block.q[201], 127);
}

static void errors_are_at_most_half_a_step(void **state)
{
    (void)state;
    struct test_random r = {1};
    for (int round = 0; round < 1000; round++) {
        float x[256], magnitude = ldexpf(1.0f, (int)test_random_below(&r, 200) - 100);
        for (int j = 0; j < 256; j++) x[j] = magnitude * test_random_normal(&r);
        struct q8_0 small[8];
        struct q8_K large;
        round_q8_0(x, small, 256);
        round_q8_K(x, &large, 256);
        for (int j = 0; j < 256; j++) {
            assert_true(fabs(x[j] - (double)large.d * large.q[j]) <= 0.5001 * fabs((double)large.d));
            assert_true(large.q[j] >= -127);
        }
        for (int b = 0; b < 8;
             b++) { /* here d is rounded after its use, so the quotients are what can be checked */
            float amax = 0;
            for (int j = 0; j < 32; j++) amax = fmaxf(amax, fabsf(x[32 * b + j]));
            assert_int_equal(small[b].d, k3_f16_from_f32(amax / 127));
            for (int j = 0; j < 32; j++)
                assert_true(fabs(x[32 * b + j] * 127.0 / amax - small[b].q[j]) <= 0.5001);
        }
    }
}

static void check_empty(const float *x, bool nan)
{
    struct q8_0 small;
    struct q8_K large;
    const int8_t zeros[256] = {0};
    const int16_t no_sums[16] = {0};
    memset(&small, 0x55, sizeof small);
    memset(&large, 0x55, sizeof large);
    round_q8_0(x, &small, 32);
    round_q8_K(x, &large, 256);
    assert_memory_equal(small.q, zeros, 32);
    assert_memory_equal(large.q, zeros, 256);
    assert_memory_equal(large.sums, no_sums, sizeof no_sums);
    if (nan) {
        assert_true(isnan(k3_f32_from_f16(small.d)));
        assert_true(isnan(large.d));
    } else {
        assert_int_equal(small.d, 0);
        assert_int_equal(k3_f32_bits(large.d), 0);
    }
}

static void blocks_of_nothing_or_next_to_nothing_are_zero(void **state)
{
    (void)state;
    float x[256] = {0};
    check_empty(x, false);
    for (int j = 0; j < 256; j++) x[j] = -0.0f;
    check_empty(x, false);
    for (int j = 0; j < 256; j++) x[j] = j % 2 ? FLT_TRUE_MIN : -FLT_TRUE_MIN;
    check_empty(x, false);
    x[7] = 3e-37f; /* 127 / 3e-37 is more than a float can be */
    check_empty(x, false);
    x[7] = 4e-37f;
    struct q8_K block;
    round_q8_K(x, &block, 256);
    assert_int_equal(block.q[7], -127);
}

static void an_infinity_or_nan_makes_its_block_nan(void **state)
{
    (void)state;
    const float bad[] = {INFINITY, -INFINITY, NAN, -NAN, k3_f32_from_bits(0x7f800001u)};
    for (int k = 0; k < 5; k++) {
        for (int at = 0; at < 32; at++) {
            float x[256];
            for (int j = 0; j < 256; j++) x[j] = (float)j - 100;
            x[at] = bad[k];
            check_empty(x, true);
        }
        float x[96] = {[5] = 127.0f, [40] = bad[k], [70] = 127.0f};
        struct q8_0 blocks[3];
        round_q8_0(x, blocks, 96);
        assert_int_equal(blocks[0].d, 0x3c00);
        assert_int_equal(blocks[0].q[5], 127);
        assert_int_equal(blocks[1].d & 0x7fff, 0x7e00);
        assert_int_equal(blocks[2].q[6], 127);
    }
}

static void the_largest_floats_are_rounded_too(void **state)
{
    (void)state;
    float x[256] = {FLT_MAX, -FLT_MAX, FLT_MAX / 2};
    struct q8_0 small;
    struct q8_K large;
    round_q8_0(x, &small, 32);
    round_q8_K(x, &large, 256);
    assert_int_equal(small.d, 0x7c00); /* more than f16 can hold */
    assert_int_equal(small.q[0], 127);
    assert_int_equal(small.q[1], -127);
    assert_true(isfinite(large.d));
    assert_int_equal(large.q[0], -127);
    assert_int_equal(large.q[1], 127);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(q8_K_is_that_of_the_vectors),
        cmocka_unit_test(q8_0_is_that_of_the_vectors_but_for_one),
        cmocka_unit_test(halves_go_to_the_even_number),
        cmocka_unit_test(the_first_of_the_largest_becomes_minus_127),
        cmocka_unit_test(errors_are_at_most_half_a_step),
        cmocka_unit_test(blocks_of_nothing_or_next_to_nothing_are_zero),
        cmocka_unit_test(an_infinity_or_nan_makes_its_block_nan),
        cmocka_unit_test(the_largest_floats_are_rounded_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
