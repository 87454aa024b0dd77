/* arena.c - a list of chunks; each piece is cut from the newest one that has room. */
#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)64 * 1024)

struct k3_arena_chunk {
    struct k3_arena_chunk *next;
    size_t used, size; /* bytes of `data` */
    alignas(max_align_t) unsigned char data[];
};

void *k3_arena_alloc(struct k3_arena *arena, size_t size)
{
    const size_t align = alignof(max_align_t);
    if (size > SIZE_MAX / 2) return NULL;
    size = (size + align - 1) / align * align;

    struct k3_arena_chunk *chunk = arena->chunks;
    if (!chunk || chunk->size - chunk->used < size) {
        size_t room = size > CHUNK_BYTES ? size : CHUNK_BYTES;
        chunk = calloc(1, sizeof *chunk + room);
        if (!chunk) return NULL;
        chunk->size = room;
        chunk->next = arena->chunks;
        arena->chunks = chunk;
    }
    void *piece = chunk->data + chunk->used;
    chunk->used += size;
    return piece;
}

char *k3_arena_copy(struct k3_arena *arena, const void *bytes, size_t n)
{
    if (n == SIZE_MAX) return NULL;
    char *copy = k3_arena_alloc(arena, n + 1);
    if (copy && n) memcpy(copy, bytes, n);
    return copy;
}

void k3_arena_free(struct k3_arena *arena)
{
    while (arena->chunks) {
        struct k3_arena_chunk *next = arena->chunks->next;
        free(arena->chunks);
        arena->chunks = next;
    }
}
