/* cursor.c - bounded, buffered reading of a header. */
#include "gguf/gguf_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void k3_cursor_init(struct k3_cursor *cursor, const struct k3_file *file)
{
    cursor->file = file;
    cursor->at = 0;
    cursor->kind = "header";
    cursor->name = "";
    cursor->number = 0;
    cursor->used = cursor->held = 0;
}

k3_status k3_cursor_fail(const struct k3_cursor *cursor, k3_status status, struct k3_error *err,
                         const char *format, ...)
{
    char what[K3_MESSAGE_MAX], number[24];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);

    snprintf(number, sizeof number, "%" PRIu64, cursor->number);
    const char *name = cursor->name ? cursor->name : number;
    /* Names may be long; cut, so that the reason is not. */
    return k3_fail(err, status, "%s: %s%s%.100s %s", k3_file_name(cursor->file->path), cursor->kind,
                   *name ? " " : "", name, what);
}

static uint64_t remaining(const struct k3_cursor *cursor)
{
    uint64_t limit = cursor->file->size < K3_GGUF_HEADER_MAX ? cursor->file->size : K3_GGUF_HEADER_MAX;
    return cursor->at < limit ? limit - cursor->at : 0;
}

static const char *limit_name(const struct k3_cursor *cursor)
{
    return cursor->file->size < K3_GGUF_HEADER_MAX ? "of the file" : "of the largest header allowed (1 GiB)";
}

static k3_status fill(struct k3_cursor *cursor, struct k3_error *err)
{
    uint64_t n = remaining(cursor);
    cursor->used = 0;
    cursor->held = n < sizeof cursor->buffer ? (size_t)n : sizeof cursor->buffer;
    k3_status status = k3_file_read(cursor->file, cursor->at, cursor->buffer, cursor->held, err);
    if (status != K3_OK) cursor->held = 0;
    return status;
}

k3_status k3_cursor_read(struct k3_cursor *cursor, void *out, size_t n, struct k3_error *err)
{
    if (n > remaining(cursor))
        return k3_cursor_fail(cursor, K3_ERR_FORMAT, err,
                              "is cut off: %zu bytes are needed at byte %" PRIu64 " but only %" PRIu64
                              " %s are left",
                              n, cursor->at, remaining(cursor), limit_name(cursor));
    unsigned char *to = out;
    while (n) {
        size_t ready = cursor->held - cursor->used;
        if (!ready) {
            k3_status status = fill(cursor, err);
            if (status != K3_OK) return status;
            continue;
        }
        size_t take = n < ready ? n : ready;
        memcpy(to, cursor->buffer + cursor->used, take);
        cursor->used += take;
        cursor->at += take;
        to += take;
        n -= take;
    }
    return K3_OK;
}

k3_status k3_cursor_u32(struct k3_cursor *cursor, uint32_t *value, struct k3_error *err)
{
    return k3_cursor_read(cursor, value, sizeof *value, err);
}

k3_status k3_cursor_u64(struct k3_cursor *cursor, uint64_t *value, struct k3_error *err)
{
    return k3_cursor_read(cursor, value, sizeof *value, err);
}

k3_status k3_cursor_count(struct k3_cursor *cursor, size_t each, const char *things, uint64_t *n,
                          struct k3_error *err)
{
    k3_status status = k3_cursor_u64(cursor, n, err);
    if (status == K3_OK && *n > remaining(cursor) / each)
        status =
            k3_cursor_fail(cursor, K3_ERR_FORMAT, err,
                           "claims %" PRIu64 " %s, but only %" PRIu64 " bytes %s are left at byte %" PRIu64,
                           *n, things, remaining(cursor), limit_name(cursor), cursor->at);
    return status;
}

k3_status k3_cursor_string(struct k3_cursor *cursor, struct k3_arena *arena, struct k3_gguf_string *string,
                           struct k3_error *err)
{
    uint64_t n;
    k3_status status = k3_cursor_count(cursor, 1, "bytes of text", &n, err);
    if (status != K3_OK) return status;
    char *text = k3_arena_alloc(arena, n + 1);
    if (!text) return k3_fail_memory(err, "a string of a model file", n + 1);
    string->text = text;
    string->n = n;
    return k3_cursor_read(cursor, text, n, err);
}
