/* trace.h - recorded routing: which experts each token asked for.
 *
 * The file has one JSON object a token: {"tok": n, "layers": [[ids], ...]}, a list of ids for each MoE layer.
 */
#ifndef K3_COMMON_TRACE_H
#define K3_COMMON_TRACE_H

#include "base/error.h"

#define K3_TRACE_MAX_LAYERS  1024
#define K3_TRACE_MAX_EXPERTS 4096 /* a layer */

struct k3_trace {
    uint32_t n_tokens, n_layers;
    uint32_t n_experts; /* the largest id and one */
    size_t *begin;      /* [n_tokens * n_layers + 1]: where in `ids` a token's layer begins; owned */
    uint16_t *ids;      /* owned */
};

/* Every token must have the same number of layers, no id twice in one of them. */
k3_status k3_trace_read(const char *path, struct k3_trace *trace, struct k3_error *err);
void k3_trace_free(struct k3_trace *trace);

#endif
