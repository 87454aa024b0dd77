/* runtime.c - src/gpu/runtime.h by the emulator: one device, whose streams have no work left when a call returns. */
#include "gpu/runtime.h"

#include "emulator/faults.h"
#include "emulator/host.h"

#include <stdio.h>
#include <stdlib.h>

struct k3_simt_faults k3_simt_faults;

static char the_stream;

bool k3_gpu_is_emulated(void)
{
    return true;
}

int k3_gpu_count(const char **why)
{
    *why = "";
    return 1;
}

bool k3_gpu_describe(struct k3_gpu *gpu)
{
    snprintf(gpu->name, sizeof gpu->name, "emulated");
    gpu->bytes = gpu->free_bytes = (uint64_t)256 << 20; /* what is allocated is filled, so not too much */
    gpu->link = k3_simt_faults.link;
    return true;
}

void k3_gpu_select(int index)
{
    (void)index;
}

void *k3_gpu_alloc(const char *name, size_t bytes)
{
    return k3_simt_alloc(name, bytes);
}

void k3_gpu_free(void *device)
{
    k3_simt_free(device);
}

void *k3_gpu_alloc_host(size_t bytes)
{
    return malloc(bytes ? bytes : 1);
}

void k3_gpu_free_host(void *host)
{
    free(host);
}

k3_stream k3_gpu_stream_create(void)
{
    return &the_stream;
}

void k3_gpu_stream_free(k3_stream stream)
{
    (void)stream;
}

void k3_gpu_put(void *device, const void *host, size_t bytes, k3_stream stream)
{
    (void)stream;
    k3_simt_count_call("put", bytes);
    k3_simt_put(device, host, bytes);
    if (bytes && k3_simt_faults.bad_copy && --k3_simt_faults.bad_copy == 0) {
        unsigned char *last = (unsigned char *)device + bytes - 1, wrong;
        k3_simt_get(&wrong, last, 1);
        wrong ^= 0x10;
        k3_simt_put(last, &wrong, 1);
    }
}

void k3_gpu_get(void *host, const void *device, size_t bytes, k3_stream stream)
{
    (void)stream;
    k3_simt_count_call("get", bytes);
    k3_simt_get(host, device, bytes);
}

void k3_gpu_copy(void *to, const void *from, size_t bytes, k3_stream stream)
{
    void *bytes_between = k3_gpu_alloc_host(bytes); /* by way of the host, both ends are checked */
    if (!bytes_between) abort();
    (void)stream;
    k3_simt_count_call("copy", bytes);
    k3_simt_get(bytes_between, from, bytes);
    k3_simt_put(to, bytes_between, bytes);
    k3_gpu_free_host(bytes_between);
}

void k3_gpu_zero(void *device, size_t bytes, k3_stream stream)
{
    static const unsigned char zeros[4096];
    for (size_t at = 0; at < bytes; at += sizeof zeros)
        k3_gpu_put((unsigned char *)device + at, zeros, bytes - at < sizeof zeros ? bytes - at : sizeof zeros,
                   stream);
}

const char *k3_gpu_wait(k3_stream stream)
{
    (void)stream;
    k3_simt_count_call("wait", 0);
    return k3_simt_report();
}
