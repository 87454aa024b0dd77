/* faults.h - what tests make of the emulated device: a link, and a copy that goes wrong. */
#ifndef K3_SIMT_FAULTS_H
#define K3_SIMT_FAULTS_H

#include "base/pcie.h"

/* Nothing of this unless a test sets it. */
extern struct k3_simt_faults {
    struct k3_pcie link;
    unsigned bad_copy; /* in which copy to the device from now on a bit changes, from 1; 0: in none */
} k3_simt_faults;

#endif
