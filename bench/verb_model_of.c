/* verb_model_of.c - predicts how fast a machine runs a model, and says what binds it: docs/performance-model.md. */
#include "verbs.h"

#include "common/engine.h"
#include "common/program.h"
#include "predict.h"
#include "rates.h"
#include "report.h"
#include "synth.h"

#include <string.h>

/* The machine that K3 is made for (docs/performance-model.md says where the numbers come from): RTX PRO 6000, Ryzen 9950X3D,
 * two Samsung 9100 PRO. */
#define RAM_GIB      125
#define RESERVE_GIB  15
#define VRAM_GIB     96
#define CORES        16
#define RAM_RATE     60.0f   /* GB/s */
#define VRAM_RATE    1600.0f /* GB/s */
#define PCIE_RATE    50.0f   /* GB/s */
#define DRIVE_RATE   22.0f   /* GB/s */
#define GPU_RATE     125.0f  /* T multiply-adds/s */
#define ONE_COLUMN   18.75f  /* G multiply-adds/s and core: 300 in all */
#define MANY_COLUMNS 125.0f  /* G multiply-adds/s and core: 2,000 in all */
#define FLOATS       10.0f   /* the same of f32 */
#define LAYER_US     60.0f
#define LAUNCH_US    1.6f
#define TRANSFER_US  2.0f
#define WAIT_US      5.0f
#define OP_RATE      25.0f /* T instructions/s: half of what 188 multiprocessors begin */

struct options {
    const char *kernels, *model;
    struct k3_amount ram, reserve, vram, hits;
    uint32_t cores, layers, tokens, context, batch;
    float ram_rate, vram_rate, pcie_rate, drive_rate, gpu_rate, one, many, layer_us, launch_us;
    struct k3_report report;
    bool gpu_table, help;
};

