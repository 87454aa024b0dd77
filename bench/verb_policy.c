/* verb_policy.c - how many requests for experts a cache would have answered, by policy and size. */
#include "policies.h"
#include "verbs.h"

#include "common/json.h"
#include "common/options.h"
#include "common/program.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CANDIDATES 8

struct options {
    const char *trace;
    struct k3_amounts slots;
    uint32_t experts, warm_up;
    bool json, help;
};

struct row {
    uint32_t slots;
    double hit_rate[MAX_CANDIDATES]; /* 0 .. 1, in the order of k3_candidates */
};

static void print_help(const struct k3_option *table)
{
    k3_options_help("Usage: k3bench policy --trace FILE [--slots N|P%]...\n"
                    "Replays recorded routing through one pool of slots for all layers, under each cache "
                    "policy. A hit was\n"
                    "in the pool before its layer was asked for. lfru is what the engine uses; belady knows "
                    "the future, no\n"
                    "policy can do better.\n",
                    table);
    k3_out("\nExample\n"
           "  k3bench policy --trace tests/data/traces/kimi-linear-48b-decode-300.jsonl --slots 15%% --slots "
           "42%%\n");
}

static k3_status parse_options(int argc, char **argv, struct options *o, struct k3_error *err)
{
    const struct k3_option table[] = {
        {.kind = K3_OPTION_HEADING, .help = "Options"},
        {K3_OPTION_TEXT, 0, "trace", &o->trace, 0, 0, "FILE",
         "a line for each token: {\"tok\": n, \"layers\": [[ids], ...]}"},
        {K3_OPTION_AMOUNTS, 0, "slots", &o->slots, 0, 0, "N|P%",
         "slots, or a share of all experts; may be given several\ntimes (default: 42%)"},
        {K3_OPTION_U32, 0, "experts", &o->experts, 0, K3_TRACE_MAX_EXPERTS, "N",
         "experts in a layer (default: 0, the largest id in the\ntrace and one)"},
        {K3_OPTION_U32, 0, "warmup", &o->warm_up, 0, UINT32_MAX, "N",
         "tokens at the beginning that are not counted\n(default: 60)"},
        {K3_OPTION_FLAG, 0, "json", &o->json, 0, 0, NULL,
         "a JSON object on a line for each --slots; hit rates are\n0 to 1"},
        K3_HELP_OPTION(o->help),
        {.kind = K3_OPTION_END},
    };
    *o = (struct options){.warm_up = 60};
    k3_status status = k3_options_parse(argc, argv, table, 0, err);
    if (status != K3_OK) return status;
    if (o->help)
        print_help(table);
    else if (!o->trace)
        return k3_fail(err, K3_ERR_ARGUMENT, "which trace? Name one with --trace FILE");
    if (o->slots.n == 0) o->slots = (struct k3_amounts){.list = {{.is_share = true, .percent = 42}}, .n = 1};
    return K3_OK;
}

/* Puts what was asked for and what the trace has together. */
static k3_status fit_to_trace(struct options *o, const struct k3_trace *trace, struct k3_error *err)
{
    if (o->experts && o->experts < trace->n_experts)
        return k3_fail(err, K3_ERR_ARGUMENT, "--experts: there are not %u, %s has expert %u", o->experts,
                       o->trace, trace->n_experts - 1);
    if (!o->experts) o->experts = trace->n_experts;
    if (o->warm_up >= trace->n_tokens)
        return k3_fail(err, K3_ERR_ARGUMENT, "--warmup: %u tokens leave none to count, %s has %u", o->warm_up,
                       o->trace, trace->n_tokens);
    return K3_OK;
}

static k3_status measure_row(const struct options *o, const struct k3_trace *trace,
                             const struct k3_amount *amount, struct row *row, struct k3_error *err)
{
    uint64_t keys = (uint64_t)trace->n_layers * o->experts, slots = k3_amount_of(amount, keys);
    if (slots > keys)
        return k3_fail(err, K3_ERR_ARGUMENT, "--slots: %llu are more than the %llu experts there are",
                       (unsigned long long)slots, (unsigned long long)keys);
    struct k3_policy_shape shape = {trace->n_layers, o->experts, (uint32_t)slots};
    row->slots = shape.n_slots;
    for (size_t i = 0; k3_candidates[i].name; i++) {
        struct k3_replay result;
        k3_status status = k3_replay(trace, &shape, &k3_candidates[i], o->warm_up, &result, err);
        if (status != K3_OK) return status;
        row->hit_rate[i] = result.requests ? (double)result.hits / (double)result.requests : 0;
        if (k3_interrupted()) return k3_fail(err, K3_ERR_CANCELLED, "interrupted");
    }
    return K3_OK;
}

static void print_head(const struct options *o, const struct k3_trace *trace)
{
    k3_out("%s: %u tokens, %u layers of %u experts; hits in %% of requests after %u tokens\n\n", o->trace,
           trace->n_tokens, trace->n_layers, o->experts, o->warm_up);
    k3_out("%8s %7s", "slots", "share");
    for (size_t i = 0; k3_candidates[i].name; i++) k3_out(" %7s", k3_candidates[i].name);
    k3_out("\n");
}

static void print_row(const struct options *o, const struct k3_trace *trace, const struct row *row)
{
    k3_out("%8u %6.1f%%", row->slots, 100.0 * row->slots / ((double)trace->n_layers * o->experts));
    for (size_t i = 0; k3_candidates[i].name; i++) k3_out(" %7.1f", 100 * row->hit_rate[i]);
    k3_out("\n");
}

static k3_status print_json(const struct options *o, const struct k3_trace *trace, const struct row *row,
                            struct k3_error *err)
{
    json_t *policies = json_object();
    for (size_t i = 0; k3_candidates[i].name; i++)
        json_object_set_new(policies, k3_candidates[i].name, json_real(row->hit_rate[i]));
    json_t *object = json_pack(
        "{s:o, s:I, s:I, s:I, s:I, s:I, s:o}", "trace", k3_json_text(o->trace, strlen(o->trace)), "tokens",
        (json_int_t)trace->n_tokens, "layers", (json_int_t)trace->n_layers, "experts", (json_int_t)o->experts,
        "warmup", (json_int_t)o->warm_up, "slots", (json_int_t)row->slots, "policies", policies);
    char *text = object ? json_dumps(object, JSON_REAL_PRECISION(6)) : NULL;
    json_decref(object);
    if (!text) return k3_fail_memory(err, "the JSON text", 0);
    k3_out("%s\n", text);
    free(text);
    return K3_OK;
}

int k3_verb_policy(int argc, char **argv)
{
    struct k3_error err;
    struct options o;
    struct k3_trace trace = {0};
    k3_status status = parse_options(argc, argv, &o, &err);
    if (status != K3_OK || o.help) return k3_program_end(status, &err);
    status = k3_trace_read(o.trace, &trace, &err);
    if (status == K3_OK) status = fit_to_trace(&o, &trace, &err);
    for (size_t i = 0; i < o.slots.n && status == K3_OK; i++) {
        struct row row = {0};
        status = measure_row(&o, &trace, &o.slots.list[i], &row, &err);
        if (status != K3_OK) break;
        if (i == 0 && !o.json) print_head(&o, &trace);
        if (o.json)
            status = print_json(&o, &trace, &row, &err);
        else
            print_row(&o, &trace, &row);
    }
    k3_trace_free(&trace);
    return k3_program_end(status, &err);
}
