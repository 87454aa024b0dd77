/* verb_plot.c - charts of what k3bench measured, as one SVG picture.
 *
 * Kernels: a panel for each number of columns, a group for each type, a bar for each implementation. With one column the
 * weights are streamed, by all threads, and memory is the bound; with more they are in the cache of one core, and its
 * instructions are. Decode and prefill: tokens a second by context, and the time of a token by operation. */
#include "verbs.h"

#include "base/file.h"
#include "chart.h"
#include "common/options.h"
#include "common/program.h"
#include "rows.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILES  16
#define MAX_CHARTS 24

struct plot {
    const char *output;
    bool help, many_files;
    struct k3_chart charts[MAX_CHARTS];
    uint32_t n_charts;
};

static k3_status parse_options(int argc, char **argv, struct plot *p, struct k3_error *err)
{
    const struct k3_option table[] = {
        {.kind = K3_OPTION_HEADING, .help = "Options"},
        {K3_OPTION_TEXT, 'o', "output", &p->output, 0, 0, "FILE", "the picture"},
        K3_HELP_OPTION(p->help),
        {.kind = K3_OPTION_END},
    };
    k3_status status = k3_options_parse(argc, argv, table, MAX_FILES, err);
    if (status == K3_OK && p->help)
        k3_options_help("Usage: k3bench plot FILE.json... -o FILE.svg\n"
                        "Draws what k3bench kernels, floats, decode and prefill wrote with --json.\n",
                        table);
    if (status != K3_OK || p->help) return status;
    if (optind == argc)
        return k3_fail(err, K3_ERR_ARGUMENT, "which results? Name files that k3bench wrote with --json");
    if (!p->output) return k3_fail(err, K3_ERR_ARGUMENT, "where to? Name a file with -o");
    p->many_files = argc - optind > 1;
    return K3_OK;
}

/* The chart of that title, a new one if there is none yet; NULL if there is no room. */
static struct k3_chart *chart_of(struct plot *p, const char *title, const char *unit, const char *axis)
{
    for (uint32_t i = 0; i < p->n_charts; i++)
        if (strcmp(p->charts[i].title, title) == 0) return &p->charts[i];
    if (p->n_charts == MAX_CHARTS) return NULL;
    struct k3_chart *chart = &p->charts[p->n_charts++];
    snprintf(chart->title, sizeof chart->title, "%s", title);
    chart->unit = unit;
    chart->axis = axis;
    return chart;
}

/* What bars of the same kind are told apart by: what computed, and the file if there are several. */
static void name_series(const struct plot *p, const char *kernels, const char *path, char out[K3_CHART_LABEL])
{
    snprintf(out, K3_CHART_LABEL, "%.30s%s%.30s", kernels, p->many_files ? ", " : "",
             p->many_files ? k3_file_name(path) : "");
}

static k3_status no_room(const char *path, struct k3_error *err)
{
    return k3_fail(err, K3_ERR_ARGUMENT,
                   "%s: too much for one picture; plot fewer files, or measure fewer kinds", path);
}

/* ---- kernels ---- */

static double most_threads(const json_t *rows)
{
    const json_t *row;
    size_t i;
    double most = 0;
    json_array_foreach(rows, i, row)
        if (k3_row_number(row, "threads") > most) most = k3_row_number(row, "threads");
    return most;
}

static k3_status add_kernel(struct plot *p, const char *path, const json_t *row, double threads,
                            struct k3_error *err)
{
    bool streamed = strcmp(k3_row_text(row, "memory"), "streamed") == 0;
    double columns = k3_row_number(row, "columns"), scale = 1e-9;
    char title[160], series[K3_CHART_LABEL];
    if (streamed ? columns != 1 || k3_row_number(row, "threads") != threads
                 : k3_row_number(row, "threads") != 1)
        return K3_OK;
    if (streamed)
        snprintf(title, sizeof title, "Reading weights from memory: 1 column, %.0f thread%s", threads,
                 threads == 1 ? "" : "s");
    else
        snprintf(title, sizeof title, "Computing: %.0f column%s, weights in the cache, 1 thread", columns,
                 columns == 1 ? "" : "s");
    struct k3_chart *chart = chart_of(p, title, streamed ? "GB/s" : "Gmadd/s", "type of the weights");
    if (!chart) return no_room(path, err);
    chart->bound = streamed ? "reading memory, doing nothing else" : "peak of the instructions";
    name_series(p, k3_row_text(row, "variant"), path, series);
    struct k3_bar *bar = k3_chart_bar(chart, k3_row_text(row, "name"), series);
    if (!bar) return no_room(path, err);
    double madds = k3_row_number(row, "multiply_adds_per_s");
    double to_value = streamed && madds > 0 ? scale * k3_row_number(row, "bytes_per_s") / madds : scale;
    *bar = (struct k3_bar){
        to_value * madds, to_value * k3_row_number(row, "multiply_adds_per_s_min"),
        to_value * k3_row_number(row, "multiply_adds_per_s_max"),
        scale * k3_row_number(row, streamed ? "bandwidth_bytes_per_s" : "peak_multiply_adds_per_s")};
    return K3_OK;
}

