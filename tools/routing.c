/* routing.c - reads a trace of routing and counts. */
#include "routing.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPERTS_MAX ((uint32_t)1 << 16)

/* ---- reading ---- */

struct lines {
    const char *path;
    size_t number;   /* from 1 */
    size_t capacity; /* tokens that `trace` has room for */
    struct k3_trace *trace;
};

static k3_status bad_line(const struct lines *lines, struct k3_error *err, const char *what)
{
    return k3_fail(err, K3_ERR_FORMAT, "%s: line %zu %s", lines->path, lines->number, what);
}

/* The first line says how many layers and ids there are. */
static k3_status make_room(struct lines *lines, const json_t *layers, struct k3_error *err)
{
    struct k3_trace *t = lines->trace;
    if (!t->n_tokens) {
        size_t n_layers = json_array_size(layers), top_k = json_array_size(json_array_get(layers, 0));
        if (!n_layers || !top_k || n_layers > EXPERTS_MAX || top_k > EXPERTS_MAX)
            return bad_line(lines, err, "has no list \"layers\" of lists of experts");
        t->n_layers = (uint32_t)n_layers;
        t->top_k = (uint32_t)top_k;
    }
    if (t->n_tokens < lines->capacity) return K3_OK;
    size_t capacity = lines->capacity ? 2 * lines->capacity : 64;
    size_t bytes = capacity * t->n_layers * t->top_k * sizeof *t->ids;
    uint32_t *grown = realloc(t->ids, bytes);
    if (!grown) return k3_fail_memory(err, "a trace", bytes);
    t->ids = grown;
    lines->capacity = capacity;
    return K3_OK;
}

static k3_status add_layers(struct lines *lines, const json_t *layers, struct k3_error *err)
{
    struct k3_trace *t = lines->trace;
    k3_status status = make_room(lines, layers, err);
    if (status != K3_OK) return status;
    if (json_array_size(layers) != t->n_layers) return bad_line(lines, err, "has another number of layers");
    uint32_t *to = t->ids + t->n_tokens * t->n_layers * t->top_k;
    for (size_t i = 0; i < t->n_layers; i++) {
        const json_t *ids = json_array_get(layers, i);
        if (json_array_size(ids) != t->top_k) return bad_line(lines, err, "has another number of experts");
        for (size_t j = 0; j < t->top_k; j++) {
            const json_t *id = json_array_get(ids, j);
            json_int_t value = json_integer_value(id);
            if (!json_is_integer(id) || value < 0 || value >= EXPERTS_MAX)
                return bad_line(lines, err, "has an expert that is no number from 0 to 65535");
            *to++ = (uint32_t)value;
        }
    }
    t->n_tokens++;
    return K3_OK;
}

k3_status k3_trace_read(const char *path, struct k3_trace *trace, struct k3_error *err)
{
    struct lines lines = {.path = path, .trace = trace};
    char *line = NULL;
    size_t room = 0;
    k3_status status = K3_OK;
    *trace = (struct k3_trace){0};
    FILE *file = fopen(path, "re");
    if (!file) return k3_fail_errno(err, errno, "%s: cannot be opened", path);
    while (status == K3_OK && getline(&line, &room, file) >= 0) {
        json_t *object = json_loads(line, 0, NULL);
        lines.number++;
        status = object ? add_layers(&lines, json_object_get(object, "layers"), err)
                        : bad_line(&lines, err, "is no JSON object");
        json_decref(object);
    }
    if (status == K3_OK && !feof(file)) status = k3_fail_errno(err, errno, "%s: cannot be read", path);
    if (status == K3_OK && !trace->n_tokens) status = k3_fail(err, K3_ERR_FORMAT, "%s: is empty", path);
    if (status != K3_OK) k3_trace_free(trace);
    fclose(file);
    free(line);
    return status;
}

void k3_trace_free(struct k3_trace *trace)
{
    free(trace->ids);
    *trace = (struct k3_trace){0};
}

/* ---- counting ---- */

static const uint32_t *ids_of(const struct k3_trace *t, size_t token, uint32_t layer)
{
    return t->ids + (token * t->n_layers + layer) * t->top_k;
}

uint32_t k3_trace_experts(const struct k3_trace *t)
{
    uint32_t n = 0;
    for (size_t i = 0; i < t->n_tokens * t->n_layers * t->top_k; i++) n = t->ids[i] >= n ? t->ids[i] + 1 : n;
    return n;
}

/* Different experts of the tokens [first, first + span). `seen` holds, by expert, the last mark. */
static size_t count_distinct(const struct k3_trace *t, uint32_t layer, size_t first, size_t span,
                             size_t *seen, size_t mark)
{
    size_t n = 0;
    for (size_t token = first; token < first + span; token++) {
        const uint32_t *ids = ids_of(t, token, layer);
        for (uint32_t i = 0; i < t->top_k; i++) {
            n += seen[ids[i]] != mark;
            seen[ids[i]] = mark;
        }
    }
    return n;
}

static int descending(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x < y) - (x > y);
}

static double top_tenth(const struct k3_trace *t, uint32_t layer, uint32_t n_experts, size_t *counts)
{
    memset(counts, 0, n_experts * sizeof *counts);
    for (size_t token = 0; token < t->n_tokens; token++)
        for (uint32_t i = 0; i < t->top_k; i++) counts[ids_of(t, token, layer)[i]]++;
    qsort(counts, n_experts, sizeof *counts, descending);
    size_t sum = 0;
    for (uint32_t e = 0; e < n_experts / 10; e++) sum += counts[e];
    return (double)sum / (double)(t->n_tokens * t->top_k);
}

k3_status k3_routing_measure(const struct k3_trace *t, uint32_t layer, uint32_t n_experts,
                             struct k3_routing_stats *stats, struct k3_error *err)
{
    size_t mark = 0, *seen = calloc(n_experts, sizeof *seen);
    if (!seen) return k3_fail_memory(err, "counts of experts", n_experts * sizeof *seen);
    *stats = (struct k3_routing_stats){0};
    for (int i = 0; i < K3_ROUTING_SPANS; i++) {
        size_t span = (size_t)2 << i, sum = 0, n = 0;
        for (size_t first = 0; first + span <= t->n_tokens; first++, n++)
            sum += count_distinct(t, layer, first, span, seen, ++mark);
        if (n) stats->distinct[i] = (double)sum / (double)(n * t->top_k);
    }
    /* Two tokens have 2 k experts, less those they share. */
    if (t->n_tokens > 1) stats->overlap = 2 - stats->distinct[0];
    stats->top_tenth = top_tenth(t, layer, n_experts, seen);
    free(seen);
    return K3_OK;
}
