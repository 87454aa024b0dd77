/* memory.h - what the emulator knows of each piece of memory: whether it was written, and who touched it last.
 *
 * Two accesses of which one writes need an order: a barrier of the block between them, or one of the warp if both
 * are of one warp. Without it the result depends on which thread is faster. For each element there are two
 * records, of the last write and of the last reads, and an access is compared with them. Blocks have no order at
 * all inside a launch.
 *
 * Time is counted in intervals: a new one begins with every block (the emulator runs one after the other) and at
 * every barrier, so the number of an interval says what came before. */
#ifndef K3_SIMT_MEMORY_H
#define K3_SIMT_MEMORY_H

#include <cstddef>
#include <cstdint>

namespace k3_simt
{

/* ---- the clock, moved by block.cc ---- */

struct clock {
    uint64_t interval = 1;     /* of the thread that runs */
    uint64_t block_start = 1;  /* first interval of its block */
    uint64_t launch_start = 1; /* of its launch */
    unsigned warp, lane;       /* the thread */
    unsigned warp_interval;    /* barriers of its warp so far */
};
extern clock now;

/* ---- records ---- */

struct record {
    uint64_t interval : 39;
    uint64_t foreign : 1; /* other blocks of this launch read it too */
    uint64_t warp_interval : 12;
    uint64_t warp : 6; /* many_warps, if of several */
    uint64_t lane : 6; /* many_lanes */
};
static const unsigned many_warps = 63, many_lanes = 63;

struct shadow {
    record write{}, read{};
};

/* Notes an access; false if it conflicts with an earlier one, which `other` then describes. */
bool note_read(shadow *s, const char **other);
bool note_write(shadow *s, const char **other);

/* ---- device memory ---- */

struct allocation {
    char name[40];
    unsigned char *base;
    size_t bytes;
    bool freed;
    unsigned char *written; /* [bytes] whether it ever was; NULL: all of it; owned */
    uint64_t launch;        /* the last launch that may write it */
    size_t granule;         /* bytes that share a shadow in that launch: the smallest element bound to it */
    shadow *shadows;        /* [bytes / granule, rounded up], owned */
    size_t shadow_capacity; /* in shadows */
    uint32_t *touched[2];   /* [bytes] number of the launch that last read, and wrote: count.cc; NULL or owned */
};

/* Whether the kernel that runs may write to it. */
static inline bool watched(const allocation *a)
{
    return a->launch == now.launch_start;
}

/* ---- counts (count.cc) ---- */

extern bool counting;
void count_launch(const char *kernel);
void count_access(allocation *a, size_t at, size_t bytes, bool writes);

/* The allocation that an address lies in, freed ones included, or NULL. Its end belongs to it. */
allocation *find_allocation(const void *address);

/* A parameter of the kernel that runs: one pointer. */
struct binding {
    char name[48]; /* the argument as the launch writes it */
    allocation *memory;
    bool constant; /* declared as not written during the launch */
};

} // namespace k3_simt

#endif
