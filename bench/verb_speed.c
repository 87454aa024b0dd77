/* verb_speed.c - how many tokens a second: decode (one at a time) and prefill (many at a time).
 *
 * A row is one place in the context. The tokens before it are fed once and kept as a checkpoint; each repetition goes
 * back to it and feeds tokens of its own. The same ones again would find their experts in memory, left there by the
 * repetition before; new ones find what new text finds. Tokens are pseudo-random ids, the same in every run: speed does
 * not depend on what they mean, only on which experts they reach.
 *
 * The time of a repetition is `wait` (for an expert that is being read, with nothing to compute) and `compute`, which is
 * all else. Reading (`io`) goes on beside both. Computing that is slowed down by reading counts as computing there, so
 * after each repetition of decode the same ids are fed once more, with their experts in memory: `compute_alone`. */
#include "speed.h"
#include "verbs.h"

#include "base/clock.h"
#include "common/number.h"
#include "common/program.h"

#include <stdlib.h>

const char *const k3_speed_names[K3_SPEED_VALUES] = {
    "total_s", "compute_s", "io_s", "wait_s", "hit_rate", "bytes_read", "compute_alone_s", "overlap_ratio"};

/* ---- options ---- */

static void print_help(const struct k3_option *table)
{
    k3_options_help("Usage: k3bench decode|prefill [-m FILE] [-n N] [--at LIST]\n"
                    "Measures tokens a second of a model on this machine.\n",
                    table);
    k3_out("\nExamples\n"
           "  k3bench decode -n 64 --at 0,4K,16K,64K\n"
           "  k3bench prefill -n 512 --at 1024 --json\n");
}

static k3_status parse_options(int argc, char **argv, struct k3_speed_options *o, struct k3_error *err)
{
    const struct k3_option table[] = {
        {.kind = K3_OPTION_HEADING, .help = "Measurement"},
        {K3_OPTION_U32, 'n', "tokens", &o->tokens, 1, 1 << 20, "N",
         "tokens in a repetition (default: 32 in decode, 512 in prefill)"},
        {K3_OPTION_U32, 'r', "repetitions", &o->repetitions, 1, K3_MAX_SAMPLES, "N", "(default: 5)"},
        {K3_OPTION_TEXT, 0, "at", &o->at_text, 0, 0, "LIST",
         "tokens that come before, a row for each, such as 0,4K,16K\n(default: 0)"},
        {K3_OPTION_U32, 0, "batch", &o->batch, 0, UINT32_MAX, "N",
         "most tokens computed together in prefill (default: 0, chosen)"},
        K3_REPORT_OPTIONS(o->report),
        K3_HELP_OPTION(o->help),
        {.kind = K3_OPTION_HEADING, .help = "Model and engine"},
        K3_ENGINE_OPTIONS(o->engine),
        {.kind = K3_OPTION_HEADING, .help = "Files"},
        K3_TELEMETRY_OPTIONS(o->telemetry),
        {.kind = K3_OPTION_END},
    };
    o->at_text = "0";
    k3_status status = k3_options_parse(argc, argv, table, 0, err);
    if (status == K3_OK) status = k3_report_check(&o->report, err);
    if (status == K3_OK) status = k3_numbers_parse("--at", o->at_text, 0, 1 << 20, &o->at, err);
    if (status != K3_OK) return status;
    for (uint32_t i = 1; i < o->at.n; i++)
        if (o->at.list[i] <= o->at.list[i - 1])
            return k3_fail(err, K3_ERR_ARGUMENT, "--at: %u comes after %u, but the list must ascend",
                           o->at.list[i], o->at.list[i - 1]);
    if (o->help) print_help(table);
    if (!o->tokens) o->tokens = o->prefill ? 512 : 32;
    if (!o->repetitions) o->repetitions = 5;
    return K3_OK;
}

/* ---- the model ---- */

/* The multiplier and increment of Knuth's MMIX generator; its high bits are the good ones. */
static void fill_ids(int32_t *ids, size_t n, uint32_t n_vocab)
{
    uint64_t x = 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((x >> 33) % n_vocab);
    }
}

static uint32_t longest(const struct k3_speed *b)
{
    return b->o.at.list[b->o.at.n - 1];
}

/* A context that holds the longest row, if the one that would be chosen is shorter. */
static k3_status choose_context(struct k3_speed *b, struct k3_error *err)
{
    struct k3_memory_plan memory;
    if (b->o.engine.context) return K3_OK;
    k3_status status = k3_engine_plan(&b->o.engine, &memory, err);
    if (status == K3_OK && memory.context < longest(b) + b->o.tokens)
        b->o.engine.context = longest(b) + b->o.tokens;
    return status;
}

