/* verb_speed.c - how many tokens a second: decode (one at a time) and prefill (many at a time).
 *
 * A row is one place in the context. The tokens before it are fed once and kept as a snapshot; each
 * repetition goes back to it, so all measure the same work. Tokens are pseudo-random ids, the same in every
 * run: speed does not depend on what they mean, only on which experts they reach. */
#include "verbs.h"

#include "common/engine.h"
#include "common/number.h"
#include "common/program.h"
#include "common/telemetry.h"
#include "base/clock.h"

#include <jansson.h>
#include <stdlib.h>

#define MAX_REPETITIONS 100

struct options {
    struct k3_engine engine;
    struct k3_telemetry telemetry;
    bool prefill; /* else decode */
    uint32_t tokens, repetitions, at, batch;
    bool json, help;
};

struct row {
    uint32_t context, tokens;
    double total_s[MAX_REPETITIONS]; /* ascending */
};

struct bench {
    struct options o;
    struct k3_model *model;
    struct k3_model_info info;
    struct k3_session *session;
    struct k3_snapshot *start; /* after `context` tokens */
    int32_t *ids;              /* [at + tokens] */
    float *logits;             /* [n_vocab] */
    struct k3_progress loading, feeding;
};

static void print_help(const struct k3_option *table)
{
    k3_options_help("Usage: k3bench decode|prefill [-m FILE] [-n N] [--at N]\n"
                    "Measures tokens a second of a model on this machine.\n",
                    table);
    k3_out("\nExamples\n"
           "  k3bench decode -n 64\n"
           "  k3bench prefill -n 512 --at 1024 --json\n");
}

static k3_status parse_options(int argc, char **argv, struct options *o, struct k3_error *err)
{
    const struct k3_option table[] = {
        {.kind = K3_OPTION_HEADING, .help = "Measurement"},
        {K3_OPTION_U32, 'n', "tokens", &o->tokens, 1, 1 << 20, "N",
         "tokens in a repetition (default: 32 in decode, 512 in prefill)"},
        {K3_OPTION_U32, 'r', "repetitions", &o->repetitions, 1, MAX_REPETITIONS, "N", "(default: 5)"},
        {K3_OPTION_U32, 0, "at", &o->at, 0, 1 << 20, "N", "tokens that come before (default: 0)"},
        {K3_OPTION_U32, 0, "batch", &o->batch, 0, UINT32_MAX, "N",
         "most tokens computed together in prefill (default: 0, chosen)"},
        {K3_OPTION_FLAG, 0, "json", &o->json, 0, 0, NULL, "one JSON object instead of a table"},
        K3_HELP_OPTION(o->help),
        {.kind = K3_OPTION_HEADING, .help = "Model and engine"},
        K3_ENGINE_OPTIONS(o->engine),
        {.kind = K3_OPTION_HEADING, .help = "Files"},
        K3_TELEMETRY_OPTIONS(o->telemetry),
        {.kind = K3_OPTION_END},
    };
    k3_status status = k3_options_parse(argc, argv, table, 0, err);
    if (status != K3_OK) return status;
    if (o->help) print_help(table);
    if (!o->tokens) o->tokens = o->prefill ? 512 : 32;
    if (!o->repetitions) o->repetitions = 5;
    return K3_OK;
}

/* The multiplier and increment of Knuth's MMIX generator; its high bits are the good ones. */
static void fill_ids(int32_t *ids, size_t n, uint32_t n_vocab)
{
    uint64_t x = 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((x >> 33) % n_vocab);
    }
}

static k3_status open_bench(struct bench *b, struct k3_error *err)
{
    k3_status status = k3_engine_open(&b->o.engine, &b->loading, &b->model, err);
    if (status != K3_OK) return status;
    k3_model_get_info(b->model, &b->info);

    size_t n = (size_t)b->o.at + b->o.tokens;
    b->ids = calloc(n, sizeof *b->ids);
    b->logits = calloc(b->info.n_vocab, sizeof *b->logits);
    if (!b->ids || !b->logits) return k3_fail_memory(err, "tokens and logits", n * sizeof *b->ids);
    fill_ids(b->ids, n, b->info.n_vocab);

    struct k3_session_options session = {.context = b->o.engine.context, .batch = b->o.batch};
    status = k3_session_create(b->model, &session, &b->session, err);
    if (status == K3_OK) status = k3_telemetry_open(&b->o.telemetry, b->model, err);
    if (status != K3_OK) return status;
    k3_session_set_progress(b->session, k3_progress_show, &b->feeding);
    k3_progress_begin(&b->feeding);
    status = k3_session_feed(b->session, b->ids, b->o.at, NULL, 0, NULL, err);
    k3_progress_clear(&b->feeding);
    return status == K3_OK ? k3_session_snapshot(b->session, &b->start, err) : status;
}