static k3_status parse_options(int argc, char **argv, struct options *o, struct k3_error *err)
{
    const float rate = 1e6f;
    const struct k3_option table[] = {
        {.kind = K3_OPTION_HEADING, .help = "What is predicted"},
        {K3_OPTION_TEXT, 'm', "model", &o->model, 0, 0, "FILE",
         "whose headers are read (default: K3 with 400 experts a layer)"},
        {K3_OPTION_U32, 0, "layers", &o->layers, 2, K3_MAX_LAYERS, "N", "of that (default: 93)"},
        {K3_OPTION_U32, 'n', "tokens", &o->tokens, 1, 1 << 24, "N", "of prefill (default: 512)"},
        {K3_OPTION_U32, 0, "at", &o->context, 0, 1 << 24, "N", "tokens that come before (default: 0)"},
        {K3_OPTION_U32, 0, "batch", &o->batch, 1, 1 << 24, "N",
         "most tokens computed together (default: 8192)"},
        {K3_OPTION_FLAG, 0, "gpu-table", &o->gpu_table, 0, 0, NULL,
         "launches, bytes and operations of each GPU kernel for a\ntoken, too"},
        K3_REPORT_OPTIONS(o->report),
        K3_HELP_OPTION(o->help),
        {.kind = K3_OPTION_HEADING, .help = "Machine"},
        {K3_OPTION_U32, 0, "cores", &o->cores, 1, 4096, "N", "(default: 16)"},
        {K3_OPTION_AMOUNT, 0, "ram", &o->ram, 0, 0, "SIZE", "(default: 125G)"},
        {K3_OPTION_AMOUNT, 0, "reserve", &o->reserve, 0, 0, "SIZE",
         "of it, for the system, sessions and activations\n(default: 15G)"},
        {K3_OPTION_AMOUNT, 0, "vram", &o->vram, 0, 0, "SIZE",
         "of a GPU, which then has the dense weights; 0: none\n(default: 96G)"},
        {K3_OPTION_AMOUNT, 0, "hits", &o->hits, 0, 0, "P%",
         "experts found in memory (default: as the engine's policy\ndoes with what fits)"},
        {K3_OPTION_FLOAT, 0, "ram-rate", &o->ram_rate, 0.001, rate, "X", "GB/s of reading (default: 60)"},
        {K3_OPTION_FLOAT, 0, "vram-rate", &o->vram_rate, 0.001, rate, "X", "GB/s (default: 1600)"},
        {K3_OPTION_FLOAT, 0, "pcie-rate", &o->pcie_rate, 0.001, rate, "X", "GB/s (default: 50)"},
        {K3_OPTION_FLOAT, 0, "drive-rate", &o->drive_rate, 0.001, rate, "X", "GB/s (default: 22)"},
        {K3_OPTION_FLOAT, 0, "gpu-rate", &o->gpu_rate, 0.001, rate, "X", "T multiply-adds/s (default: 125)"},
        {K3_OPTION_FLOAT, 0, "one-column", &o->one, 0.001, rate, "X",
         "G multiply-adds/s of a core in decode (default: 18.75)"},
        {K3_OPTION_FLOAT, 0, "many-columns", &o->many, 0.001, rate, "X",
         "the same in prefill (default: 125)"},
        {K3_OPTION_FLOAT, 0, "layer-us", &o->layer_us, 0, rate, "X",
         "microseconds a layer takes beside, without a GPU and in\nprefill (default: 60)"},
        {K3_OPTION_FLOAT, 0, "launch-us", &o->launch_us, 0, rate, "X",
         "microseconds between two kernels of a GPU (default: 1.6)"},
        {K3_OPTION_TEXT, 0, "kernels", &o->kernels, 0, 0, "FILE",
         "written by k3bench kernels --json: rates of columns,\nRAM and cores, where no option sets them"},
        {.kind = K3_OPTION_END},
    };
    *o = (struct options){
        .layers = 93, .tokens = 512, .batch = 8192, .layer_us = LAYER_US, .launch_us = LAUNCH_US};
    o->ram.count = (uint64_t)RAM_GIB << 30;
    o->reserve.count = (uint64_t)RESERVE_GIB << 30;
    o->vram.count = (uint64_t)VRAM_GIB << 30;
    o->hits.percent = -1;
    k3_status status = k3_options_parse(argc, argv, table, 0, err);
    if (status == K3_OK && o->help)
        k3_options_help(
            "Usage: k3bench model-of [-m FILE] [machine] [--kernels FILE]\n"
            "Predicts decode and prefill of a model on a machine, and says what binds them.\n"
            "Nothing is measured. By default it is K3 with 400 experts a layer on a workstation.\n",
            table);
    if (status != K3_OK || o->help) return status;
    if (o->ram.is_share || o->reserve.is_share || o->vram.is_share)
        return k3_fail(err, K3_ERR_ARGUMENT, "--ram, --reserve and --vram are numbers of bytes, not shares");
    if (o->hits.percent >= 0 && !o->hits.is_share)
        return k3_fail(err, K3_ERR_ARGUMENT, "--hits is a share, such as 86%%");
    if (o->gpu_table && o->report.csv)
        return k3_fail(err, K3_ERR_ARGUMENT, "--gpu-table goes into text and JSON, not into CSV");
    return k3_report_check(&o->report, err);
}

/* What an option sets, else what was measured, else what is usual. */
static double choose(double given, double measured, double usual)
{
    return given > 0 ? given : measured > 0 ? measured : usual;
}

