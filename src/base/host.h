/* host.h - how much memory this machine has for us. */
#ifndef K3_BASE_HOST_H
#define K3_BASE_HOST_H

#include <stdint.h>

struct k3_host_memory {
    uint64_t total;     /* of the machine, or the control group's limit if that is lower */
    uint64_t available; /* that can be had without pushing others out */
};

/* What /proc/meminfo and the control groups this process is in say. What cannot be read is taken as no
 * limit; without /proc/meminfo both are 0. */
struct k3_host_memory k3_host_memory(void);

/* The same from files elsewhere: a folder that takes the place of / for them. For tests. */
struct k3_host_memory k3_host_memory_at(const char *root);

#endif
