/* verb_floats.c - how fast the loops over floats are, in each set of instructions that runs here.
 *
 * Sizes are those of K3 (architecture.md section 1), in the cache of one core. Sets take turns, loop by loop. */
#include "verbs.h"

#include "base/clock.h"
#include "base/memory.h"
#include "common/options.h"
#include "common/program.h"
#include "lists.h"
#include "machine.h"
#include "ops/vectors.h"
#include "report.h"
#include "samples.h"

#include <stdlib.h>
#include <string.h>

#define SECONDS 0.004 /* of one measurement */
#define WIDTH   7168  /* of the stream */
#define HEAD    128   /* of KDA */
#define CHANNEL 12288 /* of the convolutions */
#define TAPS    4
#define MLA     576 /* of a cached row */
#define RANK    512
#define TOKENS  16 /* that KDA and MLA take together in prefill */
#define FLOATS  (1 << 18)

/* What the loops work on; values are ordinary numbers, and stay so. */
struct floats {
    float *x, *y, *w, *z; /* [FLOATS] */
    uint16_t *h;          /* [FLOATS] */
};

typedef void (*run_fn)(const struct k3_vectors *v, const struct floats *f);

static void run_dot(const struct k3_vectors *v, const struct floats *f)
{
    f->z[0] = v->dot(f->x, f->y, WIDTH);
}

static void run_square_and_dot(const struct k3_vectors *v, const struct floats *f)
{
    v->square_and_dot(f->x, f->w, WIDTH, &f->z[0], &f->z[1]);
}

static void run_exp(const struct k3_vectors *v, const struct floats *f)
{
    memcpy(f->z, f->x, WIDTH * sizeof(float));
    v->exp(f->z, WIDTH);
}

static void run_gate(const struct k3_vectors *v, const struct floats *f)
{
    memcpy(f->z, f->x, WIDTH * sizeof(float));
    v->gate(f->z, f->y, WIDTH);
}

static void run_situ(const struct k3_vectors *v, const struct floats *f)
{
    memcpy(f->z, f->x, WIDTH * sizeof(float));
    v->situ(f->z, f->y, 4, 25, WIDTH);
}

static void run_add_scaled(const struct k3_vectors *v, const struct floats *f)
{
    memcpy(f->z, f->x, WIDTH * sizeof(float));
    v->add_scaled(f->z, 0.5f, f->y, WIDTH);
}

static void run_norm(const struct k3_vectors *v, const struct floats *f)
{
    v->norm(f->x, f->w, 0.5f, f->z, WIDTH);
}

static void run_decay(const struct k3_vectors *v, const struct floats *f)
{
    memcpy(f->z, f->x, WIDTH * sizeof(float));
    v->decay(f->z, f->y, -0.5f, -5, WIDTH);
}

static void run_from_f16(const struct k3_vectors *v, const struct floats *f)
{
    v->from_f16(f->h, f->z, WIDTH);
}

static void run_conv(const struct k3_vectors *v, const struct floats *f)
{
    struct k3_conv conv = {f->x, f->w, 1, TAPS, CHANNEL, CHANNEL, f->z};
    v->conv(&conv);
}

static void run_kda(const struct k3_vectors *v, const struct floats *f, size_t n)
{
    const size_t rows = TOKENS * HEAD;
    /* Half of a state is forgotten in a token, so it stays small. */
    struct k3_kda_head head = {f->x, f->x + rows, f->x + 2 * rows,   f->w, f->w, n, HEAD, HEAD,
                               1,    f->z,        f->z + HEAD * HEAD};
    v->kda_head(&head);
}

static void run_kda_1(const struct k3_vectors *v, const struct floats *f)
{
    run_kda(v, f, 1);
}

static void run_kda_16(const struct k3_vectors *v, const struct floats *f)
{
    run_kda(v, f, TOKENS);
}

static void run_mla(const struct k3_vectors *v, const struct floats *f, size_t n)
{
    float *top = f->z + TOKENS * RANK, *sum = top + TOKENS, *scores = sum + TOKENS;
    size_t seen[TOKENS];
    for (size_t i = 0; i < n; i++) {
        top[i] = -1e30f;
        sum[i] = 0;
        seen[i] = K3_MLA_KEYS;
    }
    struct k3_mla_queries queries = {n, RANK, MLA, 0.07f, true, f->y, f->z, top, sum, scores};
    v->mla_keys(&queries, f->x, seen);
}

