/* mapped.h - the model's files in memory, by mapping them. For this room only. */
#ifndef K3_STORE_MAPPED_H
#define K3_STORE_MAPPED_H

#include "model/model.h"

struct k3_mapped;

k3_status k3_mapped_open(const struct k3_plan *plan, struct k3_mapped **mapped, struct k3_error *err);
void k3_mapped_close(struct k3_mapped *mapped);

const unsigned char *k3_mapped_matrix(const struct k3_mapped *mapped, uint32_t layer, enum k3_role role,
                                      uint32_t expert);

#endif
