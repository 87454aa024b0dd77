/* pcie.c - see pcie.h. The files: Documentation/ABI/testing/sysfs-bus-pci of Linux. */
#include "base/pcie.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The whole number at the beginning of a file; 0 if there is none, or 255, which is the width of a link that is down. */
static uint32_t read_number(const char *folder, const char *file)
{
    char path[PATH_MAX];
    unsigned value;
    int n = snprintf(path, sizeof path, "%s/%s", folder, file);
    if (n < 0 || (size_t)n >= sizeof path) return 0;
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    bool found = fscanf(f, "%3u", &value) == 1 && value < 255;
    fclose(f);
    return found ? value : 0;
}

/* Of whole GT/s of a lane: 2.5, then 5, 8, and twice as much with each generation from there on. */
static uint32_t generation_of(uint32_t speed)
{
    static const uint32_t least[] = {2, 5, 8, 16, 32, 64, 128};
    uint32_t n = 0;
    while (n < sizeof least / sizeof *least && speed >= least[n]) n++;
    return n;
}

struct k3_pcie k3_pcie_link(const char *devices, const char *address)
{
    char folder[PATH_MAX];
    struct k3_pcie link = {0};
    int n = snprintf(folder, sizeof folder, "%s/%s", devices, address);
    if (n < 0 || (size_t)n >= sizeof folder) return link;
    for (char *p = folder + strlen(devices); *p; p++)
        if (*p >= 'A' && *p <= 'F') *p = (char)(*p - 'A' + 'a');

    link.width = read_number(folder, "current_link_width");
    link.max_width = read_number(folder, "max_link_width");
    link.generation = generation_of(read_number(folder, "max_link_speed"));
    /* The folder is a link into a tree, where the slot's is above. */
    uint32_t slot = generation_of(read_number(folder, "../max_link_speed"));
    if (slot && slot < link.generation) link.generation = slot;
    return link;
}
