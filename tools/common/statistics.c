/* statistics.c - what the experts of a run cost, for people and as JSON. docs/telemetry.md says what each number
 * means. */
#include "common/number.h"
#include "common/telemetry.h"

#include <jansson.h>
#include <string.h>

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

double k3_overlap(const struct k3_expert_stats *s)
{
    double hidden = s->read_seconds - s->wait_seconds;
    return hidden > 0 ? ratio(hidden, s->read_seconds) : 0;
}

/* ---- for people ---- */

static void print_experts(const struct k3_expert_stats *s)
{
    char requests[K3_NUMBER_MAX], hits[K3_NUMBER_MAX], misses[K3_NUMBER_MAX], bytes[K3_NUMBER_MAX];
    fprintf(stderr, "experts %s requests, %s hits, %s misses, %.1f %% hit rate\n",
            k3_format_count(s->requests, requests), k3_format_count(s->hits, hits),
            k3_format_count(s->misses, misses), 100 * ratio((double)s->hits, (double)s->requests));
    if (!s->reads) return;
    fprintf(stderr,
            "drive %s in %.2f s, %.2f GB/s; waited %.2f s, %.0f %% of reading hidden; %.1f reads under way\n",
            k3_format_bytes(s->bytes_read, bytes), s->read_seconds,
            ratio((double)s->bytes_read, s->read_seconds) / 1e9, s->wait_seconds, 100 * k3_overlap(s),
            ratio((double)s->depth_sum, (double)s->reads));
}

static void print_lookahead(const struct k3_expert_stats *s)
{
    if (!s->guessed) return;
    fprintf(stderr,
            "lookahead %.1f %% of %llu guesses right, at least %.1f %% of misses guessed; %llu of %llu early "
            "reads of use\n",
            100 * ratio((double)s->guessed_right, (double)s->guessed), (unsigned long long)s->guessed,
            100 * ratio((double)s->guessed_right, (double)(s->misses + s->useful_hints)),
            (unsigned long long)s->useful_hints, (unsigned long long)s->hints);
}

void k3_telemetry_print(const struct k3_model *model, const struct k3_session *session)
{
    struct k3_stats stats;
    struct k3_expert_stats experts;
    struct k3_model_info info;
    char bytes[K3_NUMBER_MAX];
    k3_session_get_stats(session, &stats);
    k3_model_get_expert_stats(model, K3_ALL_LAYERS, &experts);
    k3_model_get_info(model, &info);
    uint64_t tokens = stats.prefill_tokens + stats.decode_tokens;
    if (!tokens) return;
    k3_format_bytes((stats.dense_bytes + stats.expert_bytes) / tokens, bytes);
    fprintf(
        stderr, "prefill %llu tokens, %.1f tok/s; decode %llu tokens, %.1f tok/s; %s of weights a token\n",
        (unsigned long long)stats.prefill_tokens, ratio((double)stats.prefill_tokens, stats.prefill_seconds),
        (unsigned long long)stats.decode_tokens, ratio((double)stats.decode_tokens, stats.decode_seconds),
        bytes);
    if (info.slots) print_experts(&experts); /* of mapped files the system knows, and does not tell */
    print_lookahead(&experts);
}

/* ---- JSON ---- */

static json_t *experts_json(const struct k3_expert_stats *s)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I}", "requests",
                     (json_int_t)s->requests, "hits", (json_int_t)s->hits, "misses", (json_int_t)s->misses,
                     "bytes_read", (json_int_t)s->bytes_read, "wait_s", s->wait_seconds, "read_s",
                     s->read_seconds, "compute_s", s->compute_seconds, "overlap", k3_overlap(s),
                     "queue_depth", ratio((double)s->depth_sum, (double)s->reads), "reads",
                     (json_int_t)s->reads, "guessed", (json_int_t)s->guessed, "guessed_right",
                     (json_int_t)s->guessed_right, "hints", (json_int_t)s->hints, "useful_hints",
                     (json_int_t)s->useful_hints);
}

/* Only layers that were asked for experts have a place in the list. */
static json_t *layers_json(const struct k3_model *model, uint32_t n_layers)
{
    json_t *list = json_array();
    for (uint32_t layer = 0; layer < n_layers; layer++) {
        struct k3_expert_stats stats;
        k3_model_get_expert_stats(model, layer, &stats);
        if (!stats.requests && !stats.bytes_read) continue;
        json_t *object = experts_json(&stats);
        json_object_set_new(object, "layer", json_integer(layer));
        json_array_append_new(list, object);
    }
    return list;
}

char *k3_statistics_json(const struct k3_model *model, const struct k3_session *session)
{
    struct k3_stats s = {0};
    struct k3_expert_stats total;
    struct k3_model_info info;
    if (session) k3_session_get_stats(session, &s);
    k3_model_get_expert_stats(model, K3_ALL_LAYERS, &total);
    k3_model_get_info(model, &info);
    json_t *object =
        json_pack("{s:{s:I, s:f, s:I, s:f}, s:I, s:I, s:I, s:o, s:o}", "tokens", "prefill",
                  (json_int_t)s.prefill_tokens, "prefill_s", s.prefill_seconds, "decode",
                  (json_int_t)s.decode_tokens, "decode_s", s.decode_seconds, "slots", (json_int_t)info.slots,
                  "dense_bytes", (json_int_t)s.dense_bytes, "expert_bytes", (json_int_t)s.expert_bytes,
                  "total", experts_json(&total), "layers", layers_json(model, info.n_layers));
    char *text = object ? json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    return text;
}
