/* reader_uring.c - reads through one io_uring, fed by one thread.
 *
 * The thread takes pieces from the queue, hands them to the kernel in one call and sleeps until some have
 * arrived. That it is a thread of its own keeps submission, which costs some 10 microseconds a megabyte, away
 * from those that compute, and keeps the drive busy while they do. It is woken through an eventfd that the
 * ring reads.
 *
 * Files are registered, which saves a reference count a read. The memory of the slots is registered region by
 * region when the first read goes there: that spares the kernel finding and pinning the pages of every read,
 * and does it without touching all memory at the start. Either may be refused (RLIMIT_MEMLOCK, old kernels);
 * then reads go on without. */
#include "store/reader_internal.h"

#include "store/io_calls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Registering takes zeroed pages, some 10 ms for this much; and the kernel takes at most MAX_REGIONS buffers
 * of at most MAX_REGION_BYTES (io_uring/rsrc.h, 6.1). */
#define REGION_BYTES     ((uint64_t)32 << 20)
#define MAX_REGION_BYTES ((uint64_t)1 << 30)
#define MAX_REGIONS      ((uint64_t)1 << 14)

struct k3_uring {
    struct k3_reader *reader;
    struct io_uring ring;
    pthread_t thread;
    bool has_ring, has_thread;
    int wake_fd;
    uint64_t wake_value; /* where the ring reads the eventfd to */
    bool wake_armed;

    bool fixed_files; /* direct descriptors first, then the buffered ones */
    uint64_t region_bytes;
    uint32_t n_regions;  /* 0: nothing is registered */
    bool *is_registered; /* [n_regions], owned */
    bool may_register;   /* more of them */

    struct k3_piece *pieces; /* [depth], owned: those under way and free ones */
    struct k3_piece **free;  /* [n_free], owned */
    struct k3_piece *taken;  /* [depth], owned: on their way from the queue to `pieces` */
    uint32_t n_free;
};

/* ---- registration ---- */

static void register_files(struct k3_uring *u)
{
    const struct k3_reader *r = u->reader;
    uint32_t n = r->options.n_files;
    int *fds = calloc(2 * (size_t)n, sizeof *fds);
    if (!fds) return;
    memcpy(fds, r->direct_fds, n * sizeof *fds); /* -1 leaves a place empty */
    for (uint32_t i = 0; i < n; i++) fds[n + i] = r->options.files[i].fd;
    u->fixed_files = k3_io_calls.ring_register_files(&u->ring, fds, 2 * n) == 0;
    free(fds);
}

static void refuse_registration(struct k3_uring *u, int errnum)
{
    struct k3_error why;
    u->may_register = false;
    k3_fail_errno(&why, errnum, "io_uring cannot register the memory of experts");
    k3_log("%s: reads go on without", why.message);
}

/* Makes places for buffers, and none of them. */
static void prepare_regions(struct k3_uring *u)
{
    uint64_t unit = u->reader->options.unit, bytes = u->reader->options.memory_bytes;
    uint64_t units = REGION_BYTES / unit, least = (bytes / unit + MAX_REGIONS - 1) / MAX_REGIONS;
    if (units < least) units = least;
    if (units == 0) units = 1;
    if (units * unit > MAX_REGION_BYTES) return;
    u->region_bytes = units * unit;
    u->n_regions = (uint32_t)((bytes + u->region_bytes - 1) / u->region_bytes);
    u->is_registered = calloc(u->n_regions, sizeof *u->is_registered);
    int result = u->is_registered ? k3_io_calls.ring_register_no_buffers(&u->ring, u->n_regions) : -ENOMEM;
    u->may_register = result == 0;
    if (result < 0) refuse_registration(u, -result);
}

/* Whether a piece goes to registered memory, which it makes it if it can; *region says which. */
static bool find_region(struct k3_uring *u, const struct k3_piece *piece, uint32_t *region)
{
    if (!u->is_registered) return false;
    uint64_t at = (uint64_t)(piece->to - u->reader->options.memory), i = at / u->region_bytes;
    *region = (uint32_t)i;
    if (u->is_registered[i]) return true;
    if (!u->may_register) return false;
    uint64_t left = u->reader->options.memory_bytes - i * u->region_bytes;
    struct iovec buffer = {u->reader->options.memory + i * u->region_bytes,
                           left < u->region_bytes ? left : u->region_bytes};
    int result = k3_io_calls.ring_register_buffer(&u->ring, *region, &buffer);
    if (result < 0) refuse_registration(u, -result);
    return u->is_registered[i] = result >= 0;
}

/* ---- the ring ---- */

