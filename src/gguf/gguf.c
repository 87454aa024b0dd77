/* gguf.c - opening a model file and asking it for keys and tensors. */
#include "gguf/gguf_internal.h"

#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    const struct k3_gguf_tensor *x = *(const struct k3_gguf_tensor *const *)a;
    const struct k3_gguf_tensor *y = *(const struct k3_gguf_tensor *const *)b;
    return strcmp(x->name, y->name);
}

static k3_status sort_tensors(struct k3_gguf *gguf, struct k3_error *err)
{
    size_t n = gguf->n_tensors;
    const struct k3_gguf_tensor **sorted = k3_arena_alloc(&gguf->private->arena, n * sizeof *sorted);
    if (!sorted) return k3_fail_memory(err, "the table of tensors", n * sizeof *sorted);
    for (size_t i = 0; i < n; i++) sorted[i] = &gguf->tensors[i];
    qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t i = 1; i < n; i++) {
        const struct k3_gguf_tensor *a = sorted[i - 1], *b = sorted[i];
        if (strcmp(a->name, b->name) == 0)
            return k3_fail(err, K3_ERR_FORMAT, "%s: tensor %s appears twice, also in %s",
                           k3_file_name(gguf->shards[b->shard].path), b->name,
                           k3_file_name(gguf->shards[a->shard].path));
    }
    gguf->private->by_name = sorted;
    return K3_OK;
}

k3_status k3_gguf_open(const char *path, struct k3_gguf **gguf, struct k3_error *err)
{
    struct k3_gguf *g = calloc(1, sizeof *g);
    k3_status status = K3_OK;
    if (g) {
        g->private = calloc(1, sizeof *g->private);
        g->path = strdup(path);
    }
    if (!g || !g->private || !g->path)
        status = k3_fail_memory(err, "a model file", sizeof *g + sizeof *g->private);
    if (status == K3_OK) status = k3_split_open(g, path, err);
    if (status == K3_OK) status = sort_tensors(g, err);
    if (status != K3_OK) {
        k3_gguf_close(g);
        return status;
    }
    g->n_values = g->private->keys.n;
    g->values = g->private->keys.values;
    *gguf = g;
    return K3_OK;
}

void k3_gguf_close(struct k3_gguf *gguf)
{
    if (!gguf) return;
    for (uint32_t i = 0; i < gguf->n_shards; i++) k3_file_close(&gguf->shards[i]);
    if (gguf->private) k3_arena_free(&gguf->private->arena);
    free(gguf->private);
    free(gguf->tensors);
    free(gguf->shards);
    free(gguf->path);
    free(gguf);
}

static const char *file_name(const struct k3_gguf *gguf)
{
    return k3_file_name(gguf->shards[0].path);
}

const struct k3_gguf_value *k3_gguf_find(const struct k3_gguf *gguf, const char *key)
{
    return k3_keys_find(&gguf->private->keys, key);
}

const struct k3_gguf_tensor *k3_gguf_find_tensor(const struct k3_gguf *gguf, const char *name)
{
    struct k3_gguf_tensor wanted = {.name = name};
    const struct k3_gguf_tensor *p = &wanted, **found;
    if (!gguf->n_tensors) return NULL;
    found = bsearch(&p, gguf->private->by_name, gguf->n_tensors, sizeof *found, by_name);
    return found ? *found : NULL;
}

k3_status k3_gguf_get_u32(const struct k3_gguf *gguf, const char *key, uint32_t *value, struct k3_error *err)
{
    return k3_keys_get_u32(&gguf->private->keys, file_name(gguf), key, value, err);
}

k3_status k3_gguf_get_f32(const struct k3_gguf *gguf, const char *key, float *value, struct k3_error *err)
{
    const struct k3_gguf_value *v;
    k3_status status = k3_keys_get(&gguf->private->keys, file_name(gguf), key, &v, err);
    if (status != K3_OK) return status;
    if (v->kind != K3_GGUF_F32 && v->kind != K3_GGUF_F64)
        return k3_wrong_kind(file_name(gguf), v, "f32", err);
    *value = (float)v->f;
    return K3_OK;
}

k3_status k3_gguf_get_bool(const struct k3_gguf *gguf, const char *key, bool *value, struct k3_error *err)
{
    const struct k3_gguf_value *v;
    k3_status status = k3_keys_get(&gguf->private->keys, file_name(gguf), key, &v, err);
    if (status != K3_OK) return status;
    if (v->kind != K3_GGUF_BOOL) return k3_wrong_kind(file_name(gguf), v, "bool", err);
    *value = v->u != 0;
    return K3_OK;
}

k3_status k3_gguf_get_string(const struct k3_gguf *gguf, const char *key, struct k3_gguf_string *value,
                             struct k3_error *err)
{
    const struct k3_gguf_value *v;
    k3_status status = k3_keys_get(&gguf->private->keys, file_name(gguf), key, &v, err);
    if (status != K3_OK) return status;
    if (v->kind != K3_GGUF_STRING) return k3_wrong_kind(file_name(gguf), v, "string", err);
    *value = v->s;
    return K3_OK;
}

k3_status k3_gguf_read(const struct k3_gguf *gguf, const struct k3_gguf_tensor *tensor, uint64_t at,
                       void *buffer, size_t n, struct k3_error *err)
{
    if (at > tensor->bytes || n > tensor->bytes - at)
        return k3_fail(err, K3_ERR_ARGUMENT,
                       "tensor %s has %" PRIu64 " bytes; %zu at byte %" PRIu64 " are not in it", tensor->name,
                       tensor->bytes, n, at);
    return k3_file_read(&gguf->shards[tensor->shard], tensor->offset + at, buffer, n, err);
}
