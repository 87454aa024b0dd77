/* Hot sets: what a run leaves, the next begins with; what is no such file is refused. And bytes are what they are said
 * to be. */
#include "reference.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL K3_TEST_MODELS "/k3-tiny-IQ1_M.gguf"
#define OTHER K3_TEST_DATA "/fixtures/models/k3-tiny-a-q8_0-mxfp4.gguf"

enum { N = 40, SLOTS = 40 };
static char folder[] = "/tmp/k3-warm-XXXXXX", path[64];
static struct k3_error err;

static struct k3_model *open_with(const char *file, uint32_t slots, enum k3_io io, enum k3_direct direct)
{
    struct k3_model *model;
    struct k3_model_options options = {.threads = 1, .slots = slots, .io = io, .direct = direct};
    if (k3_model_open(file, &options, &model, &err) != K3_OK) fail_msg("%s", err.message);
    return model;
}

/* Decodes, so that some experts are used more than others. */
static struct k3_expert_stats decode(struct k3_model *model, int32_t n)
{
    struct k3_session *session;
    struct k3_expert_stats stats;
    assert_int_equal(k3_session_create(model, NULL, &session, &err), K3_OK);
    for (int32_t token = 100; token < 100 + n; token++)
        assert_int_equal(k3_session_feed(session, &token, 1, NULL, 0, NULL, &err), K3_OK);
    k3_session_free(session);
    k3_model_get_expert_stats(model, K3_ALL_LAYERS, &stats);
    return stats;
}

static void must_save(struct k3_model *model)
{
    if (k3_model_save_warm(model, path, &err) != K3_OK) fail_msg("%s", err.message);
}

static void must_load(struct k3_model *model)
{
    if (k3_model_load_warm(model, path, NULL, NULL, &err) != K3_OK) fail_msg("%s", err.message);
}

static size_t read_file(char *text, size_t size)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, size - 1, file);
    text[n] = 0;
    fclose(file);
    return n;
}

static void write_file(const char *text, size_t n)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, n, file), n);
    fclose(file);
}

static void the_next_run_begins_with_what_the_last_one_left(void **state)
{
    (void)state;
    struct k3_model *model = open_with(MODEL, SLOTS, K3_IO_AUTO, K3_DIRECT_AUTO);
    struct k3_expert_stats cold = decode(model, 1);
    assert_int_equal(cold.misses, cold.requests);
    decode(model, N);
    must_save(model);
    k3_model_close(model);

    char first[8192], second[8192];
    size_t n = read_file(first, sizeof first);
    model = open_with(MODEL, SLOTS, K3_IO_AUTO, K3_DIRECT_AUTO);
    must_load(model);
    struct k3_expert_stats loaded, warm;
    k3_model_get_expert_stats(model, K3_ALL_LAYERS, &loaded);
    assert_int_equal(loaded.requests, 0);
    assert_true(loaded.bytes_read > 0);

    /* Nothing was asked for yet: what is left is what was there, with its past. */
    must_save(model);
    assert_int_equal(read_file(second, sizeof second), n);
    assert_string_equal(first, second);
    warm = decode(model, 1);
    k3_model_close(model);
    assert_int_equal(warm.requests, cold.requests);
    if (2 * warm.misses > cold.misses)
        fail_msg("%" PRIu64 " misses warm, %" PRIu64 " cold", warm.misses, cold.misses);
}

static void no_more_is_read_than_fits(void **state)
{
    (void)state;
    struct k3_model *model = open_with(MODEL, 80, K3_IO_AUTO, K3_DIRECT_AUTO);
    decode(model, N);
    must_save(model);
    k3_model_close(model);
    model = open_with(MODEL, 8, K3_IO_THREADS, K3_DIRECT_OFF);
    must_load(model);
    must_load(model); /* they are there already */
    struct k3_expert_stats stats = decode(model, 2);
    assert_int_equal(stats.hits + stats.misses, stats.requests);
    k3_model_close(model);
}

static bool stop(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    (void)ctx, (void)what;
    assert_true(done <= total);
    return false;
}

static void loading_can_be_cancelled(void **state)
{
    (void)state;
    struct k3_model *model = open_with(MODEL, 80, K3_IO_AUTO, K3_DIRECT_AUTO);
    decode(model, N);
    must_save(model);
    k3_model_close(model);
    model = open_with(MODEL, 80, K3_IO_AUTO, K3_DIRECT_AUTO);
    assert_int_equal(k3_model_load_warm(model, path, stop, NULL, &err), K3_ERR_CANCELLED);
    decode(model, 1);
    k3_model_close(model);
}

