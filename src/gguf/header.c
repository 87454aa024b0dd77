/* header.c - the header of one file (gguf.md section 1):
 *
 *     "GGUF" | u32 version | u64 n_tensors | u64 n_keys | keys and values | table of tensors | padding | data
 */
#include "gguf/gguf_internal.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT_DEFAULT 32
#define ALIGNMENT_MAX     ((uint32_t)1 << 20) /* a huge page would do; more is nonsense */

static k3_status check_magic(struct k3_cursor *cursor, struct k3_error *err)
{
    const char *name = k3_file_name(cursor->file->path);
    unsigned char m[4];
    if (cursor->file->size == 0) return k3_fail(err, K3_ERR_FORMAT, "%s: the file is empty", name);
    if (cursor->file->size < sizeof m)
        return k3_fail(err, K3_ERR_FORMAT, "%s: is not a GGUF file: it has only %" PRIu64 " bytes", name,
                       cursor->file->size);
    k3_status status = k3_cursor_read(cursor, m, sizeof m, err);
    if (status != K3_OK) return status;
    if (!memcmp(m, "FUGG", 4))
        return k3_fail(err, K3_ERR_UNSUPPORTED,
                       "%s: is a big-endian GGUF file; only little-endian ones are read", name);
    if (memcmp(m, "GGUF", 4) != 0)
        return k3_fail(err, K3_ERR_FORMAT, "%s: is not a GGUF file: it begins with %02x %02x %02x %02x", name,
                       m[0], m[1], m[2], m[3]);
    return K3_OK;
}

static k3_status check_version(struct k3_cursor *cursor, uint32_t *version, struct k3_error *err)
{
    const char *name = k3_file_name(cursor->file->path);
    k3_status status = k3_cursor_u32(cursor, version, err);
    if (status != K3_OK) return status;
    uint32_t swapped = __builtin_bswap32(*version);
    if (swapped >= 1 && swapped <= 3)
        return k3_fail(err, K3_ERR_UNSUPPORTED,
                       "%s: is a big-endian GGUF file; only little-endian ones are read", name);
    if (*version == 1)
        return k3_fail(err, K3_ERR_UNSUPPORTED,
                       "%s: is a GGUF file of version 1, which is too old; convert it again", name);
    if (*version != 2 && *version != 3)
        return k3_fail(err, K3_ERR_UNSUPPORTED,
                       "%s: is a GGUF file of version %" PRIu32 "; only 2 and 3 are known", name, *version);
    return K3_OK;
}

static k3_status get_alignment(const struct k3_keys *keys, const char *name, uint32_t *alignment,
                               struct k3_error *err)
{
    *alignment = ALIGNMENT_DEFAULT;
    if (!k3_keys_find(keys, "general.alignment")) return K3_OK;
    k3_status status = k3_keys_get_u32(keys, name, "general.alignment", alignment, err);
    if (status != K3_OK) return status;
    if (*alignment == 0 || *alignment & (*alignment - 1) || *alignment > ALIGNMENT_MAX)
        return k3_fail(err, K3_ERR_FORMAT,
                       "%s: general.alignment is %" PRIu32 "; a power of two up to %" PRIu32 " is expected",
                       name, *alignment, ALIGNMENT_MAX);
    return K3_OK;
}

/* Shards written one after the other into one file look like a valid first shard with something behind it. */
static k3_status check_tail(const struct k3_file *file, uint64_t end, uint64_t alignment,
                            struct k3_error *err)
{
    uint64_t places[2] = {end, (end + alignment - 1) / alignment * alignment};
    for (int i = 0; i < 2; i++) {
        char magic[4];
        if (places[i] > file->size || file->size - places[i] < sizeof magic) continue;
        k3_status status = k3_file_read(file, places[i], magic, sizeof magic, err);
        if (status != K3_OK) return status;
        if (!memcmp(magic, "GGUF", 4))
            return k3_fail(err, K3_ERR_FORMAT,
                           "%s: another GGUF begins at byte %" PRIu64
                           ": shards must not be joined into one file",
                           k3_file_name(file->path), places[i]);
    }
    return K3_OK;
}

/* Never leaves the table NULL, so that places in it can be computed even when it is empty. */
static k3_status grow_tensors(struct k3_gguf *gguf, uint64_t n, struct k3_error *err)
{
    size_t bytes = (gguf->n_tensors + n + !n) * sizeof *gguf->tensors;
    struct k3_gguf_tensor *grown = realloc(gguf->tensors, bytes);
    if (!grown) return k3_fail_memory(err, "the table of tensors", bytes);
    gguf->tensors = grown;
    return K3_OK;
}

k3_status k3_header_read(struct k3_gguf *gguf, uint32_t shard, struct k3_header *header, struct k3_error *err)
{
    const struct k3_file *file = &gguf->shards[shard];
    struct k3_arena *arena = &gguf->private->arena;
    struct k3_cursor cursor;
    uint64_t n_tensors, n_keys, end;
    uint32_t alignment;
    k3_cursor_init(&cursor, file);

    k3_status status = check_magic(&cursor, err);
    if (status == K3_OK) status = check_version(&cursor, &header->version, err);
    if (status == K3_OK) status = k3_cursor_count(&cursor, K3_TENSOR_BYTES_MIN, "tensors", &n_tensors, err);
    if (status == K3_OK) status = k3_cursor_count(&cursor, K3_KEY_BYTES_MIN, "keys", &n_keys, err);
    if (status == K3_OK) status = k3_keys_read(&cursor, n_keys, arena, &header->keys, err);
    if (status == K3_OK) status = get_alignment(&header->keys, k3_file_name(file->path), &alignment, err);
    if (status == K3_OK) status = grow_tensors(gguf, n_tensors, err);
    if (status != K3_OK) return status;

    struct k3_gguf_tensor *tensors = gguf->tensors + gguf->n_tensors;
    status = k3_tensors_read(&cursor, n_tensors, arena, tensors, err);
    if (status != K3_OK) return status;
    uint64_t start = n_tensors ? (cursor.at + alignment - 1) / alignment * alignment : cursor.at;
    status = k3_tensors_place(file, tensors, n_tensors, start, alignment, &end, err);
    if (status == K3_OK) status = check_tail(file, end, alignment, err);
    if (status != K3_OK) return status;

    for (uint64_t i = 0; i < n_tensors; i++) tensors[i].shard = shard;
    gguf->n_tensors += n_tensors;
    header->n_tensors = n_tensors;
    return K3_OK;
}