static void put_read(struct k3_uring *u, struct k3_piece *piece)
{
    /* There is always one: the ring has as many as pieces can be under way, and one for the eventfd. */
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    int fd = k3_piece_fd(u->reader, piece);
    if (u->fixed_files) fd = (int)(piece->file + (piece->buffered ? u->reader->options.n_files : 0));
    uint32_t region, bytes = (uint32_t)k3_piece_ask(piece);
    if (find_region(u, piece, &region))
        io_uring_prep_read_fixed(sqe, fd, piece->to, bytes, piece->offset, (int)region);
    else
        io_uring_prep_read(sqe, fd, piece->to, bytes, piece->offset);
    if (u->fixed_files) io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data(sqe, piece);
}

static void put_wake(struct k3_uring *u)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    io_uring_prep_read(sqe, u->wake_fd, &u->wake_value, sizeof u->wake_value, 0);
    io_uring_sqe_set_data(sqe, NULL);
    u->wake_armed = true;
}

/* Moves pieces from the queue into the submission ring. False when it is time to end. */
static bool put_new(struct k3_uring *u)
{
    struct k3_reader *r = u->reader;
    pthread_mutex_lock(&r->lock);
    uint32_t n = r->closing ? 0 : k3_reader_take(r, u->taken, u->n_free);
    r->asleep = true;
    bool go_on = !r->closing || r->n_out > 0;
    pthread_mutex_unlock(&r->lock);
    for (uint32_t i = 0; i < n; i++) {
        struct k3_piece *piece = u->free[--u->n_free];
        *piece = u->taken[i];
        put_read(u, piece);
    }
    return go_on;
}

static void take_arrived(struct k3_uring *u)
{
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
        struct k3_piece *piece = io_uring_cqe_get_data(cqe);
        int result = piece ? k3_io_calls.ring_result(cqe) : 0;
        io_uring_cqe_seen(&u->ring, cqe);
        if (!piece)
            u->wake_armed = false;
        else if (k3_piece_arrived(u->reader, piece, result))
            put_read(u, piece);
        else
            u->free[u->n_free++] = piece;
    }
}

/* The kernel takes no submissions any more. What it took may still arrive, but nothing will be made of it. */
static void give_up(struct k3_uring *u, int errnum)
{
    k3_reader_break(u->reader, errnum);
    for (uint32_t i = 0; i < u->reader->depth; i++) {
        bool is_free = false;
        for (uint32_t j = 0; j < u->n_free; j++) is_free |= u->free[j] == &u->pieces[i];
        if (!is_free) k3_piece_arrived(u->reader, &u->pieces[i], -EIO);
    }
}

static void *thread_main(void *arg)
{
    struct k3_uring *u = arg;
    while (put_new(u)) {
        if (!u->wake_armed) put_wake(u);
        int result = k3_io_calls.ring_submit_and_wait(&u->ring, 1);
        /* EBUSY, EAGAIN: completions must be taken, or memory is short for a moment. */
        if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY) {
            give_up(u, -result);
            break;
        }
        take_arrived(u);
    }
    return NULL;
}

void k3_uring_wake(struct k3_reader *r)
{
    if (!r->asleep) return;
    r->asleep = false;
    eventfd_write(r->uring->wake_fd, 1);
}

/* ---- start and stop ---- */

int k3_uring_start(struct k3_reader *r)
{
    struct k3_uring *u = calloc(1, sizeof *u);
    if (!u) return ENOMEM;
    u->reader = r;
    r->uring = u;
    u->wake_fd = eventfd(0, EFD_CLOEXEC);
    u->pieces = calloc(r->depth, sizeof *u->pieces);
    u->free = calloc(r->depth, sizeof *u->free);
    u->taken = calloc(r->depth, sizeof *u->taken);
    int errnum = u->wake_fd < 0 ? errno : 0;
    if (!u->pieces || !u->free || !u->taken) errnum = ENOMEM;
    if (errnum == 0) {
        errnum = -k3_io_calls.ring_init(r->depth + 1, &u->ring, 0);
        u->has_ring = errnum == 0;
        /* Kernels before 5.6 have rings that cannot read into plain memory; this came with what can. */
        if (u->has_ring && !(u->ring.features & IORING_FEAT_RW_CUR_POS)) errnum = ENOSYS;
    }
    if (errnum == 0) {
        for (uint32_t i = 0; i < r->depth; i++) u->free[u->n_free++] = &u->pieces[i];
        register_files(u);
        prepare_regions(u);
        errnum = pthread_create(&u->thread, NULL, thread_main, u);
        u->has_thread = errnum == 0;
    }
    if (errnum) k3_uring_stop(r);
    return errnum;
}

void k3_uring_stop(struct k3_reader *r)
{
    struct k3_uring *u = r->uring;
    if (!u) return;
    if (u->has_thread) pthread_join(u->thread, NULL);
    if (u->has_ring) io_uring_queue_exit(&u->ring);
    if (u->wake_fd >= 0) close(u->wake_fd);
    free(u->is_registered);
    free(u->taken);
    free(u->free);
    free(u->pieces);
    free(u);
    r->uring = NULL;
}
