/* gguf.h - read the metadata of a GGUF model: keys, values and the table of tensors, of one file or a split
 * set.
 *
 * Only headers are read; tensor bytes are not. Everything a file says is checked before it is believed, so a
 * `struct k3_gguf` that was opened holds only ranges that lie inside its files, names that are unique, and
 * sizes whose arithmetic does not overflow. What a key or a tensor means is not known here: see model/.
 * Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little endian. */
#ifndef K3_GGUF_GGUF_H
#define K3_GGUF_GGUF_H

#include "base/error.h"
#include "base/file.h"
#include "gguf/types.h"

enum k3_gguf_kind {
    K3_GGUF_U8 = 0,
    K3_GGUF_I8 = 1,
    K3_GGUF_U16 = 2,
    K3_GGUF_I16 = 3,
    K3_GGUF_U32 = 4,
    K3_GGUF_I32 = 5,
    K3_GGUF_F32 = 6,
    K3_GGUF_BOOL = 7,
    K3_GGUF_STRING = 8,
    K3_GGUF_ARRAY = 9,
    K3_GGUF_U64 = 10,
    K3_GGUF_I64 = 11,
    K3_GGUF_F64 = 12,
};

/* Bytes of a string in the file; followed by a zero in memory, but may hold zeros itself. */
struct k3_gguf_string {
    const char *text; /* owned by the k3_gguf */
    size_t n;         /* bytes */
};

struct k3_gguf_value {
    const char *key; /* owned by the k3_gguf */
    enum k3_gguf_kind kind;
    union {
        uint64_t u; /* U8 .. U64, BOOL (0 or 1) */
        int64_t i;  /* I8 .. I64 */
        double f;   /* F32, F64 */
        struct k3_gguf_string s;
        struct {
            enum k3_gguf_kind kind; /* of the elements; never ARRAY (nested arrays are refused) */
            uint64_t n;
            const void *items; /* struct k3_gguf_string[n] for strings, else packed as in the file, unaligned;
                                  owned */
        } array;
    };
};

#define K3_GGUF_NAME_MAX 63
#define K3_GGUF_MAX_DIMS 4

struct k3_gguf_tensor {
    const char *name;              /* owned by the k3_gguf */
    uint64_t ne[K3_GGUF_MAX_DIMS]; /* ne[0] is contiguous; missing dimensions are 1 */
    uint32_t n_dims;               /* as the file states it, 1 .. 4 */
    enum k3_type type;
    uint32_t shard;  /* index of the file that holds it */
    uint64_t offset; /* of the first byte, from the start of that file */
    uint64_t bytes;
};

struct k3_gguf {
    char *path; /* as given to k3_gguf_open */
    uint32_t n_shards;
    struct k3_file *shards; /* in order of split.no; open for reading */
    size_t n_values;
    struct k3_gguf_value *values; /* of shard 0, in file order */
    size_t n_tensors;
    struct k3_gguf_tensor *tensors;  /* of all shards, in shard and file order */
    uint32_t version;                /* of shard 0: 2 or 3 */
    uint64_t bytes;                  /* of all files together */
    struct k3_gguf_private *private; /* sorted indexes and memory */
};

/* Opens `path` and, if it is one shard of a set (PREFIX-00001-of-00008.gguf), all other shards beside it.
 * K3_ERR_IO, K3_ERR_FORMAT, K3_ERR_UNSUPPORTED (version, byte order, unknown tensor type) or K3_ERR_MEMORY.
 */
k3_status k3_gguf_open(const char *path, struct k3_gguf **gguf, struct k3_error *err);
void k3_gguf_close(struct k3_gguf *gguf);

/* NULL when there is none. */
const struct k3_gguf_value *k3_gguf_find(const struct k3_gguf *gguf, const char *key);
const struct k3_gguf_tensor *k3_gguf_find_tensor(const struct k3_gguf *gguf, const char *name);

/* A key that must be there with a value of a fitting kind; absent or of another kind is K3_ERR_FORMAT.
 * Integers are accepted from any integer kind if the value fits. */
k3_status k3_gguf_get_u32(const struct k3_gguf *gguf, const char *key, uint32_t *value, struct k3_error *err);
k3_status k3_gguf_get_f32(const struct k3_gguf *gguf, const char *key, float *value, struct k3_error *err);
k3_status k3_gguf_get_bool(const struct k3_gguf *gguf, const char *key, bool *value, struct k3_error *err);
k3_status k3_gguf_get_string(const struct k3_gguf *gguf, const char *key, struct k3_gguf_string *value,
                             struct k3_error *err);

/* Element i of an array of any integer kind; the caller has checked the kind and i < n. */
int64_t k3_gguf_array_int(const struct k3_gguf_value *value, uint64_t i);

/* Reads n bytes of a tensor from byte `at` of it on. */
k3_status k3_gguf_read(const struct k3_gguf *gguf, const struct k3_gguf_tensor *tensor, uint64_t at,
                       void *buffer, size_t n, struct k3_error *err);

/* "u32", "array", ... for messages and listings. */
const char *k3_gguf_kind_name(enum k3_gguf_kind kind);

#endif
