/* routing.h - what a recorded trace of routing says: how much of a step was used in the step before, and how many
 * experts several steps need together. A cache and a prefetcher live on these numbers.
 *
 * A trace is text, one JSON object a line, one line a token: {"tok": 0, "layers": [[3, 17, ...], ...]}, with the
 * experts' ids for each MoE layer in order. */
#ifndef K3_TOOLS_ROUTING_H
#define K3_TOOLS_ROUTING_H

#include "base/error.h"

struct k3_trace {
    size_t n_tokens;
    uint32_t n_layers, top_k; /* the same in every line */
    uint32_t *ids;            /* [n_tokens][n_layers][top_k]; owned */
};

/* A line that is no such object, or another number of layers or ids than in the first, is K3_ERR_FORMAT. */
k3_status k3_trace_read(const char *path, struct k3_trace *trace, struct k3_error *err);
void k3_trace_free(struct k3_trace *trace);

#define K3_ROUTING_SPANS 5 /* 2, 4, 8, 16, 32 tokens */

struct k3_routing_stats {
    double overlap; /* share of a token's experts that the token before had, too */
    double distinct
        [K3_ROUTING_SPANS]; /* different experts of 2 << i consecutive tokens, in multiples of top_k; 0 when
                                          the trace is shorter */
    double top_tenth;       /* share of requests that go to the tenth of the experts that is used most */
};

/* Of one layer. n_experts: how many there are; ids are below it. */
k3_status k3_routing_measure(const struct k3_trace *trace, uint32_t layer, uint32_t n_experts,
                             struct k3_routing_stats *stats, struct k3_error *err);

/* The largest id plus one. */
uint32_t k3_trace_experts(const struct k3_trace *trace);

#endif
