/* launches.h - what decoding a token asks of a GPU: launches, bytes and operations of each kernel, counted by walking the
 * layers as src/gpu/ does. tests/bench/test_launches.c compares it with what the emulator counts. */
#ifndef K3_BENCH_LAUNCHES_H
#define K3_BENCH_LAUNCHES_H

#include "model/model.h"

enum k3_gpu_kind {
    K3_GPU_KERNEL,
    K3_GPU_TRANSFER, /* between device and host */
    K3_GPU_WAIT      /* of the host for the device */
};

/* One kernel, or one kind of call of the host. What grows with the context is for each key of it, this token's included. */
struct k3_gpu_work {
    const char *name;
    enum k3_gpu_kind kind;
    double calls;
    double bytes, key_bytes; /* of device memory, read or written, each once in a launch; or copied */
    double ops, key_ops;     /* instructions of a thread: multiplications, additions, dp4a */
    double chain_s;          /* in which few threads work, one step after the other */
    double key_s;            /* that a key takes if nothing else bounds */
};

#define K3_MAX_GPU_WORKS 24

struct k3_gpu_token {
    struct k3_gpu_work works[K3_MAX_GPU_WORKS];
    uint32_t n_works;
};

/* Of the sizes `hp` with the types of the published file, and of a model file. */
void k3_gpu_token_of_sizes(const struct k3_hparams *hp, struct k3_gpu_token *token);
void k3_gpu_token_of_plan(const struct k3_plan *plan, struct k3_gpu_token *token);

#endif
