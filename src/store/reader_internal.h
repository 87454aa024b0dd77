/* reader_internal.h - what the two ways of reading share: the queue of loads, and pieces of them. */
#ifndef K3_STORE_READER_INTERNAL_H
#define K3_STORE_READER_INTERNAL_H

#include "store/reader.h"

#include <pthread.h>

/* Bytes asked for at once, about. Drives reach their rate at 1 MiB and a queue of some dozens. */
#define K3_PIECE_BYTES ((uint64_t)1 << 20)

struct k3_piece {
    struct k3_load *load;
    uint32_t range, file;
    uint64_t offset; /* in the file, aligned unless `buffered` */
    unsigned char *to;
    uint64_t bytes; /* that must arrive */
    bool buffered;  /* not by O_DIRECT */
    bool guess;     /* was one when it was taken */
    int n_tries;    /* without progress */
    uint64_t bytes_read;
};

struct k3_load_queue {
    struct k3_load *first, *last;
};

struct k3_uring;
struct k3_readers;

struct k3_reader {
    struct k3_reader_options options;
    int *direct_fds; /* [n_files], owned; -1: closed */
    uint32_t depth;
    struct k3_uring *uring;     /* one of these two */
    struct k3_readers *threads; /* is there */

    pthread_mutex_t lock;
    pthread_cond_t work, finished;

    /* Under lock. */
    struct k3_load_queue urgent, guesses; /* with something left to ask for */
    struct k3_load_queue done;            /* to be collected */
    uint32_t n_loads;                     /* started and not collected */
    uint32_t n_out, n_guesses_out;        /* pieces under way */
    uint32_t limit;                       /* of n_out; at most `depth` */
    bool direct;                          /* use O_DIRECT */
    bool closing;
    bool asleep; /* the thread of the ring waits for completions and must be woken */
    int broken;  /* error number: nothing can be read any more */
};

/* Takes the next pieces to read, at most n, with the lock held. */
uint32_t k3_reader_take(struct k3_reader *reader, struct k3_piece *pieces, uint32_t n);

/* The fd to read a piece from, and how many bytes to ask for. */
int k3_piece_fd(const struct k3_reader *reader, const struct k3_piece *piece);
uint64_t k3_piece_ask(const struct k3_piece *piece);

/* `got` is what a read of the piece returned: bytes or a negative error number. True: read again what the
 * piece is now. False: the piece is over. */
bool k3_piece_arrived(struct k3_reader *reader, struct k3_piece *piece, int64_t got);

/* Nothing can be read any more: fails all loads, now and from now on. */
void k3_reader_break(struct k3_reader *reader, int errnum);

/* Returns 0 or an error number. */
int k3_uring_start(struct k3_reader *reader);
void k3_uring_wake(struct k3_reader *reader); /* with the lock held */
void k3_uring_stop(struct k3_reader *reader);

int k3_readers_start(struct k3_reader *reader);
void k3_readers_stop(struct k3_reader *reader);

#endif
