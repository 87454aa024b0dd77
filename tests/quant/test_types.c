/* The type table of gguf/types.h. */
#include "gguf/types.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

/* quants.md section 0, all ids; names of withdrawn ones are NULL. */
static const struct k3_type_info expected[] = {
    {"f32", 1, 4},
    {"f16", 1, 2},
    {"q4_0", 32, 18},
    {"q4_1", 32, 20},
    {0},
    {0},
    {"q5_0", 32, 22},
    {"q5_1", 32, 24},
    {"q8_0", 32, 34},
    {"q8_1", 32, 36},
    {"q2_K", 256, 84},
    {"q3_K", 256, 110},
    {"q4_K", 256, 144},
    {"q5_K", 256, 176},
    {"q6_K", 256, 210},
    {"q8_K", 256, 292},
    {"iq2_xxs", 256, 66},
    {"iq2_xs", 256, 74},
    {"iq3_xxs", 256, 98},
    {"iq1_s", 256, 50},
    {"iq4_nl", 32, 18},
    {"iq3_s", 256, 110},
    {"iq2_s", 256, 82},
    {"iq4_xs", 256, 136},
    {"i8", 1, 1},
    {"i16", 1, 2},
    {"i32", 1, 4},
    {"i64", 1, 8},
    {"f64", 1, 8},
    {"iq1_m", 256, 56},
    {"bf16", 1, 2},
    {0},
    {0},
    {0},
    {"tq1_0", 256, 54},
    {"tq2_0", 256, 66},
    {0},
    {0},
    {0},
    {"mxfp4", 32, 17},
    {"nvfp4", 64, 36},
    {"q1_0", 128, 18},
    {"q2_0", 64, 18},
};

static void every_type_has_its_name_and_size(void **state)
{
    (void)state;
    assert_int_equal(sizeof expected / sizeof *expected, K3_TYPE_COUNT);
    for (uint32_t id = 0; id < K3_TYPE_COUNT; id++) {
        const struct k3_type_info *info = k3_type_info(id);
        if (!expected[id].name) {
            assert_null(info);
            continue;
        }
        assert_non_null(info);
        assert_string_equal(info->name, expected[id].name);
        assert_int_equal(info->block, expected[id].block);
        assert_int_equal(info->block_bytes, expected[id].block_bytes);
    }
}

static void ids_that_nobody_defined_are_unknown(void **state)
{
    (void)state;
    assert_null(k3_type_info(43));
    assert_null(k3_type_info(1000));
    assert_null(k3_type_info(UINT32_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_has_its_name_and_size),
        cmocka_unit_test(ids_that_nobody_defined_are_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