static k3_status open_bench(struct k3_speed *b, struct k3_error *err)
{
    k3_status status = k3_machine_kernels(err);
    if (status == K3_OK) status = choose_context(b, err);
    if (status == K3_OK) status = k3_engine_open(&b->o.engine, &b->loading, &b->model, err);
    if (status != K3_OK) return status;
    k3_model_get_info(b->model, &b->info);

    size_t n = longest(b) + (size_t)b->o.tokens * (b->o.repetitions + 1);
    b->ids = calloc(n, sizeof *b->ids);
    b->logits = calloc(b->info.n_vocab, sizeof *b->logits);
    if (!b->ids || !b->logits) return k3_fail_memory(err, "tokens and logits", n * sizeof *b->ids);
    fill_ids(b->ids, n, b->info.n_vocab);

    struct k3_session_options session = {
        .context = b->o.engine.context, .batch = b->o.batch, .max_checkpoints = 1};
    status = k3_session_create(b->model, &session, &b->session, err);
    const struct k3_telemetry *t = &b->o.telemetry;
    b->keep_out = t->stats_path || t->timeline_path || t->routing_path;
    b->o.telemetry.also = (struct k3_observer){.ctx = &b->steps, .step = k3_steps_add};
    if (status == K3_OK) status = k3_telemetry_open(&b->o.telemetry, b->model, err);
    if (status != K3_OK) return status;
    k3_session_set_progress(b->session, k3_progress_show, &b->feeding);
    return K3_OK;
}

static void close_bench(struct k3_speed *b)
{
    k3_session_free(b->session);
    k3_model_close(b->model);
    free(b->logits);
    free(b->ids);
}

/* ---- measuring ---- */

/* Takes the session to where it has the first `context` ids. From a checkpoint there that is quick; at first the ids that
 * are missing are fed. */
static k3_status go_to(struct k3_speed *b, uint32_t context, struct k3_error *err)
{
    size_t kept;
    k3_status status = k3_session_resume(b->session, b->ids, (size_t)context + 1, &kept, err);
    if (status != K3_OK || kept == context) return status;
    k3_progress_begin(&b->feeding);
    status = k3_session_feed(b->session, b->ids + kept, context - kept, NULL, 0, NULL, err);
    k3_progress_clear(&b->feeding);
    return status == K3_OK ? k3_session_checkpoint(b->session, err) : status;
}

/* Feeds n ids at that place, one or all at a time. Logits of the last token are computed, as they are when the engine is
 * used. */
static k3_status feed(struct k3_speed *b, uint32_t context, const int32_t *ids, uint32_t n, double *seconds,
                      struct k3_error *err)
{
    k3_status status = go_to(b, context, err);
    uint32_t step = b->o.prefill ? n : 1;
    k3_steps_begin(&b->steps);
    k3_progress_begin(&b->feeding);
    uint64_t begin = k3_now_ns();
    for (uint32_t i = 0; i < n && status == K3_OK; i += step) {
        status = k3_session_feed(b->session, ids + i, step, NULL, 1, b->logits, err);
        if (status == K3_OK && k3_interrupted()) status = k3_fail(err, K3_ERR_CANCELLED, "interrupted");
    }
    *seconds = (double)(k3_now_ns() - begin) / 1e9;
    k3_progress_clear(&b->feeding);
    return status;
}

static struct k3_expert_stats stats_of(const struct k3_speed *b)
{
    struct k3_expert_stats stats;
    k3_model_get_expert_stats(b->model, K3_ALL_LAYERS, &stats);
    return stats;
}

/* How long the same ids take when nothing has to be read. Not all of their experts may fit into memory together; then as
 * many ids as do are fed twice, and the second time counts. Of a prefill all experts must be there. `requests` are those
 * of all ids. Leaves `seconds` negative if reading could not be avoided. */
static k3_status measure_alone(struct k3_speed *b, uint32_t context, const int32_t *ids, uint64_t requests,
                               double *seconds, struct k3_error *err)
{
    uint32_t n = b->o.tokens;
    uint64_t fit = requests ? (uint64_t)b->info.slots * n / requests : n;
    bool again = fit < n;
    *seconds = -1;
    if (again && (b->o.prefill || fit == 0)) return K3_OK;
    if (again) n = (uint32_t)fit;
    double taken;
    k3_status status = again ? feed(b, context, ids, n, &taken, err) : K3_OK;
    struct k3_expert_stats before = stats_of(b);
    if (status == K3_OK) status = feed(b, context, ids, n, &taken, err);
    struct k3_expert_stats after = stats_of(b);
    bool all_hit = after.hits - before.hits == after.requests - before.requests;
    if (status == K3_OK && all_hit) *seconds = taken * b->o.tokens / n;
    return status;
}

