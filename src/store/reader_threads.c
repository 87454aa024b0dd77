/* reader_threads.c - reads by threads that call pread: works everywhere.
 *
 * A thread waits for its read, so there are as many as reads may be under way. */
#include "store/reader_internal.h"

#include "store/io_calls.h"

#include <errno.h>
#include <stdlib.h>

#define MAX_THREADS 32
#define STACK_BYTES ((size_t)256 << 10)

struct k3_readers {
    uint32_t n;
    pthread_t threads[MAX_THREADS];
};

static void read_piece(struct k3_reader *r, struct k3_piece *piece)
{
    int64_t got;
    do {
        got = k3_io_calls.pread(k3_piece_fd(r, piece), piece->to, k3_piece_ask(piece), (off_t)piece->offset);
        if (got < 0) got = -errno;
    } while (k3_piece_arrived(r, piece, got));
}

static void *thread_main(void *arg)
{
    struct k3_reader *r = arg;
    struct k3_piece piece;
    pthread_mutex_lock(&r->lock);
    while (!r->closing) {
        if (k3_reader_take(r, &piece, 1) == 0) {
            pthread_cond_wait(&r->work, &r->lock);
            continue;
        }
        pthread_mutex_unlock(&r->lock);
        read_piece(r, &piece);
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

int k3_readers_start(struct k3_reader *r)
{
    struct k3_readers *readers = calloc(1, sizeof *readers);
    if (!readers) return ENOMEM;
    r->threads = readers;
    if (r->depth > MAX_THREADS) r->depth = MAX_THREADS;

    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int errnum = 0;
    while (readers->n < r->depth && errnum == 0) {
        errnum = pthread_create(&readers->threads[readers->n], &attributes, thread_main, r);
        if (errnum == 0) readers->n++;
    }
    pthread_attr_destroy(&attributes);
    return readers->n ? 0 : errnum; /* fewer than wanted do too */
}

void k3_readers_stop(struct k3_reader *r)
{
    if (!r->threads) return;
    for (uint32_t i = 0; i < r->threads->n; i++) pthread_join(r->threads->threads[i], NULL);
    free(r->threads);
}
