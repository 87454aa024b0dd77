/* gguf_builder.h - writes GGUF files for tests: valid ones, and ones that lie in exactly one place.
 *
 * Describe the file with the gb_add functions, change what they recorded where a test wants a lie, then
 * write. Nothing here fails softly: a test that cannot write its file aborts. */
#ifndef K3_TEST_GGUF_BUILDER_H
#define K3_TEST_GGUF_BUILDER_H

#include "gguf/gguf.h"

struct gb_key {
    char *key; /* owned, like all pointers here */
    size_t key_bytes;
    uint32_t kind;
    unsigned char *value; /* as in the file */
    size_t value_bytes;
};

struct gb_tensor {
    char *name;
    size_t name_bytes;
    uint32_t n_dims, type;
    uint64_t ne[8];
    uint64_t offset; /* as in the file; set when the file is laid out unless fixed_offset */
    bool fixed_offset;
    uint64_t bytes;      /* of data; known from type and ne when added */
    unsigned char *data; /* NULL: zeros, left as a hole in the file */
};

struct gb {
    uint32_t version; /* 3 */
    char magic[4];    /* "GGUF" */
    uint64_t alignment;
    int64_t extra_tensors, extra_keys; /* added to the counts in the header */
    int64_t extra_bytes;               /* added to the length of the file: < 0 truncates */
    size_t n_keys, n_tensors;
    struct gb_key *keys;
    struct gb_tensor *tensors;
};

/* Starts an empty description; ends one. */
void gb_init(struct gb *gb);
void gb_free(struct gb *gb);

/* The pointers that are returned are good until the next call that adds. */
struct gb_key *gb_add_raw(struct gb *gb, const char *key, uint32_t kind, const void *value, size_t bytes);
struct gb_key *gb_add_u16(struct gb *gb, const char *key, uint16_t value);
struct gb_key *gb_add_u32(struct gb *gb, const char *key, uint32_t value);
struct gb_key *gb_add_i32(struct gb *gb, const char *key, int32_t value);
struct gb_key *gb_add_f32(struct gb *gb, const char *key, float value);
struct gb_key *gb_add_bool(struct gb *gb, const char *key, bool value);
struct gb_key *gb_add_string(struct gb *gb, const char *key, const char *value);
struct gb_key *gb_add_array(struct gb *gb, const char *key, uint32_t kind, const void *items, uint64_t n,
                            size_t each);
struct gb_key *gb_add_strings(struct gb *gb, const char *key, const char *const *items, uint64_t n);
struct gb_tensor *gb_add_tensor(struct gb *gb, const char *name, enum k3_type type, uint32_t n_dims,
                                const uint64_t *ne);

/* Changes a tensor that has no data. */
void gb_set_shape(struct gb_tensor *tensor, enum k3_type type, uint32_t n_dims, const uint64_t *ne);

/* Adds all keys and tensors of an open file, values included. */
void gb_add_gguf(struct gb *gb, const struct k3_gguf *gguf);

/* NULL when there is none. */
struct gb_key *gb_key(struct gb *gb, const char *key);
struct gb_tensor *gb_tensor(struct gb *gb, const char *name);
void gb_drop_key(struct gb *gb, const char *key);
void gb_drop_tensor(struct gb *gb, const char *name);
void gb_rename_key(struct gb *gb, const char *key, const char *to);
void gb_rename_tensor(struct gb *gb, const char *name, const char *to);

/* Writes the file. */
void gb_write(struct gb *gb, const char *path);

/* Writes PREFIX-%05d-of-%05d.gguf for n_shards shards; the first has the keys and `first` tensors, the others
 * an equal share of the rest. */
void gb_write_split(struct gb *gb, const char *prefix, uint32_t n_shards, size_t first);

/* ---- places for files ---- */

/* A new empty folder; `path` has room for 64 bytes. */
void test_folder_make(char *path);
void test_folder_remove(const char *path);

/* "folder/name", valid until the call after next. */
const char *test_path(const char *folder, const char *name);

/* Overwrites n bytes of a file; cuts or lengthens a file; appends one file to another. */
void test_patch(const char *path, uint64_t at, const void *bytes, size_t n);
void test_resize(const char *path, uint64_t bytes);
void test_append(const char *path, const char *more);

#endif
