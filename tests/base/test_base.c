/* The base room: errors, memory, files and threads. */
#include "base/arena.h"
#include "base/file.h"
#include "base/host.h"
#include "base/memory.h"
#include "base/threads.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void a_message_is_filled_cut_and_cleaned(void **state)
{
    (void)state;
    struct k3_error err;
    assert_int_equal(k3_fail(&err, K3_ERR_FORMAT, "file %s: %d", "a\nb\x1b[31m", 7), K3_ERR_FORMAT);
    assert_string_equal(err.message, "file a?b?[31m: 7");
    assert_int_equal(err.status, K3_ERR_FORMAT);

    k3_fail(&err, K3_ERR_FORMAT, "\xc2\x9b" "31m \x9b \xff caf\xc3\xa9 \xe4\xbd\xa0 \xc3");
    assert_string_equal(err.message, "??31m ? ? caf\xc3\xa9 \xe4\xbd\xa0 ?");

    char longer[2 * K3_MESSAGE_MAX];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    k3_fail(&err, K3_ERR_FORMAT, "%s", longer);
    assert_int_equal(strlen(err.message), K3_MESSAGE_MAX - 1);
    assert_string_equal(err.message + K3_MESSAGE_MAX - 4, "...");
    assert_int_equal(k3_fail(NULL, K3_ERR_IO, "nobody listens"), K3_ERR_IO);
}

static void collect(void *ctx, const char *message)
{
    strcpy(ctx, message);
}

static void the_log_goes_where_it_is_told(void **state)
{
    (void)state;
    char seen[K3_MESSAGE_MAX] = "";
    k3_log("dropped");
    k3_set_log(collect, seen);
    k3_log("kept %d", 1);
    k3_set_log(NULL, NULL);
    k3_log("dropped");
    assert_string_equal(seen, "kept 1");
}

static void arena_pieces_are_zeroed_aligned_and_apart(void **state)
{
    (void)state;
    struct k3_arena arena = {0};
    unsigned char *pieces[100];
    for (size_t i = 0; i < 100; i++) {
        pieces[i] = k3_arena_alloc(&arena, i * 37 + 1);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % 16, 0);
        for (size_t j = 0; j < i * 37 + 1; j++) assert_int_equal(pieces[i][j], 0);
        memset(pieces[i], (int)i + 1, i * 37 + 1);
    }
    for (size_t i = 0; i < 100; i++) assert_int_equal(pieces[i][i * 37], i + 1);
    assert_string_equal(k3_arena_copy(&arena, "abc", 3), "abc");
    assert_non_null(k3_arena_alloc(&arena, 1 << 20));
    assert_null(k3_arena_alloc(&arena, SIZE_MAX - 8));
    k3_arena_free(&arena);
    assert_null(arena.chunks);
}

static void a_buffer_that_cannot_be_is_refused(void **state)
{
    (void)state;
    assert_null(k3_buffer_alloc(SIZE_MAX / 4, 16));
    float *x = k3_buffer_alloc(3, sizeof *x);
    assert_non_null(x);
    assert_int_equal((uintptr_t)x % 64, 0);
    free(x);
    unsigned char *large = k3_buffer_alloc(5 << 20, 1);
    assert_non_null(large);
    assert_int_equal((uintptr_t)large % K3_HUGE_PAGE, 0);
    for (size_t i = 0; i < K3_BUFFER_PAD; i++) assert_int_equal(large[(5 << 20) + i], 0);
    free(large);
}

static void files_are_read_exactly_or_not_at_all(void **state)
{
    (void)state;
    struct k3_error err;
    struct k3_file file;
    char path[] = "/tmp/k3-test-XXXXXX", text[16] = "";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "0123456789", 10), 10);

    assert_int_equal(k3_file_open(path, &file, &err), K3_OK);
    assert_int_equal(file.size, 10);
    assert_int_equal(k3_file_read(&file, 3, text, 4, &err), K3_OK);
    assert_memory_equal(text, "3456", 4);
    assert_int_equal(k3_file_read(&file, 8, text, 4, &err), K3_ERR_IO);
    assert_non_null(strstr(err.message, "ends at byte 10"));
    assert_int_equal(ftruncate(fd, 2), 0);
    assert_int_equal(k3_file_read(&file, 0, text, 4, &err), K3_ERR_IO);
    assert_non_null(strstr(err.message, "ends at byte 2 although it was 10"));
    k3_file_close(&file);
    k3_file_close(&file);
    close(fd);
    unlink(path);

    assert_int_equal(k3_file_open(path, &file, &err), K3_ERR_IO);
    assert_non_null(strstr(err.message, "No such file"));
    assert_int_equal(k3_file_open("/tmp", &file, &err), K3_ERR_IO);
    assert_non_null(strstr(err.message, "is a folder"));
    assert_int_equal(k3_file_open("/dev/null", &file, &err), K3_ERR_IO);
    assert_non_null(strstr(err.message, "is a device or pipe"));
    assert_string_equal(k3_file_name("/a/b.gguf"), "b.gguf");
    assert_string_equal(k3_file_name("b.gguf"), "b.gguf");
}

struct tally {
    atomic_int seen[1000];
    atomic_int threads[64];
};

