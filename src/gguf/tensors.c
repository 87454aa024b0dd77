/* tensors.c - the table of tensors of a GGUF header: names, shapes, types, and where the bytes lie. */
#include "gguf/gguf_internal.h"

#include <stdlib.h>
#include <string.h>

static k3_status read_name(struct k3_cursor *cursor, struct k3_arena *arena, const char **name,
                           struct k3_error *err)
{
    struct k3_gguf_string s;
    k3_status status = k3_cursor_string(cursor, arena, &s, err);
    if (status != K3_OK) return status;
    if (s.n == 0 || s.n > K3_GGUF_NAME_MAX)
        return k3_cursor_fail(cursor, K3_ERR_FORMAT, err, "has a name of %zu bytes; 1 to %d are allowed", s.n,
                              K3_GGUF_NAME_MAX);
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.text[i] < 0x20)
            return k3_cursor_fail(cursor, K3_ERR_FORMAT, err, "has control character 0x%02x in its name",
                                  s.text[i]);
    *name = s.text;
    return K3_OK;
}

static k3_status read_shape(struct k3_cursor *cursor, struct k3_gguf_tensor *tensor, struct k3_error *err)
{
    k3_status status = k3_cursor_u32(cursor, &tensor->n_dims, err);
    if (status != K3_OK) return status;
    if (tensor->n_dims < 1 || tensor->n_dims > K3_GGUF_MAX_DIMS)
        return k3_cursor_fail(cursor, K3_ERR_FORMAT, err, "has %" PRIu32 " dimensions; 1 to %d are allowed",
                              tensor->n_dims, K3_GGUF_MAX_DIMS);
    for (uint32_t i = 0; i < K3_GGUF_MAX_DIMS; i++) {
        tensor->ne[i] = 1;
        if (i < tensor->n_dims) status = k3_cursor_u64(cursor, &tensor->ne[i], err);
        if (status != K3_OK) return status;
        if (tensor->ne[i] == 0)
            return k3_cursor_fail(cursor, K3_ERR_FORMAT, err, "has dimension %" PRIu32 " of size 0", i);
    }
    return K3_OK;
}

/* The number of weights, too, must fit 64 bits, so that whoever multiplies dimensions later need not check
 * again. */
k3_status k3_tensor_measure(const struct k3_cursor *cursor, struct k3_gguf_tensor *tensor,
                            struct k3_error *err)
{
    const struct k3_type_info *type = k3_type_info(tensor->type);
    if (!type)
        return k3_cursor_fail(cursor, K3_ERR_UNSUPPORTED, err, "has unknown type %" PRIu32,
                              (uint32_t)tensor->type);
    if (tensor->ne[0] % type->block)
        return k3_cursor_fail(cursor, K3_ERR_FORMAT, err,
                              "has rows of %" PRIu64 " weights, not a multiple of the block of %s (%" PRIu32
                              ")",
                              tensor->ne[0], type->name, type->block);

    uint64_t weights = 1, bytes;
    bool overflow = __builtin_mul_overflow(tensor->ne[0] / type->block, (uint64_t)type->block_bytes, &bytes);
    for (int i = 0; i < K3_GGUF_MAX_DIMS; i++) {
        overflow |= __builtin_mul_overflow(weights, tensor->ne[i], &weights);
        if (i) overflow |= __builtin_mul_overflow(bytes, tensor->ne[i], &bytes);
    }
    if (overflow || weights > INT64_MAX || bytes > INT64_MAX)
        return k3_cursor_fail(cursor, K3_ERR_FORMAT, err,
                              "is impossibly large: %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64,
                              tensor->ne[0], tensor->ne[1], tensor->ne[2], tensor->ne[3]);
    tensor->bytes = bytes;
    return K3_OK;
}

