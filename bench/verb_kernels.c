/* verb_kernels.c - how fast each implementation of each product is, beside what memory and instructions allow.
 *
 * Types are measured one after the other. Within a type all rows take turns: each repetition times every implementation,
 * number of columns and threads once, and the clock and the plain reading of memory with them, so that what disturbs the
 * machine for a while disturbs all alike. Medians are compared. */
#include "verbs.h"

#include "base/cpu.h"
#include "common/options.h"
#include "common/program.h"
#include "common/progress.h"
#include "lab.h"
#include "lists.h"
#include "machine.h"
#include "peak.h"
#include "report.h"
#include "samples.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECONDS         0.006 /* of one measurement */
#define STREAMED_UP_TO  8 /* columns: with more a product is bound by arithmetic wherever the weights lie */
#define DEFAULT_COLUMNS "1,8,32,512"
#define MAX_COLUMNS     4096
#define MAX_TYPES       K3_TYPE_COUNT
#define LEAST_STREAMED  ((uint64_t)256 << 20) /* bytes */
#define MOST_STREAMED   ((uint64_t)2 << 30)

struct options {
    const char *types, *variants, *columns_text, *threads_text;
    struct k3_numbers columns, threads;
    struct k3_amount streamed;
    uint32_t repetitions;
    struct k3_report report;
    bool help;
};

struct row {
    struct k3_case c;
    uint32_t thread_set;
    struct k3_samples rate; /* pieces a second */
};

/* What is measured together: the rows of one type. */
struct turn {
    enum k3_type type;
    struct row *rows;
    size_t n_rows;
    struct k3_case read;                    /* the plain reading of memory */
    struct k3_samples reading[K3_MAX_LIST]; /* bytes a second, by set of threads */
    struct k3_samples clock;
};

struct bench {
    struct options o;
    enum k3_type types[MAX_TYPES];
    size_t n_types;
    struct k3_ring ring;
    struct k3_pool *pools[K3_MAX_LIST]; /* one for each of o.threads */
    uint32_t cores;
    struct k3_progress progress;
    uint64_t n_done, n_all; /* measurements */
    struct k3_noise noise;
    struct k3_samples spread; /* of up to K3_MAX_SAMPLES rows */
    json_t *rows;
};

/* ---- what is measured ---- */

/* Those that people ask for come first. */
static enum k3_type type_at(size_t i)
{
    static const enum k3_type first[] = {K3_TYPE_IQ1_M, K3_TYPE_IQ2_XXS, K3_TYPE_Q8_0, K3_TYPE_MXFP4,
                                         K3_TYPE_F32};
    const size_t n_first = sizeof first / sizeof *first;
    if (i < n_first) return first[i];
    enum k3_type type = (enum k3_type)(i - n_first);
    for (size_t k = 0; k < n_first; k++)
        if (first[k] == type) return K3_TYPE_COUNT;
    return type;
}

static bool has_product(enum k3_type type)
{
    const struct k3_kernels *kernels;
    if (type >= K3_TYPE_COUNT || !k3_type_info(type)) return false;
    for (size_t k = 0; (kernels = k3_kernels_at(k)); k++)
        if (kernels->product[type]) return true;
    return false;
}

static const char *type_name(size_t i)
{
    for (size_t at = 0; at < 2 * K3_TYPE_COUNT; at++)
        if (has_product(type_at(at)) && i-- == 0) return k3_type_info(type_at(at))->name;
    return NULL;
}

static const char *variant_name(size_t i)
{
    const struct k3_kernels *kernels = k3_kernels_at(i);
    return kernels ? kernels->name : NULL;
}

static k3_status check_options(struct options *o, struct k3_error *err)
{
    const char *chosen = getenv("K3_CPU");
    if (!o->variants && chosen && *chosen) o->variants = chosen;
    k3_status status = k3_report_check(&o->report, err);
    if (status == K3_OK) status = k3_list_check("--types", o->types, type_name, err);
    if (status == K3_OK) status = k3_list_check("--variants", o->variants, variant_name, err);
    if (status == K3_OK)
        status = k3_numbers_parse("--columns", o->columns_text, 1, MAX_COLUMNS, &o->columns, err);
    if (status == K3_OK) status = k3_numbers_parse("--threads", o->threads_text, 0, 1024, &o->threads, err);
    if (status != K3_OK) return status;
    if (o->streamed.is_share)
        return k3_fail(err, K3_ERR_ARGUMENT, "--streamed: a number of bytes is needed, not a share");
    for (uint32_t i = 0; i < o->threads.n; i++)
        if (!o->threads.list[i]) o->threads.list[i] = (uint32_t)k3_cpu_count();
    if (!o->threads_text)
        o->threads = (struct k3_numbers){{1, (uint32_t)k3_cpu_count()}, k3_cpu_count() > 1 ? 2 : 1};
    return K3_OK;
}

