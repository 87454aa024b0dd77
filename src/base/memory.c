/* memory.c - large aligned buffers. */
#include "base/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void *k3_buffer_alloc(size_t n, size_t size)
{
    if (size && n > (SIZE_MAX / 2) / size) return NULL;
    size_t used = n * size, bytes = (used + K3_BUFFER_PAD + 63) / 64 * 64;
    unsigned char *buffer = aligned_alloc(64, bytes);
    if (buffer) memset(buffer + used, 0, bytes - used);
    return buffer;
}

void *k3_layout_add(struct k3_layout *layout, size_t n, size_t size)
{
    void *piece = layout->base ? layout->base + layout->bytes : NULL;
    layout->bytes += (n * size + K3_BUFFER_PAD + 63) / 64 * 64;
    return piece;
}
