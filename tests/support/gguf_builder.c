/* gguf_builder.c - writes GGUF files for tests. */
#include "gguf_builder.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MUST(condition)                                                                                      \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s failed\n", __FILE__, __LINE__, #condition);                           \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

static void *copy_bytes(const void *bytes, size_t n)
{
    char *copy = malloc(n + 1);
    MUST(copy);
    if (n) memcpy(copy, bytes, n);
    copy[n] = 0;
    return copy;
}

/* Room for one more item in an array that doubles. */
static void *grow(void *items, size_t n, size_t size)
{
    if (n & (n - 1)) return items;
    items = realloc(items, (n ? 2 * n : 1) * size);
    MUST(items);
    return items;
}

void gb_init(struct gb *gb)
{
    *gb = (struct gb){.version = 3, .magic = {'G', 'G', 'U', 'F'}, .alignment = 32};
}

static void free_key(struct gb_key *key)
{
    free(key->key);
    free(key->value);
}

static void free_tensor(struct gb_tensor *tensor)
{
    free(tensor->name);
    free(tensor->data);
}

void gb_free(struct gb *gb)
{
    for (size_t i = 0; i < gb->n_keys; i++) free_key(&gb->keys[i]);
    for (size_t i = 0; i < gb->n_tensors; i++) free_tensor(&gb->tensors[i]);
    free(gb->keys);
    free(gb->tensors);
    gb_init(gb);
}

/* ---- keys ---- */

struct gb_key *gb_add_raw(struct gb *gb, const char *key, uint32_t kind, const void *value, size_t bytes)
{
    gb->keys = grow(gb->keys, gb->n_keys, sizeof *gb->keys);
    struct gb_key *k = &gb->keys[gb->n_keys++];
    *k = (struct gb_key){copy_bytes(key, strlen(key)), strlen(key), kind, copy_bytes(value, bytes), bytes};
    return k;
}

struct gb_key *gb_add_u16(struct gb *gb, const char *key, uint16_t value)
{
    return gb_add_raw(gb, key, K3_GGUF_U16, &value, sizeof value);
}

struct gb_key *gb_add_u32(struct gb *gb, const char *key, uint32_t value)
{
    return gb_add_raw(gb, key, K3_GGUF_U32, &value, sizeof value);
}

struct gb_key *gb_add_i32(struct gb *gb, const char *key, int32_t value)
{
    return gb_add_raw(gb, key, K3_GGUF_I32, &value, sizeof value);
}

struct gb_key *gb_add_f32(struct gb *gb, const char *key, float value)
{
    return gb_add_raw(gb, key, K3_GGUF_F32, &value, sizeof value);
}

struct gb_key *gb_add_bool(struct gb *gb, const char *key, bool value)
{
    uint8_t byte = value;
    return gb_add_raw(gb, key, K3_GGUF_BOOL, &byte, 1);
}

/* Appends to a growing run of bytes. */
struct bytes {
    unsigned char *data;
    size_t n, room;
};

static void put(struct bytes *b, const void *data, size_t n)
{
    if (b->n + n > b->room) {
        b->room = 2 * (b->n + n) + 256;
        b->data = realloc(b->data, b->room);
        MUST(b->data);
    }
    if (n) memcpy(b->data + b->n, data, n);
    b->n += n;
}

static void put_u32(struct bytes *b, uint32_t x)
{
    put(b, &x, sizeof x);
}

static void put_u64(struct bytes *b, uint64_t x)
{
    put(b, &x, sizeof x);
}

static void put_string(struct bytes *b, const char *s, size_t n)
{
    put_u64(b, n);
    put(b, s, n);
}

struct gb_key *gb_add_string(struct gb *gb, const char *key, const char *value)
{
    struct bytes b = {0};
    put_string(&b, value, strlen(value));
    struct gb_key *k = gb_add_raw(gb, key, K3_GGUF_STRING, b.data, b.n);
    free(b.data);
    return k;
}

struct gb_key *gb_add_array(struct gb *gb, const char *key, uint32_t kind, const void *items, uint64_t n,
                            size_t each)
{
    struct bytes b = {0};
    put_u32(&b, kind);
    put_u64(&b, n);
    put(&b, items, n * each);
    struct gb_key *k = gb_add_raw(gb, key, K3_GGUF_ARRAY, b.data, b.n);
    free(b.data);
    return k;
}

struct gb_key *gb_add_strings(struct gb *gb, const char *key, const char *const *items, uint64_t n)
{
    struct bytes b = {0};
    put_u32(&b, K3_GGUF_STRING);
    put_u64(&b, n);
    for (uint64_t i = 0; i < n; i++) put_string(&b, items[i], strlen(items[i]));
    struct gb_key *k = gb_add_raw(gb, key, K3_GGUF_ARRAY, b.data, b.n);
    free(b.data);
    return k;
}

