/* routing.c - a record of which experts each token used: a JSON object a line, a line a token,
 *
 *     {"tok": 17, "layers": [[3, 8, 21], [0, 5, 6]]}
 *
 * with the sorted ids of each MoE layer. The engine goes through the layers with a batch of tokens, so the lists of a
 * batch are kept until its last layer. */
#include "common/routing.h"

#include <stdlib.h>
#include <string.h>

k3_status k3_routing_open(struct k3_routing_record *r, const char *path, uint32_t n_layers,
                          struct k3_error *err)
{
    r->n_layers = n_layers;
    r->n_tokens = r->n_lists = r->capacity = 0;
    r->ids = NULL;
    return k3_stream_open(&r->stream, path, err);
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void write_token(struct k3_routing_record *r, size_t token)
{
    k3_stream_print(&r->stream, "{\"tok\": %llu, \"layers\": [", (unsigned long long)r->n_tokens++);
    for (size_t list = 0; list < r->n_lists; list++) {
        const uint32_t *ids = r->ids + (list * r->batch + token) * r->top_k;
        k3_stream_print(&r->stream, list ? ", [" : "[");
        for (size_t i = 0; i < r->top_k; i++) k3_stream_print(&r->stream, i ? ", %u" : "%u", ids[i]);
        k3_stream_print(&r->stream, "]");
    }
    k3_stream_print(&r->stream, "]}\n");
}

/* Keeps the lists of a layer; false when memory is out. */
static bool keep(struct k3_routing_record *r, const uint32_t *ids)
{
    size_t n = r->batch * r->top_k, at = r->n_lists * n;
    if (at + n > r->capacity) {
        size_t capacity = 2 * (at + n);
        uint32_t *grown = realloc(r->ids, capacity * sizeof *grown);
        if (!grown) {
            r->stream.status =
                k3_fail_memory(&r->stream.err, "the routing of a batch", capacity * sizeof *grown);
            return false;
        }
        r->ids = grown;
        r->capacity = capacity;
    }
    memcpy(r->ids + at, ids, n * sizeof *ids);
    for (size_t i = 0; i < n; i += r->top_k) qsort(r->ids + at + i, r->top_k, sizeof *r->ids, ascending);
    r->n_lists++;
    return true;
}

void k3_routing_add(struct k3_routing_record *r, uint32_t layer, const uint32_t *ids, size_t n_tokens,
                    size_t top_k)
{
    if (r->stream.status != K3_OK) return;
    if (r->n_lists == 0) {
        r->batch = n_tokens;
        r->top_k = top_k;
    }
    if (!keep(r, ids) || layer + 1 < r->n_layers) return;
    for (size_t token = 0; token < n_tokens; token++) write_token(r, token);
    r->n_lists = 0;
}

k3_status k3_routing_close(struct k3_routing_record *r, struct k3_error *err)
{
    free(r->ids);
    r->ids = NULL;
    return k3_stream_commit(&r->stream, err);
}
