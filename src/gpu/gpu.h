/* gpu.h - the device that is a GPU: dense weights, sessions and activations are in its memory, and it does all but the
 * routed experts, or a share of that (model/share.h).
 *
 * A build without one has no backend (-Dgpu=none); with -Dgpu=emulated, the device is an emulator on the host, for tests.
 * Results have the CPU's bits: docs/gpu.md. */
#ifndef K3_GPU_GPU_H
#define K3_GPU_GPU_H

#include "base/pcie.h"
#include "model/device.h"

/* A device that was found. */
struct k3_gpu {
    int index;
    char name[64];
    uint64_t bytes, free_bytes; /* of its memory, when it was found */
    struct k3_pcie link;
};

#define K3_GPU_BEST (-1)

/* Bytes of device memory. */
struct k3_gpu_sizes {
    uint64_t dense;   /* weights */
    uint64_t scratch; /* activations of a batch, and what loading needs */
    uint64_t state;   /* of a session without tokens */
    uint64_t token;   /* for each token of a session */
};

struct k3_gpu_options {
    size_t max_batch;        /* most tokens that begin() will be given */
    k3_progress_fn progress; /* of reading weights, in bytes; may be NULL */
    void *progress_ctx;
    const struct k3_share *share; /* NULL: the whole model */
    bool verify;                  /* weights are read back from the device and compared */
};

struct k3_gpu_backend {
    /* Whether devices are emulated: slow, so only for those who ask for one. */
    bool (*emulated)(void);

    /* The device of that number, or the one with most free memory. K3_ERR_UNSUPPORTED: there is none. */
    k3_status (*find)(int number, struct k3_gpu *gpu, struct k3_error *err);

    /* Whether there are kernels for all of a share. K3_ERR_UNSUPPORTED: the sentence names what they cannot do. */
    k3_status (*check)(const struct k3_plan *plan, const struct k3_share *share, struct k3_error *err);

    /* What a device made for batches of that size will take. */
    struct k3_gpu_sizes (*sizes)(const struct k3_plan *plan, const struct k3_share *share, size_t max_batch);

    /* Reads the dense weights of a share that was checked. It and `plan` must outlive the device. */
    k3_status (*create)(const struct k3_plan *plan, const struct k3_gpu *gpu,
                        const struct k3_gpu_options *options, struct k3_device **device,
                        struct k3_error *err);
};

/* NULL: this build has none. */
const struct k3_gpu_backend *k3_gpu_backend(void);

#endif