static k3_status parse_options(int argc, char **argv, struct options *o, struct k3_error *err)
{
    const struct k3_option table[] = {
        {.kind = K3_OPTION_HEADING, .help = "Options"},
        {K3_OPTION_TEXT, 0, "types", &o->types, 0, 0, "LIST",
         "such as iq1_m,q8_0 (default: all that have a product)"},
        {K3_OPTION_TEXT, 0, "variants", &o->variants, 0, 0, "LIST",
         "implementations, such as avx512,portable\n(default: what K3_CPU names, or all that run here)"},
        {K3_OPTION_TEXT, 0, "columns", &o->columns_text, 0, 0, "LIST",
         "activations multiplied together (default: " DEFAULT_COLUMNS ")"},
        {K3_OPTION_TEXT, 't', "threads", &o->threads_text, 0, 0, "LIST",
         "0 is one per processor (default: 1,0)"},
        {K3_OPTION_U32, 'r', "repetitions", &o->repetitions, 1, K3_MAX_SAMPLES, "N", "(default: 5)"},
        {K3_OPTION_AMOUNT, 0, "streamed", &o->streamed, 0, 0, "SIZE",
         "weights to stream (default: 0, twice the largest cache,\n256 MiB to 2 GiB)"},
        K3_REPORT_OPTIONS(o->report),
        K3_HELP_OPTION(o->help),
        {.kind = K3_OPTION_END},
    };
    *o = (struct options){.columns_text = DEFAULT_COLUMNS, .repetitions = 5};
    k3_status status = k3_options_parse(argc, argv, table, 0, err);
    if (status == K3_OK && o->help)
        k3_options_help("Usage: k3bench kernels [--types LIST] [--variants LIST] [--columns LIST] [-t LIST]\n"
                        "Times the products of weights and activations, beside the memory's and the\n"
                        "instructions' limits measured in the same run. No model is needed.\n",
                        table);
    return status == K3_OK && !o->help ? check_options(o, err) : status;
}

/* Adds the rows of a type: implementations, best first, then columns, places of the weights and threads. */
static k3_status make_turn(const struct bench *b, enum k3_type type, struct turn *turn, struct k3_error *err)
{
    const struct k3_kernels *kernels;
    size_t n = 0, most;
    for (most = 0; k3_kernels_at(most);) most++;
    most *= (size_t)b->o.columns.n * b->o.threads.n * 2;
    *turn = (struct turn){.type = type, .rows = calloc(most, sizeof *turn->rows), .read = {.streamed = true}};
    if (!turn->rows) return k3_fail_memory(err, "the results", most * sizeof *turn->rows);
    for (size_t k = 0; (kernels = k3_kernels_at(k)); k++) {
        if (!kernels->product[type] || !k3_list_has(b->o.variants, kernels->name)) continue;
        for (uint32_t c = 0; c < b->o.columns.n; c++)
            for (int streamed = 0; streamed <= (b->o.columns.list[c] <= STREAMED_UP_TO); streamed++)
                for (uint32_t t = 0; t < b->o.threads.n; t++)
                    turn->rows[n++] =
                        (struct row){.c = {kernels, b->o.columns.list[c], streamed, 0}, .thread_set = t};
    }
    turn->n_rows = n;
    return K3_OK;
}

/* ---- measuring ---- */

static k3_status step(struct bench *b, struct k3_error *err)
{
    if (!k3_progress_show(&b->progress, "measuring", ++b->n_done, b->n_all))
        return k3_fail(err, K3_ERR_CANCELLED, "interrupted");
    return K3_OK;
}

/* Repetition 0 warms up and is not kept. */
static k3_status repeat(struct bench *b, struct turn *turn, struct k3_lab *lab, uint32_t repetition,
                        struct k3_error *err)
{
    bool keep = repetition > 0;
    k3_status status = K3_OK;
    double clock = k3_peak_clock();
    if (keep) k3_samples_add(&turn->clock, clock);
    for (uint32_t t = 0; t < b->o.threads.n; t++) {
        struct k3_case read = turn->read;
        double rate = k3_lab_run(lab, &read, b->pools[t], 3 * SECONDS) * (double)lab->piece_bytes;
        if (keep) k3_samples_add(&turn->reading[t], rate);
    }
    for (size_t i = 0; i < turn->n_rows && status == K3_OK; i++) {
        struct row *row = &turn->rows[i];
        double rate = k3_lab_run(lab, &row->c, b->pools[row->thread_set], SECONDS);
        if (keep) k3_samples_add(&row->rate, rate);
        status = step(b, err);
    }
    return status;
}

/* ---- results ---- */

