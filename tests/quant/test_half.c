/* The 16-bit floats. */
#include "quant/half.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

/* The value of an f16 by its definition; not for exponent 31. */
static double f16_value(unsigned h)
{
    int exponent = (int)(h >> 10 & 31);
    double mantissa = h & 0x3ff;
    double value = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return h & 0x8000 ? -value : value;
}

static void every_f16_has_its_value(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x10000; h++) {
        float f = k3_f32_from_f16((uint16_t)h);
        if ((h & 0x7fff) > 0x7c00) {
            assert_true(isnan(f));
        } else if ((h & 0x7fff) == 0x7c00) {
            assert_int_equal(k3_f32_bits(f), h & 0x8000 ? 0xff800000u : 0x7f800000u);
        } else {
            assert_true((double)f == f16_value(h));
            assert_int_equal(k3_f32_bits(f) >> 31, h >> 15);
        }
    }
}

static void every_f16_survives_the_way_there_and_back(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x10000; h++) {
        uint16_t back = k3_f16_from_f32(k3_f32_from_f16((uint16_t)h));
        if ((h & 0x7fff) > 0x7c00) {
            assert_true((back & 0x7fff) > 0x7c00);
            assert_int_equal(back & 0x8000, h & 0x8000);
        } else {
            assert_int_equal(back, h);
        }
    }
}

/* Between every two neighbours: the middle goes to the even one, what is beside the middle to the nearer one. */
static void f32_rounds_to_the_nearest_even_f16(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7c00; h++) {
        double low = f16_value(h), high = h == 0x7bff ? 65536.0 : f16_value(h + 1); /* 0x7c00 is infinity */
        float middle = (float)((low + high) / 2);                                   /* exact: one bit more */
        unsigned even = h & 1 ? h + 1 : h;
        assert_int_equal(k3_f16_from_f32(middle), even);
        assert_int_equal(k3_f16_from_f32(-middle), even | 0x8000);
        assert_int_equal(k3_f16_from_f32(nextafterf(middle, 0)), h);
        assert_int_equal(k3_f16_from_f32(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(k3_f16_from_f32(nextafterf((float)low, INFINITY)), h);
        assert_int_equal(k3_f16_from_f32(nextafterf((float)high, 0)), h + 1);
    }
}

static void what_f16_cannot_hold_becomes_zero_infinity_or_nan(void **state)
{
    (void)state;
    assert_int_equal(k3_f16_from_f32(0x1p-149f), 0);
    assert_int_equal(k3_f16_from_f32(-0x1p-149f), 0x8000);
    assert_int_equal(k3_f16_from_f32(65519.996f), 0x7bff);
    assert_int_equal(k3_f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(k3_f16_from_f32(3.4e38f), 0x7c00);
    assert_int_equal(k3_f16_from_f32(-INFINITY), 0xfc00);
    /* A NaN whose payload lies in bits that f16 does not have must not become an infinity. */
    assert_int_equal(k3_f16_from_f32(k3_f32_from_bits(0x7f800001u)), 0x7e00);
    assert_int_equal(k3_f16_from_f32(k3_f32_from_bits(0xffffffffu)), 0xfe00);
}

static void bf16_is_the_upper_half_of_f32(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x10000; h++)
        assert_int_equal(k3_f32_bits(k3_f32_from_bf16((uint16_t)h)), h << 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_has_its_value),
        cmocka_unit_test(every_f16_survives_the_way_there_and_back),
        cmocka_unit_test(f32_rounds_to_the_nearest_even_f16),
        cmocka_unit_test(what_f16_cannot_hold_becomes_zero_infinity_or_nan),
        cmocka_unit_test(bf16_is_the_upper_half_of_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