static k3_status read_tensor(struct k3_cursor *cursor, struct k3_arena *arena, struct k3_gguf_tensor *tensor,
                             struct k3_error *err)
{
    uint32_t type;
    k3_status status = read_name(cursor, arena, &tensor->name, err);
    if (status != K3_OK) return status;
    cursor->name = tensor->name;
    status = read_shape(cursor, tensor, err);
    if (status == K3_OK) status = k3_cursor_u32(cursor, &type, err);
    if (status == K3_OK) status = k3_cursor_u64(cursor, &tensor->offset, err);
    if (status != K3_OK) return status;
    tensor->type = (enum k3_type)type;
    return k3_tensor_measure(cursor, tensor, err);
}

k3_status k3_tensors_read(struct k3_cursor *cursor, uint64_t n, struct k3_arena *arena,
                          struct k3_gguf_tensor *tensors, struct k3_error *err)
{
    k3_status status = K3_OK;
    cursor->kind = "tensor";
    for (uint64_t i = 0; status == K3_OK && i < n; i++) {
        cursor->name = NULL;
        cursor->number = i + 1;
        status = read_tensor(cursor, arena, &tensors[i], err);
    }
    return status;
}

/* ---- places ---- */

static k3_status place(const struct k3_file *file, struct k3_gguf_tensor *tensor, uint64_t start,
                       uint64_t alignment, struct k3_error *err)
{
    const char *name = k3_file_name(file->path);
    if (tensor->offset % alignment)
        return k3_fail(err, K3_ERR_FORMAT,
                       "%s: tensor %s has offset %" PRIu64 ", not a multiple of the alignment %" PRIu64, name,
                       tensor->name, tensor->offset, alignment);
    uint64_t end;
    if (__builtin_add_overflow(start, tensor->offset, &tensor->offset) ||
        __builtin_add_overflow(tensor->offset, tensor->bytes, &end))
        return k3_fail(err, K3_ERR_FORMAT, "%s: tensor %s ends beyond what 64 bits can count", name,
                       tensor->name);
    if (end > file->size)
        return k3_fail(err, K3_ERR_FORMAT, "%s: tensor %s ends at byte %" PRIu64 " but the file has %" PRIu64,
                       name, tensor->name, end, file->size);
    return K3_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct k3_gguf_tensor *x = *(const struct k3_gguf_tensor *const *)a;
    const struct k3_gguf_tensor *y = *(const struct k3_gguf_tensor *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static k3_status check_apart(const struct k3_file *file, const struct k3_gguf_tensor *tensors, size_t n,
                             uint64_t *end, struct k3_error *err)
{
    const struct k3_gguf_tensor **sorted = malloc(n * sizeof(*sorted));
    if (!sorted) return k3_fail_memory(err, "the table of tensors", n * sizeof *sorted);
    for (size_t i = 0; i < n; i++) sorted[i] = &tensors[i];
    qsort(sorted, n, sizeof *sorted, by_offset);

    k3_status status = K3_OK;
    *end = sorted[0]->offset + sorted[0]->bytes;
    for (size_t i = 1; status == K3_OK && i < n; i++) {
        if (sorted[i]->offset < *end)
            status = k3_fail(
                err, K3_ERR_FORMAT,
                "%s: tensor %s begins at byte %" PRIu64 ", inside tensor %s which ends at %" PRIu64,
                k3_file_name(file->path), sorted[i]->name, sorted[i]->offset, sorted[i - 1]->name, *end);
        *end = sorted[i]->offset + sorted[i]->bytes;
    }
    free(sorted);
    return status;
}

k3_status k3_tensors_place(const struct k3_file *file, struct k3_gguf_tensor *tensors, size_t n,
                           uint64_t start, uint64_t alignment, uint64_t *end, struct k3_error *err)
{
    *end = start;
    if (!n) return K3_OK;
    for (size_t i = 0; i < n; i++) {
        k3_status status = place(file, &tensors[i], start, alignment, err);
        if (status != K3_OK) return status;
    }
    return check_apart(file, tensors, n, end, err);
}
