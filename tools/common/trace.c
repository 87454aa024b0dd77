/* trace.c - recorded routing: which experts each token asked for. */
#include "common/trace.h"

#include "base/file.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    FILE *file;
    const char *name;
    struct k3_trace *trace;
    size_t n_ids, ids_capacity, tokens_capacity;
    size_t seen[K3_TRACE_MAX_EXPERTS]; /* 1 + number of the list an id was last in */
    struct k3_error *err;
};

/* Makes room for n items; doubles, so that adding one at a time stays cheap. */
static k3_status reserve(void **items, size_t *capacity, size_t n, size_t size, struct k3_error *err)
{
    if (n <= *capacity) return K3_OK;
    size_t larger = 2 * n + 64;
    void *grown = realloc(*items, larger * size);
    if (!grown) return k3_fail_memory(err, "a routing trace", larger * size);
    *items = grown;
    *capacity = larger;
    return K3_OK;
}

static k3_status add_id(struct reader *r, const json_t *value, size_t list)
{
    struct k3_trace *trace = r->trace;
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    if (id < 0 || id >= K3_TRACE_MAX_EXPERTS)
        return k3_fail(r->err, K3_ERR_FORMAT,
                       "%s: token %u, layer %zu: an id is no whole number from 0 to %d", r->name,
                       trace->n_tokens, list % trace->n_layers, K3_TRACE_MAX_EXPERTS - 1);
    if (r->seen[id] == list + 1)
        return k3_fail(r->err, K3_ERR_FORMAT, "%s: token %u, layer %zu: expert %d is there twice", r->name,
                       trace->n_tokens, list % trace->n_layers, (int)id);
    r->seen[id] = list + 1;
    trace->ids[r->n_ids++] = (uint16_t)id;
    if ((uint32_t)id >= trace->n_experts) trace->n_experts = (uint32_t)id + 1;
    return K3_OK;
}

static k3_status add_list(struct reader *r, const json_t *ids, size_t list)
{
    struct k3_trace *trace = r->trace;
    if (!json_is_array(ids))
        return k3_fail(r->err, K3_ERR_FORMAT, "%s: token %u, layer %zu: is no list of ids", r->name,
                       trace->n_tokens, list % trace->n_layers);
    size_t n = json_array_size(ids);
    k3_status status =
        reserve((void **)&trace->ids, &r->ids_capacity, r->n_ids + n, sizeof *trace->ids, r->err);
    for (size_t i = 0; i < n && status == K3_OK; i++) status = add_id(r, json_array_get(ids, i), list);
    trace->begin[list + 1] = r->n_ids;
    return status;
}

static k3_status add_token(struct reader *r, const json_t *token)
{
    struct k3_trace *trace = r->trace;
    const json_t *layers = json_object_get(token, "layers");
    size_t n = json_array_size(layers); /* 0 for what is no list */
    if (n == 0 || n > K3_TRACE_MAX_LAYERS)
        return k3_fail(r->err, K3_ERR_FORMAT, "%s: token %u: \"layers\" is no list of 1 to %d layers",
                       r->name, trace->n_tokens, K3_TRACE_MAX_LAYERS);
    if (trace->n_tokens == 0) trace->n_layers = (uint32_t)n;
    if (n != trace->n_layers)
        return k3_fail(r->err, K3_ERR_FORMAT, "%s: token %u has %zu layers, but those before have %u",
                       r->name, trace->n_tokens, n, trace->n_layers);
    if (trace->n_tokens == UINT32_MAX / K3_TRACE_MAX_LAYERS)
        return k3_fail(r->err, K3_ERR_UNSUPPORTED, "%s: has more than %u tokens", r->name, trace->n_tokens);
    size_t first = (size_t)trace->n_tokens * n;
    k3_status status =
        reserve((void **)&trace->begin, &r->tokens_capacity, first + n + 1, sizeof *trace->begin, r->err);
    if (status == K3_OK) trace->begin[first] = r->n_ids;
    for (size_t i = 0; i < n && status == K3_OK; i++)
        status = add_list(r, json_array_get(layers, i), first + i);
    if (status == K3_OK) trace->n_tokens++;
    return status;
}

/* Whether another token follows. */
static bool more(FILE *file)
{
    int c = getc(file);
    while (isspace(c)) c = getc(file);
    return ungetc(c, file) != EOF;
}

static k3_status read_tokens(struct reader *r)
{
    while (more(r->file)) {
        json_error_t why;
        json_t *token = json_loadf(r->file, JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &why);
        if (!token && ferror(r->file)) break;
        if (!token)
            return k3_fail(r->err, K3_ERR_FORMAT, "%s: token %u is no JSON: %s", r->name, r->trace->n_tokens,
                           why.text);
        k3_status status = add_token(r, token);
        json_decref(token);
        if (status != K3_OK) return status;
    }
    if (ferror(r->file)) return k3_fail_errno(r->err, errno, "%s: cannot be read", r->name);
    if (r->n_ids == 0)
        return k3_fail(r->err, K3_ERR_FORMAT, "%s: is no routing trace: no token asks for an expert",
                       r->name);
    return K3_OK;
}

k3_status k3_trace_read(const char *path, struct k3_trace *trace, struct k3_error *err)
{
    *trace = (struct k3_trace){0};
    struct reader *r = calloc(1, sizeof *r);
    if (!r) return k3_fail_memory(err, "a routing trace", sizeof *r);
    *r = (struct reader){.name = k3_file_name(path), .trace = trace, .err = err};
    r->file = fopen(path, "re");
    k3_status status = r->file ? read_tokens(r) : k3_fail_errno(err, errno, "%s: cannot be opened", path);
    if (r->file) fclose(r->file);
    free(r);
    if (status != K3_OK) k3_trace_free(trace);
    return status;
}

void k3_trace_free(struct k3_trace *trace)
{
    free(trace->begin);
    free(trace->ids);
    *trace = (struct k3_trace){0};
}
