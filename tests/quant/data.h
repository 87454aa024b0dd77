/* data.h - the files of tests/data/quant, and memory that ends where it says it does. */
#ifndef TEST_QUANT_DATA_H
#define TEST_QUANT_DATA_H

#include "base/memory.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define VECTOR_N 1024 /* weights in each row of tests/data/quant/vectors */

/* The file's n bytes, which must be all of it; to be freed. */
static inline void *read_data(const char *name, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/quant/%s", K3_TEST_DATA, name);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s cannot be opened", path);
    char *bytes = malloc(n);
    assert_non_null(bytes);
    if (fread(bytes, 1, n, file) != n || fgetc(file) != EOF) fail_msg("%s does not have %zu bytes", path, n);
    fclose(file);
    return bytes;
}

/* The same for a file vectors/NAMESUFFIX. */
static inline void *read_vector(const char *name, const char *suffix, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "vectors/%s%s", name, suffix);
    return read_data(path, n);
}

/* n bytes, then `after` bytes that may be read, then a page that may not. */
struct guarded {
    unsigned char *bytes;
    void *map;
    size_t map_size;
};

static inline struct guarded guarded_alloc(size_t n, size_t after)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), usable = (n + after + page - 1) / page * page;
    struct guarded g = {.map_size = usable + page};
    g.map = mmap(NULL, g.map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    assert_int_equal(mprotect((char *)g.map + usable, page, PROT_NONE), 0);
    g.bytes = (unsigned char *)g.map + usable - after - n;
    return g;
}

static inline void guarded_free(struct guarded *g)
{
    munmap(g->map, g->map_size);
}

#endif
