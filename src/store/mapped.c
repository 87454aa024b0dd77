/* mapped.c - maps the model's files and lets the kernel page experts in.
 *
 * Every expert is ready at once, and touching it may wait for the drive. Good when all of them fit in the
 * page cache; else it is what the store is measured against. */
#include "store/mapped.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct mapping {
    unsigned char *address;
    size_t bytes; /* file and guard */
};

struct k3_mapped {
    const struct k3_plan *plan;
    size_t n_mappings;
    struct mapping *mappings; /* of the shards, in order */
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

k3_status k3_mapped_open(const struct k3_plan *plan, struct k3_mapped **out, struct k3_error *err)
{
    struct k3_mapped *mapped = calloc(1, sizeof *mapped);
    if (!mapped) return k3_fail_memory(err, "the expert store", sizeof *mapped);
    mapped->plan = plan;
    mapped->mappings = calloc(plan->gguf->n_shards, sizeof *mapped->mappings);
    k3_status status = mapped->mappings ? K3_OK : k3_fail_memory(err, "the expert store", sizeof *mapped);
    for (uint32_t i = 0; i < plan->gguf->n_shards && status == K3_OK; i++) {
        mapped->n_mappings++;
        status = map_file(&plan->gguf->shards[i], &mapped->mappings[i], err);
    }
    if (status != K3_OK) {
        k3_mapped_close(mapped);
        return status;
    }
    *out = mapped;
    return K3_OK;
}

void k3_mapped_close(struct k3_mapped *mapped)
{
    if (!mapped) return;
    for (size_t i = 0; i < mapped->n_mappings; i++)
        if (mapped->mappings[i].address) munmap(mapped->mappings[i].address, mapped->mappings[i].bytes);
    free(mapped->mappings);
    free(mapped);
}

const unsigned char *k3_mapped_matrix(const struct k3_mapped *mapped, uint32_t layer, enum k3_role role,
                                      uint32_t expert)
{
    const struct k3_gguf_tensor *t = k3_plan_tensor(mapped->plan, layer, role);
    return mapped->mappings[t->shard].address + t->offset + expert * (t->bytes / mapped->plan->hp.n_experts);
}
