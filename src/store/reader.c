/* reader.c - the queue of loads, and what becomes of each read.
 *
 * Loads wait in two queues; pieces are taken from the urgent one first, in order. A load is done when its
 * last piece is. Interruptions, short reads and refusals of O_DIRECT end here: the two ways of reading only
 * carry pieces. */
#include "store/reader_internal.h"

#include "base/clock.h"
#include "store/io_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Pieces under way at most, unless the options say otherwise; k3_reader_set_depth lowers it. */
#define DEFAULT_DEPTH 128
#define LEAST_DEPTH   4
#define MAX_DEPTH     1024

/* A guess must not be in the way of what is needed: it gets this part of the depth. */
#define GUESS_SHARE 4

/* EINTR and EAGAIN in a row for one piece. Enough for any signal storm, and yet an end. */
#define MAX_TRIES 100

/* ---- queues ---- */

static void push(struct k3_load_queue *queue, struct k3_load *load)
{
    load->next = NULL;
    *(queue->first ? &queue->last->next : &queue->first) = load;
    queue->last = load;
}

static bool take_out(struct k3_load_queue *queue, const struct k3_load *load)
{
    struct k3_load *before = NULL, *l = queue->first;
    for (; l && l != load; l = l->next) before = l;
    if (!l) return false;
    *(before ? &before->next : &queue->first) = l->next;
    if (queue->last == l) queue->last = before;
    return true;
}

static void finish(struct k3_reader *r, struct k3_load *load)
{
    load->arrived_ns = k3_now_ns();
    push(&r->done, load);
    pthread_cond_signal(&r->finished);
}

/* ---- pieces ---- */

static uint64_t round_up(uint64_t n)
{
    return (n + K3_IO_ALIGN - 1) / K3_IO_ALIGN * K3_IO_ALIGN;
}

/* Cuts the next piece off a load: ranges are divided evenly into pieces of about K3_PIECE_BYTES. */
static struct k3_piece cut(struct k3_load *load, bool direct)
{
    const struct k3_range *range = &load->ranges[load->range];
    uint64_t lead = range->offset % K3_IO_ALIGN, total = lead + range->bytes;
    uint64_t n_pieces = (total + K3_PIECE_BYTES - 1) / K3_PIECE_BYTES;
    uint64_t bytes = round_up((total + n_pieces - 1) / n_pieces), left = total - load->at;
    struct k3_piece piece = {.load = load,
                             .range = load->range,
                             .file = range->file,
                             .offset = range->offset - lead + load->at,
                             .to = range->to + load->at,
                             .bytes = bytes < left ? bytes : left,
                             .buffered = !direct,
                             .guess = load->guess};
    load->at += piece.bytes;
    if (load->at == total) {
        load->range++;
        load->at = 0;
    }
    return piece;
}

uint32_t k3_reader_take(struct k3_reader *r, struct k3_piece *pieces, uint32_t n)
{
    uint32_t taken = 0;
    while (taken < n && r->n_out < r->limit) {
        struct k3_load_queue *queue = &r->urgent;
        if (!queue->first && r->n_guesses_out < r->limit / GUESS_SHARE) queue = &r->guesses;
        struct k3_load *load = queue->first;
        if (!load) break;
        struct k3_piece piece = cut(load, r->direct);
        if (load->range == K3_LOAD_RANGES) take_out(queue, load);
        load->n_out++;
        r->n_out++;
        r->n_guesses_out += piece.guess;
        pieces[taken++] = piece;
    }
    return taken;
}

int k3_piece_fd(const struct k3_reader *r, const struct k3_piece *piece)
{
    return piece->buffered ? r->options.files[piece->file].fd : r->direct_fds[piece->file];
}

uint64_t k3_piece_ask(const struct k3_piece *piece)
{
    return piece->buffered ? piece->bytes : round_up(piece->bytes);
}

/* The file system takes O_DIRECT when a file is opened and refuses it when it is read: some do. */
static void stop_direct(struct k3_reader *r, const struct k3_piece *piece)
{
    pthread_mutex_lock(&r->lock);
    bool news = r->direct;
    r->direct = false;
    pthread_mutex_unlock(&r->lock);
    if (news)
        k3_log("%s: its file system cannot read with O_DIRECT: experts are read through the page cache",
               k3_file_name(r->options.files[piece->file].path));
}

