/* placement.h - where the dense weights and the sessions of a model are: in the memory of the host, or of a GPU. */
#ifndef K3_ENGINE_PLACEMENT_H
#define K3_ENGINE_PLACEMENT_H

#include "gpu/gpu.h"

struct k3_placement {
    const struct k3_gpu_backend *backend; /* NULL: the host */
    struct k3_gpu gpu;
};

/* The GPU that options ask for, if it can compute the model. If not, `why` has the reason, or is K3_OK when none was
 * expected: in a build without GPUs, or with an emulated one. */
struct k3_placement k3_placement_choose(const struct k3_plan *plan, const struct k3_model_options *options,
                                        struct k3_error *why);

#endif
