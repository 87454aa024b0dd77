/* write.h - writes a GGUF file: version 3, one file, tensors in the order they were named.
 *
 * First name all keys and tensors, then give the bytes of the tensors, in that order and in pieces of any size,
 * then commit. Padding is written by the writer. The file appears in its place when it is whole and synced; until
 * then, and after any failure, what was in that place stays. A GGUF file is never overwritten: it may be what the
 * caller reads from.
 *
 *     k3_gguf_writer_create(path, &w, err)
 *     k3_gguf_put_string(w, "general.architecture", "kimi-k3", err) ...
 *     k3_gguf_put_tensor(w, "output_norm.weight", K3_TYPE_F32, 1, ne, err) ...
 *     k3_gguf_put_data(w, bytes, n, err) ...
 *     k3_gguf_writer_commit(w, err)
 *     k3_gguf_writer_free(w)
 *
 * After a function failed only k3_gguf_writer_free is allowed. */
#ifndef K3_GGUF_WRITE_H
#define K3_GGUF_WRITE_H

#include "gguf/gguf.h"

struct k3_gguf_writer;

/* Refuses a place that holds something else than a regular file, or a GGUF file. */
k3_status k3_gguf_writer_create(const char *path, struct k3_gguf_writer **writer, struct k3_error *err);

/* Removes what was written, unless it was committed. Accepts NULL. */
void k3_gguf_writer_free(struct k3_gguf_writer *writer);

/* ---- keys: names must differ and be printable ASCII ---- */

/* A value of any kind, as k3_gguf_find gives it: keys of another file can be passed on. general.alignment is
 * refused: tensors are aligned to 32 bytes, which is what its absence means. */
k3_status k3_gguf_put(struct k3_gguf_writer *writer, const struct k3_gguf_value *value, struct k3_error *err);

k3_status k3_gguf_put_u32(struct k3_gguf_writer *writer, const char *key, uint32_t value,
                          struct k3_error *err);
k3_status k3_gguf_put_f32(struct k3_gguf_writer *writer, const char *key, float value, struct k3_error *err);
k3_status k3_gguf_put_bool(struct k3_gguf_writer *writer, const char *key, bool value, struct k3_error *err);
k3_status k3_gguf_put_string(struct k3_gguf_writer *writer, const char *key, const char *value,
                             struct k3_error *err);
k3_status k3_gguf_put_strings(struct k3_gguf_writer *writer, const char *key,
                              const struct k3_gguf_string *items, uint64_t n, struct k3_error *err);
k3_status k3_gguf_put_i32s(struct k3_gguf_writer *writer, const char *key, const int32_t *items, uint64_t n,
                           struct k3_error *err);

/* ---- tensors ---- */

/* ne: n_dims sizes, ne[0] contiguous. */
k3_status k3_gguf_put_tensor(struct k3_gguf_writer *writer, const char *name, enum k3_type type,
                             uint32_t n_dims, const uint64_t *ne, struct k3_error *err);

/* Bytes of all tensors named so far, without padding. */
uint64_t k3_gguf_writer_bytes(const struct k3_gguf_writer *writer);

/* The next n bytes of the tensors. A piece may end one tensor and begin another. The first call writes the header;
 * no key and no tensor can be added after it. */
k3_status k3_gguf_put_data(struct k3_gguf_writer *writer, const void *bytes, size_t n, struct k3_error *err);

/* Fails when bytes are missing. */
k3_status k3_gguf_writer_commit(struct k3_gguf_writer *writer, struct k3_error *err);

#endif
