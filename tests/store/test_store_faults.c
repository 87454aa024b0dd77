/* The store when the system refuses, interrupts or breaks: each system call made to fail in turn. */
#include "subject.h"

#include "store/io_calls.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- calls that fail ---- */

static struct k3_io_calls real;

/* What happens to reads, in both ways of reading: every `every`th returns `result` instead (0: every `every`th is
 * cut short), beginning with the first, `times` times in all. */
static struct {
    atomic_int n_reads, n_left;
    atomic_int every, result;
    atomic_llong bytes; /* that reads returned */
} fault;

static int64_t harm(int64_t got)
{
    int every = fault.every, result = fault.result;
    bool hit = every && atomic_fetch_add(&fault.n_reads, 1) % every == 0;
    if (hit && atomic_fetch_sub(&fault.n_left, 1) > 0) got = result ? result : (got + 1) / 2;
    if (got > 0) atomic_fetch_add(&fault.bytes, got);
    return got;
}

static void set_fault(int every, int result, int times)
{
    fault.every = every;
    fault.result = result;
    atomic_store(&fault.n_reads, 0);
    atomic_store(&fault.n_left, times);
    atomic_store(&fault.bytes, 0);
}

static ssize_t harmed_pread(int fd, void *buffer, size_t n, off_t offset)
{
    int64_t got = harm(pread(fd, buffer, n, offset));
    if (got >= 0) return (ssize_t)got;
    errno = (int)-got;
    return -1;
}

static int harmed_result(const struct io_uring_cqe *cqe)
{
    return (int)harm(cqe->res);
}

static int open_refused(const char *path, int flags)
{
    if (!(flags & O_DIRECT)) return real.open(path, flags);
    errno = EINVAL;
    return -1;
}

static int ring_error;

static int ring_init_refused(unsigned entries, struct io_uring *ring, unsigned flags)
{
    (void)entries, (void)ring, (void)flags;
    return ring_error;
}

static int files_refused(struct io_uring *ring, const int *fds, unsigned n)
{
    (void)ring, (void)fds, (void)n;
    return -ENOMEM;
}

static int places_refused(struct io_uring *ring, unsigned n)
{
    (void)ring, (void)n;
    return -ENOMEM;
}

static int buffer_refused(struct io_uring *ring, unsigned place, const struct iovec *buffer)
{
    (void)ring, (void)place, (void)buffer;
    return -ENOMEM;
}

static atomic_int n_submits_left;

static int submit_fails(struct io_uring *ring, unsigned n)
{
    return atomic_fetch_sub(&n_submits_left, 1) > 0 ? real.ring_submit_and_wait(ring, n) : -EBADF;
}

static atomic_int n_submits;

static int submit_is_interrupted(struct io_uring *ring, unsigned n)
{
    static const int errors[] = {-EINTR, -EAGAIN, -EBUSY, 0};
    int error = errors[atomic_fetch_add(&n_submits, 1) % 4];
    return error ? error : real.ring_submit_and_wait(ring, n);
}

