/* steps.c - adds up the steps of the walk by kind. */
#include "steps.h"

#include <string.h>

void k3_steps_add(void *ctx, const char *name, int layer, uint64_t start_ns, uint64_t end_ns)
{
    struct k3_steps *steps = ctx;
    uint32_t i = 0;
    (void)layer;
    if (strcmp(name, "read") == 0) return;
    while (i < steps->n && strcmp(steps->names[i], name) != 0) i++;
    if (i == K3_MAX_STEPS) return;
    if (i == steps->n) steps->names[steps->n++] = name;
    steps->ns[i] += end_ns - start_ns;
}

void k3_steps_begin(struct k3_steps *steps)
{
    memset(steps->ns, 0, sizeof steps->ns);
}