static void end_piece(struct k3_reader *r, const struct k3_piece *piece, int errnum)
{
    struct k3_load *load = piece->load;
    pthread_mutex_lock(&r->lock);
    load->bytes_read += piece->bytes_read;
    load->depth_sum += r->n_out;
    load->n_pieces++;
    load->n_out--;
    r->n_out--;
    r->n_guesses_out -= piece->guess;
    if (errnum && !load->errnum) {
        load->errnum = errnum;
        load->bad_range = piece->range;
        if (load->range < K3_LOAD_RANGES) take_out(load->guess ? &r->guesses : &r->urgent, load);
        load->range = K3_LOAD_RANGES; /* the rest is of no use */
    }
    if (load->range == K3_LOAD_RANGES && load->n_out == 0) finish(r, load);
    pthread_mutex_unlock(&r->lock);
}

/* Goes on after the first `bytes` of a piece. */
static void advance(struct k3_piece *piece, uint64_t bytes)
{
    piece->offset += bytes;
    piece->to += bytes;
    piece->bytes -= bytes;
    piece->n_tries = 0;
}

bool k3_piece_arrived(struct k3_reader *r, struct k3_piece *piece, int64_t got)
{
    int errnum = got < 0 ? (int)-got : 0;
    if (got > 0) piece->bytes_read += (uint64_t)got;
    if (got > 0 && (uint64_t)got >= piece->bytes) {
        end_piece(r, piece, 0);
        return false;
    }
    if (got >= 0 && !piece->buffered) {
        /* What is left must begin at an aligned place again; less than that is left to the page cache, which
         * also tells the end of the file from a short read. */
        uint64_t step = (uint64_t)got / K3_IO_ALIGN * K3_IO_ALIGN;
        advance(piece, step);
        piece->buffered = step == 0;
        return true;
    }
    if (got > 0) {
        advance(piece, (uint64_t)got);
        return true;
    }
    if ((errnum == EINTR || errnum == EAGAIN) && piece->n_tries++ < MAX_TRIES) return true;
    if ((errnum == EINVAL || errnum == EOPNOTSUPP) && !piece->buffered &&
        r->options.direct == K3_DIRECT_AUTO) {
        stop_direct(r, piece);
        piece->buffered = true;
        return true;
    }
    end_piece(r, piece, got == 0 ? K3_READ_ENDED : errnum);
    return false;
}

/* ---- loads ---- */

void k3_reader_start(struct k3_reader *r, struct k3_load *load)
{
    load->errnum = 0;
    load->bytes_read = load->depth_sum = load->at = 0;
    load->n_pieces = load->range = load->n_out = 0;
    load->asked_ns = k3_now_ns();
    pthread_mutex_lock(&r->lock);
    r->n_loads++;
    if (r->broken) {
        load->errnum = r->broken;
        load->bad_range = 0;
        finish(r, load);
    } else {
        push(load->guess ? &r->guesses : &r->urgent, load);
        if (r->uring)
            k3_uring_wake(r);
        else
            pthread_cond_broadcast(&r->work);
    }
    pthread_mutex_unlock(&r->lock);
}

void k3_reader_hurry(struct k3_reader *r, struct k3_load *load)
{
    pthread_mutex_lock(&r->lock);
    if (load->guess && take_out(&r->guesses, load)) {
        push(&r->urgent, load);
        if (r->uring)
            k3_uring_wake(r);
        else
            pthread_cond_broadcast(&r->work);
    }
    load->guess = false;
    pthread_mutex_unlock(&r->lock);
}

bool k3_reader_cancel(struct k3_reader *r, struct k3_load *load)
{
    pthread_mutex_lock(&r->lock);
    bool in_time =
        load->range == 0 && load->at == 0 && take_out(load->guess ? &r->guesses : &r->urgent, load);
    if (in_time) r->n_loads--;
    pthread_mutex_unlock(&r->lock);
    return in_time;
}

struct k3_load *k3_reader_collect(struct k3_reader *r, bool wait)
{
    pthread_mutex_lock(&r->lock);
    while (wait && !r->done.first && r->n_loads) pthread_cond_wait(&r->finished, &r->lock);
    struct k3_load *load = r->done.first;
    if (load) {
        take_out(&r->done, load);
        r->n_loads--;
    }
    pthread_mutex_unlock(&r->lock);
    return load;
}

