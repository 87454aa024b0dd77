/* gpu_cases.h - the kernels of a GPU at K3's sizes, laid out so that they can be timed. */
#ifndef K3_BENCH_GPU_CASES_H
#define K3_BENCH_GPU_CASES_H

#include "gpu/runtime.h"

/* Where cases get their arrays from. Weights, states and caches come from a pool larger than a device's cache, a new place
 * in each launch, as a token finds them; activations stay where they are. */
struct k3_gpu_lab {
    k3_stream stream;
    bool tiny; /* small sizes, for an emulated device */
    unsigned char *pool;
    size_t pool_bytes, at;
    unsigned char *activations; /* [K3_GPU_LAB_ARRAYS][array_bytes] */
    size_t array_bytes;
};

#define K3_GPU_LAB_ARRAYS 11

/* K3_ERR_UNSUPPORTED: no GPU. Takes `pool_bytes` and a third more of its memory. */
k3_status k3_gpu_lab_open(int number, size_t pool_bytes, struct k3_gpu_lab *lab, struct k3_gpu *gpu,
                          struct k3_error *err);
void k3_gpu_lab_close(struct k3_gpu_lab *lab);

/* Waits for what was launched. NULL, or what went wrong. */
const char *k3_gpu_lab_wait(const struct k3_gpu_lab *lab);

/* One kernel and one number of tokens. run launches it once and returns what that moves and multiplies; at least. */
struct k3_gpu_moved {
    double bytes, multiply_adds;
};
struct k3_gpu_case {
    const char *name;
    size_t tokens;
    struct k3_gpu_moved (*run)(struct k3_gpu_lab *lab, size_t tokens);
    bool on_matrix_units; /* its limit; otherwise it is the memory's rate */
};

/* A name of NULL ends the list. The first two are the limits: a copy, and the matrix units. */
extern const struct k3_gpu_case k3_gpu_cases[];

#endif
