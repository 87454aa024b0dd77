/* subject.c - a model file for tests of the store. */
#include "subject.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct subject open_subject(const char *path)
{
    struct subject s = {0};
    struct k3_error err;
    if (k3_plan_open(path, &s.plan, &err) != K3_OK) fail_msg("%s", err.message);
    for (uint32_t i = 0; i < s.plan->gguf->n_shards; i++) {
        const struct k3_file *file = &s.plan->gguf->shards[i];
        s.files[i] = malloc(file->size);
        assert_non_null(s.files[i]);
        if (k3_file_read(file, 0, s.files[i], file->size, &err) != K3_OK) fail_msg("%s", err.message);
    }
    return s;
}

void close_subject(struct subject *s)
{
    for (uint32_t i = 0; i < s->plan->gguf->n_shards; i++) free(s->files[i]);
    k3_plan_close(s->plan);
}

struct k3_store *open_store(const struct subject *s, enum k3_io io, enum k3_direct direct, uint32_t n_slots)
{
    struct k3_error err;
    struct k3_store *store;
    struct k3_store_options options = {.io = io, .direct = direct, .n_slots = n_slots};
    if (k3_store_open(s->plan, &options, &store, &err) != K3_OK) fail_msg("%s", err.message);
    return store;
}

void check_expert(const struct subject *s, uint32_t layer, uint32_t id, const struct k3_expert *expert)
{
    const unsigned char *matrices[] = {expert->gate, expert->up, expert->down};
    for (int i = 0; i < 3; i++) {
        const struct k3_gguf_tensor *t = k3_plan_tensor(s->plan, layer, K3_FIRST_EXPERT_ROLE + i);
        uint64_t bytes = t->bytes / s->plan->hp.n_experts;
        if (memcmp(matrices[i], s->files[t->shard] + t->offset + id * bytes, bytes) != 0)
            fail_msg("matrix %d of expert %u of layer %u is not what the file holds", i, id, layer);
    }
}

void use_experts(const struct subject *s, struct k3_store *store, uint32_t layer, const uint32_t *ids,
                 size_t n, bool sweep)
{
    struct k3_error err;
    struct k3_ticket *ticket;
    bool seen[1024] = {false};
    if (k3_store_acquire(store, layer, ids, n, sweep, &ticket, &err) != K3_OK) fail_msg("%s", err.message);
    for (size_t i = 0; i < n; i++) {
        struct k3_expert expert;
        if (k3_store_next(ticket, &expert, &err) != K3_OK) fail_msg("%s", err.message);
        assert_true(expert.index < n);
        assert_false(seen[expert.index]);
        seen[expert.index] = true;
        check_expert(s, layer, ids[expert.index], &expert);
        k3_store_give_back(ticket, &expert);
    }
    k3_store_release(ticket);
}

void use_range(const struct subject *s, struct k3_store *store, uint32_t layer, uint32_t first, uint32_t n,
               bool sweep)
{
    uint32_t ids[64];
    for (uint32_t i = 0; i < n; i++) ids[i] = first + i;
    use_experts(s, store, layer, ids, n, sweep);
}

struct k3_store_stats stats_of(const struct k3_store *store)
{
    struct k3_store_stats stats;
    k3_store_get_stats(store, K3_ALL_LAYERS, &stats);
    return stats;
}

char *copy_file(const char *path, const char *folder)
{
    char *name = NULL;
    FILE *from = fopen(path, "rb");
    assert_non_null(from);
    assert_true(asprintf(&name, "%s/k3-store-XXXXXX", folder) > 0);
    int fd = mkstemp(name);
    if (fd < 0) fail_msg("%s cannot be made", name);
    static char buffer[1 << 16];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, from)) > 0;)
        assert_int_equal(write(fd, buffer, n), (ssize_t)n);
    close(fd);
    fclose(from);
    return name;
}

static void hear(void *ctx, const char *message)
{
    struct heard *heard = ctx;
    heard->n++;
    snprintf(heard->last, sizeof heard->last, "%s", message);
}

void listen_to_log(struct heard *heard)
{
    *heard = (struct heard){0};
    k3_set_log(hear, heard);
}
