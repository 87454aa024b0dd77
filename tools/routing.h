/* routing.h - what a recorded trace of routing says: how much of a step was used in the step before, and how many
 * experts several steps need together. A cache and a prefetcher live on these numbers. */
#ifndef K3_TOOLS_ROUTING_STATS_H
#define K3_TOOLS_ROUTING_STATS_H

#include "common/trace.h"

#define K3_ROUTING_SPANS 5 /* 2, 4, 8, 16, 32 tokens */

struct k3_routing_stats {
    double overlap; /* share of a token's experts that the token before had, too */
    /* Different experts of 2 << i consecutive tokens, in multiples of those of one; 0 when the trace is shorter. */
    double distinct[K3_ROUTING_SPANS];
    double top_tenth; /* share of requests that go to the tenth of the experts that is used most */
};

/* Of one layer. n_experts: how many there are; ids are below it. */
k3_status k3_routing_measure(const struct k3_trace *trace, uint32_t layer, uint32_t n_experts,
                             struct k3_routing_stats *stats, struct k3_error *err);

#endif