static int set_up(void **state)
{
    (void)state;
    real = k3_io_calls;
    k3_io_calls.pread = harmed_pread;
    k3_io_calls.ring_result = harmed_result;
    set_fault(0, 0, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    k3_io_calls = real;
    k3_set_log(NULL, NULL);
    return 0;
}

/* ---- what must hold all the same ---- */

static const enum k3_io ways[] = {K3_IO_URING, K3_IO_THREADS};

static void use_all(const struct subject *s, struct k3_store *store)
{
    for (uint32_t layer = 0; layer < SMALL_LAYERS; layer++) {
        use_range(s, store, FIRST_LAYER + layer, 0, SMALL_EXPERTS, true);
        use_range(s, store, FIRST_LAYER + layer, 0, 4, false);
    }
}

/* Opens a store, uses all experts, and expects one message that has `text`. */
static void expect_one_message(const struct subject *s, enum k3_io io, enum k3_direct direct,
                               const char *text)
{
    struct heard heard;
    listen_to_log(&heard);
    struct k3_store *store = open_store(s, io, direct, 8);
    use_all(s, store);
    use_all(s, store);
    k3_store_close(store);
    if (heard.n != 1 || !strstr(heard.last, text)) fail_msg("%d messages, the last: %s", heard.n, heard.last);
    k3_set_log(NULL, NULL);
}

static void expect_refusal(const struct subject *s, enum k3_io io, enum k3_direct direct, const char *text)
{
    struct k3_error err;
    struct k3_store *store;
    struct k3_store_options options = {.io = io, .direct = direct, .n_slots = 8};
    assert_int_equal(k3_store_open(s->plan, &options, &store, &err), K3_ERR_IO);
    if (!strstr(err.message, text)) fail_msg("%s", err.message);
}

static void without_io_uring_threads_read(void **state)
{
    (void)state;
    const int errors[] = {-EPERM, -ENOSYS, -ENOMEM};
    struct subject s = open_subject(SMALL_MODEL);
    k3_io_calls.ring_init = ring_init_refused;
    for (int i = 0; i < 3; i++) {
        ring_error = errors[i];
        expect_one_message(&s, K3_IO_AUTO, K3_DIRECT_OFF, "experts are read by threads");
        expect_refusal(&s, K3_IO_URING, K3_DIRECT_OFF, "io_uring cannot be used");
    }
    close_subject(&s);
}

static void where_o_direct_cannot_be_opened_the_page_cache_is_read(void **state)
{
    (void)state;
    struct subject s = open_subject(SMALL_MODEL);
    k3_io_calls.open = open_refused;
    for (int i = 0; i < 2; i++) {
        expect_one_message(&s, ways[i], K3_DIRECT_AUTO, "read through the page cache");
        expect_refusal(&s, ways[i], K3_DIRECT_ON, "cannot be opened with O_DIRECT: Invalid argument");
    }
    close_subject(&s);
}

/* The first read is refused, as all would be: those under way with it are let through here, as they are right. */
static void where_o_direct_cannot_be_read_the_page_cache_is_read(void **state)
{
    (void)state;
    struct subject s = open_subject(SMALL_MODEL);
    for (int i = 0; i < 2; i++) {
        set_fault(1, -EINVAL, 1);
        expect_one_message(&s, ways[i], K3_DIRECT_AUTO, "cannot read with O_DIRECT");
    }
    close_subject(&s);
}

static void interruptions_and_short_reads_are_continued(void **state)
{
    (void)state;
    const int results[] = {-EINTR, -EAGAIN, 0, 1, 4096};
    const enum k3_direct directs[] = {K3_DIRECT_AUTO, K3_DIRECT_OFF};
    struct subject s = open_subject(SMALL_MODEL);
    struct heard heard;
    listen_to_log(&heard);
    for (int k = 0; k < 2 * 2 * 5; k++) {
        set_fault(3, results[k / 4], 1 << 20);
        struct k3_store *store = open_store(&s, ways[k % 2], directs[k / 2 % 2], 8);
        use_all(&s, store);
        assert_true(stats_of(store).bytes_read > 0);
        assert_int_equal(stats_of(store).bytes_read, atomic_load(&fault.bytes)); /* nothing is under way */
        k3_store_close(store);
    }
    assert_int_equal(heard.n, 0);
    close_subject(&s);
}

/* Takes what can be had; what cannot is named, and there is some of it. */
static void check_error(struct k3_ticket *ticket, uint32_t n, const char *text)
{
    struct k3_error err;
    struct k3_expert expert;
    int n_failed = 0;
    for (uint32_t i = 0; i < n; i++) {
        k3_status status = k3_store_next(ticket, &expert, &err);
        if (status == K3_OK) {
            k3_store_give_back(ticket, &expert);
            continue;
        }
        n_failed++;
        assert_int_equal(status, K3_ERR_IO);
        if (!strstr(err.message, "k3-tiny-a-q8_0-mxfp4.gguf: expert ") ||
            !strstr(err.message, " of layer 2 ") || !strstr(err.message, text))
            fail_msg("%s", err.message);
    }
    assert_true(n_failed > 0);
}

static void an_expert_that_cannot_be_read_is_named_and_the_store_lives(void **state)
{
    (void)state;
    const struct {
        int every, result, times;
        const char *text;
    } faults[] = {{5, -EIO, 1, "Input/output error"},
                  {2, -EIO, 1 << 20, "Input/output error"},
                  {1, -EINTR, 1 << 20, "Interrupted"},
                  {1, -EINVAL, 1 << 20, "Invalid argument"}};
    struct subject s = open_subject(SMALL_MODEL);
    uint32_t ids[SMALL_EXPERTS];
    struct k3_error err;
    for (uint32_t i = 0; i < SMALL_EXPERTS; i++) ids[i] = i;
    for (int k = 0; k < 2 * 4; k++) {
        struct k3_store *store = open_store(&s, ways[k % 2], K3_DIRECT_ON, 8);
        for (int round = 0; round < 20; round++) { /* far more failures than there are slots */
            struct k3_ticket *ticket;
            set_fault(faults[k / 2].every, faults[k / 2].result, faults[k / 2].times);
            bool often = faults[k / 2].times > 1;
            if (often && round % 4 == 3) k3_store_hint(store, 2, ids, 4, UINT64_MAX);
            assert_int_equal(k3_store_acquire(store, 2, ids, SMALL_EXPERTS, round % 2, &ticket, &err), K3_OK);
            if (!often || round % 5 != 4) check_error(ticket, SMALL_EXPERTS, faults[k / 2].text);
            k3_store_release(ticket);
            set_fault(0, 0, 0);
            use_range(&s, store, 3, 0, SMALL_EXPERTS, round % 2);
        }
        use_all(&s, store);
        k3_store_close(store);
    }
    close_subject(&s);
}

static void what_cannot_be_registered_is_read_all_the_same(void **state)
{
    (void)state;
    struct subject s = open_subject(SMALL_MODEL);
    k3_io_calls.ring_register_buffer = buffer_refused;
    expect_one_message(&s, K3_IO_URING, K3_DIRECT_AUTO,
                       "cannot register the memory of experts: Cannot allocate");
    k3_io_calls.ring_register_no_buffers = places_refused;
    expect_one_message(&s, K3_IO_AUTO, K3_DIRECT_OFF,
                       "cannot register the memory of experts: Cannot allocate");
    k3_io_calls = real;
    k3_io_calls.ring_register_files = files_refused;
    struct heard heard;
    listen_to_log(&heard);
    struct k3_store *store = open_store(&s, K3_IO_URING, K3_DIRECT_AUTO, 8);
    use_all(&s, store);
    k3_store_close(store);
    assert_int_equal(heard.n, 0); /* it costs nothing that anybody would notice */
    close_subject(&s);
}

static void submission_is_tried_again_when_it_is_interrupted(void **state)
{
    (void)state;
    struct subject s = open_subject(SMALL_MODEL);
    k3_io_calls.ring_submit_and_wait = submit_is_interrupted;
    struct k3_store *store = open_store(&s, K3_IO_URING, K3_DIRECT_AUTO, 8);
    use_all(&s, store);
    k3_store_close(store);
    close_subject(&s);
}

static void a_ring_that_breaks_fails_requests_and_hangs_none(void **state)
{
    (void)state;
    struct subject s = open_subject(SMALL_MODEL);
    k3_io_calls.ring_submit_and_wait = submit_fails;
    uint32_t ids[SMALL_EXPERTS];
    for (uint32_t i = 0; i < SMALL_EXPERTS; i++) ids[i] = i;
    for (int n_good = 0; n_good < 12; n_good += 3) {
        atomic_store(&n_submits_left, n_good);
        struct k3_store *store = open_store(&s, K3_IO_URING, K3_DIRECT_AUTO, 8);
        int n_failed = 0;
        for (int round = 0; round < 40; round++) {
            struct k3_error err;
            struct k3_ticket *ticket;
            struct k3_expert expert;
            assert_int_equal(k3_store_acquire(store, 2, ids, SMALL_EXPERTS, false, &ticket, &err), K3_OK);
            for (uint32_t i = 0; i < SMALL_EXPERTS; i++) {
                if (k3_store_next(ticket, &expert, &err) == K3_OK) {
                    check_expert(&s, 2, ids[expert.index], &expert);
                    k3_store_give_back(ticket, &expert);
                } else {
                    assert_int_equal(err.status, K3_ERR_IO);
                    n_failed++;
                }
            }
            k3_store_release(ticket);
        }
        assert_true(n_failed > 0);
        k3_store_close(store);
    }
    close_subject(&s);
}

static void a_file_that_shrinks_is_an_error(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        char *name = copy_file(SMALL_MODEL, "/tmp");
        struct subject s = open_subject(name);
        struct k3_store *store = open_store(&s, ways[k % 2], k / 2 ? K3_DIRECT_OFF : K3_DIRECT_AUTO, 8);
        use_range(&s, store, 2, 0, 4, false);
        /* In the middle of a page of an expert that is not in memory. */
        const struct k3_gguf_tensor *t = k3_plan_tensor(s.plan, 2, K3_EXPERTS_UP);
        uint64_t end = t->offset + t->bytes / SMALL_EXPERTS * 9 + 100;
        assert_int_equal(truncate(name, (off_t)end), 0);

        struct k3_error err;
        struct k3_ticket *ticket;
        struct k3_expert expert;
        uint32_t ids[] = {0, 9};
        assert_int_equal(k3_store_acquire(store, 2, ids, 2, false, &ticket, &err), K3_OK);
        assert_int_equal(k3_store_next(ticket, &expert, &err), K3_OK);
        assert_int_equal(expert.index, 0);
        assert_int_equal(k3_store_next(ticket, &expert, &err), K3_ERR_IO);
        if (!strstr(err.message, "expert 9 of layer 2 cannot be read: the file has become shorter than"))
            fail_msg("%s", err.message);
        k3_store_release(ticket);
        use_range(&s, store, 2, 0, 4, false);
        k3_store_close(store);
        close_subject(&s);
        unlink(name);
        free(name);
    }
}

static void files_in_memory_are_read_too(void **state)
{
    (void)state;
    if (access("/dev/shm", W_OK) != 0) skip();
    char *name = copy_file(SMALL_MODEL, "/dev/shm");
    struct subject s = open_subject(name);
    for (int i = 0; i < 2; i++) {
        struct k3_store *store = open_store(&s, ways[i], K3_DIRECT_AUTO, 8);
        use_all(&s, store);
        k3_store_close(store);
    }
    close_subject(&s);
    unlink(name);
    free(name);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(without_io_uring_threads_read),
        TEST(where_o_direct_cannot_be_opened_the_page_cache_is_read),
        TEST(where_o_direct_cannot_be_read_the_page_cache_is_read),
        TEST(interruptions_and_short_reads_are_continued),
        TEST(an_expert_that_cannot_be_read_is_named_and_the_store_lives),
        TEST(what_cannot_be_registered_is_read_all_the_same),
        TEST(submission_is_tried_again_when_it_is_interrupted),
        TEST(a_ring_that_breaks_fails_requests_and_hangs_none),
        TEST(a_file_that_shrinks_is_an_error),
        TEST(files_in_memory_are_read_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