/* ---- tensors ---- */

void gb_set_shape(struct gb_tensor *t, enum k3_type type, uint32_t n_dims, const uint64_t *ne)
{
    const struct k3_type_info *info = k3_type_info(type);
    MUST(info);
    t->n_dims = n_dims;
    t->type = type;
    t->bytes = ne[0] / info->block * info->block_bytes;
    for (uint32_t i = 0; i < n_dims; i++) {
        t->ne[i] = ne[i];
        if (i) t->bytes *= ne[i];
    }
}

struct gb_tensor *gb_add_tensor(struct gb *gb, const char *name, enum k3_type type, uint32_t n_dims,
                                const uint64_t *ne)
{
    gb->tensors = grow(gb->tensors, gb->n_tensors, sizeof *gb->tensors);
    struct gb_tensor *t = &gb->tensors[gb->n_tensors++];
    *t = (struct gb_tensor){.name = copy_bytes(name, strlen(name)), .name_bytes = strlen(name)};
    gb_set_shape(t, type, n_dims, ne);
    return t;
}

static void add_value(struct gb *gb, const struct k3_gguf_value *v)
{
    static const size_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (v->kind == K3_GGUF_STRING) {
        gb_add_string(gb, v->key, v->s.text);
    } else if (v->kind == K3_GGUF_F32) {
        gb_add_f32(gb, v->key, (float)v->f);
    } else if (v->kind != K3_GGUF_ARRAY) {
        gb_add_raw(gb, v->key, v->kind, &v->u, bytes[v->kind]);
    } else if (v->array.kind != K3_GGUF_STRING) {
        gb_add_array(gb, v->key, v->array.kind, v->array.items, v->array.n, bytes[v->array.kind]);
    } else {
        const struct k3_gguf_string *strings = v->array.items;
        const char **items = malloc((v->array.n + 1) * sizeof *items);
        MUST(items);
        for (uint64_t i = 0; i < v->array.n; i++) items[i] = strings[i].text;
        gb_add_strings(gb, v->key, items, v->array.n);
        free(items);
    }
}

void gb_add_gguf(struct gb *gb, const struct k3_gguf *gguf)
{
    for (size_t i = 0; i < gguf->n_values; i++)
        if (strncmp(gguf->values[i].key, "split.", 6) != 0) add_value(gb, &gguf->values[i]);
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        const struct k3_gguf_tensor *from = &gguf->tensors[i];
        struct gb_tensor *to = gb_add_tensor(gb, from->name, from->type, from->n_dims, from->ne);
        to->data = malloc(from->bytes);
        MUST(to->data && k3_gguf_read(gguf, from, 0, to->data, from->bytes, NULL) == K3_OK);
    }
}

/* ---- changing ---- */

struct gb_key *gb_key(struct gb *gb, const char *key)
{
    for (size_t i = 0; i < gb->n_keys; i++)
        if (!strcmp(gb->keys[i].key, key)) return &gb->keys[i];
    return NULL;
}

struct gb_tensor *gb_tensor(struct gb *gb, const char *name)
{
    for (size_t i = 0; i < gb->n_tensors; i++)
        if (!strcmp(gb->tensors[i].name, name)) return &gb->tensors[i];
    return NULL;
}

void gb_drop_key(struct gb *gb, const char *key)
{
    struct gb_key *k = gb_key(gb, key);
    MUST(k);
    free_key(k);
    memmove(k, k + 1, (size_t)(gb->keys + gb->n_keys - (k + 1)) * sizeof *k);
    gb->n_keys--;
}

void gb_drop_tensor(struct gb *gb, const char *name)
{
    struct gb_tensor *t = gb_tensor(gb, name);
    MUST(t);
    free_tensor(t);
    memmove(t, t + 1, (size_t)(gb->tensors + gb->n_tensors - (t + 1)) * sizeof *t);
    gb->n_tensors--;
}

void gb_rename_key(struct gb *gb, const char *key, const char *to)
{
    struct gb_key *k = gb_key(gb, key);
    MUST(k);
    free(k->key);
    k->key = copy_bytes(to, strlen(to));
    k->key_bytes = strlen(to);
}

void gb_rename_tensor(struct gb *gb, const char *name, const char *to)
{
    struct gb_tensor *t = gb_tensor(gb, name);
    MUST(t);
    free(t->name);
    t->name = copy_bytes(to, strlen(to));
    t->name_bytes = strlen(to);
}

/* ---- writing ---- */

static uint64_t align_up(uint64_t x, uint64_t alignment)
{
    return (x + alignment - 1) / alignment * alignment;
}