static void run_mla_1(const struct k3_vectors *v, const struct floats *f)
{
    run_mla(v, f, 1);
}

static void run_mla_16(const struct k3_vectors *v, const struct floats *f)
{
    run_mla(v, f, TOKENS);
}

/* Values are those that go through a loop; bytes, those it reads and writes, states included. */
static const struct loop {
    const char *name;
    run_fn run;
    double values, bytes;
} loops[] = {
    {"kda_head", run_kda_1, HEAD *HEAD, 8.0 * HEAD *HEAD},
    {"kda_head x16", run_kda_16, TOKENS *HEAD *HEAD, 8.0 * HEAD *HEAD},
    {"mla_keys", run_mla_1, K3_MLA_KEYS *MLA, 4.0 * K3_MLA_KEYS *MLA},
    {"mla_keys x16", run_mla_16, TOKENS *K3_MLA_KEYS *MLA, 4.0 * K3_MLA_KEYS *MLA},
    {"conv", run_conv, CHANNEL, 4.0 * CHANNEL *(2 * TAPS + 1)},
    {"situ", run_situ, WIDTH, 12.0 * WIDTH},
    {"decay", run_decay, WIDTH, 12.0 * WIDTH},
    {"gate", run_gate, WIDTH, 12.0 * WIDTH},
    {"exp", run_exp, WIDTH, 8.0 * WIDTH},
    {"square_and_dot", run_square_and_dot, WIDTH, 8.0 * WIDTH},
    {"norm", run_norm, WIDTH, 12.0 * WIDTH},
    {"add_scaled", run_add_scaled, WIDTH, 12.0 * WIDTH},
    {"dot", run_dot, WIDTH, 8.0 * WIDTH},
    {"from_f16", run_from_f16, WIDTH, 6.0 * WIDTH},
};

#define N_LOOPS (sizeof loops / sizeof *loops)

struct options {
    const char *variants;
    uint32_t repetitions;
    struct k3_report report;
    bool help;
};

static const char *set_name(size_t i)
{
    const struct k3_vectors *v = k3_vectors_at(i);
    return v ? v->name : NULL;
}

static k3_status parse_options(int argc, char **argv, struct options *o, struct k3_error *err)
{
    const struct k3_option table[] = {
        {.kind = K3_OPTION_HEADING, .help = "Options"},
        {K3_OPTION_TEXT, 0, "variants", &o->variants, 0, 0, "LIST",
         "sets of instructions (default: all that run here)"},
        {K3_OPTION_U32, 'r', "repetitions", &o->repetitions, 1, K3_MAX_SAMPLES, "N", "(default: 5)"},
        K3_REPORT_OPTIONS(o->report),
        K3_HELP_OPTION(o->help),
        {.kind = K3_OPTION_END},
    };
    *o = (struct options){.repetitions = 5};
    k3_status status = k3_options_parse(argc, argv, table, 0, err);
    if (status == K3_OK && o->help)
        k3_options_help("Usage: k3bench floats [--variants LIST]\n"
                        "Times the loops over floats: attention, activations, norms. No model is needed.\n",
                        table);
    if (status == K3_OK) status = k3_report_check(&o->report, err);
    return status == K3_OK ? k3_list_check("--variants", o->variants, set_name, err) : status;
}

/* ---- measuring ---- */

static k3_status open_floats(struct floats *f, struct k3_error *err)
{
    float *all = k3_buffer_alloc(5 * (size_t)FLOATS, sizeof *all);
    if (!all) return k3_fail_memory(err, "floats", 5 * (uint64_t)FLOATS * sizeof *all);
    for (size_t i = 0; i < 4 * (size_t)FLOATS; i++) all[i] = (float)(i * 2654435761u % 1024) / 1024 - 0.5f;
    *f = (struct floats){all, all + FLOATS, all + 2 * FLOATS, all + 3 * FLOATS,
                         (uint16_t *)(all + 4 * FLOATS)};
    for (size_t i = 0; i < FLOATS; i++) f->h[i] = (uint16_t)(0x3000 + i % 1024);
    return K3_OK;
}

