/* verb_speed.c - how many tokens a second: decode (one at a time) and prefill (many at a time).
 *
 * A row is one place in the context. The tokens before it are fed once and kept as a snapshot; each
 * repetition goes back to it and feeds tokens of its own. The same ones again would find their experts in
 * memory, left there by the repetition before; new ones find what new text finds. Tokens are pseudo-random
 * ids, the same in every run: speed does not depend on what they mean, only on which experts they reach.
 *
 * The time of a repetition is `wait` (for an expert that is being read, with nothing to compute) and
 * `compute`, which is all else. Reading (`io`) goes on beside both. */
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

enum value {
    TOTAL,
    COMPUTE,
    IO,
    WAIT,
    HIT_RATE,
    BYTES_READ,
    N_VALUES,
};

static const char *const value_names[N_VALUES] = {"total_s", "compute_s", "io_s",
                                                  "wait_s",  "hit_rate",  "bytes_read"};

struct row {
    uint32_t context, tokens;
    uint32_t n_values;                        /* with mapped files only TOTAL is known */
    double values[N_VALUES][MAX_REPETITIONS]; /* each ascending in the end */
};

struct bench {
    struct options o;
    struct k3_model *model;
    struct k3_model_info info;
    struct k3_session *session;
    struct k3_snapshot *start; /* after `context` tokens */
    int32_t *ids;              /* [at], then [tokens] of the warm-up and of each repetition */
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

    size_t n = b->o.at + (size_t)b->o.tokens * (b->o.repetitions + 1);
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

/* What a repetition cost, from the store's counters before and after it. */
static void take_values(struct row *row, uint32_t i, double total_s, const struct k3_expert_stats *before,
                        const struct k3_expert_stats *after)
{
    uint64_t requests = after->requests - before->requests, hits = after->hits - before->hits;
    double wait_s = after->wait_seconds - before->wait_seconds;
    row->values[TOTAL][i] = total_s;
    row->values[COMPUTE][i] = total_s - wait_s;
    row->values[IO][i] = after->read_seconds - before->read_seconds;
    row->values[WAIT][i] = wait_s;
    row->values[HIT_RATE][i] = requests ? (double)hits / (double)requests : 0;
    row->values[BYTES_READ][i] = (double)(after->bytes_read - before->bytes_read);
}

/* Feeds `ids` after the snapshot. Logits of the last token are computed, as they are when the engine is used. */
static k3_status measure_once(struct bench *b, const int32_t *ids, struct row *row, uint32_t repetition,
                              struct k3_error *err)
{
    struct k3_expert_stats before, after;
    k3_status status = k3_session_restore(b->session, b->start, err);
    uint32_t step = b->o.prefill ? b->o.tokens : 1;
    k3_model_get_expert_stats(b->model, K3_ALL_LAYERS, &before);
    k3_progress_begin(&b->feeding);
    uint64_t begin = k3_now_ns();
    for (uint32_t i = 0; i < b->o.tokens && status == K3_OK; i += step) {
        status = k3_session_feed(b->session, ids + i, step, NULL, 1, b->logits, err);
        if (status == K3_OK && k3_interrupted()) status = k3_fail(err, K3_ERR_CANCELLED, "interrupted");
    }
    double total_s = (double)(k3_now_ns() - begin) / 1e9;
    k3_progress_clear(&b->feeding);
    k3_model_get_expert_stats(b->model, K3_ALL_LAYERS, &after);
    take_values(row, repetition, total_s, &before, &after);
    return status;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static k3_status measure_row(struct bench *b, struct row *row, struct k3_error *err)
{
    const int32_t *ids = b->ids + b->o.at;
    k3_status status = measure_once(b, ids, row, 0, err); /* the warm-up, overwritten */
    for (uint32_t i = 0; i < b->o.repetitions && status == K3_OK; i++)
        status = measure_once(b, ids += b->o.tokens, row, i, err);
    row->context = b->o.at;
    row->tokens = b->o.tokens;
    row->n_values = b->info.slots ? N_VALUES : TOTAL + 1;
    for (uint32_t v = 0; v < row->n_values; v++)
        qsort(row->values[v], b->o.repetitions, sizeof(double), compare_doubles);
    return status;
}

/* ---- report ---- */

static double median(const struct bench *b, const struct row *row, enum value v)
{
    uint32_t last = b->o.repetitions - 1;
    return (row->values[v][last / 2] + row->values[v][(last + 1) / 2]) / 2;
}

static double rate(const struct row *row, double seconds)
{
    return row->tokens / seconds;
}

static void print_table(const struct bench *b, const struct row *row)
{
    const double *seconds = row->values[TOTAL];
    k3_out("%s of %s, %d threads, %u repetitions\n\n", b->o.prefill ? "prefill" : "decode", b->o.engine.model,
           b->info.threads, b->o.repetitions);
    k3_out("%8s %8s %10s %10s %10s %10s", "context", "tokens", "tokens/s", "slowest", "fastest", "seconds");
    if (row->n_values == N_VALUES)
        k3_out(" %10s %10s %10s %7s %10s", "compute s", "io s", "wait s", "hits", "read");
    k3_out("\n%8u %8u %10.2f %10.2f %10.2f %10.4f", row->context, row->tokens,
           rate(row, median(b, row, TOTAL)), rate(row, seconds[b->o.repetitions - 1]), rate(row, seconds[0]),
           median(b, row, TOTAL));
    if (row->n_values == N_VALUES) {
        char bytes[K3_NUMBER_MAX];
        k3_out(" %10.4f %10.4f %10.4f %6.1f%% %10s", median(b, row, COMPUTE), median(b, row, IO),
               median(b, row, WAIT), 100 * median(b, row, HIT_RATE),
               k3_format_bytes((uint64_t)median(b, row, BYTES_READ), bytes));
    }
    k3_out("\n");
}

static k3_status print_json(const struct bench *b, const struct row *row, struct k3_error *err)
{
    const double *seconds = row->values[TOTAL];
    json_t *object = json_pack(
        "{s:s, s:s, s:i, s:i, s:[{s:I, s:I, s:f, s:f, s:f}]}", "verb", b->o.prefill ? "prefill" : "decode",
        "model", b->o.engine.model, "threads", b->info.threads, "repetitions", (int)b->o.repetitions, "rows",
        "context", (json_int_t)row->context, "tokens", (json_int_t)row->tokens, "tokens_per_s",
        rate(row, median(b, row, TOTAL)), "tokens_per_s_min", rate(row, seconds[b->o.repetitions - 1]),
        "tokens_per_s_max", rate(row, seconds[0]));
    json_t *values = json_array_get(json_object_get(object, "rows"), 0);
    for (uint32_t v = 0; v < row->n_values; v++) {
        double x = median(b, row, v);
        json_object_set_new(values, value_names[v],
                            v == BYTES_READ ? json_integer((json_int_t)x) : json_real(x));
    }
    char *text = object ? json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(object);
    if (!text) return k3_fail_memory(err, "the JSON text", 0);
    k3_out("%s\n", text);
    free(text);
    return K3_OK;
}

static k3_status report(const struct bench *b, const struct row *row, struct k3_error *err)
{
    if (b->o.json) return print_json(b, row, err);
    print_table(b, row);
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
