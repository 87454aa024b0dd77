/* output.h - a file that is there whole or not at all.
 *
 * It is written under a temporary name beside its place, synced, and renamed. A model is never overwritten.
 */
#ifndef K3_BASE_OUTPUT_H
#define K3_BASE_OUTPUT_H

#include "base/error.h"

struct k3_output {
    int fd;          /* -1 when closed */
    char *path;      /* where it will be; owned */
    char *temporary; /* where it is now; owned */
};

/* Refuses a path that is no regular file, and a file that begins as GGUF files do. */
k3_status k3_output_open(const char *path, struct k3_output *output, struct k3_error *err);

/* Refuses, before anything is written, what the drive has no room for. */
k3_status k3_output_expect(const struct k3_output *output, uint64_t bytes, struct k3_error *err);
k3_status k3_output_write(struct k3_output *output, const void *bytes, size_t n, struct k3_error *err);

/* Puts the file in its place and closes. On failure nothing is left behind. */
k3_status k3_output_commit(struct k3_output *output, struct k3_error *err);

/* Gives up: removes what was written. Accepts a committed or a zeroed output with fd -1. */
void k3_output_discard(struct k3_output *output);

#endif