static k3_status describe_machine(const struct options *o, struct k3_machine *m, struct k3_error *err)
{
    struct k3_rates rates = {0};
    k3_status status = o->kernels ? k3_rates_read(o->kernels, &rates, err) : K3_OK;
    if (status != K3_OK) return status;
    *m = (struct k3_machine){
        .cores = choose(o->cores, rates.cores, CORES),
        .ram_bytes = (double)o->ram.count,
        .reserve_bytes = (double)o->reserve.count,
        .vram_bytes = (double)o->vram.count,
        .ram_rate = choose(1e9 * (double)o->ram_rate, rates.bandwidth, 1e9 * (double)RAM_RATE),
        .vram_rate = 1e9 * choose((double)o->vram_rate, 0, (double)VRAM_RATE),
        .pcie_rate = 1e9 * choose((double)o->pcie_rate, 0, (double)PCIE_RATE),
        .drive_rate = 1e9 * choose((double)o->drive_rate, 0, (double)DRIVE_RATE),
        .gpu_rate = 1e12 * choose((double)o->gpu_rate, 0, (double)GPU_RATE),
        .layer_s = 1e-6 * (double)o->layer_us,
        .launch_s = 1e-6 * (double)o->launch_us,
        .transfer_s = 1e-6 * (double)TRANSFER_US,
        .wait_s = 1e-6 * (double)WAIT_US,
        .op_rate = 1e12 * (double)OP_RATE,
        .hits = o->hits.is_share ? o->hits.percent / 100 : -1,
    };
    static const enum k3_type integers[] = {K3_TYPE_IQ1_M, K3_TYPE_IQ2_XXS, K3_TYPE_Q8_0, K3_TYPE_MXFP4};
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        enum k3_type t = integers[i];
        m->one[t] = choose(1e9 * (double)o->one, rates.one[t], 1e9 * (double)ONE_COLUMN);
        m->many[t] = choose(1e9 * (double)o->many, rates.many[t], 1e9 * (double)MANY_COLUMNS);
    }
    m->one[K3_TYPE_F32] = choose(0, rates.one[K3_TYPE_F32], 1e9 * (double)FLOATS);
    m->many[K3_TYPE_F32] = choose(0, rates.many[K3_TYPE_F32], 1e9 * (double)FLOATS);
    return K3_OK;
}

static k3_status describe_model(const struct options *o, struct k3_cost *cost, struct k3_error *err)
{
    if (!o->model) {
        struct k3_hparams hp = k3_synth_real_sizes(o->layers);
        k3_cost_of_sizes(&hp, cost);
        return K3_OK;
    }
    struct k3_plan *plan;
    k3_status status = k3_plan_open(o->model, &plan, err);
    if (status != K3_OK) return status;
    k3_cost_of_plan(plan, cost);
    k3_plan_close(plan);
    return K3_OK;
}

/* ---- results ---- */

static json_t *prediction_json(const char *name, double context, double tokens, const struct k3_prediction *p)
{
    json_t *terms = json_object();
    for (uint32_t i = 0; i < p->n_terms; i++)
        json_object_set_new(terms, p->terms[i].name, json_real(p->terms[i].seconds));
    return json_pack("{s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:s, s:f, s:f, s:o}", "verb", name, "context",
                     (json_int_t)context, "tokens", (json_int_t)tokens, "tokens_per_s",
                     tokens / p->overlapped_s, "total_s", p->overlapped_s, "sequential_tokens_per_s",
                     tokens / p->sequential_s, "sequential_s", p->sequential_s, "bound", p->bound, "cached",
                     p->cached, "hits", p->hits, "terms", terms);
}

static void print_prediction(const char *name, double context, double tokens, const struct k3_prediction *p)
{
    k3_out("\n%s of %.0f token%s at %.0f: %.2f tokens/s if all that can overlap does, %.2f if nothing does\n",
           name, tokens, tokens == 1 ? "" : "s", context, tokens / p->overlapped_s, tokens / p->sequential_s);
    for (uint32_t i = 0; i < p->n_terms; i++)
        k3_out("  %-10s %9.4f s  %s%s\n", p->terms[i].name, p->terms[i].seconds, p->terms[i].what,
               strcmp(p->terms[i].name, p->bound) == 0 ? "   <- binds" : "");
    k3_out("  experts in memory %.1f %% of the pool, found there %.1f %%\n", 100 * p->cached, 100 * p->hits);
}

