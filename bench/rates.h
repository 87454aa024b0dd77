/* rates.h - the rates of kernels, as k3bench kernels --json measured them. */
#ifndef K3_BENCH_RATES_H
#define K3_BENCH_RATES_H

#include "gguf/types.h"
#include "base/error.h"

struct k3_rates {
    double one[K3_TYPE_COUNT],
        many[K3_TYPE_COUNT]; /* multiply-adds a second of one thread; 0: not measured */
    double bandwidth;        /* bytes a second, with the most threads */
    double cores;
};

/* The best implementation counts: with one column from the cache, and with the most columns. */
k3_status k3_rates_read(const char *path, struct k3_rates *rates, struct k3_error *err);

#endif
