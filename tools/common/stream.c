/* stream.c - an output file that is written in many small pieces. */
#include "common/stream.h"

#include <stdarg.h>
#include <stdio.h>

#define PIECE_MAX 1024

k3_status k3_stream_open(struct k3_stream *stream, const char *path, struct k3_error *err)
{
    stream->status = K3_OK;
    stream->n = 0;
    return k3_output_open(path, &stream->out, err);
}

static void flush(struct k3_stream *stream)
{
    if (stream->status == K3_OK)
        stream->status = k3_output_write(&stream->out, stream->buffer, stream->n, &stream->err);
    stream->n = 0;
}

void k3_stream_print(struct k3_stream *stream, const char *format, ...)
{
    if (K3_STREAM_BYTES - stream->n < PIECE_MAX) flush(stream);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(stream->buffer + stream->n, PIECE_MAX, format, args);
    va_end(args);
    if (n > 0) stream->n += (size_t)n < PIECE_MAX ? (size_t)n : PIECE_MAX - 1;
}

k3_status k3_stream_commit(struct k3_stream *stream, struct k3_error *err)
{
    flush(stream);
    if (stream->status == K3_OK) return k3_output_commit(&stream->out, err);
    k3_output_discard(&stream->out);
    return k3_fail(err, stream->status, "%s", stream->err.message);
}

void k3_stream_discard(struct k3_stream *stream)
{
    k3_output_discard(&stream->out);
}