static json_t *row_json(const struct bench *b, const struct turn *turn, const struct k3_lab *lab,
                        const struct row *row)
{
    const struct k3_case *c = &row->c;
    uint32_t threads = b->o.threads.list[row->thread_set];
    double weights = (double)(lab->piece_rows * lab->n), bytes = (double)(lab->piece_rows * lab->row_bytes);
    double rate = k3_samples_median(&row->rate), reading = k3_samples_median(&turn->reading[row->thread_set]);
    double clock = k3_samples_median(&turn->clock), units = threads < b->cores ? threads : b->cores;
    struct k3_peak peak = k3_peak_of(c->kernels->name, turn->type);
    double most = peak.per_cycle * clock * units, columns = (double)c->columns,
           multiply_adds = rate * weights * columns;
    json_t *object = json_pack(
        "{s:s, s:s, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "name",
        k3_type_info(turn->type)->name, "variant", c->kernels->name, "columns", (json_int_t)c->columns,
        "threads", (json_int_t)threads, "memory", c->streamed ? "streamed" : "resident", "weights_per_s",
        rate * weights, "weights_per_s_min", k3_samples_min(&row->rate) * weights, "weights_per_s_max",
        k3_samples_max(&row->rate) * weights, "spread", k3_samples_spread(&row->rate), "bytes_per_s",
        rate * bytes, "multiply_adds_per_s", multiply_adds, "multiply_adds_per_s_min",
        k3_samples_min(&row->rate) * weights * columns, "multiply_adds_per_s_max",
        k3_samples_max(&row->rate) * weights * columns, "share_of_bandwidth", rate * bytes / reading,
        "bandwidth_bytes_per_s", reading, "repetitions", (json_int_t)row->rate.n);
    json_object_set_new(object, "share_of_peak", most > 0 ? json_real(multiply_adds / most) : json_null());
    json_object_set_new(object, "peak_multiply_adds_per_s", most > 0 ? json_real(most) : json_null());
    json_object_set_new(object, "peak", json_string(peak.definition));
    json_object_set_new(object, "clock_hz", json_real(clock));
    return object;
}

static k3_status measure_type(struct bench *b, enum k3_type type, struct k3_error *err)
{
    struct k3_lab lab = {0};
    struct turn turn = {0};
    uint32_t max_columns = 1, max_threads = 1;
    for (uint32_t i = 0; i < b->o.columns.n; i++)
        if (b->o.columns.list[i] > max_columns) max_columns = b->o.columns.list[i];
    for (uint32_t i = 0; i < b->o.threads.n; i++)
        if (b->o.threads.list[i] > max_threads) max_threads = b->o.threads.list[i];

    k3_status status = make_turn(b, type, &turn, err);
    if (status == K3_OK) status = k3_lab_open(type, max_columns, (int)max_threads, &b->ring, &lab, err);
    for (uint32_t r = 0; r <= b->o.repetitions && status == K3_OK; r++)
        status = repeat(b, &turn, &lab, r, err);
    for (size_t i = 0; i < turn.n_rows && status == K3_OK; i++) {
        k3_samples_add(&b->spread, k3_samples_spread(&turn.rows[i].rate));
        if (json_array_append_new(b->rows, row_json(b, &turn, &lab, &turn.rows[i])) != 0)
            status = k3_fail_memory(err, "the results", 0);
    }
    k3_lab_close(&lab);
    free(turn.rows);
    return status;
}

/* Rows in the order in which they are shown: the best implementation's first. */
static k3_status sort_rows(struct bench *b, struct k3_error *err)
{
    json_t *sorted = json_array(), *row;
    size_t i;
    bool done = sorted;
    for (size_t k = 0; variant_name(k) && done; k++)
        json_array_foreach(b->rows, i, row)
            if (strcmp(json_string_value(json_object_get(row, "variant")), variant_name(k)) == 0)
                done = done && json_array_append(sorted, row) == 0;
    if (!done) {
        json_decref(sorted);
        return k3_fail_memory(err, "the results", 0);
    }
    json_decref(b->rows);
    b->rows = sorted;
    return K3_OK;
}

/* The limits of this machine, for each number of threads. */
static void print_limits(const struct bench *b)
{
    for (uint32_t t = 0; t < b->o.threads.n; t++) {
        struct k3_samples reading = {0}, clock = {0};
        size_t i;
        json_t *row;
        json_array_foreach(b->rows, i, row) {
            if (json_integer_value(json_object_get(row, "threads")) != b->o.threads.list[t]) continue;
            k3_samples_add(&reading, json_real_value(json_object_get(row, "bandwidth_bytes_per_s")));
            k3_samples_add(&clock, json_real_value(json_object_get(row, "clock_hz")));
        }
        k3_out("%2u thread%s: memory %.1f GB/s, clock %.2f GHz\n", b->o.threads.list[t],
               b->o.threads.list[t] == 1 ? " " : "s", k3_samples_median(&reading) / 1e9,
               k3_samples_median(&clock) / 1e9);
    }
}

