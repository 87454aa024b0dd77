/* device_host.c - emulator/host.h for a real device, so that the tests of kernels run there as they are. What a device
 * does not check is not reported: only what its runtime says is. */
#include "emulator/host.h"
#include "gpu/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char report[256], taken[256];

static void keep(const char *what, const char *problem)
{
    if (problem && !report[0]) snprintf(report, sizeof report, "%s: %s", what, problem);
}

const char *k3_simt_missing(void)
{
    const char *why;
    if (k3_gpu_count(&why) == 0) return why;
    k3_gpu_select(0);
    return NULL;
}

void *k3_simt_alloc(const char *name, size_t bytes)
{
    void *device = k3_gpu_alloc(name, bytes), *poison = malloc(bytes + 1);
    if (!device || !poison) {
        fprintf(stderr, "there is no memory for %s, %zu bytes\n", name, bytes);
        exit(1);
    }
    memset(poison, 0xff, bytes);
    k3_simt_put(device, poison, bytes);
    free(poison);
    return device;
}

void k3_simt_free(void *device)
{
    k3_gpu_free(device);
}

void k3_simt_put(void *device, const void *host, size_t bytes)
{
    k3_gpu_put(device, host, bytes, NULL);
    keep("a copy to the device, or what ran before", k3_gpu_wait(NULL));
}

void k3_simt_get(void *host, const void *device, size_t bytes)
{
    keep("a kernel", k3_gpu_wait(NULL));
    k3_gpu_get(host, device, bytes, NULL);
    keep("a copy from the device", k3_gpu_wait(NULL));
}

const char *k3_simt_report(void)
{
    keep("a kernel", k3_gpu_wait(NULL));
    if (!report[0]) return NULL;
    snprintf(taken, sizeof taken, "%s", report);
    report[0] = 0;
    return taken;
}
