/* reader.h - brings experts from files into memory while others compute.
 *
 * A load is one expert: three ranges of files and where they go. Whoever starts a load leaves it to the
 * reader until k3_reader_collect gives it back, in whatever order loads complete. The reader has threads of
 * its own: one that feeds an io_uring, or several that call pread. Nothing here knows layers, slots or what
 * is worth reading. */
#ifndef K3_STORE_READER_H
#define K3_STORE_READER_H

#include "base/file.h"

/* What O_DIRECT asks of offsets, lengths and addresses. 512 does for most drives, 4096 for all. */
#define K3_IO_ALIGN 4096

/* `bytes` bytes at `offset` of a file go to `to` + offset % K3_IO_ALIGN. The aligned superset of the range is
 * read, so `to` is aligned and has room for that. */
struct k3_range {
    uint32_t file;
    uint64_t offset, bytes;
    unsigned char *to;
};

#define K3_LOAD_RANGES 3
#define K3_READ_ENDED  (-1) /* as an error number: the file ends before the range does */

struct k3_load {
    struct k3_range ranges[K3_LOAD_RANGES];
    bool guess; /* read only when there is nothing else to read */

    /* What became of it. */
    int errnum;          /* 0: all is there */
    uint32_t bad_range;  /* that errnum is about */
    uint64_t bytes_read; /* as the files gave them: with what alignment and repetitions add */
    uint64_t depth_sum;  /* pieces under way when each of its pieces arrived, added up */
    uint32_t n_pieces;
    uint64_t asked_ns, arrived_ns; /* when it was started and when it was finished, see base/clock.h */

    /* The reader's. */
    struct k3_load *next;
    uint32_t range; /* first range that is not wholly asked for, and how far it is */
    uint64_t at;
    uint32_t n_out; /* pieces under way */
};

struct k3_reader_options {
    const struct k3_file *files; /* must outlive the reader */
    uint32_t n_files;
    unsigned char *memory; /* that loads go to, so that it can be registered */
    uint64_t memory_bytes;
    uint64_t unit; /* no range of a load crosses a multiple of it */
    enum k3_io io; /* AUTO, URING or THREADS */
    enum k3_direct direct;
    uint32_t depth; /* pieces under way at most; 0: 128 */
};

struct k3_reader;

/* AUTO takes what works and says so once through the log where that is the second best; what was asked for by
 * name and does not work is an error. */
k3_status k3_reader_open(const struct k3_reader_options *options, struct k3_reader **reader,
                         struct k3_error *err);

/* Gives up what is not finished. */
void k3_reader_close(struct k3_reader *reader);

void k3_reader_start(struct k3_reader *reader, struct k3_load *load);

/* A guess turned out right: it is no guess any more. */
void k3_reader_hurry(struct k3_reader *reader, struct k3_load *load);

/* Takes back a load of which nothing has been asked for yet; false if it is too late for that. */
bool k3_reader_cancel(struct k3_reader *reader, struct k3_load *load);

/* A load that is finished. Waits for one if `wait`; NULL when there is none, or nothing to wait for. */
struct k3_load *k3_reader_collect(struct k3_reader *reader, bool wait);

/* Keeps fewer pieces under way than the reader was opened for. */
void k3_reader_set_depth(struct k3_reader *reader, uint32_t depth);

bool k3_reader_uses_uring(const struct k3_reader *reader);

#endif
