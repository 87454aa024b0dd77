/* count.cc - what launches and copies take, for a test of formulas that say it without a device.
 *
 * The bytes of a launch are those of device memory that it reads, each once, and those that it writes: what would go over
 * the bus to that memory if the caches of a device held everything else. Each byte of an allocation has the number of the
 * last launch that touched it. */
#include "memory.h"

#include "host.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace k3_simt
{

bool counting;

static k3_simt_count counts[64];
static size_t n_counts;
static k3_simt_count *of_launch;
static uint32_t launch_number;

/* The count of that name up to a "<", which begins a kernel's parameters. */
static k3_simt_count *count_of(const char *name)
{
    size_t n = strcspn(name, "<");
    for (size_t i = 0; i < n_counts; i++)
        if (strlen(counts[i].name) == n && strncmp(counts[i].name, name, n) == 0) return &counts[i];
    if (n_counts == sizeof counts / sizeof *counts || n >= sizeof counts->name) abort();
    snprintf(counts[n_counts].name, sizeof counts->name, "%.*s", static_cast<int>(n), name);
    return &counts[n_counts++];
}

void count_launch(const char *kernel)
{
    if (!counting) return;
    of_launch = count_of(kernel);
    of_launch->calls++;
    launch_number++;
}

void count_access(allocation *a, size_t at, size_t bytes, bool writes)
{
    uint32_t **touched = &a->touched[writes];
    if (!*touched) *touched = static_cast<uint32_t *>(calloc(a->bytes + 1, sizeof **touched));
    if (!*touched) abort();
    for (size_t i = at; i < at + bytes; i++) {
        of_launch->bytes += (*touched)[i] != launch_number;
        (*touched)[i] = launch_number;
    }
}

extern "C" void k3_simt_count_call(const char *name, size_t bytes)
{
    if (!counting) return;
    k3_simt_count *count = count_of(name);
    count->calls++;
    count->bytes += bytes;
}

extern "C" void k3_simt_count_begin(void)
{
    memset(counts, 0, sizeof counts);
    n_counts = 0;
    counting = true;
}

extern "C" size_t k3_simt_count_end(const k3_simt_count **list)
{
    counting = false;
    *list = counts;
    return n_counts;
}

} // namespace k3_simt
