/* The emulator: right kernels run, and each kind of mistake is reported, with the place. */
#include "provoke.h"
#include "emulator/host.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdint.h>
#include <string.h>

enum { N = 64 };

static float *x, *y;

static int allocate(void **state)
{
    (void)state;
    float values[N];
    for (int i = 0; i < N; i++) values[i] = (float)i - 16;
    x = k3_simt_alloc("x", sizeof values);
    y = k3_simt_alloc("y", 2 * sizeof values);
    k3_simt_put(x, values, sizeof values);
    return 0;
}

static int release(void **state)
{
    (void)state;
    k3_simt_free(x);
    k3_simt_free(y);
    return k3_simt_report() != NULL;
}

static void a_right_kernel_runs_and_is_not_reported(void **state)
{
    (void)state;
    float out[2 * N];
    provoke(NO_MISTAKE, x, y);
    k3_simt_get(out, y, sizeof out);
    assert_null(k3_simt_report());
    for (int i = 0; i < 2 * N; i++) {
        int at = i % N;
        assert_true(out[i] == (float)at - 16 + 2 + (at < 32 ? 15 : 32));
    }
}

/* The report has all these words, and nothing runs until it is taken. */
static void expect(const char *report, const char *const *words)
{
    assert_non_null(report);
    for (; *words; words++)
        if (!strstr(report, *words)) fail_msg("\"%s\" does not say \"%s\"", report, *words);
    assert_null(k3_simt_report());
}
#define EXPECT(...) expect(k3_simt_report(), (const char *const[]){__VA_ARGS__, NULL})
#define PROVOKE(mistake, ...)                                                                                \
    do {                                                                                                     \
        provoke(mistake, x, y);                                                                              \
        EXPECT("provoked, block (", __VA_ARGS__);                                                            \
    } while (0)

static void accesses_out_of_bounds_are_reported(void **state)
{
    (void)state;
    PROVOKE(READS_BEYOND, "(0,0,0)", "thread (3,0,0)", "accesses x[64]", "0 to 63");
    PROVOKE(READS_BEFORE, "(0,0,0)", "thread (3,0,0)", "accesses x[-6]", "-5 to 58");
    PROVOKE(WRITES_BEYOND, "(0,0,0)", "thread (3,0,0)", "accesses y[128]", "0 to 127");
    PROVOKE(READS_SHARED_BEYOND, "(0,0,0)", "thread (3,0,0)", "accesses line[64]", "shared");
}

static void reads_of_what_nothing_wrote_are_reported(void **state)
{
    (void)state;
    PROVOKE(READS_UNWRITTEN, "thread (3,0,0)", "reads byte 16 of y", "nothing wrote");
    PROVOKE(READS_SHARED_UNWRITTEN, "thread (3,0,0)", "reads line[3]", "nothing in this block wrote");
    PROVOKE(READS_SHARED_OF_EARLIER_BLOCK, "block (1,0,0)", "thread (0,0,0)", "reads line[0]", "nothing");
    float out[N];
    void *fresh = k3_simt_alloc("fresh", sizeof out);
    k3_simt_get(out, fresh, sizeof out);
    EXPECT("byte 0 of fresh", "nothing wrote");
    k3_simt_free(fresh);
}

static void races_in_shared_memory_are_reported(void **state)
{
    (void)state;
    PROVOKE(WRITE_THEN_READ, "thread (32,0,0)", "reads line[0]", "another warp");
    PROVOKE(LANES_RACE, "thread (1,0,0)", "reads line[0]", "another thread of its warp");
    PROVOKE(READ_THEN_WRITE, "thread (1,0,0)", "writes line[1]", "another thread of its warp");
    PROVOKE(WRITE_THEN_WRITE, "thread (1,0,0)", "writes line[0]", "another thread of its warp");
}

static void races_in_device_memory_are_reported(void **state)
{
    (void)state;
    PROVOKE(BLOCKS_SHARE, "block (1,0,0)", "thread (0,0,0)", "writes byte 0 of y", "another block");
    float ones[2 * N] = {0};
    k3_simt_put(y, ones, sizeof ones);
    PROVOKE(WARPS_RACE_IN_DEVICE_MEMORY, "thread (32,0,0)", "writes byte 128 of y", "another warp");
    PROVOKE(WRITES_CONSTANT, "reads byte 0 of y", "declared constant");
}

static void barriers_that_not_all_reach_are_reported(void **state)
{
    (void)state;
    PROVOKE(LEAVES_BEFORE_BARRIER, "thread (3,0,0)", "leaves the kernel", "thread 0 waits at the barrier",
            "provoke.cu:");
    PROVOKE(BARRIER_AFTER_LEAVING, "thread (1,0,0)", "at the barrier", "1 threads have left");
    PROVOKE(TWO_BARRIERS, "thread (3,0,0)",
            "at the barrier in provoke.cu:", "thread 0 is at the one in line");
}

static void lanes_that_do_not_meet_are_reported(void **state)
{
    (void)state;
    PROVOKE(LANE_DOES_NOT_COME, "waits in", "neither comes", "provoke.cu:");
    PROVOKE(LANE_HAS_LEFT, "thread (4,0,0)", "waits for lane 3, which has left the kernel");
    PROVOKE(LANE_NOT_IN_MASK, "thread (3,0,0)", "lane 3", "fffffff7 leaves it out");
    PROVOKE(SOURCE_NOT_IN_MASK, "from lane 16", "no part in it");
    PROVOKE(DIFFERENT_SHUFFLES, "thread (3,0,0)", "a shuffle", "lane 0 is in");
}

