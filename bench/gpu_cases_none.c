/* gpu_cases_none.c - gpu_cases.h, in a program without support for GPUs. */
#include "gpu_cases.h"

const struct k3_gpu_case k3_gpu_cases[] = {{0}};

k3_status k3_gpu_lab_open(int number, size_t pool_bytes, struct k3_gpu_lab *lab, struct k3_gpu *gpu,
                          struct k3_error *err)
{
    (void)number;
    (void)pool_bytes;
    (void)lab;
    (void)gpu;
    return k3_fail(err, K3_ERR_UNSUPPORTED, "this program was built without support for GPUs");
}

const char *k3_gpu_lab_wait(const struct k3_gpu_lab *lab)
{
    (void)lab;
    return NULL;
}

void k3_gpu_lab_close(struct k3_gpu_lab *lab)
{
    (void)lab;
}