/* Calls a second. *n becomes how many take about SECONDS. */
static double run_loop(const struct loop *loop, const struct k3_vectors *v, const struct floats *f, size_t *n)
{
    double taken = 0;
    for (bool known = *n > 0;; known = true) {
        if (!*n) *n = 4;
        uint64_t start = k3_now_ns();
        for (size_t i = 0; i < *n; i++) loop->run(v, f);
        taken = (double)(k3_now_ns() - start + 1) / 1e9;
        if (known || taken > SECONDS) return (double)*n / taken;
        *n = (size_t)((double)*n * SECONDS / taken) + 1;
    }
}

static json_t *row_json(const struct loop *loop, const char *variant, const struct k3_samples *rate)
{
    double median = k3_samples_median(rate);
    return json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "name", loop->name, "variant",
                     variant, "threads", 1, "seconds", 1 / median, "values_per_s", median * loop->values,
                     "values_per_s_min", k3_samples_min(rate) * loop->values, "values_per_s_max",
                     k3_samples_max(rate) * loop->values, "bytes_per_s", median * loop->bytes, "spread",
                     k3_samples_spread(rate), "repetitions", (json_int_t)rate->n);
}

/* Adds the rows of a loop, one for each set. */
static k3_status measure(const struct options *o, const struct loop *loop, const struct floats *f,
                         json_t *rows, struct k3_samples *spread, struct k3_error *err)
{
    const struct k3_vectors *v;
    struct k3_samples rates[K3_MAX_LIST] = {0};
    size_t calls[K3_MAX_LIST] = {0};
    for (uint32_t r = 0; r <= o->repetitions; r++)
        for (size_t k = 0; k < K3_MAX_LIST && (v = k3_vectors_at(k)); k++) {
            if (!k3_list_has(o->variants, v->name)) continue;
            double rate = run_loop(loop, v, f, &calls[k]);
            if (r) k3_samples_add(&rates[k], rate);
            if (k3_interrupted()) return k3_fail(err, K3_ERR_CANCELLED, "interrupted");
        }
    for (size_t k = 0; k < K3_MAX_LIST && (v = k3_vectors_at(k)); k++) {
        if (!rates[k].n) continue;
        k3_samples_add(spread, k3_samples_spread(&rates[k]));
        if (json_array_append_new(rows, row_json(loop, v->name, &rates[k])) != 0)
            return k3_fail_memory(err, "the results", 0);
    }
    return K3_OK;
}

/* ---- results ---- */

static k3_status report(const struct options *o, json_t *rows, const json_t *noise, struct k3_error *err)
{
    static const struct k3_column columns[] = {
        {"name", "loop", 15, 0, 0},
        {"variant", "set", 9, 0, 0},
        {"seconds", "us", 10, 3, 1e6},
        {"values_per_s", "Gvalues/s", 10, 2, 1e-9},
        {"values_per_s_min", "min", 8, 2, 1e-9},
        {"values_per_s_max", "max", 8, 2, 1e-9},
        {"bytes_per_s", "GB/s", 8, 1, 1e-9},
        {0},
    };
    bool table = !o->report.json && !o->report.csv;
    k3_status status = K3_OK;
    if (o->report.json) status = k3_report_json(rows, err);
    if (o->report.csv) status = k3_report_csv(rows, err);
    if (table) k3_report_table(rows, columns);
    k3_noise_warn(noise, table);
    return status;
}

int k3_verb_floats(int argc, char **argv)
{
    struct k3_error err;
    struct options o;
    struct floats f = {0};
    struct k3_noise noise_begin;
    struct k3_samples spread = {0};
    json_t *rows = json_array(), *noise = NULL;
    k3_status status = parse_options(argc, argv, &o, &err);
    if (status == K3_OK && !o.help) {
        k3_noise_begin(&noise_begin);
        status = open_floats(&f, &err);
        for (size_t i = 0; i < N_LOOPS && status == K3_OK; i++)
            status = measure(&o, &loops[i], &f, rows, &spread, &err);
        noise = k3_noise_json(&noise_begin, k3_samples_median(&spread));
        if (status == K3_OK) status = k3_machine_add(rows, noise, &err);
        if (status == K3_OK) status = report(&o, rows, noise, &err);
    }
    json_decref(rows);
    json_decref(noise);
    free(f.x);
    return k3_program_end(status, &err);
}
