/* speed_report.c - what decode and prefill took: rows as a table, JSON or CSV, and where the time went. */
#include "speed.h"

#include "common/json.h"
#include "common/program.h"

#include <string.h>

/* Seconds of each kind of step, and of all that is in none. */
static json_t *steps_json(const struct k3_speed *b, const struct k3_speed_row *row)
{
    json_t *object = json_object();
    double other = k3_samples_median(&row->values[K3_SPEED_TOTAL]);
    for (uint32_t i = 0; i < b->steps.n; i++) {
        double seconds = k3_samples_median(&row->steps[i]);
        if (json_object_set_new(object, b->steps.names[i], json_real(seconds)) != 0) goto failed;
        other -= seconds;
    }
    if (json_object_set_new(object, "other", json_real(other > 0 ? other : 0)) == 0) return object;
failed:
    json_decref(object);
    return NULL;
}

static json_t *row_json(const struct k3_speed *b, const struct k3_speed_row *row)
{
    const struct k3_samples *total = &row->values[K3_SPEED_TOTAL];
    json_t *object = json_pack(
        "{s:I, s:I, s:f, s:f, s:f}", "context", (json_int_t)row->context, "tokens", (json_int_t)row->tokens,
        "tokens_per_s", row->tokens / k3_samples_median(total), "tokens_per_s_min",
        row->tokens / k3_samples_max(total), "tokens_per_s_max", row->tokens / k3_samples_min(total));
    bool failed = !object;
    for (int v = 0; v < K3_SPEED_VALUES; v++) {
        double x = k3_samples_median(&row->values[v]);
        if (!row->values[v].n) continue;
        failed |=
            json_object_set_new(object, k3_speed_names[v],
                                v == K3_SPEED_BYTES_READ ? json_integer((json_int_t)x) : json_real(x)) != 0;
    }
    failed |= json_object_set_new(object, "spread", json_real(k3_samples_spread(total))) != 0 ||
              json_object_set_new(object, "operations", steps_json(b, row)) != 0;
    if (!failed) return object;
    json_decref(object);
    return NULL;
}

/* Everything but the rows. */
static k3_status about_json(const struct k3_speed *b, json_t **out, struct k3_error *err)
{
    struct k3_samples spread = {0};
    json_t *hash = NULL;
    k3_status status = k3_machine_model_hash(b->o.engine.model, &hash, err);
    if (status != K3_OK) return status;
    for (uint32_t i = 0; i < b->o.at.n; i++)
        k3_samples_add(&spread, k3_samples_spread(&b->rows[i].values[K3_SPEED_TOTAL]));
    *out = json_pack("{s:s, s:o, s:o, s:i, s:i, s:I, s:o, s:o}", "verb", b->o.prefill ? "prefill" : "decode",
                     "model", k3_json_text(b->o.engine.model, strlen(b->o.engine.model)), "model_hash", hash,
                     "threads", b->info.threads, "repetitions", (int)b->o.repetitions, "slots",
                     (json_int_t)b->info.slots, "machine", k3_machine_json(), "noise",
                     k3_noise_json(&b->noise, k3_samples_median(&spread)));
    return *out ? K3_OK : k3_fail_memory(err, "the results", 0);
}

/* ---- for people ---- */

/* A column for each row, a line for each kind of step. */
static void print_steps(const struct k3_speed *b, const json_t *rows)
{
    const json_t *first = json_object_get(json_array_get(rows, 0), "operations");
    const char *name;
    json_t *unused;
    k3_out("\n%-10s", "ms a token");
    for (uint32_t r = 0; r < b->o.at.n; r++) k3_out("   at %7u", b->rows[r].context);
    k3_out("\n");
    json_object_foreach((json_t *)first, name, unused) {
        k3_out("%-10s", name);
        for (uint32_t r = 0; r < b->o.at.n; r++) {
            const json_t *row = json_array_get(rows, r);
            double seconds = json_number_value(json_object_get(json_object_get(row, "operations"), name));
            k3_out(" %7.2f %3.0f%%", 1e3 * seconds / b->rows[r].tokens,
                   100 * seconds / k3_samples_median(&b->rows[r].values[K3_SPEED_TOTAL]));
        }
        k3_out("\n");
    }
}

static void print_table(const struct k3_speed *b, const json_t *about, const json_t *rows)
{
    static const struct k3_column columns[] = {
        {"context", "context", 8, 0, 1},
        {"tokens", "tokens", 7, 0, 1},
        {"tokens_per_s", "tokens/s", 9, 2, 1},
        {"tokens_per_s_min", "slowest", 9, 2, 1},
        {"tokens_per_s_max", "fastest", 9, 2, 1},
        {"total_s", "seconds", 9, 4, 1},
        {"compute_s", "compute", 9, 4, 1},
        {"io_s", "io", 9, 4, 1},
        {"wait_s", "wait", 9, 4, 1},
        {"compute_alone_s", "alone", 9, 4, 1},
        {"overlap_ratio", "overlap", 7, 3, 1},
        {"hit_rate", "hits %", 7, 1, 100},
        {"bytes_read", "read MB", 9, 1, 1e-6},
        {0},
    };
    const json_t *machine = json_object_get(about, "machine");
    k3_out("%s of %s, %d threads, %u repetitions\n", b->o.prefill ? "prefill" : "decode", b->o.engine.model,
           b->info.threads, b->o.repetitions);
    k3_out("%s, %s kernels, model %s\n\n", json_string_value(json_object_get(machine, "cpu")),
           json_string_value(json_object_get(machine, "kernels")),
           json_string_value(json_object_get(about, "model_hash")));
    k3_report_table(rows, columns);
    print_steps(b, rows);
}

/* ---- all three ---- */

static k3_status show(const struct k3_speed *b, json_t *about, json_t *rows, struct k3_error *err)
{
    size_t i;
    json_t *row;
    bool table = !b->o.report.json && !b->o.report.csv;
    if (table) print_table(b, about, rows);
    k3_noise_warn(json_object_get(about, "noise"), table);
    if (b->o.report.json) {
        if (json_object_set(about, "rows", rows) != 0) return k3_fail_memory(err, "the results", 0);
        return k3_report_json(about, err);
    }
    if (b->o.report.csv) {
        json_array_foreach(rows, i, row)
            if (json_object_update_missing(row, about) != 0) return k3_fail_memory(err, "the results", 0);
        return k3_report_csv(rows, err);
    }
    return K3_OK;
}

k3_status k3_speed_report(const struct k3_speed *b, struct k3_error *err)
{
    json_t *rows = json_array(), *about = NULL;
    k3_status status = about_json(b, &about, err);
    for (uint32_t i = 0; i < b->o.at.n && status == K3_OK; i++)
        if (json_array_append_new(rows, row_json(b, &b->rows[i])) != 0)
            status = k3_fail_memory(err, "the results", 0);
    if (status == K3_OK) status = show(b, about, rows, err);
    json_decref(rows);
    json_decref(about);
    return status;
}
