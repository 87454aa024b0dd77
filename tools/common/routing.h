/* routing.h - a record of which experts each token used, for k3bench policy. */
#ifndef K3_TOOLS_ROUTING_H
#define K3_TOOLS_ROUTING_H

#include "common/stream.h"

struct k3_routing_record {
    struct k3_stream stream;
    uint32_t n_layers; /* of the model: the last one ends a batch */
    uint64_t n_tokens; /* written */

    /* The batch that is under way. */
    uint32_t *ids; /* [n_lists][batch][top_k], owned */
    size_t capacity, n_lists, batch, top_k;
};

k3_status k3_routing_open(struct k3_routing_record *record, const char *path, uint32_t n_layers,
                          struct k3_error *err);

/* As routing of struct k3_observer. */
void k3_routing_add(struct k3_routing_record *record, uint32_t layer, const uint32_t *ids, size_t n_tokens,
                    size_t top_k);

k3_status k3_routing_close(struct k3_routing_record *record, struct k3_error *err);

#endif
