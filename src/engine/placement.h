/* placement.h - which groups of the dense model (model/share.h), with their part of the sessions, are in the memory of the
 * host, and which in that of a GPU. Decided before anything is allocated. */
#ifndef K3_ENGINE_PLACEMENT_H
#define K3_ENGINE_PLACEMENT_H

#include "gpu/gpu.h"
#include "model/share.h"

/* Tokens computed together: at least, and if nothing speaks against it. */
#define K3_LEAST_BATCH 16
#define K3_USUAL_BATCH 512

/* A context that nobody asked for is at least this. */
#define K3_LEAST_CONTEXT 4096

/* There is room for one session and so many copies of its recurrent state. */
#define K3_PLANNED_COPIES 2

/* Bytes of those, where a session takes `state` and `token` for each of its tokens. */
static inline uint64_t k3_sessions_bytes(uint64_t state, uint64_t token, uint64_t context)
{
    return (1 + K3_PLANNED_COPIES) * state + context * token;
}

struct k3_placement {
    const struct k3_gpu_backend *backend; /* NULL: the host has everything */
    struct k3_gpu gpu;
    uint64_t vram_limit;             /* bytes of the GPU's memory to stay below */
    struct k3_share on_gpu, on_host; /* together: everything */
    bool is_split;                   /* both have something */
};

/* What options ask for, or else as much on the GPU as there is room and kernels for. `why` says why that is not
 * everything, or is K3_OK when nobody can wonder: in a build without GPUs, or with an emulated one. Fails when options ask
 * for what cannot be; only that there is no GPU to do it is no failure. */
k3_status k3_placement_choose(const struct k3_plan *plan, const struct k3_model_options *options,
                              struct k3_placement *placement, struct k3_error *why, struct k3_error *err);

#endif
