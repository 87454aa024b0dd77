/* Pictures: what goes into them as text, and the scale of their charts. */
#include "chart.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static void text_cannot_become_markup(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"", ""},
        {"iq1_m", "iq1_m"},
        {"<script>a && 'b'</script>", "&lt;script&gt;a &amp;&amp; &#39;b&#39;&lt;/script&gt;"},
        {"\" onload=\"x", "&quot; onload=&quot;x"},
        {"caf\303\251", "caf\303\251"},
        {"bad\377\nline\033[2m", "bad??line?[2m"},
        {"cut \303", "cut ?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[128];
        assert_string_equal(k3_svg_escape(cases[i].text, out, sizeof out), cases[i].want);
    }
}

static void text_is_cut_between_characters_and_entities(void **state)
{
    (void)state;
    char out[8];
    assert_string_equal(k3_svg_escape("abcdefghij", out, sizeof out), "abcdefg");
    assert_string_equal(k3_svg_escape("abcd&e", out, sizeof out), "abcd");
    assert_string_equal(k3_svg_escape("abcdef\303\251", out, sizeof out), "abcdef");
    assert_string_equal(k3_svg_escape("abcde\303\251", out, sizeof out), "abcde\303\251");
}

static void grid_lines_are_round_numbers(void **state)
{
    (void)state;
    static const struct {
        double max, step;
    } cases[] = {{10, 1}, {11, 2}, {28.4, 5}, {0.5, 0.05}, {3000, 500}, {1, 0.1}, {99, 10}, {1e-3, 1e-4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double step = k3_chart_step(cases[i].max);
        if (step < 0.999 * cases[i].step || step > 1.001 * cases[i].step)
            fail_msg("up to %g: %g, not %g", cases[i].max, step, cases[i].step);
    }
    assert_true(k3_chart_step(0) > 0);
}

static void bars_are_found_by_their_labels(void **state)
{
    (void)state;
    static struct k3_chart chart;
    struct k3_bar *bar = k3_chart_bar(&chart, "q8_0", "avx2");
    bar->value = 1;
    k3_chart_bar(&chart, "q8_0", "portable")->value = 2;
    k3_chart_bar(&chart, "f32", "avx2")->value = 3;
    assert_ptr_equal(k3_chart_bar(&chart, "q8_0", "avx2"), bar);
    assert_int_equal(chart.n_groups, 2);
    assert_int_equal(chart.n_series, 2);
    for (int i = 0; i < K3_CHART_GROUPS - 2; i++) {
        char label[16];
        snprintf(label, sizeof label, "%d", i);
        assert_non_null(k3_chart_bar(&chart, label, "avx2"));
    }
    assert_null(k3_chart_bar(&chart, "one more", "avx2"));
    assert_ptr_equal(k3_chart_bar(&chart, "q8_0", "avx2"), bar);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_cannot_become_markup),
        cmocka_unit_test(text_is_cut_between_characters_and_entities),
        cmocka_unit_test(grid_lines_are_round_numbers),
        cmocka_unit_test(bars_are_found_by_their_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
