/* host.h - the emulated GPU as its host sees it: memory, and reports of what kernels did wrong. device_host.c has the
 * same for a real one, as far as that can.
 *
 * A launch runs to its end before it returns. The first mistake of a kernel becomes a report: one sentence that
 * names kernel, place in the source, block, thread, array and index. From then on nothing runs, until the report
 * is taken. One thread of the host uses all this. */
#ifndef K3_SIMT_HOST_H
#define K3_SIMT_HOST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Why there is no device to run anything on, or NULL. */
const char *k3_simt_missing(void);

/* Device memory: filled with 0xff, and reading it is a mistake until it is written. Never fails softly. */
void *k3_simt_alloc(const char *name, size_t bytes);
void k3_simt_free(void *device);

/* Copies to and from the device. */
void k3_simt_put(void *device, const void *host, size_t bytes);
void k3_simt_get(void *host, const void *device, size_t bytes);

/* The report, which is forgotten with this, or NULL; valid until the next one. */
const char *k3_simt_report(void);

/* What was done since a beginning, until the end: calls of each kernel, and the bytes of device memory that they read or
 * wrote, each once in a launch; and of what the host asks for, with the bytes that it copies. */
struct k3_simt_count {
    char name[32];
    uint64_t calls, bytes;
};
void k3_simt_count_begin(void);
void k3_simt_count_call(const char *name, size_t bytes);

/* How many names; the list is valid until the next beginning. */
size_t k3_simt_count_end(const struct k3_simt_count **list);

#ifdef __cplusplus
}
#endif

#endif
