/* split.c - sets of shards (gguf.md section 2).
 *
 * The name PREFIX-00003-of-00008.gguf says how many files there are; the keys split.no, split.count and
 * split.tensors.count of each must agree with it. A set is opened by any of its shards. */
#include "gguf/gguf_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a path says about the set it belongs to. */
struct shard_name {
    bool is_shard;
    size_t prefix;          /* bytes before "-00003-of-00008.gguf" */
    uint32_t number, count; /* number from 1 */
};

static bool parse_digits(const char *s, uint32_t *value)
{
    *value = 0;
    for (int i = 0; i < 5; i++) {
        if (s[i] < '0' || s[i] > '9') return false;
        *value = *value * 10 + (uint32_t)(s[i] - '0');
    }
    return true;
}

static struct shard_name parse_name(const char *path)
{
    struct shard_name name = {0}, none = {0};
    const size_t tail = strlen("-00003-of-00008.gguf");
    size_t n = strlen(path);
    if (n < tail) return none;
    name.prefix = n - tail;
    const char *s = path + name.prefix;
    if (s[0] != '-' || !parse_digits(s + 1, &name.number)) return none;
    if (strncmp(s + 6, "-of-", 4) != 0 || !parse_digits(s + 10, &name.count)) return none;
    name.is_shard = strcmp(s + 15, ".gguf") == 0;
    return name.is_shard ? name : none;
}

static k3_status open_shard(struct k3_gguf *gguf, uint32_t shard, const char *path,
                            const struct shard_name *name, struct k3_error *err)
{
    if (!name->is_shard) return k3_file_open(path, &gguf->shards[shard], err);

    size_t size = strlen(path) + 1;
    char *shard_path = malloc(size);
    if (!shard_path) return k3_fail_memory(err, "a file name", size);
    memcpy(shard_path, path, name->prefix);
    snprintf(shard_path + name->prefix, size - name->prefix, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf",
             shard + 1, name->count);
    k3_status status = k3_file_open(shard_path, &gguf->shards[shard], err);
    if (status != K3_OK && access(shard_path, F_OK) != 0)
        status = k3_fail(err, K3_ERR_IO, "%s: shard %" PRIu32 " of %" PRIu32 " is missing", shard_path,
                         shard + 1, name->count);
    free(shard_path);
    return status;
}

/* A file that is no shard must not say that it is one. */
static k3_status check_single(const struct k3_header *header, const char *file, struct k3_error *err)
{
    uint32_t count = 0;
    if (!k3_keys_find(&header->keys, "split.count")) return K3_OK;
    k3_status status = k3_keys_get_u32(&header->keys, file, "split.count", &count, err);
    if (status == K3_OK && count > 1)
        status = k3_fail(err, K3_ERR_FORMAT,
                         "%s: split.count is %" PRIu32
                         ", but a shard must be named PREFIX-00001-of-%05" PRIu32 ".gguf",
                         file, count, count);
    return status;
}

static k3_status check_shard(const struct k3_header *header, const char *file, uint32_t shard,
                             uint32_t n_shards, uint32_t *n_tensors, struct k3_error *err)
{
    uint32_t number, count, tensors;
    k3_status status = k3_keys_get_u32(&header->keys, file, "split.no", &number, err);
    if (status == K3_OK) status = k3_keys_get_u32(&header->keys, file, "split.count", &count, err);
    if (status == K3_OK) status = k3_keys_get_u32(&header->keys, file, "split.tensors.count", &tensors, err);
    if (status != K3_OK) return status;
    if (count != n_shards)
        return k3_fail(err, K3_ERR_FORMAT,
                       "%s: split.count is %" PRIu32 " but the name says %" PRIu32 " shards", file, count,
                       n_shards);
    if (number != shard)
        return k3_fail(err, K3_ERR_FORMAT,
                       "%s: split.no is %" PRIu32 " (the first is 0), so this is shard %" PRIu64
                       "; was it renamed?",
                       file, number, (uint64_t)number + 1);
    if (shard && tensors != *n_tensors)
        return k3_fail(err, K3_ERR_FORMAT,
                       "%s: split.tensors.count is %" PRIu32 " but %" PRIu32 " in the first shard", file,
                       tensors, *n_tensors);
    *n_tensors = tensors;
    return K3_OK;
}

static k3_status check_name(const struct shard_name *name, const char *path, struct k3_error *err)
{
    if (name->is_shard && (name->number < 1 || name->number > name->count))
        return k3_fail(err, K3_ERR_FORMAT, "%s: the name says shard %" PRIu32 " of %" PRIu32,
                       k3_file_name(path), name->number, name->count);
    return K3_OK;
}

k3_status k3_split_open(struct k3_gguf *gguf, const char *path, struct k3_error *err)
{
    struct shard_name name = parse_name(path);
    k3_status status = check_name(&name, path, err);
    if (status != K3_OK) return status;

    uint32_t n = name.is_shard ? name.count : 1, n_tensors = 0;
    gguf->shards = calloc(n, sizeof *gguf->shards);
    if (!gguf->shards) return k3_fail_memory(err, "a list of files", n * sizeof *gguf->shards);
    gguf->n_shards = n;
    for (uint32_t i = 0; i < n; i++) {
        struct k3_header header;
        status = open_shard(gguf, i, path, &name, err);
        if (status == K3_OK) status = k3_header_read(gguf, i, &header, err);
        if (status != K3_OK) return status;

        const char *file = k3_file_name(gguf->shards[i].path);
        status = n > 1 ? check_shard(&header, file, i, n, &n_tensors, err) : check_single(&header, file, err);
        if (status != K3_OK) return status;
        gguf->bytes += gguf->shards[i].size;
        if (i) continue;
        gguf->version = header.version;
        gguf->private->keys = header.keys;
    }
    if (n > 1 && n_tensors != gguf->n_tensors)
        return k3_fail(err, K3_ERR_FORMAT,
                       "%s: split.tensors.count is %" PRIu32 " but the shards hold %zu tensors",
                       k3_file_name(path), n_tensors, gguf->n_tensors);
    return K3_OK;
}
