/* arena.h - memory that is handed out piece by piece and given back all at once. */
#ifndef K3_BASE_ARENA_H
#define K3_BASE_ARENA_H

#include <stddef.h>

/* Zero-initialise before first use. Not safe for two threads at a time. */
struct k3_arena {
    struct k3_arena_chunk *chunks; /* newest first; owned */
};

/* `size` zeroed bytes, aligned for any type, valid until k3_arena_free; NULL when memory is out. */
void *k3_arena_alloc(struct k3_arena *arena, size_t size);

/* A copy of n bytes with a terminating zero; NULL when memory is out. */
char *k3_arena_copy(struct k3_arena *arena, const void *bytes, size_t n);

/* Gives back everything and leaves the arena ready for use. */
void k3_arena_free(struct k3_arena *arena);

#endif
