/* runtime.h - what is needed of a GPU beside kernels: memory, copies, streams. runtime_cuda.c has it from CUDA,
 * tests/simt/emulator/ from the emulator.
 *
 * Operations on a stream follow each other and return before they are done. Those that can fail without saying so make
 * the next k3_gpu_wait fail. */
#ifndef K3_GPU_RUNTIME_H
#define K3_GPU_RUNTIME_H

#include "gpu/gpu.h"
#include "kernels/kernels.h"

bool k3_gpu_is_emulated(void);

/* The number of devices; 0 and `why` in words when there is none. */
int k3_gpu_count(const char **why);

/* Fills in name, memory and link of the device `gpu->index`; false if it cannot be used. */
bool k3_gpu_describe(struct k3_gpu *gpu);

/* From now on this thread works with that device. */
void k3_gpu_select(int index);

/* Device memory, at a multiple of 256; NULL when it is out. `name` is for reports. */
void *k3_gpu_alloc(const char *name, size_t bytes);
void k3_gpu_free(void *device);

/* Memory of the host that the device copies from and to without a detour; NULL when it is out. */
void *k3_gpu_alloc_host(size_t bytes);
void k3_gpu_free_host(void *host);

/* NULL when there is no more of what it needs. */
k3_stream k3_gpu_stream_create(void);
void k3_gpu_stream_free(k3_stream stream);

/* Copies to the device, from it, and inside of it. What is put from memory of k3_gpu_alloc_host must stay as it is until
 * the stream was waited for; any other memory may change at once. */
void k3_gpu_put(void *device, const void *host, size_t bytes, k3_stream stream);
void k3_gpu_get(void *host, const void *device, size_t bytes, k3_stream stream);
void k3_gpu_copy(void *to, const void *from, size_t bytes, k3_stream stream);
void k3_gpu_zero(void *device, size_t bytes, k3_stream stream);

/* Waits until all is done. NULL, or what went wrong since the last time, valid until the next. */
const char *k3_gpu_wait(k3_stream stream);

#endif
