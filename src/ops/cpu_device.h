/* cpu_device.h - the device that is the CPU, and the reference for every other. */
#ifndef K3_OPS_CPU_DEVICE_H
#define K3_OPS_CPU_DEVICE_H

#include "ops/compute.h"

struct k3_cpu_options {
    bool exact;              /* f32 activations and cache */
    size_t max_batch;        /* most tokens that begin() will be given */
    k3_progress_fn progress; /* of reading weights, in bytes; may be NULL */
    void *progress_ctx;
    const struct k3_share *share; /* NULL: the whole model */
};

/* Reads and checks the dense weights of a plan. `plan`, `pool` and share must outlive the device. */
k3_status k3_cpu_device_create(const struct k3_plan *plan, struct k3_pool *pool,
                               const struct k3_cpu_options *options, struct k3_device **device,
                               struct k3_error *err);

/* The part of a CPU device that computes experts for it. */
struct k3_compute *k3_cpu_device_compute(struct k3_device *device);

/* Shows intermediate values of this device; NULL: no longer. */
void k3_cpu_device_set_tap(struct k3_device *device, const struct k3_tap *tap);

/* Bytes that a device of these options takes: known before it is created. */
struct k3_cpu_sizes {
    uint64_t dense;   /* weights */
    uint64_t scratch; /* activations of a batch */
    uint64_t state;   /* of a session without tokens */
    uint64_t token;   /* of cache, for each token of a session */
};

/* The longest row of any matrix, experts included: what a k3_compute must have room for. */
size_t k3_longest_row(const struct k3_plan *plan);

struct k3_cpu_sizes k3_cpu_device_sizes(const struct k3_plan *plan, const struct k3_share *share,
                                        int n_threads, bool exact, size_t batch);

#endif
