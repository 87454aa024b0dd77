/* stream.h - an output file that is written in many small pieces, and whose first failure is kept until its end. */
#ifndef K3_TOOLS_STREAM_H
#define K3_TOOLS_STREAM_H

#include "base/output.h"

#define K3_STREAM_BYTES 65536

struct k3_stream {
    struct k3_output out;
    k3_status status; /* of what was written so far */
    struct k3_error err;
    size_t n;
    char buffer[K3_STREAM_BYTES];
};

k3_status k3_stream_open(struct k3_stream *stream, const char *path, struct k3_error *err);

/* One piece is shorter than a KiB. */
void k3_stream_print(struct k3_stream *stream, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts the file in its place, or says why it could not be written and leaves nothing. */
k3_status k3_stream_commit(struct k3_stream *stream, struct k3_error *err);

/* Gives up. Accepts one that is committed. */
void k3_stream_discard(struct k3_stream *stream);

#endif
