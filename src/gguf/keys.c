/* keys.c - keys and values of a GGUF header. */
#include "gguf/gguf_internal.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes; /* of a value; 0 for those that say how long they are */
} kinds[] = {
    [K3_GGUF_U8] = {"u8", 1},       [K3_GGUF_I8] = {"i8", 1},     [K3_GGUF_U16] = {"u16", 2},
    [K3_GGUF_I16] = {"i16", 2},     [K3_GGUF_U32] = {"u32", 4},   [K3_GGUF_I32] = {"i32", 4},
    [K3_GGUF_F32] = {"f32", 4},     [K3_GGUF_BOOL] = {"bool", 1}, [K3_GGUF_STRING] = {"string", 0},
    [K3_GGUF_ARRAY] = {"array", 0}, [K3_GGUF_U64] = {"u64", 8},   [K3_GGUF_I64] = {"i64", 8},
    [K3_GGUF_F64] = {"f64", 8},
};

#define N_KINDS (sizeof kinds / sizeof kinds[0])

const char *k3_gguf_kind_name(enum k3_gguf_kind kind)
{
    return (size_t)kind < N_KINDS ? kinds[kind].name : "unknown";
}

size_t k3_kind_bytes(enum k3_gguf_kind kind)
{
    return kinds[kind].bytes;
}

/* ---- reading ---- */

static k3_status read_kind(struct k3_cursor *cursor, const char *of, enum k3_gguf_kind *kind,
                           struct k3_error *err)
{
    uint32_t id;
    k3_status status = k3_cursor_u32(cursor, &id, err);
    if (status != K3_OK) return status;
    if (id >= N_KINDS)
        return k3_cursor_fail(cursor, K3_ERR_FORMAT, err, "has %s of unknown kind %" PRIu32, of, id);
    *kind = (enum k3_gguf_kind)id;
    return K3_OK;
}

static k3_status check_bools(const struct k3_cursor *cursor, const uint8_t *values, uint64_t n,
                             struct k3_error *err)
{
    for (uint64_t i = 0; i < n; i++)
        if (values[i] > 1)
            return k3_cursor_fail(cursor, K3_ERR_FORMAT, err, "has a bool of value %u; 0 and 1 are allowed",
                                  values[i]);
    return K3_OK;
}

static int64_t int_from_bytes(enum k3_gguf_kind kind, const void *bytes)
{
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        int64_t i64;
    } x = {0};
    memcpy(&x, bytes, kinds[kind].bytes);
    switch (kind) {
    case K3_GGUF_U8:
    case K3_GGUF_BOOL:
        return x.u8;
    case K3_GGUF_I8:
        return x.i8;
    case K3_GGUF_U16:
        return x.u16;
    case K3_GGUF_I16:
        return x.i16;
    case K3_GGUF_U32:
        return x.u32;
    case K3_GGUF_I32:
        return x.i32;
    default:
        return x.i64;
    }
}

static k3_status read_scalar(struct k3_cursor *cursor, struct k3_gguf_value *value, struct k3_error *err)
{
    unsigned char bytes[8];
    k3_status status = k3_cursor_read(cursor, bytes, kinds[value->kind].bytes, err);
    if (status != K3_OK) return status;

    float f;
    switch (value->kind) {
    case K3_GGUF_F32:
        memcpy(&f, bytes, sizeof f);
        value->f = f;
        return K3_OK;
    case K3_GGUF_F64:
        memcpy(&value->f, bytes, sizeof value->f);
        return K3_OK;
    case K3_GGUF_BOOL:
        status = check_bools(cursor, bytes, 1, err);
        break;
    default:
        break;
    }
    value->i = int_from_bytes(value->kind, bytes);
    return status;
}

static k3_status read_strings(struct k3_cursor *cursor, struct k3_arena *arena,
                              struct k3_gguf_string *strings, uint64_t n, struct k3_error *err)
{
    k3_status status = K3_OK;
    for (uint64_t i = 0; status == K3_OK && i < n; i++)
        status = k3_cursor_string(cursor, arena, &strings[i], err);
    return status;
}

static k3_status read_array(struct k3_cursor *cursor, struct k3_arena *arena, struct k3_gguf_value *value,
                            struct k3_error *err)
{
    enum k3_gguf_kind kind = K3_GGUF_U8;
    uint64_t n;
    k3_status status = read_kind(cursor, "elements", &kind, err);
    if (status != K3_OK) return status;
    if (kind == K3_GGUF_ARRAY)
        return k3_cursor_fail(cursor, K3_ERR_FORMAT, err, "is an array of arrays, which no model file needs");

    bool strings = kind == K3_GGUF_STRING;
    status = k3_cursor_count(cursor, strings ? 8 : kinds[kind].bytes, "elements", &n, err);
    if (status != K3_OK) return status;
    uint64_t bytes = n * (strings ? sizeof(struct k3_gguf_string) : kinds[kind].bytes);
    void *items = k3_arena_alloc(arena, bytes);
    if (!items) return k3_fail_memory(err, "an array of a model file", bytes);

    value->array.kind = kind;
    value->array.n = n;
    value->array.items = items;
    if (strings) return read_strings(cursor, arena, items, n, err);
    status = k3_cursor_read(cursor, items, bytes, err);
    if (status == K3_OK && kind == K3_GGUF_BOOL) status = check_bools(cursor, items, n, err);
    return status;
}

