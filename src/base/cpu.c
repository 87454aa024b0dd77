/* cpu.c - processor features and count. */
#include "base/cpu.h"

#include <pthread.h>
#include <sched.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static struct k3_cpu features;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)
/* The tiles are 8 KiB that every switch of threads saves, so Linux wants to be asked first, once for all threads
 * of the process. Older kernels do not know the question; there the tiles stay unused. */
static bool linux_lets_us_use_tiles(void)
{
    const long arch_req_xcomp_perm = 0x1023, xfeature_xtiledata = 18; /* asm/prctl.h, asm/fpu/types.h */
    return syscall(SYS_arch_prctl, arch_req_xcomp_perm, xfeature_xtiledata) == 0;
}
#endif

static void detect(void)
{
#if defined(__x86_64__)
    /* __builtin_cpu_supports also asks the operating system whether it saves the wide registers. */
    __builtin_cpu_init();
    unsigned a, b, c, d;
    features.avx2 =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    if (__get_cpuid(1, &a, &b, &c, &d)) features.avx2 = features.avx2 && (c & bit_F16C);
    features.avx512 = features.avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
                      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bitalg") &&
                      __builtin_cpu_supports("gfni") && __builtin_cpu_supports("bmi2");

    const unsigned amx_tile_and_int8 = 1u << 24 | 1u << 25;
    if (features.avx512 && __get_cpuid_count(7, 0, &a, &b, &c, &d))
        features.amx = (d & amx_tile_and_int8) == amx_tile_and_int8 && linux_lets_us_use_tiles();
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) features.avxvnni = features.avx2 && (a & 1u << 4);
#endif
}

const struct k3_cpu *k3_cpu_features(void)
{
    pthread_once(&once, detect);
    return &features;
}

int k3_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}
