/* steps.h - how long each kind of step of the walk took, as an observer of the model sees them. */
#ifndef K3_BENCH_STEPS_H
#define K3_BENCH_STEPS_H

#include <k3/k3.h>

#define K3_MAX_STEPS 16 /* kinds; further ones are not told apart from what no step is */

/* Zero-initialise. Kinds are in the order in which they came first. */
struct k3_steps {
    const char *names[K3_MAX_STEPS]; /* as the observer gives them: they live as long as the program */
    uint64_t ns[K3_MAX_STEPS];
    uint32_t n;
};

/* As step of struct k3_observer. Reads are left out: they go on beside all else. */
void k3_steps_add(void *steps, const char *name, int layer, uint64_t start_ns, uint64_t end_ns);

/* Times become 0, kinds stay. */
void k3_steps_begin(struct k3_steps *steps);

#endif
