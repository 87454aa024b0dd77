/* Reading routing traces, broken ones above all. */
#include "common/trace.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/k3-trace-XXXXXX";

static void write_text(const char *text, size_t n)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, n, file), n);
    fclose(file);
}

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    if (fd >= 0) close(fd);
    return fd < 0;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static void tokens_and_layers_are_kept_in_order(void **state)
{
    (void)state;
    static const char text[] = "{\"tok\": 0, \"layers\": [[3, 1], [], [2]]}\n\n {\"layers\": [[], [7], [0]]}";
    static const uint16_t ids[] = {3, 1, 2, 7, 0};
    static const size_t begin[] = {0, 2, 2, 3, 3, 4, 5};
    struct k3_error err;
    struct k3_trace trace;
    write_text(text, strlen(text));
    if (k3_trace_read(path, &trace, &err) != K3_OK) fail_msg("%s", err.message);
    assert_int_equal(trace.n_tokens, 2);
    assert_int_equal(trace.n_layers, 3);
    assert_int_equal(trace.n_experts, 8);
    assert_memory_equal(trace.ids, ids, sizeof ids);
    assert_memory_equal(trace.begin, begin, sizeof begin);
    k3_trace_free(&trace);
}

static void refuse(const char *text, size_t n, const char *want)
{
    struct k3_error err;
    struct k3_trace trace;
    write_text(text, n);
    if (k3_trace_read(path, &trace, &err) != K3_ERR_FORMAT) fail_msg("'%.60s' is taken", text);
    if (!strstr(err.message, want)) fail_msg("'%.60s' is refused with: %s", text, err.message);
    assert_non_null(strstr(err.message, "k3-trace-"));
    assert_null(trace.ids);
}

static void broken_traces_are_refused_in_one_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"", "no token asks for an expert"},
        {" \n", "no token asks for an expert"},
        {"{\"layers\": [[]]}", "no token asks for an expert"},
        {"hello", "token 0 is no JSON"},
        {"{\"layers\": [[1]]}\n{\"layers\": [[1]", "token 1 is no JSON"},
        {"{\"layers\": [[1]]}\xff", "token 1 is no JSON"},
        {"[[1]]", "token 0: \"layers\" is no list"},
        {"{}", "\"layers\" is no list"},
        {"{\"layers\": 7}", "\"layers\" is no list"},
        {"{\"layers\": []}", "\"layers\" is no list of 1 to 1024"},
        {"{\"layers\": [1]}", "token 0, layer 0: is no list of ids"},
        {"{\"layers\": [[0], {\"a\": 1}]}", "token 0, layer 1: is no list of ids"},
        {"{\"layers\": [[0], [-1]]}", "token 0, layer 1: an id is no whole number from 0 to 4095"},
        {"{\"layers\": [[4096]]}", "an id is no whole number"},
        {"{\"layers\": [[1.0]]}", "an id is no whole number"},
        {"{\"layers\": [[\"1\"]]}", "an id is no whole number"},
        {"{\"layers\": [[99999999999999999999]]}", "no JSON"},
        {"{\"layers\": [[5, 6, 5]]}", "token 0, layer 0: expert 5 is there twice"},
        {"{\"layers\": [[1], [1]]}{\"layers\": [[1]]}", "token 1 has 1 layers, but those before have 2"},
        {"{\"layers\": [[1]], \"layers\": [[2]]}", "no JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i].text, strlen(cases[i].text), cases[i].want);
    refuse("\0\0\0\0", 4, "token 0 is no JSON");
}

static void deep_and_wide_traces_are_refused(void **state)
{
    (void)state;
    static char text[100000];
    memset(text, '[', sizeof text);
    refuse(text, sizeof text, "no JSON");
    size_t n = (size_t)sprintf(text, "{\"layers\": [[0]");
    for (int i = 0; i < 1024; i++) n += (size_t)sprintf(text + n, ",[]");
    n += (size_t)sprintf(text + n, "]}");
    refuse(text, n, "\"layers\" is no list of 1 to 1024");
}

static void files_that_cannot_be_read_are_named(void **state)
{
    (void)state;
    struct k3_error err;
    struct k3_trace trace;
    assert_int_equal(k3_trace_read("/nowhere/x", &trace, &err), K3_ERR_IO);
    assert_non_null(strstr(err.message, "/nowhere/x: cannot be opened"));
    assert_int_equal(k3_trace_read("/tmp", &trace, &err), K3_ERR_IO);
    assert_non_null(strstr(err.message, "tmp: cannot be read: Is a directory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_and_layers_are_kept_in_order),
        cmocka_unit_test(broken_traces_are_refused_in_one_sentence),
        cmocka_unit_test(deep_and_wide_traces_are_refused),
        cmocka_unit_test(files_that_cannot_be_read_are_named),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
