/* split.h - a device made of two, each with a share of the model. */
#ifndef K3_ENGINE_SPLIT_H
#define K3_ENGINE_SPLIT_H

#include "model/device.h"

/* Bytes of host memory that it takes beside its parts. */
uint64_t k3_split_bytes(const struct k3_hparams *hp, size_t max_batch);

/* `second` has the groups of `share`, `first` has all others. All that is given must outlive the device. */
k3_status k3_split_create(struct k3_device *first, struct k3_device *second, const struct k3_share *share,
                          const struct k3_hparams *hp, size_t max_batch, struct k3_device **device,
                          struct k3_error *err);

#endif
