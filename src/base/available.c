/* available.c - how much memory there is to take: the system's MemAvailable and the limits of control groups.
 */
#include "base/memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define CGROUP_ROOT "/sys/fs/cgroup"

/* The number that a file begins with; UINT64_MAX ("max", no such file) when it begins with none. */
static uint64_t read_number(const char *folder, const char *name)
{
    char path[PATH_MAX + 32];
    uint64_t value = UINT64_MAX;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    if (!f) return UINT64_MAX;
    if (fscanf(f, "%" SCNu64, &value) != 1) value = UINT64_MAX;
    fclose(f);
    return value;
}

/* The system's own estimate: free memory and what can be taken back without swapping. */
static uint64_t system_available(void)
{
    uint64_t kib = 0;
    char line[256];
    FILE *f = fopen("/proc/meminfo", "re");
    if (!f) return UINT64_MAX;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1) break;
    fclose(f);
    return kib ? kib * 1024 : UINT64_MAX;
}

/* What is left under the limit of a group (version 2). Pages of files that could be dropped count as taken.
 */
static uint64_t group_left(const char *folder)
{
    uint64_t limit = read_number(folder, "memory.max"), used = read_number(folder, "memory.current");
    if (limit == UINT64_MAX || used == UINT64_MAX) return UINT64_MAX;
    return limit > used ? limit - used : 0;
}

/* The least that is left in the process's group and those around it. */
static uint64_t groups_available(void)
{
    char line[PATH_MAX], folder[PATH_MAX + sizeof CGROUP_ROOT] = "";
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f) return UINT64_MAX;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "0::/", 4) == 0)
            snprintf(folder, sizeof folder, CGROUP_ROOT "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
    fclose(f);

    uint64_t least = UINT64_MAX;
    while (strlen(folder) >= strlen(CGROUP_ROOT)) {
        uint64_t left = group_left(folder);
        if (left < least) least = left;
        *strrchr(folder, '/') = 0;
    }
    return least;
}

uint64_t k3_memory_available(void)
{
    uint64_t system = system_available(), groups = groups_available();
    uint64_t least = system < groups ? system : groups;
    return least == UINT64_MAX ? 0 : least;
}
