/* host.c - how much memory this machine has for us. */
#include "base/host.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The number after `key` at the beginning of a line of a file; false if there is none. */
static bool read_line(const char *path, const char *key, uint64_t *value)
{
    char line[256];
    bool found = false;
    FILE *f = fopen(path, "re");
    if (!f) return false;
    while (!found && fgets(line, sizeof line, f)) {
        unsigned long long number;
        if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), " %llu", &number) == 1) {
            *value = number;
            found = true;
        }
    }
    fclose(f);
    return found;
}

/* The two versions of control groups, and where each keeps what. */
static const struct version {
    const char *controllers; /* in /proc/self/cgroup */
    const char *mount;
    const char *limit, *used, *cache; /* files; the last is a line of memory.stat */
} versions[] = {
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"},
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file"},
};

/* A number in a file of a group's folder. */
static bool read_file(const char *folder, const char *file, const char *key, uint64_t *value)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", folder, file);
    return n > 0 && (size_t)n < sizeof path && read_line(path, key, value);
}

/* Lowers *memory to what one control group leaves. Its page cache counts as free: the kernel gives it up first. */
static void apply_group(const struct version *v, const char *folder, struct k3_host_memory *memory)
{
    uint64_t limit, used = 0, cache = 0;
    if (!read_file(folder, v->limit, "", &limit)) return; /* "max", or no such controller */
    read_file(folder, v->used, "", &used);
    read_file(folder, "memory.stat", v->cache, &cache);
    used = used > cache ? used - cache : 0;
    uint64_t left = limit > used ? limit - used : 0;
    if (limit < memory->total) memory->total = limit;
    if (left < memory->available) memory->available = left;
}

/* The group at `path` below the mount, and all above it. */
static void apply_groups(const struct version *v, const char *root, const char *path,
                         struct k3_host_memory *memory)
{
    char folder[PATH_MAX];
    int top = snprintf(folder, sizeof folder, "%s%s", root, v->mount);
    if (top < 0 || (size_t)top + strlen(path) >= sizeof folder) return;
    strcpy(folder + top, path);
    for (;;) {
        apply_group(v, folder, memory);
        char *slash = strrchr(folder + top, '/');
        if (!slash) return;
        *slash = 0;
    }
}

/* Lines of /proc/self/cgroup: number ":" controllers ":" path. */
static void apply_all_groups(const char *root, struct k3_host_memory *memory)
{
    char line[PATH_MAX];
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *f = fopen(line, "re");
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        char *rest = line;
        const char *number = strsep(&rest, ":"), *controllers = strsep(&rest, ":"),
                   *path = strsep(&rest, "\n");
        if (!number || !controllers || !path) continue;
        for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
            if (!strcmp(controllers, versions[i].controllers)) apply_groups(&versions[i], root, path, memory);
    }
    fclose(f);
}

struct k3_host_memory k3_host_memory_at(const char *root)
{
    struct k3_host_memory memory = {0, 0};
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    read_line(path, "MemTotal:", &memory.total);
    read_line(path, "MemAvailable:", &memory.available);
    memory.total *= 1024; /* they are in KiB */
    memory.available *= 1024;
    apply_all_groups(root, &memory);
    return memory;
}

struct k3_host_memory k3_host_memory(void)
{
    return k3_host_memory_at("");
}