/* What a repetition cost, from the store's counters before and after it. With mapped files they know nothing. */
static k3_status take_values(struct k3_speed *b, struct k3_speed_row *row, double total_s, const int32_t *ids,
                             const struct k3_expert_stats *before, struct k3_error *err)
{
    struct k3_expert_stats after = stats_of(b);
    struct k3_samples *v = row->values;
    k3_samples_add(&v[K3_SPEED_TOTAL], total_s);
    for (uint32_t i = 0; i < b->steps.n; i++) k3_samples_add(&row->steps[i], (double)b->steps.ns[i] / 1e9);
    if (!b->info.slots) return K3_OK;

    uint64_t requests = after.requests - before->requests, hits = after.hits - before->hits,
             bytes = after.bytes_read - before->bytes_read;
    double wait_s = after.wait_seconds - before->wait_seconds,
           io_s = after.read_seconds - before->read_seconds;
    k3_samples_add(&v[K3_SPEED_COMPUTE], total_s - wait_s);
    k3_samples_add(&v[K3_SPEED_IO], io_s);
    k3_samples_add(&v[K3_SPEED_WAIT], wait_s);
    k3_samples_add(&v[K3_SPEED_HIT_RATE], requests ? (double)hits / (double)requests : 0);
    k3_samples_add(&v[K3_SPEED_BYTES_READ], (double)bytes);

    double alone_s = total_s;
    if (b->keep_out) return K3_OK;
    if (bytes || hits < requests) {
        k3_status status = measure_alone(b, row->context, ids, requests, &alone_s, err);
        if (status != K3_OK) return status;
    }
    if (alone_s < 0) return K3_OK;
    k3_samples_add(&v[K3_SPEED_ALONE], alone_s);
    k3_samples_add(&v[K3_SPEED_OVERLAP], total_s / (alone_s > io_s ? alone_s : io_s));
    return K3_OK;
}

static k3_status measure_row(struct k3_speed *b, struct k3_speed_row *row, struct k3_error *err)
{
    const int32_t *ids = b->ids + longest(b);
    double seconds;
    k3_status status = feed(b, row->context, ids, row->tokens, &seconds, err); /* the warm-up */
    for (uint32_t i = 0; i < b->o.repetitions && status == K3_OK; i++) {
        ids += b->o.tokens;
        struct k3_expert_stats before = stats_of(b);
        status = feed(b, row->context, ids, row->tokens, &seconds, err);
        if (status == K3_OK) status = take_values(b, row, seconds, ids, &before, err);
    }
    return status;
}

/* The files of telemetry and the warm experts; the first failure is told. */
static k3_status end_bench(struct k3_speed *b, k3_status status, struct k3_error *err)
{
    struct k3_error failure;
    k3_status told = k3_telemetry_close(&b->o.telemetry, b->session, &failure);
    if (status == K3_OK && told == K3_OK) told = k3_engine_save_warm(&b->o.engine, b->model, &failure);
    return status == K3_OK && told != K3_OK ? k3_fail(err, told, "%s", failure.message) : status;
}

static int measure(int argc, char **argv, bool prefill)
{
    struct k3_error err;
    struct k3_speed *b = calloc(1, sizeof *b);
    if (!b) return k3_program_end(k3_fail_memory(&err, "the results", sizeof *b), &err);
    b->o.prefill = prefill;
    b->loading.unit = K3_PROGRESS_BYTES;
    b->feeding.unit = K3_PROGRESS_TOKENS;
    k3_status status = parse_options(argc, argv, &b->o, &err);
    if (status == K3_OK && !b->o.help) {
        status = open_bench(b, &err);
        k3_noise_begin(&b->noise);
        for (uint32_t i = 0; i < b->o.at.n && status == K3_OK; i++) {
            b->rows[i].context = b->o.at.list[i];
            b->rows[i].tokens = b->o.tokens;
            status = measure_row(b, &b->rows[i], &err);
        }
        if (status == K3_OK) status = k3_speed_report(b, &err);
        status = end_bench(b, status, &err);
    }
    close_bench(b);
    free(b);
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
