/* census.h - counts what a GGUF holds and lists what is wrong with it as a K3, without reading weights. */
#ifndef K3_MODEL_CENSUS_H
#define K3_MODEL_CENSUS_H

#include "model/model.h"

struct k3_census_type {
    uint64_t count, bytes; /* tensors, and their bytes */
};

struct k3_census {
    uint64_t n_tensors, bytes;
    uint64_t n_expert_tensors, expert_bytes;
    uint64_t n_slots;           /* experts over all layers: MoE layers * experts in a layer */
    uint64_t expert_parameters; /* weights in all experts */
    uint64_t parameters;        /* weights in all tensors */
    struct k3_census_type types[K3_TYPE_COUNT];
    size_t n_problems;
    char **problems; /* sentences; owned */
};

/* Looks at all of the model even after the first problem. Fails only when memory is out. */
k3_status k3_census_take(const struct k3_gguf *gguf, struct k3_census *census, struct k3_error *err);
void k3_census_free(struct k3_census *census);

#endif
