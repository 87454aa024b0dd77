/* cpu.h - what this processor can do. */
#ifndef K3_BASE_CPU_H
#define K3_BASE_CPU_H

#include <stdbool.h>

/* Instruction sets that kernels are written for. A field is true when processor and operating system have it. */
struct k3_cpu {
    bool avx2;    /* AVX2, FMA, F16C and BMI2 */
    bool avxvnni; /* the 256-bit AVX-VNNI */
    bool avx512;  /* AVX2 as above, F, BW, DQ, VL, VNNI, VBMI, BITALG and GFNI */
    bool amx;     /* AVX-512 as above, AMX-TILE and AMX-INT8; the kernel has let this process use them */
};

/* Found once; safe to call from any thread. */
const struct k3_cpu *k3_cpu_features(void);

/* The number of processors this process may run on (its affinity mask), at least 1. */
int k3_cpu_count(void);

#endif
