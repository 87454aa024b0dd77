/* memory.cc - the emulated device's memory, and the rules of order (memory.h). */
#include "memory.h"

#include "fail.h"
#include "host.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/mman.h>

namespace k3_simt
{

clock now;

/* ---- order ---- */

static record of_now()
{
    record r{};
    r.interval = now.interval;
    r.warp_interval = now.warp_interval & 0xfff;
    r.warp = now.warp;
    r.lane = now.lane;
    return r;
}

/* Why an access now has no order with the recorded one; NULL if it has. */
static const char *conflict(const record &r)
{
    if (r.interval < now.launch_start) return nullptr;
    if (r.foreign || r.interval < now.block_start) return "a thread of another block";
    if (r.interval < now.interval) return nullptr;
    if (r.warp != now.warp) return "a thread of another warp, with no barrier between,";
    if (r.warp_interval < (now.warp_interval & 0xfff) || r.lane == now.lane) return nullptr;
    return "another thread of its warp, with no barrier between,";
}

bool note_read(shadow *s, const char **other)
{
    *other = conflict(s->write);
    record r = of_now(), old = s->read;
    if (old.interval >= now.launch_start) {
        r.foreign = old.foreign || old.interval < now.block_start;
        if (old.interval == now.interval && old.warp != r.warp) {
            r.warp = many_warps;
            r.lane = many_lanes;
        } else if (old.interval == now.interval && old.warp_interval == r.warp_interval &&
                   old.lane != r.lane) {
            r.lane = many_lanes;
        }
    }
    s->read = r;
    return !*other;
}

bool note_write(shadow *s, const char **other)
{
    *other = conflict(s->write);
    if (!*other) *other = conflict(s->read);
    s->write = of_now();
    return !*other;
}

/* ---- allocations ---- */

/* By address. Freed ones stay, without access, so that late uses are recognised. */
static std::map<const unsigned char *, allocation> allocations;

allocation *find_allocation(const void *address)
{
    const unsigned char *p = static_cast<const unsigned char *>(address);
    auto after = allocations.upper_bound(p);
    if (after == allocations.begin()) return nullptr;
    allocation *a = &(--after)->second;
    return p <= a->base + a->bytes ? a : nullptr;
}

static size_t mapped_bytes(size_t bytes)
{
    return (bytes + 8192) / 4096 * 4096; /* with a page that belongs to nobody */
}

static void *must(void *p)
{
    if (p && p != MAP_FAILED) return p;
    perror("simt: no memory");
    abort();
}

extern "C" void *k3_simt_alloc(const char *name, size_t bytes)
{
    void *p = must(mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    allocation a{};
    snprintf(a.name, sizeof a.name, "%s", name);
    a.base = static_cast<unsigned char *>(p);
    a.bytes = bytes;
    a.written = static_cast<unsigned char *>(must(calloc(bytes + 1, 1)));
    memset(p, 0xff, bytes);
    allocations[a.base] = a;
    return p;
}

extern "C" void k3_simt_free(void *device)
{
    if (!device) return;
    allocation *a = find_allocation(device);
    if (!a || a->base != device || a->freed) {
        fail_on_host("%s is freed, which is no device memory, or not any more", a ? a->name : "a pointer");
        return;
    }
    a->freed = true;
    mprotect(a->base, mapped_bytes(a->bytes), PROT_NONE);
    free(a->written);
    free(a->shadows);
    for (uint32_t *&touched : a->touched) {
        free(touched);
        touched = nullptr;
    }
    a->written = nullptr;
    a->shadows = nullptr;
}

/* The live allocation that holds all of a range, or NULL and a report. */
static allocation *range(const void *device, size_t bytes, const char *what)
{
    allocation *a = find_allocation(device);
    if (!a || a->freed) {
        fail_on_host("a copy %s the device at %s", what,
                     a ? "an array that was freed" : "an address that is no device memory");
        return nullptr;
    }
    size_t at = static_cast<size_t>(static_cast<const unsigned char *>(device) - a->base);
    if (bytes > a->bytes - at) {
        fail_on_host("a copy %s the device of %zu bytes from byte %zu of %s, which has %zu", what, bytes, at,
                     a->name, a->bytes);
        return nullptr;
    }
    return a;
}

extern "C" void k3_simt_put(void *device, const void *host, size_t bytes)
{
    allocation *a = range(device, bytes, "to");
    if (!a) return;
    memcpy(device, host, bytes);
    if (!a->written) return;
    if (bytes < a->bytes) {
        memset(a->written + (static_cast<unsigned char *>(device) - a->base), 1, bytes);
        return;
    }
    free(a->written);
    a->written = nullptr;
}

extern "C" void k3_simt_get(void *host, const void *device, size_t bytes)
{
    allocation *a = range(device, bytes, "from");
    if (!a) return;
    size_t at = static_cast<size_t>(static_cast<const unsigned char *>(device) - a->base);
    for (size_t i = at; a->written && i < at + bytes; i++)
        if (!a->written[i]) {
            fail_on_host("a copy from the device takes byte %zu of %s, which nothing wrote", i, a->name);
            break;
        }
    memcpy(host, device, bytes);
}

} // namespace k3_simt