static void must_refuse(struct k3_model *model, k3_status status, const char *why)
{
    struct k3_expert_stats stats;
    k3_status got = k3_model_load_warm(model, path, NULL, NULL, &err);
    if (got != status || !strstr(err.message, why))
        fail_msg("status %d, '%s' instead of %d, '%s'", got, err.message, status, why);
    k3_model_get_expert_stats(model, K3_ALL_LAYERS, &stats);
    assert_int_equal(stats.bytes_read, 0);
}

static void what_is_no_hot_set_of_this_model_is_refused(void **state)
{
    (void)state;
    struct k3_model *model = open_with(OTHER, 0, K3_IO_AUTO, K3_DIRECT_AUTO);
    must_save(model);
    k3_model_close(model);
    model = open_with(MODEL, SLOTS, K3_IO_AUTO, K3_DIRECT_AUTO);
    must_refuse(model, K3_ERR_FORMAT, "of another model");

    char head[1024], text[2048];
    must_save(model); /* nothing was read: an empty list */
    size_t n = read_file(head, sizeof head);
    assert_string_equal(head + n - 4, "n 0\n");
    head[n - 4] = 0;
    static const struct {
        const char *tail, *why;
    } broken[] = {
        {"", "line 3"},
        {"n\n", "line 3"},
        {"n 81\n", "a number of experts up to 80"},
        {"n 99999999999999999999\n", "line 3"},
        {"n 2\n1 2 3\n", "ends before the 2"},
        {"n 1\n1 2 34", "line 4"},
        {"n 1\n0 2 3\n", "layer from 1 to 5"},
        {"n 1\n6 2 3\n", "line 4"},
        {"n 1\n1 16 3\n", "line 4"},
        {"n 1\n1 2 1000001\n", "line 4"},
        {"n 1\n1 -2 3\n", "line 4"},
        {"n 1\n1  2 3\n", "line 4"},
        {"n 2\n1 2 3\n1 2 3\n", "a second time"},
        {"n 1\n1 2 3\n1 3 3\n", "goes on after"},
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        snprintf(text, sizeof text, "%s%s", head, broken[i].tail);
        write_file(text, strlen(text));
        must_refuse(model, K3_ERR_FORMAT, broken[i].why);
    }
    for (size_t cut = 0; cut < n - 4; cut++) {
        write_file(head, cut);
        must_refuse(model, K3_ERR_FORMAT, path);
    }
    assert_int_equal(unlink(path), 0);
    must_refuse(model, K3_ERR_IO, path);
    k3_model_close(model);

    model = open_with(MODEL, 0, K3_IO_MMAP, K3_DIRECT_AUTO);
    must_refuse(model, K3_ERR_UNSUPPORTED, "mapped files");
    assert_int_equal(k3_model_save_warm(model, path, &err), K3_ERR_UNSUPPORTED);
    k3_model_close(model);
}

/* Bytes this process made drives read. */
static uint64_t kernel_bytes(void)
{
    char line[128];
    unsigned long long bytes = 0;
    FILE *file = fopen("/proc/self/io", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "read_bytes: %llu", &bytes);
    if (file) fclose(file);
    return bytes;
}

static void bytes_read_are_those_the_kernel_counts(void **state)
{
    (void)state;
    for (int io = K3_IO_AUTO; io <= K3_IO_THREADS; io += K3_IO_THREADS) {
        struct k3_model *model;
        struct k3_model_options options = {
            .threads = 1, .slots = 16, .io = (enum k3_io)io, .direct = K3_DIRECT_ON};
        if (k3_model_open(MODEL, &options, &model, &err) != K3_OK) skip(); /* no O_DIRECT here */
        uint64_t before = kernel_bytes();
        struct k3_expert_stats stats = decode(model, N);
        uint64_t counted = kernel_bytes() - before;
        k3_model_close(model);
        if (!counted) skip(); /* a file system without a drive, or nobody counts */
        if (stats.bytes_read != counted)
            fail_msg("%" PRIu64 " bytes reported, the kernel counts %" PRIu64, stats.bytes_read, counted);
    }
}

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/warm", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder); /* which also says that nothing else was left in it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_run_begins_with_what_the_last_one_left),
        cmocka_unit_test(no_more_is_read_than_fits),
        cmocka_unit_test(loading_can_be_cancelled),
        cmocka_unit_test(what_is_no_hot_set_of_this_model_is_refused),
        cmocka_unit_test(bytes_read_are_those_the_kernel_counts),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
