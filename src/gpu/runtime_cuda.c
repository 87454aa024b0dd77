/* runtime_cuda.c - runtime.h by the CUDA runtime, which is linked statically: without a driver it finds no device, and
 * says so. */
#include "gpu/runtime.h"

#include <cuda_runtime_api.h>

#include <stdio.h>

static cudaStream_t cuda(k3_stream stream)
{
    return (cudaStream_t)stream;
}

bool k3_gpu_is_emulated(void)
{
    return false;
}

int k3_gpu_count(const char **why)
{
    int n = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    *why = error != cudaSuccess ? cudaGetErrorString(error) : "the driver knows none";
    return error == cudaSuccess ? n : 0;
}

bool k3_gpu_describe(struct k3_gpu *gpu)
{
    struct cudaDeviceProp properties;
    size_t free_bytes, bytes;
    if (cudaGetDeviceProperties(&properties, gpu->index) != cudaSuccess) return false;
    if (cudaSetDevice(gpu->index) != cudaSuccess || cudaMemGetInfo(&free_bytes, &bytes) != cudaSuccess)
        return false;
    snprintf(gpu->name, sizeof gpu->name, "%.*s", (int)sizeof gpu->name - 1, properties.name);
    gpu->bytes = bytes;
    gpu->free_bytes = free_bytes;
    char address[32];
    if (cudaDeviceGetPCIBusId(address, sizeof address, gpu->index) == cudaSuccess)
        gpu->link = k3_pcie_link(K3_PCIE_DEVICES, address);
    return true;
}

void k3_gpu_select(int index)
{
    cudaSetDevice(index);
}

void *k3_gpu_alloc(const char *name, size_t bytes)
{
    void *device = NULL;
    (void)name;
    if (cudaMalloc(&device, bytes ? bytes : 1) == cudaSuccess) return device;
    cudaGetLastError(); /* it was seen */
    return NULL;
}

void k3_gpu_free(void *device)
{
    cudaFree(device);
}

void *k3_gpu_alloc_host(size_t bytes)
{
    void *host = NULL;
    if (cudaMallocHost(&host, bytes ? bytes : 1) == cudaSuccess) return host;
    cudaGetLastError();
    return NULL;
}

void k3_gpu_free_host(void *host)
{
    cudaFreeHost(host);
}

k3_stream k3_gpu_stream_create(void)
{
    cudaStream_t stream;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess) return (k3_stream)stream;
    cudaGetLastError();
    return NULL;
}

void k3_gpu_stream_free(k3_stream stream)
{
    if (stream) cudaStreamDestroy(cuda(stream));
}

void k3_gpu_put(void *device, const void *host, size_t bytes, k3_stream stream)
{
    cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, cuda(stream));
}

void k3_gpu_get(void *host, const void *device, size_t bytes, k3_stream stream)
{
    cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, cuda(stream));
}

void k3_gpu_copy(void *to, const void *from, size_t bytes, k3_stream stream)
{
    cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda(stream));
}

void k3_gpu_zero(void *device, size_t bytes, k3_stream stream)
{
    cudaMemsetAsync(device, 0, bytes, cuda(stream));
}

/* Launches and copies that were refused are the last error; what failed while it ran comes with the wait. */
const char *k3_gpu_wait(k3_stream stream)
{
    cudaError_t ran = cudaStreamSynchronize(cuda(stream)), refused = cudaGetLastError();
    cudaError_t error = ran != cudaSuccess ? ran : refused;
    return error == cudaSuccess ? NULL : cudaGetErrorString(error);
}
