/* io_calls.h - the system calls by which experts are read, so that tests can make each of them fail. */
#ifndef K3_STORE_IO_CALLS_H
#define K3_STORE_IO_CALLS_H

#include <liburing.h>

/* As the functions of the same name in libc and liburing: -1 and errno, or a negative error number. */
struct k3_io_calls {
    int (*open)(const char *path, int flags);
    ssize_t (*pread)(int fd, void *buffer, size_t n, off_t offset);
    int (*ring_init)(unsigned entries, struct io_uring *ring, unsigned flags);
    int (*ring_register_files)(struct io_uring *ring, const int *fds, unsigned n);
    int (*ring_register_no_buffers)(struct io_uring *ring, unsigned n); /* n places for buffers */
    int (*ring_register_buffer)(struct io_uring *ring, unsigned place, const struct iovec *buffer);
    int (*ring_submit_and_wait)(struct io_uring *ring, unsigned n);
    int (*ring_result)(const struct io_uring_cqe *cqe); /* of a read */
};

extern struct k3_io_calls k3_io_calls;

#endif