/* What each kernel does for a token. */
static void print_gpu(const struct k3_machine *m, const struct k3_cost *cost, double keys)
{
    double kernels = k3_predict_gpu_kernels(m, cost, keys), floor = k3_predict_gpu_floor(m, cost, keys);
    double host = k3_predict_gpu_host(m, cost, keys);
    k3_out("\non the GPU, a token that sees %.0f: %.2f ms, %.3f times its memory alone; with copies and "
           "waits %.2f ms, "
           "%.3f times\n",
           keys, 1e3 * kernels, kernels / floor, 1e3 * (kernels + host), (kernels + host) / floor);
    k3_out("  %-14s %6s %10s %10s %8s\n", "kernel", "calls", "MB", "M ops", "ms");
    for (uint32_t i = 0; i < cost->gpu.n_works; i++) {
        const struct k3_gpu_work *w = &cost->gpu.works[i];
        k3_out("  %-14s %6.0f %10.3f %10.2f %8.3f\n", w->name, w->calls,
               (w->bytes + keys * w->key_bytes) / 1e6, (w->ops + keys * w->key_ops) / 1e6,
               1e3 * k3_predict_gpu_work(m, w, keys));
    }
}

static json_t *gpu_json(const struct k3_machine *m, const struct k3_cost *cost, double keys)
{
    json_t *kernels = json_array();
    for (uint32_t i = 0; i < cost->gpu.n_works; i++) {
        const struct k3_gpu_work *w = &cost->gpu.works[i];
        json_array_append_new(kernels,
                              json_pack("{s:s, s:f, s:f, s:f, s:f}", "name", w->name, "calls", w->calls,
                                        "bytes", w->bytes + keys * w->key_bytes, "operations",
                                        w->ops + keys * w->key_ops, "s", k3_predict_gpu_work(m, w, keys)));
    }
    return json_pack("{s:s, s:I, s:f, s:f, s:f, s:o}", "verb", "gpu", "context", (json_int_t)keys,
                     "kernels_s", k3_predict_gpu_kernels(m, cost, keys), "host_s",
                     k3_predict_gpu_host(m, cost, keys), "floor_s", k3_predict_gpu_floor(m, cost, keys),
                     "kernels", kernels);
}

static void print_cost(const struct k3_cost *cost)
{
    double dense = 0, experts = 0;
    for (int t = 0; t < K3_TYPE_COUNT; t++) {
        dense += cost->dense_weights[t];
        experts += cost->expert_weights[t];
    }
    k3_out("%u layers; a token takes %.2f G dense multiply-adds (%.2f GB) and %.2f G of experts (%.2f GB of "
           "%.1f)\n",
           cost->n_layers, dense / 1e9, cost->dense_bytes / 1e9, experts * cost->top_k / 1e9,
           cost->expert_bytes * cost->top_k / 1e9, cost->expert_bytes * cost->n_experts / 1e9);
}

static k3_status report(const struct options *o, const struct k3_machine *m, const struct k3_cost *cost,
                        struct k3_error *err)
{
    struct k3_prediction decode, prefill;
    k3_predict_decode(m, cost, o->context, &decode);
    k3_predict_prefill(m, cost, o->context, o->tokens, o->batch, &prefill);
    if (!o->report.json && !o->report.csv) {
        print_cost(cost);
        print_prediction("decode", o->context, 1, &decode);
        print_prediction("prefill", o->context, o->tokens, &prefill);
        if (o->gpu_table) print_gpu(m, cost, o->context + 1.0);
        return K3_OK;
    }
    json_t *rows = json_pack("[o, o]", prediction_json("decode", o->context, 1, &decode),
                             prediction_json("prefill", o->context, o->tokens, &prefill));
    if (o->gpu_table) json_array_append_new(rows, gpu_json(m, cost, o->context + 1.0));
    k3_status status = rows ? K3_OK : k3_fail_memory(err, "the results", 0);
    if (status == K3_OK) status = o->report.json ? k3_report_json(rows, err) : k3_report_csv(rows, err);
    json_decref(rows);
    return status;
}

int k3_verb_model_of(int argc, char **argv)
{
    struct k3_error err;
    struct options o;
    struct k3_machine machine;
    struct k3_cost cost;
    k3_status status = parse_options(argc, argv, &o, &err);
    if (status != K3_OK || o.help) return k3_program_end(status, &err);
    status = describe_machine(&o, &machine, &err);
    if (status == K3_OK) status = describe_model(&o, &cost, &err);
    if (status == K3_OK) status = report(&o, &machine, &cost, &err);
    return k3_program_end(status, &err);
}
