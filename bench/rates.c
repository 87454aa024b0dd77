/* rates.c - reads what k3bench kernels --json wrote. */
#include "rates.h"

#include "rows.h"

#include <string.h>

static int type_of(const char *name)
{
    for (uint32_t t = 0; t < K3_TYPE_COUNT; t++)
        if (k3_type_info(t) && strcmp(k3_type_info(t)->name, name) == 0) return (int)t;
    return -1;
}

static void take(double *best, double rate)
{
    if (rate > *best) *best = rate;
}

static void take_row(const json_t *row, double most_columns, struct k3_rates *rates)
{
    int type = type_of(k3_row_text(row, "name"));
    double rate = k3_row_number(row, "multiply_adds_per_s"), columns = k3_row_number(row, "columns");
    take(&rates->bandwidth, k3_row_number(row, "bandwidth_bytes_per_s"));
    take(&rates->cores, k3_row_number(json_object_get(row, "machine"), "cores"));
    if (type < 0 || k3_row_number(row, "threads") != 1 || strcmp(k3_row_text(row, "memory"), "resident") != 0)
        return;
    if (columns == 1) take(&rates->one[type], rate);
    if (columns == most_columns) take(&rates->many[type], rate);
}

k3_status k3_rates_read(const char *path, struct k3_rates *rates, struct k3_error *err)
{
    json_t *rows, *row;
    size_t i;
    double most = 0;
    k3_status status = k3_rows_read(path, &rows, err);
    if (status != K3_OK) return status;
    *rates = (struct k3_rates){0};
    json_array_foreach(rows, i, row) take(&most, k3_row_number(row, "columns"));
    json_array_foreach(rows, i, row) take_row(row, most, rates);
    json_decref(rows);
    if (rates->one[K3_TYPE_IQ1_M] > 0 && rates->many[K3_TYPE_IQ1_M] > 0 && rates->cores > 0) return K3_OK;
    return k3_fail(
        err, K3_ERR_FORMAT,
        "%s: has no rates of iq1_m with one thread and 1 column; k3bench kernels --json writes such files",
        path);
}
