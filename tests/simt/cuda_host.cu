/* cuda_host.cu - emulator/host.h for a real device, so that the tests of kernels run there as they are. What a device
 * does not check is not reported: only errors of CUDA are. */
#include "emulator/host.h"

#include <cstdio>
#include <cuda_runtime.h>

static char report[256], taken[256];

static void check(const char *what, cudaError_t error)
{
    if (error != cudaSuccess && !report[0])
        snprintf(report, sizeof report, "%s: %s", what, cudaGetErrorString(error));
}

extern "C" void *k3_simt_alloc(const char *name, size_t bytes)
{
    void *device = nullptr;
    check(name, cudaMalloc(&device, bytes ? bytes : 1));
    if (device) check(name, cudaMemset(device, 0xff, bytes));
    return device;
}

extern "C" void k3_simt_free(void *device)
{
    check("a freed array", cudaFree(device));
}

extern "C" void k3_simt_put(void *device, const void *host, size_t bytes)
{
    check("a copy to the device", cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
}

extern "C" void k3_simt_get(void *host, const void *device, size_t bytes)
{
    check("a launch", cudaGetLastError());
    check("a kernel", cudaDeviceSynchronize());
    check("a copy from the device", cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
}

extern "C" const char *k3_simt_report(void)
{
    check("a launch", cudaGetLastError());
    if (!report[0]) return nullptr;
    snprintf(taken, sizeof taken, "%s", report);
    report[0] = 0;
    return taken;
}
