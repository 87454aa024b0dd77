/* memory.h - large aligned buffers. */
#ifndef K3_BASE_MEMORY_H
#define K3_BASE_MEMORY_H

#include <stddef.h>

/* Kernels may read up to this many bytes past the last block of a row (quants.md section 6), so every buffer
 * that holds weights or activations is this much longer than what it holds. */
#define K3_BUFFER_PAD 64

/* n * size bytes plus K3_BUFFER_PAD, zeroed, aligned to 64 bytes; NULL when memory is out or the product
 * overflows. End with free(). */
void *k3_buffer_alloc(size_t n, size_t size);

#endif