static void put_header(struct bytes *b, const struct gb *gb)
{
    put(b, gb->magic, 4);
    put_u32(b, gb->version);
    put_u64(b, gb->n_tensors + (uint64_t)gb->extra_tensors);
    put_u64(b, gb->n_keys + (uint64_t)gb->extra_keys);
    for (size_t i = 0; i < gb->n_keys; i++) {
        put_string(b, gb->keys[i].key, gb->keys[i].key_bytes);
        put_u32(b, gb->keys[i].kind);
        put(b, gb->keys[i].value, gb->keys[i].value_bytes);
    }
    for (size_t i = 0; i < gb->n_tensors; i++) {
        const struct gb_tensor *t = &gb->tensors[i];
        put_string(b, t->name, t->name_bytes);
        put_u32(b, t->n_dims);
        for (uint32_t j = 0; j < t->n_dims; j++) put_u64(b, t->ne[j]);
        put_u32(b, t->type);
        put_u64(b, t->offset);
    }
}

/* Lays tensors out one after the other; returns the length of the data section. */
static uint64_t lay_out(struct gb *gb)
{
    uint64_t at = 0, end = 0;
    for (size_t i = 0; i < gb->n_tensors; i++) {
        struct gb_tensor *t = &gb->tensors[i];
        if (!t->fixed_offset) t->offset = at;
        end = at + t->bytes;
        at = align_up(end, gb->alignment);
    }
    return end;
}

void gb_write(struct gb *gb, const char *path)
{
    struct bytes b = {0};
    uint64_t data_bytes = lay_out(gb);
    put_header(&b, gb);
    uint64_t start = gb->n_tensors ? align_up(b.n, gb->alignment) : b.n;

    FILE *f = fopen(path, "wb");
    MUST(f && fwrite(b.data, 1, b.n, f) == b.n);
    for (size_t i = 0; i < gb->n_tensors; i++) {
        const struct gb_tensor *t = &gb->tensors[i];
        if (!t->data || t->fixed_offset) continue;
        MUST(fseeko(f, (off_t)(start + t->offset), SEEK_SET) == 0);
        MUST(fwrite(t->data, 1, t->bytes, f) == t->bytes);
    }
    MUST(fclose(f) == 0);
    MUST(truncate(path, (off_t)((int64_t)(start + data_bytes) + gb->extra_bytes)) == 0);
    free(b.data);
}

void gb_write_split(struct gb *gb, const char *prefix, uint32_t n_shards, size_t first)
{
    size_t at = 0;
    for (uint32_t i = 0; i < n_shards; i++) {
        size_t left = gb->n_tensors - at, n = i == 0 ? first : left / (n_shards - i);
        struct gb shard = *gb;
        char path[512];
        shard.tensors = gb->tensors + at;
        shard.n_tensors = n;
        shard.keys = NULL;
        shard.n_keys = 0;
        for (size_t j = 0; i == 0 && j < gb->n_keys; j++)
            gb_add_raw(&shard, gb->keys[j].key, gb->keys[j].kind, gb->keys[j].value, gb->keys[j].value_bytes);
        gb_add_u16(&shard, "split.no", (uint16_t)i);
        gb_add_i32(&shard, "split.tensors.count", (int32_t)gb->n_tensors);
        gb_add_u16(&shard, "split.count", (uint16_t)n_shards);
        MUST(snprintf(path, sizeof path, "%s-%05" PRIu32 "-of-%05" PRIu32 ".gguf", prefix, i + 1, n_shards) <
             (int)sizeof path);
        gb_write(&shard, path);
        for (size_t j = 0; j < shard.n_keys; j++) free_key(&shard.keys[j]);
        free(shard.keys);
        at += n;
    }
}

/* ---- places for files ---- */

void test_folder_make(char *path)
{
    strcpy(path, "/tmp/k3-test-XXXXXX");
    MUST(mkdtemp(path));
}

void test_folder_remove(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    MUST(dir);
    while ((entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.') MUST(unlink(test_path(path, entry->d_name)) == 0);
    closedir(dir);
    MUST(rmdir(path) == 0);
}

const char *test_path(const char *folder, const char *name)
{
    static char paths[2][512];
    static int next;
    next = !next;
    MUST(snprintf(paths[next], sizeof paths[next], "%s/%s", folder, name) < (int)sizeof paths[next]);
    return paths[next];
}

void test_patch(const char *path, uint64_t at, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "r+b");
    MUST(f && fseeko(f, (off_t)at, SEEK_SET) == 0 && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

void test_resize(const char *path, uint64_t bytes)
{
    MUST(truncate(path, (off_t)bytes) == 0);
}

void test_append(const char *path, const char *more)
{
    FILE *to = fopen(path, "ab"), *from = fopen(more, "rb");
    int c;
    MUST(to && from);
    while ((c = getc(from)) != EOF) putc(c, to);
    fclose(from);
    MUST(fclose(to) == 0);
}
