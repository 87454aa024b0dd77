/* fuzz_warm.c - any bytes as a list of warm experts: they end in a list that fits the model or in a message.
 *
 * The model is of three layers, of which the first has no experts, and eight experts in a layer; its fingerprint is
 * 0123456789abcdef. */
#include "engine/warm.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct k3_warm_shape shape = {1, 3, 8, 0x0123456789abcdef};
    struct k3_error err = {K3_OK, ""};
    size_t n = 0, capacity = k3_warm_capacity(size);
    struct k3_store_item *items = malloc(capacity * sizeof *items);
    if (!items) abort();
    k3_status status = k3_warm_parse("fuzz", (const char *)data, size, &shape, items, &n, &err);
    if (status != K3_OK && (err.status != status || !err.message[0])) abort();
    if (status == K3_OK && (n > capacity || n > 2 * 8)) abort();
    for (size_t i = 0; status == K3_OK && i < n; i++)
        if (items[i].layer < 1 || items[i].layer > 2 || items[i].expert > 7) abort();
    free(items);
    return 0;
}
