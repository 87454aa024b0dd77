/* gguf_internal.h - what the files of the gguf room share.
 *
 * cursor.c   reads bytes of a header and knows where it is, for messages
 * keys.c     parses keys and values and looks them up
 * tensors.c  parses the table of tensors and checks where they lie
 * header.c   reads one file with the three above
 * split.c    knows the names and the keys of shards, and reads all files of a set
 * gguf.c     the public functions
 * write.c    writes a file (write.h) */
#ifndef K3_GGUF_INTERNAL_H
#define K3_GGUF_INTERNAL_H

#include "base/arena.h"
#include "gguf/gguf.h"

#include <inttypes.h>

/* A header of a real model is about 10 MB: its vocabulary. This bounds what a hostile one can make us
 * allocate. */
#define K3_GGUF_HEADER_MAX ((uint64_t)1 << 30)

/* ---- cursor.c ---- */

/* A place in the header of a file; moves forward only. */
struct k3_cursor {
    const struct k3_file *file;
    uint64_t at;       /* of the next byte, from the start of the file */
    const char *kind;  /* what is being read: "key", "tensor", ... */
    const char *name;  /* of it; NULL while that is not known */
    uint64_t number;   /* of it, from 1; used when there is no name */
    size_t used, held; /* bytes of `buffer` */
    unsigned char buffer[16 * 1024];
};

void k3_cursor_init(struct k3_cursor *cursor, const struct k3_file *file);

/* As k3_fail, with "file: kind name " before the message. */
k3_status k3_cursor_fail(const struct k3_cursor *cursor, k3_status status, struct k3_error *err,
                         const char *format, ...) __attribute__((format(printf, 4, 5)));

k3_status k3_cursor_read(struct k3_cursor *cursor, void *out, size_t n, struct k3_error *err);
k3_status k3_cursor_u32(struct k3_cursor *cursor, uint32_t *value, struct k3_error *err);
k3_status k3_cursor_u64(struct k3_cursor *cursor, uint64_t *value, struct k3_error *err);

/* A u64 that counts things of at least `each` bytes that follow: more than can follow is an error. */
k3_status k3_cursor_count(struct k3_cursor *cursor, size_t each, const char *things, uint64_t *n,
                          struct k3_error *err);

/* A u64 length and that many bytes; copied to the arena with a zero after them. */
k3_status k3_cursor_string(struct k3_cursor *cursor, struct k3_arena *arena, struct k3_gguf_string *string,
                           struct k3_error *err);

/* ---- keys.c ---- */

struct k3_keys {
    size_t n;
    struct k3_gguf_value *values;        /* in file order */
    const struct k3_gguf_value **sorted; /* by key */
};

/* The longest name of a key. */
#define K3_KEY_BYTES_MAX 65535

/* Bytes of a value of this kind in a file; 0 for strings and arrays, which say how long they are. */
size_t k3_kind_bytes(enum k3_gguf_kind kind);

/* Bytes that a key and its value have at least: length, one letter, kind, one byte. */
#define K3_KEY_BYTES_MIN (8 + 1 + 4 + 1)

k3_status k3_keys_read(struct k3_cursor *cursor, uint64_t n, struct k3_arena *arena, struct k3_keys *keys,
                       struct k3_error *err);
const struct k3_gguf_value *k3_keys_find(const struct k3_keys *keys, const char *key);

/* As k3_gguf_get_u32; `file` is the name for messages. */
k3_status k3_keys_get_u32(const struct k3_keys *keys, const char *file, const char *key, uint32_t *value,
                          struct k3_error *err);

/* The value of `key` whatever its kind, or an error that it is missing. */
k3_status k3_keys_get(const struct k3_keys *keys, const char *file, const char *key,
                      const struct k3_gguf_value **value, struct k3_error *err);
k3_status k3_wrong_kind(const char *file, const struct k3_gguf_value *value, const char *expected,
                        struct k3_error *err);

/* ---- tensors.c ---- */

/* Bytes that an entry of the table has at least: name of one letter, n_dims, one dimension, type, offset. */
#define K3_TENSOR_BYTES_MIN (8 + 1 + 4 + 8 + 4 + 8)

/* Sets `bytes` from type and shape. Wrong ones are errors at the cursor's place. */
k3_status k3_tensor_measure(const struct k3_cursor *cursor, struct k3_gguf_tensor *tensor,
                            struct k3_error *err);

/* Reads n entries; offsets are still relative to the data section. */
k3_status k3_tensors_read(struct k3_cursor *cursor, uint64_t n, struct k3_arena *arena,
                          struct k3_gguf_tensor *tensors, struct k3_error *err);

/* Makes offsets absolute and checks that all tensors are aligned, inside the file and apart from each other.
 * *end is the byte after the last one, `start` if there is none. */
k3_status k3_tensors_place(const struct k3_file *file, struct k3_gguf_tensor *tensors, size_t n,
                           uint64_t start, uint64_t alignment, uint64_t *end, struct k3_error *err);

/* ---- header.c ---- */

struct k3_header {
    uint32_t version;
    struct k3_keys keys;
    size_t n_tensors;
};

/* Reads the header of a file that is shard `shard` of *gguf and appends its tensors to those of *gguf. */
k3_status k3_header_read(struct k3_gguf *gguf, uint32_t shard, struct k3_header *header,
                         struct k3_error *err);

/* ---- split.c ---- */

/* Opens and reads all files that `path` stands for. What was opened is in *gguf, also after an error. */
k3_status k3_split_open(struct k3_gguf *gguf, const char *path, struct k3_error *err);

/* ---- gguf.c ---- */

struct k3_gguf_private {
    struct k3_arena arena;                 /* names, keys and values */
    struct k3_keys keys;                   /* of shard 0 */
    const struct k3_gguf_tensor **by_name; /* all tensors, sorted */
};

#endif