void k3_reader_break(struct k3_reader *r, int errnum)
{
    pthread_mutex_lock(&r->lock);
    r->broken = errnum;
    struct k3_load_queue *queues[] = {&r->urgent, &r->guesses};
    for (int i = 0; i < 2; i++)
        for (struct k3_load *load; (load = queues[i]->first);) {
            take_out(queues[i], load);
            load->errnum = errnum;
            load->bad_range = 0;
            load->range = K3_LOAD_RANGES;
            if (load->n_out == 0) finish(r, load);
        }
    pthread_mutex_unlock(&r->lock);
}

/* ---- open and close ---- */

/* A second descriptor of every file, because O_DIRECT belongs to the descriptor. Through /proc it is the very
 * file that was checked when the model was opened, whatever stands under its name now. */
static k3_status open_direct(struct k3_reader *r, struct k3_error *err)
{
    for (uint32_t i = 0; i < r->options.n_files; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", r->options.files[i].fd);
        r->direct_fds[i] = k3_io_calls.open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
        if (r->direct_fds[i] >= 0) continue;
        k3_status status = k3_fail_errno(err, errno, "%s: cannot be opened with O_DIRECT",
                                         k3_file_name(r->options.files[i].path));
        return status;
    }
    r->direct = true;
    return K3_OK;
}

static void close_direct(struct k3_reader *r)
{
    for (uint32_t i = 0; r->direct_fds && i < r->options.n_files; i++) {
        if (r->direct_fds[i] >= 0) close(r->direct_fds[i]);
        r->direct_fds[i] = -1;
    }
}

static k3_status choose_direct(struct k3_reader *r, struct k3_error *err)
{
    struct k3_error why;
    if (r->options.direct == K3_DIRECT_OFF || open_direct(r, &why) == K3_OK) return K3_OK;
    if (r->options.direct == K3_DIRECT_ON) return k3_fail(err, why.status, "%s", why.message);
    close_direct(r);
    k3_log("%s: experts are read through the page cache", why.message);
    return K3_OK;
}

static k3_status choose_way(struct k3_reader *r, struct k3_error *err)
{
    if (r->options.io != K3_IO_THREADS) {
        int errnum = k3_uring_start(r);
        if (errnum == 0) return K3_OK;
        if (r->options.io == K3_IO_URING) return k3_fail_errno(err, errnum, "io_uring cannot be used");
        struct k3_error why;
        k3_fail_errno(&why, errnum, "io_uring cannot be used");
        k3_log("%s: experts are read by threads", why.message);
    }
    int errnum = k3_readers_start(r);
    return errnum ? k3_fail_errno(err, errnum, "no threads to read experts with") : K3_OK;
}

k3_status k3_reader_open(const struct k3_reader_options *options, struct k3_reader **out,
                         struct k3_error *err)
{
    struct k3_reader *r = calloc(1, sizeof *r);
    if (!r) return k3_fail_memory(err, "the reader of experts", sizeof *r);
    r->options = *options;
    r->depth = options->depth ? options->depth : DEFAULT_DEPTH;
    if (r->depth < LEAST_DEPTH) r->depth = LEAST_DEPTH;
    if (r->depth > MAX_DEPTH) r->depth = MAX_DEPTH;
    r->limit = r->depth;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->work, NULL);
    pthread_cond_init(&r->finished, NULL);

    k3_status status = K3_OK;
    r->direct_fds = calloc(options->n_files, sizeof *r->direct_fds);
    if (!r->direct_fds)
        status = k3_fail_memory(err, "the reader of experts", options->n_files * sizeof *r->direct_fds);
    for (uint32_t i = 0; r->direct_fds && i < options->n_files; i++) r->direct_fds[i] = -1;
    if (status == K3_OK) status = choose_direct(r, err);
    if (status == K3_OK) status = choose_way(r, err);
    if (status != K3_OK) {
        k3_reader_close(r);
        return status;
    }
    *out = r;
    return K3_OK;
}

void k3_reader_close(struct k3_reader *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->closing = true;
    r->urgent = r->guesses = (struct k3_load_queue){0};
    if (r->uring) k3_uring_wake(r);
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
    k3_uring_stop(r);
    k3_readers_stop(r);
    close_direct(r);
    free(r->direct_fds);
    pthread_cond_destroy(&r->finished);
    pthread_cond_destroy(&r->work);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

void k3_reader_set_depth(struct k3_reader *r, uint32_t depth)
{
    pthread_mutex_lock(&r->lock);
    r->limit = depth < r->depth ? depth : r->depth;
    pthread_mutex_unlock(&r->lock);
}

bool k3_reader_uses_uring(const struct k3_reader *r)
{
    return r->uring != NULL;
}
