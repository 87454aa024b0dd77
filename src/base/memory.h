/* memory.h - large aligned buffers. */
#ifndef K3_BASE_MEMORY_H
#define K3_BASE_MEMORY_H

#include <stddef.h>

/* Kernels may read up to this many bytes past the last block of a row (quants.md section 6), so every buffer
 * that holds weights or activations is this much longer than what it holds. */
#define K3_BUFFER_PAD 64

/* Memory that is read from end to end, as weights are, lies in huge pages if the system has some: the processor then
 * misses its table of pages 512 times less often. */
#define K3_HUGE_PAGE ((size_t)2 << 20)

/* n * size bytes plus K3_BUFFER_PAD, aligned to 64 bytes; NULL when memory is out or the product overflows. Only
 * the pad is zeroed: touching all of a large buffer takes as long as filling it. End with free(). */
void *k3_buffer_alloc(size_t n, size_t size);

/* Divides one buffer into pieces: added up with `base` NULL for the size of the buffer, then once more with the
 * buffer for the pieces. So what is needed can be known before any of it is allocated. */
struct k3_layout {
    unsigned char *base;
    size_t bytes; /* of the pieces so far */
};

/* A piece of n * size bytes, aligned and padded as k3_buffer_alloc does it; NULL while `base` is. The caller knows that
 * the sizes do not overflow. */
void *k3_layout_add(struct k3_layout *layout, size_t n, size_t size);

#endif