/* ---- floats ---- */

static k3_status add_floats(struct plot *p, const char *path, const json_t *row, struct k3_error *err)
{
    char series[K3_CHART_LABEL];
    struct k3_chart *chart = chart_of(p, "Loops over floats, 1 thread", "Gvalues/s", "loop");
    name_series(p, k3_row_text(row, "variant"), path, series);
    struct k3_bar *bar = chart ? k3_chart_bar(chart, k3_row_text(row, "name"), series) : NULL;
    if (!bar) return no_room(path, err);
    *bar = (struct k3_bar){1e-9 * k3_row_number(row, "values_per_s"),
                           1e-9 * k3_row_number(row, "values_per_s_min"),
                           1e-9 * k3_row_number(row, "values_per_s_max"), 0};
    return K3_OK;
}

/* ---- decode and prefill ---- */

static k3_status add_operations(struct plot *p, const char *path, const json_t *row, const char *verb,
                                const char *group, struct k3_error *err)
{
    const char *name;
    json_t *operations = json_object_get(row, "operations"), *seconds;
    char title[160];
    snprintf(title, sizeof title, "Where the time of a token goes: %s", verb);
    struct k3_chart *chart = chart_of(p, title, "ms", "tokens before");
    if (!chart) return no_room(path, err);
    chart->stacked = true;
    json_object_foreach(json_object_get(row, "operations"), name, seconds) {
        struct k3_bar *bar = k3_chart_bar(chart, group, name);
        if (!bar) return no_room(path, err);
        (void)seconds;
        bar->value = 1e3 * k3_row_number(operations, name) / fmax(k3_row_number(row, "tokens"), 1);
    }
    return K3_OK;
}

static k3_status add_speed(struct plot *p, const char *path, const json_t *row, struct k3_error *err)
{
    const char *verb = k3_row_text(row, "verb"),
               *kernels = k3_row_text(json_object_get(row, "machine"), "kernels");
    char title[160], group[K3_CHART_LABEL], series[K3_CHART_LABEL];
    snprintf(title, sizeof title, "Tokens a second: %s", verb);
    struct k3_chart *chart = chart_of(p, title, "tokens/s", "tokens before");
    if (!chart) return no_room(path, err);
    name_series(p, kernels, path, series);
    snprintf(group, sizeof group, "%.0f", k3_row_number(row, "context"));
    struct k3_bar *bar = k3_chart_bar(chart, group, series);
    if (!bar) return no_room(path, err);
    *bar = (struct k3_bar){k3_row_number(row, "tokens_per_s"), k3_row_number(row, "tokens_per_s_min"),
                           k3_row_number(row, "tokens_per_s_max"), 0};
    if (p->many_files)
        snprintf(group, sizeof group, "%.0f %.40s", k3_row_number(row, "context"), k3_file_name(path));
    return json_object_get(row, "operations") ? add_operations(p, path, row, verb, group, err) : K3_OK;
}

/* ---- the verb ---- */

static k3_status add_file(struct plot *p, const char *path, struct k3_error *err)
{
    json_t *rows, *row;
    size_t i;
    k3_status status = k3_rows_read(path, &rows, err);
    if (status != K3_OK) return status;
    double threads = most_threads(rows);
    json_array_foreach(rows, i, row) {
        if (status != K3_OK) break;
        if (json_object_get(row, "values_per_s"))
            status = add_floats(p, path, row, err);
        else if (json_object_get(row, "variant"))
            status = add_kernel(p, path, row, threads, err);
        else if (json_object_get(row, "tokens_per_s"))
            status = add_speed(p, path, row, err);
        else
            status = k3_fail(err, K3_ERR_FORMAT,
                             "%s: row %zu is of neither kernels, floats, decode nor prefill", path, i);
    }
    json_decref(rows);
    return status;
}

static k3_status draw(const struct plot *p, struct k3_error *err)
{
    struct k3_stream *out = calloc(1, sizeof *out);
    if (!out) return k3_fail_memory(err, "the picture", sizeof *out);
    double height = 0, y = 0;
    for (uint32_t i = 0; i < p->n_charts; i++) height += k3_chart_height(&p->charts[i]);
    k3_status status = k3_stream_open(out, p->output, err);
    if (status == K3_OK) {
        k3_svg_begin(out, K3_CHART_WIDTH, height, "k3bench");
        for (uint32_t i = 0; i < p->n_charts; i++) {
            k3_chart_draw(&p->charts[i], out, y);
            y += k3_chart_height(&p->charts[i]);
        }
        k3_svg_end(out);
        status = k3_stream_commit(out, err);
    }
    free(out);
    return status;
}

int k3_verb_plot(int argc, char **argv)
{
    struct k3_error err;
    struct plot *p = calloc(1, sizeof *p);
    if (!p) return k3_program_end(k3_fail_memory(&err, "the picture", sizeof *p), &err);
    k3_status status = parse_options(argc, argv, p, &err);
    for (int i = optind; i < argc && status == K3_OK && !p->help; i++) status = add_file(p, argv[i], &err);
    if (status == K3_OK && !p->help) status = draw(p, &err);
    free(p);
    return k3_program_end(status, &err);
}
