/* io_calls.c - the system calls by which experts are read. */
#include "store/io_calls.h"

#include <fcntl.h>
#include <unistd.h>

static int open_file(const char *path, int flags)
{
    return open(path, flags);
}

static int register_buffer(struct io_uring *ring, unsigned place, const struct iovec *buffer)
{
    return io_uring_register_buffers_update_tag(ring, place, buffer, NULL, 1);
}

static int result(const struct io_uring_cqe *cqe)
{
    return cqe->res;
}

struct k3_io_calls k3_io_calls = {
    .open = open_file,
    .pread = pread,
    .ring_init = io_uring_queue_init,
    .ring_register_files = io_uring_register_files,
    .ring_register_no_buffers = io_uring_register_buffers_sparse,
    .ring_register_buffer = register_buffer,
    .ring_submit_and_wait = io_uring_submit_and_wait,
    .ring_result = result,
};
