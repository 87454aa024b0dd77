/* none.c - a build without a GPU backend. */
#include "gpu/gpu.h"

const struct k3_gpu_backend *k3_gpu_backend(void)
{
    return NULL;
}
