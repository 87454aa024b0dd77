/* write.c - writes a GGUF file (gguf.md section 1).
 *
 * Keys and the table of tensors are kept as the bytes they will be in the file; offsets follow from the sizes, so the
 * header is whole before the first byte of data comes. Data goes straight to the file. */
#include "gguf/write.h"

#include "base/output.h"
#include "gguf/gguf_internal.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 32

/* Bytes that grow. A failed allocation is remembered, so that appending needs no check at every step. */
struct bytes {
    unsigned char *at; /* owned */
    size_t n, capacity;
    bool failed;
};

struct k3_gguf_writer {
    struct k3_output out;
    struct bytes keys, tensors; /* as in the file */
    struct k3_arena names;
    const char **taken; /* keys first to last, then tensors, unsorted; owned */
    size_t n_keys, n_tensors;
    uint64_t *sizes; /* bytes of each tensor; owned */
    uint64_t end;    /* of the last tensor, from the start of the data */
    uint64_t bytes;  /* of all tensors */
    size_t current;  /* tensor that the next byte of data belongs to */
    uint64_t given;  /* bytes of it that are written */
    bool began;      /* the header is written */
};

static void append(struct bytes *b, const void *from, size_t n)
{
    size_t capacity = b->capacity ? b->capacity : 4096;
    while (capacity - b->n < n && capacity <= SIZE_MAX / 2) capacity *= 2;
    if (capacity > b->capacity) {
        unsigned char *grown = capacity - b->n < n ? NULL : realloc(b->at, capacity);
        b->failed |= !grown;
        if (grown) b->at = grown, b->capacity = capacity;
    }
    if (b->failed) return;
    memcpy(b->at + b->n, from, n);
    b->n += n;
}

static void append_u32(struct bytes *b, uint32_t value)
{
    append(b, &value, sizeof value);
}

static void append_u64(struct bytes *b, uint64_t value)
{
    append(b, &value, sizeof value);
}

static void append_string(struct bytes *b, const char *text, size_t n)
{
    append_u64(b, n);
    append(b, text, n);
}

static const char *file_name(const struct k3_gguf_writer *w)
{
    return k3_file_name(w->out.path);
}

static k3_status check_memory(const struct bytes *b, struct k3_error *err)
{
    return b->failed ? k3_fail_memory(err, "the header of a model file", b->n) : K3_OK;
}

k3_status k3_gguf_writer_create(const char *path, struct k3_gguf_writer **writer, struct k3_error *err)
{
    struct k3_gguf_writer *w = calloc(1, sizeof *w);
    if (!w) return k3_fail_memory(err, "a writer of model files", sizeof *w);
    k3_status status = k3_output_open(path, &w->out, err);
    if (status != K3_OK) {
        free(w);
        return status;
    }
    *writer = w;
    return K3_OK;
}

void k3_gguf_writer_free(struct k3_gguf_writer *w)
{
    if (!w) return;
    k3_output_discard(&w->out);
    k3_arena_free(&w->names);
    free(w->taken);
    free(w->sizes);
    free(w->keys.at);
    free(w->tensors.at);
    free(w);
}

/* ---- names ------------------------------------------------------------------------------------------------ */

