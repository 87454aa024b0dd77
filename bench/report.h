/* report.h - results as rows, and the three ways to show them: a table, CSV, JSON.
 *
 * A row is a JSON object of numbers, strings and further objects. The table shows chosen members, JSON and CSV all. */
#ifndef K3_BENCH_REPORT_H
#define K3_BENCH_REPORT_H

#include "base/error.h"

#include <jansson.h>

/* How rows are shown, as chosen by options. */
struct k3_report {
    bool json, csv; /* neither: a table */
};

/* clang-format off */
#define K3_REPORT_OPTIONS(report) \
    {K3_OPTION_FLAG, 0, "json", &(report).json, 0, 0, NULL, "JSON instead of a table"}, \
    {K3_OPTION_FLAG, 0, "csv", &(report).csv, 0, 0, NULL, "comma-separated values instead of a table"}
/* clang-format on */

/* Both at once are an error. */
k3_status k3_report_check(const struct k3_report *report, struct k3_error *err);

struct k3_column {
    const char *key; /* of the member; NULL ends a list */
    const char *title;
    int width;
    int decimals; /* of a number */
    double scale; /* what the number is multiplied by; 0: it is text, and stands at the left */
};

/* One line for each row, after one of titles. A member that is missing or null shows as "-". */
void k3_report_table(const json_t *rows, const struct k3_column *columns);

/* A line of names and one for each row. Members of members are named "outer.inner"; the names are those of all rows. */
k3_status k3_report_csv(const json_t *rows, struct k3_error *err);

/* Any value, indented. */
k3_status k3_report_json(const json_t *value, struct k3_error *err);

#endif
