/* mapped.c - the expert store that maps the model's files and lets the kernel page them in. */
#include "store/store.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct mapping {
    unsigned char *address;
    size_t bytes; /* file and guard */
};

/* The one request under way. */
struct k3_ticket {
    struct k3_store *store;
    uint32_t layer;
    const uint32_t *ids;
    size_t n, next;
};

struct k3_store {
    const struct k3_plan *plan;
    size_t n_mappings;
    struct mapping *mappings; /* of the shards, in order */
    struct k3_ticket ticket;
};

/* Maps a file and at least K3_BUFFER_PAD readable bytes after it: kernels may look a little past the last
 * block, and past the end of a mapping there is nothing but SIGBUS. */
static k3_status map_file(const struct k3_file *file, struct mapping *m, struct k3_error *err)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = ((size_t)file->size + page - 1) / page * page + page;
    unsigned char *address = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED)
        return k3_fail_errno(err, errno, "%s: no room to map it (%zu bytes)", k3_file_name(file->path),
                             bytes);
    *m = (struct mapping){address, bytes};
    if (file->size == 0) return K3_OK;
    if (mmap(address, (size_t)file->size, PROT_READ, MAP_SHARED | MAP_FIXED, file->fd, 0) == MAP_FAILED)
        return k3_fail_errno(err, errno, "%s: cannot be mapped into memory", k3_file_name(file->path));
    return K3_OK;
}

k3_status k3_store_open(const struct k3_plan *plan, struct k3_store **out, struct k3_error *err)
{
    struct k3_store *store = calloc(1, sizeof *store);
    if (!store) return k3_fail_memory(err, "the expert store", sizeof *store);
    store->plan = plan;
    store->mappings = calloc(plan->gguf->n_shards, sizeof *store->mappings);
    k3_status status = store->mappings ? K3_OK : k3_fail_memory(err, "the expert store", sizeof *store);
    for (uint32_t i = 0; i < plan->gguf->n_shards && status == K3_OK; i++) {
        store->n_mappings++;
        status = map_file(&plan->gguf->shards[i], &store->mappings[i], err);
    }
    if (status != K3_OK) {
        k3_store_close(store);
        return status;
    }
    *out = store;
    return K3_OK;
}

void k3_store_close(struct k3_store *store)
{
    if (!store) return;
    for (size_t i = 0; i < store->n_mappings; i++)
        if (store->mappings[i].address) munmap(store->mappings[i].address, store->mappings[i].bytes);
    free(store->mappings);
    free(store);
}

uint64_t k3_store_expert_bytes(const struct k3_store *store, uint32_t layer)
{
    uint64_t bytes = 0;
    for (int role = K3_FIRST_EXPERT_ROLE; role < K3_ROLE_COUNT; role++) {
        const struct k3_gguf_tensor *t = k3_plan_tensor(store->plan, layer, role);
        if (t) bytes += t->bytes / store->plan->hp.n_experts;
    }
    return bytes;
}

uint64_t k3_store_bytes(const struct k3_store *store)
{
    uint64_t bytes = 0;
    for (uint32_t layer = 0; layer < store->plan->hp.n_layers; layer++)
        bytes += k3_store_expert_bytes(store, layer) * store->plan->hp.n_experts;
    return bytes;
}

k3_status k3_store_acquire(struct k3_store *store, uint32_t layer, const uint32_t *ids, size_t n,
                           struct k3_ticket **ticket, struct k3_error *err)
{
    (void)err;
    store->ticket = (struct k3_ticket){store, layer, ids, n, 0};
    *ticket = &store->ticket;
    return K3_OK;
}

static const unsigned char *slab(const struct k3_ticket *ticket, enum k3_role role, uint32_t id)
{
    const struct k3_store *store = ticket->store;
    const struct k3_gguf_tensor *t = k3_plan_tensor(store->plan, ticket->layer, role);
    return store->mappings[t->shard].address + t->offset + id * (t->bytes / store->plan->hp.n_experts);
}

k3_status k3_store_next(struct k3_ticket *ticket, struct k3_expert *expert, struct k3_error *err)
{
    (void)err;
    uint32_t id = ticket->ids[ticket->next];
    expert->index = ticket->next++;
    expert->gate = slab(ticket, K3_EXPERTS_GATE, id);
    expert->up = slab(ticket, K3_EXPERTS_UP, id);
    expert->down = slab(ticket, K3_EXPERTS_DOWN, id);
    return K3_OK;
}

void k3_store_release(struct k3_ticket *ticket)
{
    ticket->ids = NULL;
}