static k3_status take_name(struct k3_gguf_writer *w, const char *what, const char *name, size_t max,
                           struct k3_error *err)
{
    size_t n = strlen(name), count = w->n_keys + w->n_tensors;
    if (w->began)
        return k3_fail(err, K3_ERR_ARGUMENT, "%s: %s %s is added after data was written", file_name(w), what,
                       name);
    if (n < 1 || n > max)
        return k3_fail(err, K3_ERR_ARGUMENT, "%s: a %s has a name of %zu bytes; 1 to %zu are allowed",
                       file_name(w), what, n, max);
    for (size_t i = 0; i < n; i++)
        if (name[i] < 0x20 || name[i] > 0x7e)
            return k3_fail(err, K3_ERR_ARGUMENT,
                           "%s: %s %s has byte 0x%02x in its name, which is not printable ASCII",
                           file_name(w), what, name, (unsigned char)name[i]);
    if ((count & (count - 1)) == 0) { /* room for twice as many */
        const char **grown = realloc(w->taken, (count ? 2 * count : 1) * sizeof *grown);
        if (!grown) return k3_fail_memory(err, "the names of a model file", 2 * count * sizeof *grown);
        w->taken = grown;
    }
    w->taken[count] = k3_arena_copy(&w->names, name, n);
    return w->taken[count] ? K3_OK : k3_fail_memory(err, "a name", n);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static k3_status check_different(struct k3_gguf_writer *w, const char *what, const char **names, size_t n,
                                 struct k3_error *err)
{
    qsort(names, n, sizeof *names, by_text);
    for (size_t i = 1; i < n; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return k3_fail(err, K3_ERR_ARGUMENT, "%s: %s %s is added twice", file_name(w), what, names[i]);
    return K3_OK;
}

/* ---- keys ------------------------------------------------------------------------------------------------- */

static void append_scalar(struct bytes *b, const struct k3_gguf_value *value)
{
    float f;
    switch (value->kind) {
    case K3_GGUF_F32:
        f = (float)value->f;
        append(b, &f, sizeof f);
        break;
    case K3_GGUF_F64:
        append(b, &value->f, sizeof value->f);
        break;
    default: /* the low bytes of the widest integer are those of a narrow one */
        append(b, &value->u, k3_kind_bytes(value->kind));
    }
}

static void append_array(struct bytes *b, const struct k3_gguf_value *value)
{
    uint64_t n = value->array.n;
    const struct k3_gguf_string *strings = value->array.items;
    append_u32(b, value->array.kind);
    append_u64(b, n);
    if (value->array.kind == K3_GGUF_STRING)
        for (uint64_t i = 0; i < n; i++) append_string(b, strings[i].text, strings[i].n);
    else if (n)
        append(b, value->array.items, n * k3_kind_bytes(value->array.kind));
}

k3_status k3_gguf_put(struct k3_gguf_writer *w, const struct k3_gguf_value *value, struct k3_error *err)
{
    if (strcmp(value->key, "general.alignment") == 0)
        return k3_fail(err, K3_ERR_ARGUMENT,
                       "%s: key general.alignment cannot be set; tensors are aligned to %d", file_name(w),
                       ALIGNMENT);
    if (w->n_tensors)
        return k3_fail(err, K3_ERR_ARGUMENT, "%s: key %s is added after a tensor", file_name(w), value->key);
    k3_status status = take_name(w, "key", value->key, K3_KEY_BYTES_MAX, err);
    if (status != K3_OK) return status;
    w->n_keys++;
    append_string(&w->keys, value->key, strlen(value->key));
    append_u32(&w->keys, value->kind);
    if (value->kind == K3_GGUF_STRING)
        append_string(&w->keys, value->s.text, value->s.n);
    else if (value->kind == K3_GGUF_ARRAY)
        append_array(&w->keys, value);
    else
        append_scalar(&w->keys, value);
    return check_memory(&w->keys, err);
}

k3_status k3_gguf_put_u32(struct k3_gguf_writer *w, const char *key, uint32_t value, struct k3_error *err)
{
    return k3_gguf_put(w, &(struct k3_gguf_value){.key = key, .kind = K3_GGUF_U32, .u = value}, err);
}

k3_status k3_gguf_put_f32(struct k3_gguf_writer *w, const char *key, float value, struct k3_error *err)
{
    return k3_gguf_put(w, &(struct k3_gguf_value){.key = key, .kind = K3_GGUF_F32, .f = (double)value}, err);
}

k3_status k3_gguf_put_bool(struct k3_gguf_writer *w, const char *key, bool value, struct k3_error *err)
{
    return k3_gguf_put(w, &(struct k3_gguf_value){.key = key, .kind = K3_GGUF_BOOL, .u = value}, err);
}

k3_status k3_gguf_put_string(struct k3_gguf_writer *w, const char *key, const char *value,
                             struct k3_error *err)
{
    struct k3_gguf_value v = {.key = key, .kind = K3_GGUF_STRING, .s = {value, strlen(value)}};
    return k3_gguf_put(w, &v, err);
}

static k3_status put_array(struct k3_gguf_writer *w, const char *key, enum k3_gguf_kind kind,
                           const void *items, uint64_t n, struct k3_error *err)
{
    struct k3_gguf_value v = {.key = key, .kind = K3_GGUF_ARRAY, .array = {kind, n, items}};
    return k3_gguf_put(w, &v, err);
}

k3_status k3_gguf_put_strings(struct k3_gguf_writer *w, const char *key, const struct k3_gguf_string *items,
                              uint64_t n, struct k3_error *err)
{
    return put_array(w, key, K3_GGUF_STRING, items, n, err);
}

k3_status k3_gguf_put_i32s(struct k3_gguf_writer *w, const char *key, const int32_t *items, uint64_t n,
                           struct k3_error *err)
{
    return put_array(w, key, K3_GGUF_I32, items, n, err);
}

/* ---- tensors ---------------------------------------------------------------------------------------------- */

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The reader's rules hold for what is written, too. */
static k3_status measure(const struct k3_gguf_writer *w, const char *name, enum k3_type type, uint32_t n_dims,
                         const uint64_t *ne, uint64_t *bytes, struct k3_error *err)
{
    struct k3_gguf_tensor tensor = {.name = name, .n_dims = n_dims, .type = type, .ne = {1, 1, 1, 1}};
    struct k3_cursor cursor = {
        .file = &(struct k3_file){.path = w->out.path}, .kind = "tensor", .name = name};
    if (n_dims < 1 || n_dims > K3_GGUF_MAX_DIMS)
        return k3_cursor_fail(&cursor, K3_ERR_ARGUMENT, err,
                              "has %" PRIu32 " dimensions; 1 to %d are allowed", n_dims, K3_GGUF_MAX_DIMS);
    for (uint32_t i = 0; i < n_dims; i++) {
        tensor.ne[i] = ne[i];
        if (!ne[i])
            return k3_cursor_fail(&cursor, K3_ERR_ARGUMENT, err, "has dimension %" PRIu32 " of size 0", i);
    }
    k3_status status = k3_tensor_measure(&cursor, &tensor, err);
    *bytes = tensor.bytes;
    return status;
}

k3_status k3_gguf_put_tensor(struct k3_gguf_writer *w, const char *name, enum k3_type type, uint32_t n_dims,
                             const uint64_t *ne, struct k3_error *err)
{
    uint64_t bytes, end;
    k3_status status = take_name(w, "tensor", name, K3_GGUF_NAME_MAX, err);
    if (status == K3_OK) status = measure(w, name, type, n_dims, ne, &bytes, err);
    if (status != K3_OK) return status;
    if (__builtin_add_overflow(w->end, bytes, &end) || end > INT64_MAX - ALIGNMENT)
        return k3_fail(err, K3_ERR_ARGUMENT, "%s: tensor %s ends beyond what 64 bits can count", file_name(w),
                       name);
    uint64_t *sizes = realloc(w->sizes, (w->n_tensors + 1) * sizeof *sizes);
    if (!sizes) return k3_fail_memory(err, "the table of tensors", (w->n_tensors + 1) * sizeof *sizes);
    w->sizes = sizes;
    w->sizes[w->n_tensors++] = bytes;

    append_string(&w->tensors, name, strlen(name));
    append_u32(&w->tensors, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) append_u64(&w->tensors, ne[i]);
    append_u32(&w->tensors, type);
    append_u64(&w->tensors, w->end);
    w->end = aligned(end);
    w->bytes += bytes;
    return check_memory(&w->tensors, err);
}

uint64_t k3_gguf_writer_bytes(const struct k3_gguf_writer *w)
{
    return w->bytes;
}

/* ---- the file --------------------------------------------------------------------------------------------- */

static const unsigned char zeros[ALIGNMENT];

static k3_status write_padding(struct k3_gguf_writer *w, uint64_t bytes, struct k3_error *err)
{
    return k3_output_write(&w->out, zeros, (size_t)(aligned(bytes) - bytes), err);
}

static k3_status begin(struct k3_gguf_writer *w, struct k3_error *err)
{
    struct bytes start = {0};
    append(&start, "GGUF", 4);
    append_u32(&start, 3);
    append_u64(&start, w->n_tensors);
    append_u64(&start, w->n_keys);

    k3_status status = check_memory(&start, err);
    if (status == K3_OK) status = check_different(w, "key", w->taken, w->n_keys, err);
    if (status == K3_OK) status = check_different(w, "tensor", w->taken + w->n_keys, w->n_tensors, err);
    uint64_t header = aligned((uint64_t)start.n + w->keys.n + w->tensors.n);
    if (status == K3_OK) status = k3_output_expect(&w->out, header + w->end, err);
    if (status == K3_OK) status = k3_output_write(&w->out, start.at, start.n, err);
    if (status == K3_OK) status = k3_output_write(&w->out, w->keys.at, w->keys.n, err);
    if (status == K3_OK) status = k3_output_write(&w->out, w->tensors.at, w->tensors.n, err);
    if (status == K3_OK && w->n_tensors)
        status = write_padding(w, (uint64_t)start.n + w->keys.n + w->tensors.n, err);
    free(start.at);
    w->began = true;
    return status;
}

k3_status k3_gguf_put_data(struct k3_gguf_writer *w, const void *bytes, size_t n, struct k3_error *err)
{
    const unsigned char *from = bytes;
    k3_status status = w->began ? K3_OK : begin(w, err);
    while (status == K3_OK && n) {
        if (w->current == w->n_tensors)
            return k3_fail(err, K3_ERR_ARGUMENT, "%s: %zu bytes more than the tensors have", file_name(w), n);
        uint64_t size = w->sizes[w->current], left = size - w->given;
        size_t part = left < n ? (size_t)left : n;
        status = k3_output_write(&w->out, from, part, err);
        if (status != K3_OK) return status;
        from += part;
        n -= part;
        w->given += part;
        if (w->given < size) continue;
        status = write_padding(w, size, err);
        w->current++;
        w->given = 0;
    }
    return status;
}

k3_status k3_gguf_writer_commit(struct k3_gguf_writer *w, struct k3_error *err)
{
    k3_status status = w->began ? K3_OK : begin(w, err);
    if (status == K3_OK && w->current < w->n_tensors)
        status = k3_fail(err, K3_ERR_ARGUMENT, "%s: %zu of %zu tensors have all their bytes", file_name(w),
                         w->current, w->n_tensors);
    return status == K3_OK ? k3_output_commit(&w->out, err) : status;
}
