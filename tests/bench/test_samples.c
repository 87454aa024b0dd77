/* Medians and spreads of repetitions, and the lists that options are. */
#include "lists.h"
#include "samples.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

static struct k3_samples samples_of(const double *values, size_t n)
{
    struct k3_samples s = {0};
    for (size_t i = 0; i < n; i++) k3_samples_add(&s, values[i]);
    return s;
}

static void the_median_is_in_the_middle_whatever_the_order(void **state)
{
    (void)state;
    const double odd[] = {5, 1, 4, 2, 3}, even[] = {4, 1, 3, 2}, one[] = {7};
    struct k3_samples s = samples_of(odd, 5);
    assert_true(k3_samples_median(&s) == 3 && k3_samples_min(&s) == 1 && k3_samples_max(&s) == 5);
    s = samples_of(even, 4);
    assert_true(k3_samples_median(&s) == 2.5);
    s = samples_of(one, 1);
    assert_true(k3_samples_median(&s) == 7 && k3_samples_min(&s) == 7 && k3_samples_max(&s) == 7);
}

static void the_spread_is_a_part_of_the_median(void **state)
{
    (void)state;
    const double values[] = {8, 10, 13};
    struct k3_samples s = samples_of(values, 3), none = {0};
    assert_true(k3_samples_spread(&s) == 0.5);
    assert_true(k3_samples_median(&none) == 0 && k3_samples_spread(&none) == 0 && k3_samples_min(&none) == 0);
}

static void samples_beyond_the_most_are_dropped(void **state)
{
    (void)state;
    struct k3_samples s = {0};
    for (int i = 0; i < K3_MAX_SAMPLES + 5; i++) k3_samples_add(&s, i);
    assert_int_equal(s.n, K3_MAX_SAMPLES);
    assert_true(k3_samples_max(&s) == K3_MAX_SAMPLES - 1);
}

static void numbers_are_separated_by_commas(void **state)
{
    (void)state;
    struct k3_numbers numbers;
    struct k3_error err;
    assert_int_equal(k3_numbers_parse("--at", "0,4K,17", 0, 5000, &numbers, &err), K3_OK);
    assert_int_equal(numbers.n, 3);
    assert_int_equal(numbers.list[1], 4096);
    assert_int_equal(numbers.list[2], 17);
    assert_int_equal(k3_numbers_parse("--at", NULL, 0, 9, &numbers, &err), K3_OK);
    assert_int_equal(numbers.n, 0);
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"", "is no amount"},        {"1,,2", "is no amount"},
        {"1,", "is no amount"},      {"5%", "5% is not between 1 and 8"},
        {"9", "9 is not between"},   {"0", "0 is not between 1 and 8"},
        {"-1", "'-1' is no amount"}, {"1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "a list of more than 16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (k3_numbers_parse("--at", cases[i].text, 1, 8, &numbers, &err) != K3_ERR_ARGUMENT)
            fail_msg("'%s' is taken", cases[i].text);
        if (!strstr(err.message, cases[i].want)) fail_msg("'%s': %s", cases[i].text, err.message);
    }
}

static const char *known(size_t i)
{
    static const char *const names[] = {"avx2", "portable", NULL};
    return names[i];
}

static void names_in_lists_are_whole(void **state)
{
    (void)state;
    struct k3_error err;
    assert_true(k3_list_has("avx2,portable", "portable") && k3_list_has("avx2,portable", "avx2"));
    assert_false(k3_list_has("avx2,portable", "port") || k3_list_has("avx2,portable", "avx") ||
                 k3_list_has("avx", "avx2"));
    assert_true(k3_list_has(NULL, "all"));
    assert_int_equal(k3_list_check("--variants", "portable,avx2", known, &err), K3_OK);
    assert_int_equal(k3_list_check("--variants", NULL, known, &err), K3_OK);
    assert_int_equal(k3_list_check("--variants", "avx2,port", known, &err), K3_ERR_ARGUMENT);
    assert_string_equal(err.message, "--variants: 'port' is none of: avx2, portable");
    assert_int_equal(k3_list_check("--variants", "", known, &err), K3_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_median_is_in_the_middle_whatever_the_order),
        cmocka_unit_test(the_spread_is_a_part_of_the_median),
        cmocka_unit_test(samples_beyond_the_most_are_dropped),
        cmocka_unit_test(numbers_are_separated_by_commas),
        cmocka_unit_test(names_in_lists_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
