/* verb_io.c - how much of the drive's rate the expert store gets.
 *
 * Two parts, on the same file, neither through the page cache:
 *   raw    pieces of 1 MiB one after the other, a queue of them under way: what the drive gives
 *   store  experts of random layers and numbers, asked for as steps of decode ask, all of them missing, and nothing
 *          computed
 * They take turns, so that a drive that others use treats both alike; the medians are compared. */
#include "verbs.h"

#include "base/clock.h"
#include "common/engine.h"
#include "common/json.h"
#include "common/program.h"
#include "machine.h"
#include "report.h"
#include "samples.h"
#include "store/reader.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_TURNS K3_MAX_SAMPLES
#define RAW_PIECE ((uint64_t)1 << 20)
#define RAW_LOADS 22 /* under way, of K3_LOAD_RANGES pieces each */
#define MIB       ((uint64_t)1 << 20)

struct options {
    struct k3_engine engine;
    uint32_t mib, turns;
    struct k3_report report;
    bool help;
};

struct rates {
    struct k3_samples raw, store; /* bytes/s */
};

static k3_status parse_options(int argc, char **argv, struct options *o, struct k3_error *err)
{
    const struct k3_option table[] = {
        {.kind = K3_OPTION_HEADING, .help = "Options"},
        {K3_OPTION_U32, 'n', "mib", &o->mib, 1, 1 << 20, "N",
         "MiB to read in each part of a turn (default: 1024)"},
        {K3_OPTION_U32, 'r', "turns", &o->turns, 1, MAX_TURNS, "N", "(default: 3)"},
        K3_REPORT_OPTIONS(o->report),
        K3_HELP_OPTION(o->help),
        {.kind = K3_OPTION_HEADING, .help = "Model and engine"},
        K3_ENGINE_OPTIONS(o->engine),
        {.kind = K3_OPTION_END},
    };
    k3_status status = k3_options_parse(argc, argv, table, 0, err);
    if (status == K3_OK) status = k3_report_check(&o->report, err);
    if (status != K3_OK) return status;
    if (o->help)
        k3_options_help("Usage: k3bench io -m FILE [--json]\n"
                        "Compares what the expert store reads a second with what the drive gives.\n",
                        table);
    if (!o->mib) o->mib = 1024;
    if (!o->turns) o->turns = 3;
    return K3_OK;
}

/* ---- raw ---- */

/* Fills a load with the next pieces of a file, from its start again after its end. */
static void next_load(struct k3_load *load, uint64_t *at, uint64_t size)
{
    for (int i = 0; i < K3_LOAD_RANGES; i++) {
        if (*at + RAW_PIECE > size) *at = 0;
        load->ranges[i].offset = *at;
        load->ranges[i].bytes = RAW_PIECE < size ? RAW_PIECE : size;
        *at += RAW_PIECE;
    }
}

static k3_status read_raw(struct k3_reader *reader, struct k3_load *loads, uint64_t size, uint64_t *at,
                          uint64_t bytes, double *rate, struct k3_error *err)
{
    uint64_t begin = k3_now_ns(), asked = 0, got = 0;
    uint32_t n_out = 0;
    int errnum = 0;
    for (; n_out < RAW_LOADS; n_out++, asked += K3_LOAD_RANGES * RAW_PIECE) {
        next_load(&loads[n_out], at, size);
        k3_reader_start(reader, &loads[n_out]);
    }
    for (struct k3_load *load; n_out && (load = k3_reader_collect(reader, true)); n_out--) {
        got += load->bytes_read;
        if (load->errnum) errnum = load->errnum;
        if (errnum || asked >= bytes || k3_interrupted()) continue;
        next_load(load, at, size);
        asked += K3_LOAD_RANGES * RAW_PIECE;
        k3_reader_start(reader, load);
        n_out++;
    }
    *rate = (double)got / ((double)(k3_now_ns() - begin) / 1e9);
    if (k3_interrupted()) return k3_fail(err, K3_ERR_CANCELLED, "interrupted");
    return errnum ? k3_fail_errno(err, errnum, "reading the file failed") : K3_OK;
}

