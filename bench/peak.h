/* peak.h - the limits of this machine that kernels are compared with: clock, instructions, memory. */
#ifndef K3_BENCH_PEAK_H
#define K3_BENCH_PEAK_H

#include "gguf/types.h"

#include <stddef.h>
#include <stdint.h>

/* Multiply-adds that the instructions of an implementation can begin in a cycle of one core. */
struct k3_peak {
    double per_cycle; /* 0: not known */
    const char *definition;
};

struct k3_peak k3_peak_of(const char *variant, enum k3_type type);

/* Cycles a second, by additions that wait for each other: one a cycle on every processor K3 is built for. Takes 2 ms. */
double k3_peak_clock(void);

/* Reads n bytes at a multiple of 64 (less what is left of n over a multiple), as fast as one core can, and returns something
 * that depends on all of them. */
uint64_t k3_peak_read(const void *bytes, size_t n);

#endif
