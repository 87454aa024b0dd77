/* placement.c - see placement.h. */
#include "engine/placement.h"

static k3_status find(const struct k3_plan *plan, const struct k3_model_options *options,
                      struct k3_placement *placement, struct k3_error *err)
{
    const struct k3_gpu_backend *backend = placement->backend;
    if (!backend) return k3_fail(err, K3_ERR_UNSUPPORTED, "this program was built without support for GPUs");
    if (options->exact) return k3_fail(err, K3_ERR_UNSUPPORTED, "the GPU has no exact arithmetic");
    k3_status status = backend->find(options->gpu > 0 ? options->gpu - 1 : K3_GPU_BEST, &placement->gpu, err);
    return status == K3_OK ? backend->check(plan, err) : status;
}

struct k3_placement k3_placement_choose(const struct k3_plan *plan, const struct k3_model_options *options,
                                        struct k3_error *why)
{
    const struct k3_gpu_backend *backend = k3_gpu_backend();
    struct k3_placement placement = {.backend = backend};
    bool asked = options->gpu > 0, off = options->gpu < 0;
    why->status = K3_OK;
    if (off || (!asked && (!backend || backend->emulated())) || find(plan, options, &placement, why) != K3_OK)
        placement.backend = NULL;
    return placement;
}