static k3_status measure_raw(const struct options *o, const struct k3_plan *plan, uint64_t *at, double *rate,
                             struct k3_error *err)
{
    uint64_t unit = K3_LOAD_RANGES * RAW_PIECE, bytes = RAW_LOADS * unit;
    struct k3_load *loads = calloc(RAW_LOADS, sizeof *loads);
    unsigned char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct k3_reader *reader = NULL;
    k3_status status = K3_OK;
    if (!loads || memory == MAP_FAILED) status = k3_fail_memory(err, "reads of the raw file", bytes);
    for (int i = 0; i < RAW_LOADS && status == K3_OK; i++)
        for (int j = 0; j < K3_LOAD_RANGES; j++)
            loads[i].ranges[j].to = memory + (uint64_t)i * unit + (uint64_t)j * RAW_PIECE;
    struct k3_reader_options options = {plan->gguf->shards,
                                        plan->gguf->n_shards,
                                        memory,
                                        bytes,
                                        unit,
                                        (enum k3_io)o->engine.io,
                                        (enum k3_direct)o->engine.direct,
                                        0};
    if (status == K3_OK) status = k3_reader_open(&options, &reader, err);
    if (status == K3_OK) { /* the store's conditions: huge pages, that are there before they are read to */
        madvise(memory, bytes, MADV_HUGEPAGE);
        memset(memory, 1, bytes);
    }
    if (status == K3_OK)
        status = read_raw(reader, loads, plan->gguf->shards[0].size, at, o->mib * MIB, rate, err);
    k3_reader_close(reader);
    if (memory != MAP_FAILED) munmap(memory, bytes);
    free(loads);
    return status;
}

/* ---- store ---- */

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint32_t random_below(uint64_t *state, uint32_t n)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 32) % n;
}

static k3_status take_all(struct k3_store *store, uint32_t layer, const uint32_t *ids, uint32_t n,
                          struct k3_error *err)
{
    struct k3_ticket *ticket;
    struct k3_expert expert;
    k3_status status = k3_store_acquire(store, layer, ids, n, false, &ticket, err);
    if (status != K3_OK) return status;
    for (uint32_t i = 0; i < n && status == K3_OK; i++) {
        status = k3_store_next(ticket, &expert, err);
        if (status == K3_OK) k3_store_give_back(ticket, &expert);
    }
    k3_store_release(ticket);
    return status;
}

/* top_k different experts of a layer. */
static void choose(uint64_t *random, const struct k3_hparams *hp, uint32_t *ids)
{
    for (uint32_t n = 0; n < hp->top_k;) {
        uint32_t id = random_below(random, hp->n_experts), i = 0;
        while (i < n && ids[i] != id) i++;
        if (i == n) ids[n++] = id;
    }
}

/* With the fewest slots nearly every request is a miss. The first requests touch the memory of all slots. */
static k3_status measure_store(const struct options *o, const struct k3_plan *plan, uint64_t *random,
                               double *rate, struct k3_error *err)
{
    const struct k3_hparams *hp = &plan->hp;
    struct k3_store_options options = {(enum k3_io)o->engine.io, (enum k3_direct)o->engine.direct,
                                       k3_store_least_slots(plan), 0};
    struct k3_store_stats stats = {0};
    struct k3_store *store;
    uint32_t ids[K3_MAX_TOP_K];
    k3_status status = k3_store_open(plan, &options, &store, err);
    if (status != K3_OK) return status;
    uint64_t begin = 0, warm = 0;
    for (uint32_t i = 0; status == K3_OK && (i <= 2 || stats.bytes_read - warm < o->mib * MIB); i++) {
        choose(random, hp, ids);
        status = take_all(store, hp->n_dense_layers + random_below(random, hp->n_layers - hp->n_dense_layers),
                          ids, hp->top_k, err);
        k3_store_get_stats(store, K3_ALL_LAYERS, &stats);
        if (status == K3_OK && k3_interrupted()) status = k3_fail(err, K3_ERR_CANCELLED, "interrupted");
        if (i == 2) {
            begin = k3_now_ns();
            warm = stats.bytes_read;
        }
    }
    *rate = (double)(stats.bytes_read - warm) / ((double)(k3_now_ns() - begin) / 1e9);
    k3_store_close(store);
    return status;
}

