/* arrays.c - lists of device memory. */
#include "gpu/gpu_internal.h"

#include <stdlib.h>

#define ALIGNMENT 256 /* of device memory: what an array takes is a multiple of it */

static bool grow(struct k3_gpu_arrays *a)
{
    if (a->n < a->capacity) return true;
    size_t capacity = a->capacity ? 2 * a->capacity : 64;
    void **larger = realloc(a->list, capacity * sizeof *larger);
    if (!larger) return false;
    a->list = larger;
    a->capacity = capacity;
    return true;
}

void *k3_gpu_array(struct k3_gpu_arrays *a, const char *name, size_t n, size_t size)
{
    uint64_t bytes = n * size;
    a->bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!a->allocate || a->failed) return NULL;
    void *array = grow(a) ? k3_gpu_alloc(name, bytes) : NULL;
    if (array) {
        a->list[a->n++] = array;
    } else {
        a->failed = name;
        a->failed_bytes = bytes;
    }
    return array;
}

k3_status k3_gpu_arrays_check(const struct k3_gpu_arrays *a, struct k3_error *err)
{
    if (!a->failed) return K3_OK;
    return k3_fail(err, K3_ERR_MEMORY, "the GPU has no memory for %s: %llu bytes after %llu", a->failed,
                   (unsigned long long)a->failed_bytes, (unsigned long long)(a->bytes - a->failed_bytes));
}

void k3_gpu_arrays_free(struct k3_gpu_arrays *a)
{
    while (a->n) k3_gpu_free(a->list[--a->n]);
    free(a->list);
    *a = (struct k3_gpu_arrays){0};
}