static k3_status read_key(struct k3_cursor *cursor, struct k3_arena *arena, const char **key,
                          struct k3_error *err)
{
    struct k3_gguf_string s;
    k3_status status = k3_cursor_string(cursor, arena, &s, err);
    if (status != K3_OK) return status;
    if (s.n == 0 || s.n > K3_KEY_BYTES_MAX)
        return k3_cursor_fail(cursor, K3_ERR_FORMAT, err, "has a name of %zu bytes; 1 to %d are allowed", s.n,
                              K3_KEY_BYTES_MAX);
    for (size_t i = 0; i < s.n; i++)
        if (s.text[i] < 0x20 || s.text[i] > 0x7e)
            return k3_cursor_fail(cursor, K3_ERR_FORMAT, err,
                                  "has byte 0x%02x in its name, which is not printable ASCII",
                                  (unsigned char)s.text[i]);
    *key = s.text;
    return K3_OK;
}

static k3_status read_value(struct k3_cursor *cursor, struct k3_arena *arena, struct k3_gguf_value *value,
                            struct k3_error *err)
{
    k3_status status = read_kind(cursor, "a value", &value->kind, err);
    if (status != K3_OK) return status;
    switch (value->kind) {
    case K3_GGUF_STRING:
        return k3_cursor_string(cursor, arena, &value->s, err);
    case K3_GGUF_ARRAY:
        return read_array(cursor, arena, value, err);
    default:
        return read_scalar(cursor, value, err);
    }
}

/* ---- looking up ---- */

/* Sorting finds duplicates and serves lookups; unlike a hash table no choice of names makes it slow. */
static int by_key(const void *a, const void *b)
{
    const struct k3_gguf_value *x = *(const struct k3_gguf_value *const *)a,
                               *y = *(const struct k3_gguf_value *const *)b;
    return strcmp(x->key, y->key);
}

static k3_status sort_keys(struct k3_cursor *cursor, struct k3_keys *keys, struct k3_error *err)
{
    for (size_t i = 0; i < keys->n; i++) keys->sorted[i] = &keys->values[i];
    qsort(keys->sorted, keys->n, sizeof *keys->sorted, by_key);
    for (size_t i = 1; i < keys->n; i++) {
        if (strcmp(keys->sorted[i - 1]->key, keys->sorted[i]->key) != 0) continue;
        cursor->name = keys->sorted[i]->key;
        return k3_cursor_fail(cursor, K3_ERR_FORMAT, err, "appears twice");
    }
    return K3_OK;
}

k3_status k3_keys_read(struct k3_cursor *cursor, uint64_t n, struct k3_arena *arena, struct k3_keys *keys,
                       struct k3_error *err)
{
    keys->n = n;
    keys->values = k3_arena_alloc(arena, n * sizeof *keys->values);
    keys->sorted = k3_arena_alloc(arena, n * sizeof *keys->sorted);
    if (!keys->values || !keys->sorted)
        return k3_fail_memory(err, "the keys of a model file",
                              n * (sizeof *keys->values + sizeof *keys->sorted));

    cursor->kind = "key";
    for (uint64_t i = 0; i < n; i++) {
        struct k3_gguf_value *value = &keys->values[i];
        cursor->name = NULL;
        cursor->number = i + 1;
        k3_status status = read_key(cursor, arena, &value->key, err);
        if (status != K3_OK) return status;
        cursor->name = value->key;
        status = read_value(cursor, arena, value, err);
        if (status != K3_OK) return status;
    }
    return sort_keys(cursor, keys, err);
}

const struct k3_gguf_value *k3_keys_find(const struct k3_keys *keys, const char *key)
{
    struct k3_gguf_value wanted = {.key = key};
    const struct k3_gguf_value *p = &wanted, **found;
    if (!keys->n) return NULL;
    found = bsearch(&p, keys->sorted, keys->n, sizeof *keys->sorted, by_key);
    return found ? *found : NULL;
}

k3_status k3_keys_get(const struct k3_keys *keys, const char *file, const char *key,
                      const struct k3_gguf_value **value, struct k3_error *err)
{
    *value = k3_keys_find(keys, key);
    return *value ? K3_OK : k3_fail(err, K3_ERR_FORMAT, "%s: key %s is missing", file, key);
}

k3_status k3_wrong_kind(const char *file, const struct k3_gguf_value *value, const char *expected,
                        struct k3_error *err)
{
    return k3_fail(err, K3_ERR_FORMAT, "%s: key %s is of kind %s; %s is expected", file, value->key,
                   k3_gguf_kind_name(value->kind), expected);
}

k3_status k3_keys_get_u32(const struct k3_keys *keys, const char *file, const char *key, uint32_t *value,
                          struct k3_error *err)
{
    const struct k3_gguf_value *v;
    k3_status status = k3_keys_get(keys, file, key, &v, err);
    if (status != K3_OK) return status;
    switch (v->kind) {
    case K3_GGUF_U8:
    case K3_GGUF_U16:
    case K3_GGUF_U32:
    case K3_GGUF_U64:
        if (v->u > UINT32_MAX)
            return k3_fail(err, K3_ERR_FORMAT, "%s: key %s is %" PRIu64 ", too large for 32 bits", file, key,
                           v->u);
        break;
    case K3_GGUF_I8:
    case K3_GGUF_I16:
    case K3_GGUF_I32:
    case K3_GGUF_I64:
        if (v->i < 0 || v->i > UINT32_MAX)
            return k3_fail(err, K3_ERR_FORMAT, "%s: key %s is %" PRIi64 "; 0 to 2^32-1 are allowed", file,
                           key, v->i);
        break;
    default:
        return k3_wrong_kind(file, v, "an integer", err);
    }
    *value = (uint32_t)v->u;
    return K3_OK;
}

int64_t k3_gguf_array_int(const struct k3_gguf_value *value, uint64_t i)
{
    size_t bytes = kinds[value->array.kind].bytes;
    return int_from_bytes(value->array.kind, (const unsigned char *)value->array.items + i * bytes);
}