static void close_bench(struct bench *b)
{
    k3_snapshot_free(b->start);
    k3_session_free(b->session);
    k3_model_close(b->model);
    free(b->logits);
    free(b->ids);
}

/* One repetition. Logits of the last token are computed, as they are when the engine is used. */
static k3_status measure_once(struct bench *b, double *seconds, struct k3_error *err)
{
    k3_status status = k3_session_restore(b->session, b->start, err);
    const int32_t *ids = b->ids + b->o.at;
    uint32_t step = b->o.prefill ? b->o.tokens : 1;
    k3_progress_begin(&b->feeding);
    uint64_t begin = k3_now_ns();
    for (uint32_t i = 0; i < b->o.tokens && status == K3_OK; i += step)
        status = k3_session_feed(b->session, ids + i, step, NULL, 1, b->logits, err);
    *seconds = (double)(k3_now_ns() - begin) / 1e9;
    k3_progress_clear(&b->feeding);
    return status;
}

static int compare_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static k3_status measure_row(struct bench *b, struct row *row, struct k3_error *err)
{
    double warm_up;
    k3_status status = measure_once(b, &warm_up, err);
    for (uint32_t i = 0; i < b->o.repetitions && status == K3_OK; i++)
        status = measure_once(b, &row->total_s[i], err);
    row->context = b->o.at;
    row->tokens = b->o.tokens;
    qsort(row->total_s, b->o.repetitions, sizeof *row->total_s, compare_seconds);
    return status;
}

static k3_status report(const struct bench *b, const struct row *row, struct k3_error *err)
{
    uint32_t last = b->o.repetitions - 1;
    double median = (row->total_s[last / 2] + row->total_s[(last + 1) / 2]) / 2;
    double rate = row->tokens / median, slowest = row->tokens / row->total_s[last],
           fastest = row->tokens / row->total_s[0];
    const char *verb = b->o.prefill ? "prefill" : "decode";
    if (!b->o.json) {
        k3_out("%s of %s, %d threads, %u repetitions\n\n", verb, b->o.engine.model, b->info.threads,
               b->o.repetitions);
        k3_out("%10s %10s %12s %12s %12s %12s\n", "context", "tokens", "tokens/s", "slowest", "fastest",
               "seconds");
        k3_out("%10u %10u %12.2f %12.2f %12.2f %12.4f\n", row->context, row->tokens, rate, slowest, fastest,
               median);
        return K3_OK;
    }
    json_t *object =
        json_pack("{s:s, s:s, s:i, s:i, s:[{s:I, s:I, s:f, s:f, s:f, s:f}]}", "verb", verb, "model",
                  b->o.engine.model, "threads", b->info.threads, "repetitions", (int)b->o.repetitions, "rows",
                  "context", (json_int_t)row->context, "tokens", (json_int_t)row->tokens, "tokens_per_s",
                  rate, "tokens_per_s_min", slowest, "tokens_per_s_max", fastest, "total_s", median);
    char *text = object ? json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(object);
    if (!text) return k3_fail_memory(err, "the JSON text", 0);
    k3_out("%s\n", text);
    free(text);
    return K3_OK;
}

/* The files of telemetry and the warm experts; the first failure is told. */
static k3_status end_bench(struct bench *b, k3_status status, struct k3_error *err)
{
    struct k3_error failure;
    k3_status told = k3_telemetry_close(&b->o.telemetry, b->session, &failure);
    if (status == K3_OK && told == K3_OK) told = k3_engine_save_warm(&b->o.engine, b->model, &failure);
    return status == K3_OK && told != K3_OK ? k3_fail(err, told, "%s", failure.message) : status;
}

static int measure(int argc, char **argv, bool prefill)
{
    struct k3_error err;
    struct bench b = {
        .o.prefill = prefill, .loading.unit = K3_PROGRESS_BYTES, .feeding.unit = K3_PROGRESS_TOKENS};
    struct row row = {0};
    k3_status status = parse_options(argc, argv, &b.o, &err);
    if (status != K3_OK || b.o.help) return k3_program_end(status, &err);
    status = open_bench(&b, &err);
    if (status == K3_OK) status = measure_row(&b, &row, &err);
    if (status == K3_OK) status = report(&b, &row, &err);
    status = end_bench(&b, status, &err);
    close_bench(&b);
    return k3_program_end(status, &err);
}

int k3_verb_decode(int argc, char **argv)
{
    return measure(argc, argv, false);
}

int k3_verb_prefill(int argc, char **argv)
{
    return measure(argc, argv, true);
}
