/* subject.h - a model file for tests of the store, and experts compared with what the file holds. Everything here
 * ends the test when it fails. */
#ifndef TEST_SUBJECT_H
#define TEST_SUBJECT_H

#include "store/store.h"

#define FIXTURES      K3_TEST_DATA "/fixtures/models/"
#define SMALL_MODEL   FIXTURES "k3-tiny-a-q8_0-mxfp4.gguf" /* 4 MoE layers of 16 experts, 4 for each token */
#define SMALL_LAYERS  4
#define SMALL_EXPERTS 16
#define FIRST_LAYER   1 /* with experts */

struct subject {
    struct k3_plan *plan;
    unsigned char *files[8]; /* the bytes of each shard; owned */
};

struct subject open_subject(const char *path);
void close_subject(struct subject *s);

struct k3_store *open_store(const struct subject *s, enum k3_io io, enum k3_direct direct, uint32_t n_slots);

/* All three matrices are those of the file. */
void check_expert(const struct subject *s, uint32_t layer, uint32_t id, const struct k3_expert *expert);

/* Acquires experts, checks each, gives it back, and releases the ticket. */
void use_experts(const struct subject *s, struct k3_store *store, uint32_t layer, const uint32_t *ids,
                 size_t n, bool sweep);

/* As use_experts, for experts first .. first + n - 1. */
void use_range(const struct subject *s, struct k3_store *store, uint32_t layer, uint32_t first, uint32_t n,
               bool sweep);

struct k3_store_stats stats_of(const struct k3_store *store);

/* A copy in a new file in `folder`; free the name and remove the file. */
char *copy_file(const char *path, const char *folder);

/* Log messages from here on. */
struct heard {
    int n;
    char last[K3_MESSAGE_MAX];
};

void listen_to_log(struct heard *heard);

#endif
