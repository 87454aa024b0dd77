/* report.c - rows as a table, CSV or JSON. */
#include "report.h"

#include "common/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

k3_status k3_report_check(const struct k3_report *report, struct k3_error *err)
{
    if (report->json && report->csv)
        return k3_fail(err, K3_ERR_ARGUMENT, "--json and --csv exclude each other");
    return K3_OK;
}

/* ---- table ---- */

static void print_cell(const json_t *value, const struct k3_column *column)
{
    if (column->scale == 0 && json_is_string(value))
        k3_out("%-*s", column->width, json_string_value(value));
    else if (json_is_number(value))
        k3_out("%*.*f", column->width, column->decimals, json_number_value(value) * column->scale);
    else
        k3_out("%*s", column->width, "-");
}

void k3_report_table(const json_t *rows, const struct k3_column *columns)
{
    size_t i;
    json_t *row;
    for (const struct k3_column *c = columns; c->key; c++)
        k3_out("%s%*s", c == columns ? "" : " ", c->scale == 0 ? -c->width : c->width, c->title);
    k3_out("\n");
    json_array_foreach(rows, i, row) {
        for (const struct k3_column *c = columns; c->key; c++) {
            if (c != columns) k3_out(" ");
            print_cell(json_object_get(row, c->key), c);
        }
        k3_out("\n");
    }
}

/* ---- CSV ---- */

/* Adds the members of `from` that are no objects to `to`, those of objects by their whole names. */
static bool flatten(const json_t *from, const char *prefix, json_t *to)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)from, key, value) {
        char name[256];
        snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", key);
        if (json_is_object(value) ? !flatten(value, name, to) : json_object_set(to, name, value) != 0)
            return false;
    }
    return true;
}

/* Text in quotes if it needs them (RFC 4180). */
static void print_field(const char *text)
{
    if (!text[strcspn(text, ",\"\r\n")]) {
        k3_out("%s", text);
        return;
    }
    k3_out("\"");
    for (; *text; text++) k3_out(*text == '"' ? "\"\"" : "%c", *text);
    k3_out("\"");
}

static void print_value(const json_t *value)
{
    if (json_is_string(value))
        print_field(json_string_value(value));
    else if (json_is_integer(value))
        k3_out("%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        k3_out("%.6g", json_real_value(value));
    else if (json_is_boolean(value))
        k3_out("%s", json_is_true(value) ? "true" : "false");
}

static void print_lines(const json_t *flat, json_t *names)
{
    size_t i;
    json_t *row, *unused;
    const char *key, *separator = "";
    json_object_foreach(names, key, unused) {
        k3_out("%s", separator);
        print_field(key);
        separator = ",";
    }
    k3_out("\n");
    json_array_foreach(flat, i, row) {
        separator = "";
        json_object_foreach(names, key, unused) {
            k3_out("%s", separator);
            print_value(json_object_get(row, key));
            separator = ",";
        }
        k3_out("\n");
    }
}

k3_status k3_report_csv(const json_t *rows, struct k3_error *err)
{
    json_t *flat = json_array(), *names = json_object(), *row;
    bool done = flat && names;
    size_t i;
    json_array_foreach(rows, i, row) {
        json_t *one = json_object();
        done = done && one && flatten(row, "", one) && json_object_update_missing(names, one) == 0;
        done = json_array_append_new(flat, one) == 0 && done;
    }
    if (done) print_lines(flat, names);
    json_decref(flat);
    json_decref(names);
    return done ? K3_OK : k3_fail_memory(err, "the table", 0);
}

/* ---- JSON ---- */

k3_status k3_report_json(const json_t *value, struct k3_error *err)
{
    char *text = value ? json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;
    if (!text) return k3_fail_memory(err, "the JSON text", 0);
    k3_out("%s\n", text);
    free(text);
    return K3_OK;
}
