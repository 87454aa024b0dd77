/* verb_gpu.c - how fast the kernels of a GPU are at K3's sizes, beside what it copies and multiplies at most.
 *
 * A sample is many launches of one kernel, one after the other; kernels take turns. So what a launch costs is in it where it
 * takes longer than the kernel, as it is in decode. */
#include "verbs.h"

#include "base/clock.h"
#include "common/options.h"
#include "common/program.h"
#include "gpu_cases.h"
#include "report.h"
#include "samples.h"

#define SECONDS    0.02 /* of one sample */
#define POOL_BYTES ((size_t)1 << 30)
#define MAX_CASES  40

struct options {
    uint32_t gpu, repetitions;
    struct k3_report report;
    bool help;
};

struct measured {
    struct k3_gpu_moved moved; /* by a launch */
    struct k3_samples rate;    /* launches a second */
    size_t launches;           /* of a sample; 0: not known yet */
};

static k3_status parse_options(int argc, char **argv, struct options *o, struct k3_error *err)
{
    const struct k3_option table[] = {
        {.kind = K3_OPTION_HEADING, .help = "Options"},
        {K3_OPTION_U32, 0, "gpu", &o->gpu, 0, 99, "N", "number of the GPU (default: 0)"},
        {K3_OPTION_U32, 'r', "repetitions", &o->repetitions, 1, K3_MAX_SAMPLES, "N", "(default: 5)"},
        K3_REPORT_OPTIONS(o->report),
        K3_HELP_OPTION(o->help),
        {.kind = K3_OPTION_END},
    };
    *o = (struct options){.repetitions = 5};
    k3_status status = k3_options_parse(argc, argv, table, 0, err);
    if (status == K3_OK && o->help)
        k3_options_help("Usage: k3bench gpu [--gpu N]\n"
                        "Times the kernels of a GPU at K3's sizes. No model is needed.\n",
                        table);
    return status == K3_OK ? k3_report_check(&o->report, err) : status;
}

/* ---- measuring ---- */

/* Launches a second. The first sample finds out how many launches take about SECONDS. */
static k3_status take_sample(struct k3_gpu_lab *lab, const struct k3_gpu_case *c, struct measured *m,
                             double *rate, struct k3_error *err)
{
    for (bool known = m->launches > 0;; known = true) {
        if (!m->launches) m->launches = 1;
        uint64_t start = k3_now_ns();
        for (size_t i = 0; i < m->launches; i++) m->moved = c->run(lab, c->tokens);
        const char *problem = k3_gpu_lab_wait(lab);
        if (problem) return k3_fail(err, K3_ERR_IO, "%s on the GPU: %s", c->name, problem);
        double taken = (double)(k3_now_ns() - start + 1) / 1e9;
        *rate = (double)m->launches / taken;
        if (known || taken > SECONDS || lab->tiny) return K3_OK;
        m->launches = (size_t)(*rate * SECONDS) + 1;
    }
}

static k3_status measure(struct k3_gpu_lab *lab, uint32_t repetitions, struct measured *all,
                         struct k3_error *err)
{
    for (uint32_t r = 0; r <= repetitions; r++)
        for (size_t i = 0; k3_gpu_cases[i].name; i++) {
            double rate = 0;
            k3_status status = take_sample(lab, &k3_gpu_cases[i], &all[i], &rate, err);
            if (status != K3_OK) return status;
            if (r) k3_samples_add(&all[i].rate, rate); /* the first one warms up */
            if (k3_interrupted()) return k3_fail(err, K3_ERR_CANCELLED, "interrupted");
        }
    return K3_OK;
}

/* ---- results ---- */

static json_t *row_json(const struct k3_gpu_case *c, const struct measured *m,
                        const struct measured limits[2])
{
    double median = k3_samples_median(&m->rate), bytes = median * m->moved.bytes;
    double multiply_adds = median * m->moved.multiply_adds;
    double share = c->on_matrix_units
                       ? multiply_adds / (k3_samples_median(&limits[1].rate) * limits[1].moved.multiply_adds)
                       : bytes / (k3_samples_median(&limits[0].rate) * limits[0].moved.bytes);
    return json_pack("{s:s, s:I, s:f, s:f, s:f, s:s, s:f, s:f, s:I}", "name", c->name, "tokens",
                     (json_int_t)c->tokens, "seconds", 1 / median, "bytes_per_s", bytes,
                     "multiply_adds_per_s", multiply_adds, "limit",
                     c->on_matrix_units ? "matrix units" : "copy", "share_of_limit", share, "spread",
                     k3_samples_spread(&m->rate), "launches", (json_int_t)m->launches);
}

static k3_status report(const struct options *o, const struct k3_gpu_lab *lab, const struct k3_gpu *gpu,
                        json_t *rows, struct k3_error *err)
{
    static const struct k3_column columns[] = {
        {"name", "kernel", 28, 0, 0},
        {"tokens", "tokens", 7, 0, 1},
        {"seconds", "us", 10, 2, 1e6},
        {"bytes_per_s", "GB/s", 9, 1, 1e-9},
        {"multiply_adds_per_s", "GMAC/s", 10, 1, 1e-9},
        {"share_of_limit", "share %", 8, 1, 100},
        {"limit", "of", 13, 0, 0},
        {"spread", "spread %", 9, 1, 100},
        {0},
    };
    json_t *all = json_pack("{s:{s:s, s:b, s:I}, s:O}", "gpu", "name", gpu->name, "emulated", lab->tiny,
                            "bytes", (json_int_t)gpu->bytes, "rows", rows);
    if (!all) return k3_fail_memory(err, "the results", 0);
    k3_status status = K3_OK;
    if (o->report.json) status = k3_report_json(all, err);
    if (o->report.csv) status = k3_report_csv(rows, err);
    if (!o->report.json && !o->report.csv) {
        k3_out("%s%s\n\n", gpu->name, lab->tiny ? ", with small sizes: these times mean nothing" : "");
        k3_report_table(rows, columns);
    }
    json_decref(all);
    return status;
}

int k3_verb_gpu(int argc, char **argv)
{
    struct k3_error err;
    struct options o;
    struct k3_gpu gpu;
    struct k3_gpu_lab lab = {0};
    struct measured all[MAX_CASES] = {0};
    json_t *rows = json_array();
    k3_status status = parse_options(argc, argv, &o, &err);
    if (status == K3_OK && !o.help) {
        status = k3_gpu_lab_open((int)o.gpu, POOL_BYTES, &lab, &gpu, &err);
        if (status == K3_OK) status = measure(&lab, o.repetitions, all, &err);
        for (size_t i = 0; k3_gpu_cases[i].name && status == K3_OK; i++)
            if (json_array_append_new(rows, row_json(&k3_gpu_cases[i], &all[i], all)) != 0)
                status = k3_fail_memory(&err, "the results", 0);
        if (status == K3_OK) status = report(&o, &lab, &gpu, rows, &err);
        k3_gpu_lab_close(&lab);
    }
    json_decref(rows);
    return k3_program_end(status, &err);
}
