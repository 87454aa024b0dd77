/* vectors_sets.c - which set of loops goes with which implementation of the products. */
#include "base/cpu.h"
#include "ops/vectors_internal.h"

static bool runs_anywhere(const struct k3_cpu *cpu)
{
    (void)cpu;
    return true;
}

#if defined(__x86_64__)
static bool has_avx2(const struct k3_cpu *cpu)
{
    return cpu->avx2;
}

static bool has_avx512(const struct k3_cpu *cpu)
{
    return cpu->avx512;
}
#endif

/* Best first. `kernels` is what the names of the implementations that need the same processor begin with. */
static const struct set {
    const struct k3_vectors *vectors;
    bool (*runs_on)(const struct k3_cpu *cpu);
    const char *kernels[2];
} sets[] = {
#if defined(__x86_64__)
    {&k3_vectors_avx512, has_avx512, {"avx512", "amx"}},
    {&k3_vectors_avx2, has_avx2, {"avx2", "avxvnni"}},
#endif
    {&k3_vectors_plain, runs_anywhere, {"", ""}},
};

#define N_SETS (sizeof sets / sizeof *sets)

const struct k3_vectors *k3_vectors_at(size_t i)
{
    for (size_t k = 0; k < N_SETS; k++)
        if (sets[k].runs_on(k3_cpu_features()) && i-- == 0) return sets[k].vectors;
    return NULL;
}

static bool begins_with(const char *text, const char *begin)
{
    return strncmp(text, begin, strlen(begin)) == 0;
}

const struct k3_vectors *k3_vectors_for(const struct k3_kernels *kernels)
{
    const struct set *set = sets;
    while (!begins_with(kernels->name, set->kernels[0]) && !begins_with(kernels->name, set->kernels[1]))
        set++;
    return set->vectors;
}