static void count_items(void *ctx, size_t begin, size_t end, int thread)
{
    struct tally *tally = ctx;
    for (size_t i = begin; i < end; i++) atomic_fetch_add(&tally->seen[i], 1);
    atomic_fetch_add(&tally->threads[thread], 1);
}

static void every_item_is_done_once_by_any_number_of_threads(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= 9; n_threads += 2) {
        struct k3_pool *pool;
        assert_int_equal(k3_pool_create(n_threads, &pool, NULL), K3_OK);
        assert_int_equal(k3_pool_threads(pool), n_threads);
        for (size_t n = 0; n <= 1000; n += 125) {
            for (size_t grain = 0; grain <= 64; grain += 16) {
                struct tally tally = {0};
                k3_pool_run(pool, count_items, &tally, n, grain);
                for (size_t i = 0; i < 1000; i++) assert_int_equal(tally.seen[i], i < n);
                for (int t = n_threads; t < 64; t++) assert_int_equal(tally.threads[t], 0);
            }
        }
        k3_pool_free(pool);
    }
}

struct sums {
    atomic_size_t done;
    size_t n, grain;
    atomic_int strange; /* pieces that are not this run's */
};

static void sum_items(void *ctx, size_t begin, size_t end, int thread)
{
    struct sums *sums = ctx;
    (void)thread;
    if (begin % sums->grain || end > sums->n || (end % sums->grain && end != sums->n))
        atomic_fetch_add(&sums->strange, 1);
    atomic_fetch_add(&sums->done, end - begin);
}

/* Sleeping threads, more of them than processors, and runs that follow each other at once. */
static void a_run_is_over_when_its_items_are_done(void **state)
{
    (void)state;
    struct k3_pool *pool;
    assert_int_equal(k3_pool_create(5, &pool, NULL), K3_OK);
    for (size_t i = 0; i < 20000; i++) {
        struct sums sums = {.n = i * 7919 % 500, .grain = 1 + i % 17};
        if (i % 5000 == 4999) usleep(2000);
        k3_pool_run(pool, sum_items, &sums, sums.n, sums.grain);
        assert_int_equal(sums.done, sums.n);
        assert_int_equal(sums.strange, 0);
    }
    k3_pool_free(pool);
}

static void a_pool_of_impossible_size_is_refused(void **state)
{
    (void)state;
    struct k3_error err;
    struct k3_pool *pool;
    assert_int_equal(k3_pool_create(-1, &pool, &err), K3_ERR_ARGUMENT);
    assert_int_equal(k3_pool_create(100000, &pool, &err), K3_ERR_ARGUMENT);
    assert_int_equal(k3_pool_create(0, &pool, &err), K3_OK);
    assert_true(k3_pool_threads(pool) >= 1);
    k3_pool_free(pool);
    k3_pool_free(NULL);
}

static void put(const char *root, const char *path, const char *text)
{
    char name[256], command[512];
    snprintf(name, sizeof name, "%s/%s", root, path);
    snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\"", name);
    assert_int_equal(system(command), 0);
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void available_memory_respects_control_groups(void **state)
{
    (void)state;
    char root[] = "/tmp/k3-host-XXXXXX", command[64];
    assert_non_null(mkdtemp(root));
    assert_true(k3_host_memory_at(root).available == 0);
    put(root, "proc/meminfo", "MemTotal:       1000 kB\nMemFree: 100 kB\nMemAvailable:    800 kB\n");
    put(root, "proc/self/cgroup", "4:memory:/old/box\n0::/a/b\n");
    struct k3_host_memory m = k3_host_memory_at(root);
    assert_int_equal(m.total, 1024000);
    assert_int_equal(m.available, 819200);

    put(root, "sys/fs/cgroup/a/b/memory.max", "max\n");  /* no limit here, */
    put(root, "sys/fs/cgroup/a/memory.max", "500000\n"); /* but one above */
    put(root, "sys/fs/cgroup/a/memory.current", "300000\n");
    put(root, "sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 100000\n");
    m = k3_host_memory_at(root);
    assert_int_equal(m.total, 500000);
    assert_int_equal(m.available, 300000);

    put(root, "sys/fs/cgroup/memory/old/box/memory.limit_in_bytes", "40000\n");
    put(root, "sys/fs/cgroup/memory/old/box/memory.usage_in_bytes", "50000\n");
    m = k3_host_memory_at(root);
    assert_int_equal(m.total, 40000);
    assert_int_equal(m.available, 0);

    assert_true(k3_host_memory().available > 0 && k3_host_memory().available <= k3_host_memory().total);
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_filled_cut_and_cleaned),
        cmocka_unit_test(the_log_goes_where_it_is_told),
        cmocka_unit_test(arena_pieces_are_zeroed_aligned_and_apart),
        cmocka_unit_test(a_buffer_that_cannot_be_is_refused),
        cmocka_unit_test(available_memory_respects_control_groups),
        cmocka_unit_test(files_are_read_exactly_or_not_at_all),
        cmocka_unit_test(every_item_is_done_once_by_any_number_of_threads),
        cmocka_unit_test(a_run_is_over_when_its_items_are_done),
        cmocka_unit_test(a_pool_of_impossible_size_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
