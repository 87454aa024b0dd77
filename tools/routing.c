/* routing.c - what a trace of routing says. */
#include "routing.h"

#include <stdlib.h>
#include <string.h>

struct list {
    const uint16_t *ids;
    size_t n;
};

static struct list list_of(const struct k3_trace *t, size_t token, uint32_t layer)
{
    size_t at = token * t->n_layers + layer;
    return (struct list){t->ids + t->begin[at], t->begin[at + 1] - t->begin[at]};
}

/* Different experts of the tokens [first, first + span). `seen` holds, by expert, the last mark. */
static size_t count_distinct(const struct k3_trace *t, uint32_t layer, size_t first, size_t span,
                             size_t *seen, size_t mark)
{
    size_t n = 0;
    for (size_t token = first; token < first + span; token++) {
        struct list list = list_of(t, token, layer);
        for (size_t i = 0; i < list.n; i++) {
            n += seen[list.ids[i]] != mark;
            seen[list.ids[i]] = mark;
        }
    }
    return n;
}

static int descending(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x < y) - (x > y);
}

static size_t count_requests(const struct k3_trace *t, uint32_t layer)
{
    size_t n = 0;
    for (size_t token = 0; token < t->n_tokens; token++) n += list_of(t, token, layer).n;
    return n;
}

/* Of all requests. */
static double top_tenth(const struct k3_trace *t, uint32_t layer, uint32_t n_experts, size_t *counts,
                        size_t n_requests)
{
    memset(counts, 0, n_experts * sizeof *counts);
    for (size_t token = 0; token < t->n_tokens; token++) {
        struct list list = list_of(t, token, layer);
        for (size_t i = 0; i < list.n; i++) counts[list.ids[i]]++;
    }
    qsort(counts, n_experts, sizeof *counts, descending);
    size_t sum = 0;
    for (uint32_t e = 0; e < n_experts / 10; e++) sum += counts[e];
    return (double)sum / (double)n_requests;
}

k3_status k3_routing_measure(const struct k3_trace *t, uint32_t layer, uint32_t n_experts,
                             struct k3_routing_stats *stats, struct k3_error *err)
{
    size_t mark = 0, *seen = calloc(n_experts, sizeof *seen);
    if (!seen) return k3_fail_memory(err, "counts of experts", n_experts * sizeof *seen);
    *stats = (struct k3_routing_stats){0};
    size_t n_requests = count_requests(t, layer);
    double each = (double)n_requests / t->n_tokens; /* experts of one token */
    for (int i = 0; i < K3_ROUTING_SPANS && n_requests; i++) {
        size_t span = (size_t)2 << i, sum = 0, n = 0;
        for (size_t first = 0; first + span <= t->n_tokens; first++, n++)
            sum += count_distinct(t, layer, first, span, seen, ++mark);
        if (n) stats->distinct[i] = (double)sum / ((double)n * each);
    }
    /* Two tokens have 2 k experts, less those they share. */
    if (t->n_tokens > 1 && n_requests) stats->overlap = 2 - stats->distinct[0];
    if (n_requests) stats->top_tenth = top_tenth(t, layer, n_experts, seen, n_requests);
    free(seen);
    return K3_OK;
}
