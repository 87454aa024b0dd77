/* warm.h - the text of files that say which experts to begin with. For this room and its fuzzer. */
#ifndef K3_ENGINE_WARM_H
#define K3_ENGINE_WARM_H

#include "store/store.h"

/* What a file must agree with. */
struct k3_warm_shape {
    uint32_t first_layer, n_layers, n_experts; /* layers first_layer .. n_layers-1 have experts */
    uint64_t fingerprint;                      /* of the model's files: where and how large the experts are */
};

/* The least room for a list of what a text of n bytes may name. */
size_t k3_warm_capacity(size_t n);

/* Reads the `n` bytes of a file called `name` into items[k3_warm_capacity(n)], which are different experts of
 * the model. */
k3_status k3_warm_parse(const char *name, const char *text, size_t n, const struct k3_warm_shape *shape,
                        struct k3_store_item *items, size_t *n_items, struct k3_error *err);

#endif