/* ---- both ---- */

static k3_status measure(const struct options *o, const struct k3_plan *plan, struct rates *rates,
                         struct k3_error *err)
{
    uint64_t size = plan->gguf->shards[0].size, random = 1;
    k3_status status = K3_OK;
    for (uint32_t i = 0; i < o->turns && status == K3_OK; i++) {
        uint64_t at = size / o->turns * i / RAW_PIECE * RAW_PIECE; /* all over the file, as experts are */
        double rate;
        status = measure_raw(o, plan, &at, &rate, err);
        if (status != K3_OK) break;
        k3_samples_add(&rates->raw, rate);
        status = measure_store(o, plan, &random, &rate, err);
        if (status == K3_OK) k3_samples_add(&rates->store, rate);
    }
    return status;
}

static json_t *results_json(const struct options *o, const struct rates *rates, const struct k3_noise *noise)
{
    double raw = k3_samples_median(&rates->raw), store = k3_samples_median(&rates->store);
    return json_pack("{s:s, s:o, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "verb", "io", "model",
                     k3_json_text(o->engine.model, strlen(o->engine.model)), "turns", (int)o->turns,
                     "raw_bytes_per_s", raw, "raw_bytes_per_s_min", k3_samples_min(&rates->raw),
                     "raw_bytes_per_s_max", k3_samples_max(&rates->raw), "store_bytes_per_s", store,
                     "store_bytes_per_s_min", k3_samples_min(&rates->store), "store_bytes_per_s_max",
                     k3_samples_max(&rates->store), "ratio", store / raw, "machine", k3_machine_json(),
                     "noise", k3_noise_json(noise, k3_samples_spread(&rates->store)));
}

static k3_status report(const struct options *o, const struct rates *rates, const struct k3_noise *noise,
                        struct k3_error *err)
{
    json_t *results = results_json(o, rates, noise), *rows = json_pack("[O]", results);
    bool table = !o->report.json && !o->report.csv;
    k3_status status = rows ? K3_OK : k3_fail_memory(err, "the results", 0);
    if (status == K3_OK && o->report.json) status = k3_report_json(results, err);
    if (status == K3_OK && o->report.csv) status = k3_report_csv(rows, err);
    if (status == K3_OK && table)
        k3_out("%s: raw %.0f MB/s (%.0f to %.0f), store %.0f MB/s (%.0f to %.0f), ratio %.3f\n",
               o->engine.model, k3_samples_median(&rates->raw) / 1e6, k3_samples_min(&rates->raw) / 1e6,
               k3_samples_max(&rates->raw) / 1e6, k3_samples_median(&rates->store) / 1e6,
               k3_samples_min(&rates->store) / 1e6, k3_samples_max(&rates->store) / 1e6,
               k3_samples_median(&rates->store) / k3_samples_median(&rates->raw));
    if (status == K3_OK) k3_noise_warn(json_object_get(results, "noise"), table);
    json_decref(rows);
    json_decref(results);
    return status;
}

int k3_verb_io(int argc, char **argv)
{
    struct k3_error err;
    struct options o = {0};
    struct rates rates = {0};
    struct k3_noise noise;
    struct k3_plan *plan = NULL;
    k3_status status = parse_options(argc, argv, &o, &err);
    if (status != K3_OK || o.help) return k3_program_end(status, &err);
    if (o.engine.io == K3_IO_MMAP)
        status = k3_fail(&err, K3_ERR_ARGUMENT, "--io mmap has no reads to measure");
    if (status == K3_OK) status = k3_engine_find_model(&o.engine, &err);
    if (status == K3_OK) status = k3_plan_open(o.engine.model, &plan, &err);
    k3_noise_begin(&noise);
    if (status == K3_OK) status = measure(&o, plan, &rates, &err);
    if (status == K3_OK) status = report(&o, &rates, &noise, &err);
    k3_plan_close(plan);
    return k3_program_end(status, &err);
}
