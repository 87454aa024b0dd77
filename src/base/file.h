/* file.h - files that are only read. */
#ifndef K3_BASE_FILE_H
#define K3_BASE_FILE_H

#include "base/error.h"

struct k3_file {
    int fd;        /* -1 when closed */
    uint64_t size; /* bytes, when it was opened */
    char *path;    /* as opened; owned */
};

/* Opens a regular file for reading. Anything else (a folder, a pipe, a device) is an error. */
k3_status k3_file_open(const char *path, struct k3_file *file, struct k3_error *err);

/* Reads exactly n bytes at `offset`, whatever interruptions and short reads there are.
 * An end of file before that is K3_ERR_IO: the file shrank after it was opened. */
k3_status k3_file_read(const struct k3_file *file, uint64_t offset, void *buffer, size_t n,
                       struct k3_error *err);

/* Accepts a file that is closed already, if it was zeroed or opened once. */
void k3_file_close(struct k3_file *file);

/* The part of a path after the last '/'. */
const char *k3_file_name(const char *path);

#endif
