/* access.cc - what a launch's pointers and shared arrays are, and the checks of each access to them. */
#include "block.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace k3_simt
{

/* block.cc */
bool begin_launch_of(const char *kernel, dim3 blocks, dim3 threads);

static const unsigned max_pointers = 64, max_shared = 32;
static const size_t shared_limit = 48u
                                   << 10; /* of arrays whose size the compiler knows, on every architecture */

static binding bindings[max_pointers];
static unsigned n_bindings;
static const char *kernel_name, *argument_text;
static shared_memory shared_arrays[max_shared];
static unsigned n_shared;
static size_t shared_bytes;

static void *must(void *p)
{
    if (p) return p;
    perror("simt: no memory");
    abort();
}

/* ---- arguments ---- */

/* The text of argument i of a list, cut to what fits. */
static void argument_name(const char *list, unsigned i, char *name, size_t capacity)
{
    int depth = 0;
    size_t n = 0;
    for (const char *p = list; *p; p++) {
        if (*p == '(' || *p == '[') depth++;
        if (*p == ')' || *p == ']') depth--;
        if (*p == ',' && depth == 0) {
            if (i-- == 0) break;
            continue;
        }
        if (i == 0 && n + 1 < capacity && !(n == 0 && *p == ' ')) name[n++] = *p;
    }
    name[n] = 0;
}

bool launch_begin(const char *kernel, const char *arguments, dim3 blocks, dim3 threads)
{
    kernel_name = kernel;
    argument_text = arguments;
    copy_forget(); /* of a launch that failed: it knows these arrays */
    for (unsigned i = 0; i < n_shared; i++) {
        free(shared_arrays[i].data);
        free(shared_arrays[i].shadows);
        free(shared_arrays[i].in_flight);
    }
    n_shared = 0;
    n_bindings = 0;
    shared_bytes = 0;
    count_launch(kernel);
    return begin_launch_of(kernel, blocks, threads);
}

/* The kernel may write to `a`: its accesses are recorded from now on. Elements come before they are accessed, so
 * nothing is recorded yet when the granule shrinks. */
static void watch(allocation *a, size_t element)
{
    size_t granule = element % 4 == 0 ? 4 : element % 2 == 0 ? 2 : 1;
    if (a->launch != now.launch_start) {
        a->launch = now.launch_start;
        a->granule = 4;
    }
    if (granule < a->granule) a->granule = granule;
    size_t n = a->bytes / a->granule + 1;
    if (n <= a->shadow_capacity) return;
    free(a->shadows);
    a->shadows = static_cast<shadow *>(must(calloc(n, sizeof(shadow))));
    a->shadow_capacity = n;
}

const binding *launch_bind(unsigned i, const void *pointer, size_t element, size_t alignment, bool writes,
                           bool constant)
{
    static binding none;
    if (n_bindings == max_pointers) {
        fail_on_host("%s has more than %u pointers", kernel_name, max_pointers);
        return &none;
    }
    binding *b = &bindings[n_bindings++];
    argument_name(argument_text, i, b->name, sizeof b->name);
    b->memory = pointer ? find_allocation(pointer) : nullptr;
    b->constant = constant;
    if (!pointer) return b;
    if (!b->memory || b->memory->freed)
        fail_on_host("%s: argument %s points at %s", kernel_name, b->name,
                     b->memory ? "device memory that was freed" : "no device memory");
    else if (reinterpret_cast<uintptr_t>(pointer) % alignment)
        fail_on_host("%s: argument %s is not at a multiple of %zu bytes", kernel_name, b->name, alignment);
    else if (writes || b->memory->launch == now.launch_start)
        watch(b->memory, element);
    return b;
}

/* ---- global memory ---- */

void out_of_bounds(const char *space, const char *name, ptrdiff_t index, ptrdiff_t first, ptrdiff_t end)
{
    fail("it accesses %s[%td] in %s memory, whose elements are %td to %td", name, index, space, first,
         end - 1);
}

/* The index in elements of that size, from the beginning of the allocation. */
static size_t place_of(const allocation *a, const void *address)
{
    return static_cast<size_t>(static_cast<const unsigned char *>(address) - a->base);
}

void check_global_read(const binding *b, const void *address, size_t bytes)
{
    allocation *a = b->memory;
    size_t at = place_of(a, address);
    if (counting) count_access(a, at, bytes, false);
    for (size_t i = at; a->written && i < at + bytes; i++)
        if (!a->written[i]) fail("it reads byte %zu of %s (%s), which nothing wrote", i, b->name, a->name);
    if (!watched(a)) return;
    for (size_t i = at; i < at + bytes; i += a->granule) {
        const char *other;
        shadow *s = &a->shadows[i / a->granule];
        if (!note_read(s, &other))
            fail("it reads byte %zu of %s (%s), which %s writes", i, b->name, a->name, other);
        if (b->constant && s->write.interval >= now.launch_start)
            fail("it reads byte %zu of %s (%s), which is declared constant but was written by this launch", i,
                 b->name, a->name);
    }
}

void check_global_write(const binding *b, const void *address, size_t bytes)
{
    allocation *a = b->memory;
    size_t at = place_of(a, address);
    if (counting) count_access(a, at, bytes, true);
    if (a->written) memset(a->written + at, 1, bytes);
    for (size_t i = at; i < at + bytes; i += a->granule) {
        const char *other;
        if (!note_write(&a->shadows[i / a->granule], &other))
            fail("it writes byte %zu of %s (%s), which %s reads or writes", i, b->name, a->name, other);
    }
}

/* ---- shared memory ---- */

shared_memory *shared_array(const void *key, const char *name, size_t n, size_t element)
{
    for (unsigned i = 0; i < n_shared; i++)
        if (shared_arrays[i].key == key) return &shared_arrays[i];
    shared_bytes += n * element;
    if (n_shared == max_shared || shared_bytes > shared_limit)
        fail("with %s the block has %zu bytes of shared memory in %u arrays; it may have %zu in %u", name,
             shared_bytes, n_shared + 1, shared_limit, max_shared);
    shared_memory *m = &shared_arrays[n_shared++];
    *m = {key, name, n, element, nullptr, nullptr, nullptr};
    m->data = static_cast<unsigned char *>(must(aligned_alloc(64, (n * element + 63) / 64 * 64)));
    m->shadows = static_cast<shadow *>(must(calloc(n, sizeof(shadow))));
    m->in_flight = static_cast<unsigned char *>(must(calloc(n, 1)));
    return m;
}

/* What earlier blocks did has no part in this one: each has shared memory of its own. */
static shadow *of_this_block(const shared_memory *m, size_t index)
{
    if (m->in_flight[index]) fail("it accesses %s[%zu], to which a copy is under way", m->name, index);
    shadow *s = &m->shadows[index];
    if (s->write.interval < now.block_start) s->write = {};
    if (s->read.interval < now.block_start) s->read = {};
    return s;
}

void check_shared_read(const shared_memory *m, size_t index)
{
    const char *other;
    shadow *s = of_this_block(m, index);
    if (!s->write.interval) fail("it reads %s[%zu], which nothing in this block wrote", m->name, index);
    if (!note_read(s, &other)) fail("it reads %s[%zu], which %s writes", m->name, index, other);
}

void check_shared_write(const shared_memory *m, size_t index)
{
    const char *other;
    if (!note_write(of_this_block(m, index), &other))
        fail("it writes %s[%zu], which %s reads or writes", m->name, index, other);
}

} // namespace k3_simt
