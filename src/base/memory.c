/* memory.c - large aligned buffers. */
#include "base/memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *k3_buffer_alloc(size_t n, size_t size)
{
    if (size && n > (SIZE_MAX / 2) / size) return NULL;
    size_t used = n * size, bytes = (used + K3_BUFFER_PAD + 63) / 64 * 64;
    bool large = bytes >= 2 * K3_HUGE_PAGE;
    unsigned char *buffer = NULL;
    if (posix_memalign((void **)&buffer, large ? K3_HUGE_PAGE : 64, bytes) != 0) return NULL;
    /* Whole huge pages only: what is beyond the buffer is not taken for it. */
    if (large) madvise(buffer, bytes / K3_HUGE_PAGE * K3_HUGE_PAGE, MADV_HUGEPAGE);
    memset(buffer + used, 0, bytes - used);
    return buffer;
}

void *k3_layout_add(struct k3_layout *layout, size_t n, size_t size)
{
    void *piece = layout->base ? layout->base + layout->bytes : NULL;
    layout->bytes += (n * size + K3_BUFFER_PAD + 63) / 64 * 64;
    return piece;
}