static void copies_to_shared_memory_are_there_when_they_were_waited_for(void **state)
{
    (void)state;
    float out[N], in[N];
    provoke_copy(NO_MISTAKE, x, y);
    k3_simt_get(out, y, sizeof out);
    k3_simt_get(in, x, sizeof in);
    assert_null(k3_simt_report());
    assert_memory_equal(out, in, sizeof out);
}

static void copies_that_are_used_too_early_are_reported(void **state)
{
    (void)state;
    provoke_copy(READS_DURING_COPY, x, y);
    EXPECT("copied, block", "thread (0,0,0)", "words[0], to which a copy is under way");
    provoke_copy(COPY_WITHOUT_BARRIER, x, y);
    EXPECT("thread (0,0,0)", "words[4]", "nothing in this block wrote");
    provoke_copy(COPY_OVER_WHAT_IS_READ, x, y);
    EXPECT("thread (1,0,0)", "writes words[4]", "another thread of its warp");
    provoke_copy(COPY_NOT_ALIGNED, x, y);
    EXPECT("words[1], not a multiple of 4");
}

static void a_matrix_product_is_what_it_says(void **state)
{
    (void)state;
    signed char a[16 * 32], b[8 * 32];
    int c[16 * 8];
    for (int i = 0; i < 16 * 32; i++) a[i] = (signed char)(i * 37 + i / 32);
    for (int i = 0; i < 8 * 32; i++) b[i] = (signed char)(i * 59 - i / 32);
    void *da = k3_simt_alloc("a", sizeof a), *db = k3_simt_alloc("b", sizeof b),
         *dc = k3_simt_alloc("c", sizeof c);
    k3_simt_put(da, a, sizeof a);
    k3_simt_put(db, b, sizeof b);
    multiply_16_8_32(da, db, dc);
    k3_simt_get(c, dc, sizeof c);
    assert_null(k3_simt_report());
    for (int i = 0; i < 16 * 8; i++) {
        int want = 1;
        for (int k = 0; k < 32; k++) want += a[i / 8 * 32 + k] * b[i % 8 * 32 + k];
        assert_int_equal(c[i], want);
    }
    k3_simt_free(da);
    k3_simt_free(db);
    k3_simt_free(dc);
}

static void what_no_device_takes_is_reported(void **state)
{
    (void)state;
    provoke_threads(0, y);
    EXPECT("count_threads is launched with (1,1,1) blocks of (0,1,1) threads");
    provoke_threads(1025, y);
    EXPECT("(1025,1,1)");
    provoke(TOO_MUCH_SHARED, x, y);
    EXPECT("too_much, block", "with more", "49156 bytes of shared memory");
}

static void pointers_to_anything_but_device_memory_are_reported(void **state)
{
    (void)state;
    float on_host[N] = {0}, *freed = k3_simt_alloc("freed", sizeof on_host);
    k3_simt_free(freed);
    provoke(NO_MISTAKE, freed, y);
    EXPECT("provoked: argument x points at device memory that was freed");
    provoke(NO_MISTAKE, on_host, y);
    EXPECT("argument x points at no device memory");
    provoke(NO_MISTAKE, (const float *)((const char *)x + 1), y);
    EXPECT("argument x is not at a multiple of 4 bytes");
    provoke(NO_MISTAKE, NULL, y);
    EXPECT("accesses x[0]");
    k3_simt_free(freed);
    EXPECT("freed");
    k3_simt_put(x, on_host, sizeof on_host + 4);
    EXPECT("260 bytes", "of x, which has 256");
    k3_simt_get(on_host, freed, 4);
    EXPECT("freed");
}

static void nothing_runs_until_a_report_is_taken(void **state)
{
    (void)state;
    provoke(READS_BEYOND, x, y);
    provoke_threads(4, y);
    float out[4];
    k3_simt_get(out, y, sizeof out);
    EXPECT("accesses x[64]");
    assert_false(out[1] == 1);
    provoke_threads(4, y);
    k3_simt_get(out, y, sizeof out);
    assert_null(k3_simt_report());
    assert_true(out[3] == 3);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, allocate, release)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_right_kernel_runs_and_is_not_reported),
        TEST(accesses_out_of_bounds_are_reported),
        TEST(reads_of_what_nothing_wrote_are_reported),
        TEST(races_in_shared_memory_are_reported),
        TEST(races_in_device_memory_are_reported),
        TEST(barriers_that_not_all_reach_are_reported),
        TEST(lanes_that_do_not_meet_are_reported),
        TEST(copies_to_shared_memory_are_there_when_they_were_waited_for),
        TEST(copies_that_are_used_too_early_are_reported),
        TEST(a_matrix_product_is_what_it_says),
        TEST(what_no_device_takes_is_reported),
        TEST(pointers_to_anything_but_device_memory_are_reported),
        TEST(nothing_runs_until_a_report_is_taken),
    };
    return cmocka_run_group_tests_name("the SIMT emulator", tests, NULL, NULL);
}
