/* Amounts from the command line. */
#include "common/number.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

static void amounts_are_numbers_sizes_and_shares(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t of_1000;
    } cases[] = {
        {"0", 0},      {"123", 123},           {"9007199254740992", 9007199254740992u},
        {"1K", 1024},  {"512M", 536870912},    {"1.5G", 1610612736},
        {"0.3K", 307}, {"2T", 2199023255552u}, {"8192T", 9007199254740992u},
        {"0%", 0},     {"29%", 290},           {"29.19%", 291},
        {"57%", 570},  {"100%", 1000},
    };
    struct k3_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct k3_amount amount;
        if (k3_parse_amount("--x", cases[i].text, &amount, &err) != K3_OK) fail_msg("%s", err.message);
        uint64_t got = k3_amount_of(&amount, 1000);
        if (got != cases[i].of_1000) fail_msg("%s of 1000 is %llu", cases[i].text, (unsigned long long)got);
    }
}

static void what_is_no_amount_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "%",
        "K",
        "-1",
        "+1",
        "1.5",
        "1e3",
        "1e3K",
        " 1",
        "1 ",
        "1k",
        "1KB",
        "1.5.",
        "1..5G",
        ".",
        ".%",
        "0x10",
        "nan",
        "inf%",
        "-5%",
        "5%%",
        "101%",
        "100.1%",
        "8193T",
        "9007199254740993",
        "99999999999999999999999999999999999999999999999",
        "1\n",
        "1,5G",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct k3_error err;
        struct k3_amount amount = {.count = 77};
        if (k3_parse_amount("--slots", texts[i], &amount, &err) != K3_ERR_ARGUMENT)
            fail_msg("'%s' is taken", texts[i]);
        assert_non_null(strstr(err.message, "--slots: "));
        assert_int_equal(amount.count, 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(amounts_are_numbers_sizes_and_shares),
        cmocka_unit_test(what_is_no_amount_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