static void print_table(const struct bench *b)
{
    static const struct k3_column columns[] = {
        {"name", "type", 8, 0, 0},
        {"variant", "variant", 9, 0, 0},
        {"columns", "columns", 7, 0, 1},
        {"threads", "threads", 7, 0, 1},
        {"memory", "weights", 8, 0, 0},
        {"multiply_adds_per_s", "Gmadd/s", 8, 2, 1e-9},
        {"multiply_adds_per_s_min", "min", 8, 2, 1e-9},
        {"multiply_adds_per_s_max", "max", 8, 2, 1e-9},
        {"weights_per_s", "Gweights/s", 10, 3, 1e-9},
        {"bytes_per_s", "GB/s", 7, 2, 1e-9},
        {"share_of_bandwidth", "% memory", 8, 1, 100},
        {"share_of_peak", "% peak", 7, 1, 100},
        {0},
    };
    const json_t *machine = json_object_get(json_array_get(b->rows, 0), "machine");
    k3_out("%s, %zu MiB streamed, %u repetitions\n", json_string_value(json_object_get(machine, "cpu")),
           b->ring.n >> 20, b->o.repetitions);
    print_limits(b);
    for (size_t k = 0; variant_name(k); k++)
        if (k3_list_has(b->o.variants, variant_name(k)))
            k3_out("peak of %s: %s\n", variant_name(k), k3_peak_of(variant_name(k), K3_TYPE_Q8_0).definition);
    k3_out("\n");
    k3_report_table(b->rows, columns);
}

static k3_status report(struct bench *b, struct k3_error *err)
{
    json_t *noise = k3_noise_json(&b->noise, k3_samples_median(&b->spread));
    bool table = !b->o.report.json && !b->o.report.csv;
    k3_status status = k3_machine_add(b->rows, noise, err);
    if (status == K3_OK) status = sort_rows(b, err);
    if (status == K3_OK && b->o.report.json) status = k3_report_json(b->rows, err);
    if (status == K3_OK && b->o.report.csv) status = k3_report_csv(b->rows, err);
    if (status == K3_OK && table) print_table(b);
    if (status == K3_OK) k3_noise_warn(noise, table);
    json_decref(noise);
    return status;
}

/* ---- the verb ---- */

static k3_status open_bench(struct bench *b, struct k3_error *err)
{
    uint64_t bytes = b->o.streamed.count;
    if (!bytes) {
        bytes = 2 * k3_machine_last_cache();
        bytes = bytes < LEAST_STREAMED ? LEAST_STREAMED : bytes > MOST_STREAMED ? MOST_STREAMED : bytes;
    }
    k3_status status = k3_ring_create(bytes, &b->ring, err);
    for (uint32_t t = 0; t < b->o.threads.n && status == K3_OK; t++)
        status = k3_pool_create((int)b->o.threads.list[t], &b->pools[t], err);
    for (size_t i = 0; i < 2 * K3_TYPE_COUNT; i++) {
        enum k3_type type = type_at(i);
        if (has_product(type) && k3_list_has(b->o.types, k3_type_info(type)->name))
            b->types[b->n_types++] = type;
    }
    for (size_t i = 0; i < b->n_types && status == K3_OK; i++) {
        struct turn turn;
        status = make_turn(b, b->types[i], &turn, err);
        b->n_all += turn.n_rows * (b->o.repetitions + 1);
        free(turn.rows);
    }
    b->cores = (uint32_t)k3_machine_cores();
    b->rows = json_array();
    k3_progress_begin(&b->progress);
    k3_noise_begin(&b->noise);
    return status;
}

static void close_bench(struct bench *b)
{
    k3_progress_clear(&b->progress);
    for (uint32_t t = 0; t < b->o.threads.n; t++) k3_pool_free(b->pools[t]);
    k3_ring_free(&b->ring);
    json_decref(b->rows);
}

int k3_verb_kernels(int argc, char **argv)
{
    struct k3_error err;
    struct bench b = {.progress.unit = K3_PROGRESS_MEASUREMENTS};
    k3_status status = k3_machine_kernels(&err);
    if (status == K3_OK) status = parse_options(argc, argv, &b.o, &err);
    if (status != K3_OK || b.o.help) return k3_program_end(status, &err);
    status = open_bench(&b, &err);
    for (size_t i = 0; i < b.n_types && status == K3_OK; i++) status = measure_type(&b, b.types[i], &err);
    k3_progress_clear(&b.progress);
    if (status == K3_OK) status = report(&b, &err);
    close_bench(&b);
    return k3_program_end(status, &err);
}
