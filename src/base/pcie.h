/* pcie.h - how a device is connected: what Linux says of its link. */
#ifndef K3_BASE_PCIE_H
#define K3_BASE_PCIE_H

#include <stdint.h>

/* 0 for what is not known. */
struct k3_pcie {
    uint32_t
        generation; /* the highest that device and slot both have: an idle link may be slower for a while */
    uint32_t width; /* lanes */
    uint32_t max_width; /* that the device has */
};

#define K3_PCIE_DEVICES "/sys/bus/pci/devices"

/* The link of the device of that address, such as 0000:01:00.0, in any case. `devices`: K3_PCIE_DEVICES, or what a test has
 * instead. */
struct k3_pcie k3_pcie_link(const char *devices, const char *address);

#endif
