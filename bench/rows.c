/* rows.c - reads results that k3bench wrote as JSON. */
#include "rows.h"

#include "common/input.h"

const char *k3_row_text(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

double k3_row_number(const json_t *row, const char *key)
{
    double value = json_number_value(json_object_get(row, key));
    return value > 1e-6 && value < 1e18 ? value : 0;
}

/* The list of rows in `root`, as a new reference; NULL if there is none. */
static json_t *find_rows(json_t *root)
{
    json_t *rows = json_is_array(root) ? root : json_object_get(root, "rows"), *row;
    size_t i;
    if (!json_is_array(rows) || json_array_size(rows) == 0) return NULL;
    json_incref(rows);
    if (json_is_object(root)) json_object_del(root, "rows");
    json_array_foreach(rows, i, row)
        if (!json_is_object(row) || (json_is_object(root) && json_object_update_missing(row, root) != 0)) {
            json_decref(rows);
            return NULL;
        }
    return rows;
}

k3_status k3_rows_read(const char *path, json_t **rows, struct k3_error *err)
{
    struct k3_text text = {0};
    json_error_t reason;
    k3_status status = k3_text_read(path, &text, err);
    if (status != K3_OK) return status;
    json_t *root = json_loadb(text.bytes, text.n, JSON_REJECT_DUPLICATES, &reason);
    k3_text_free(&text);
    if (!root) return k3_fail(err, K3_ERR_FORMAT, "%s: line %d is no JSON", path, reason.line);
    *rows = find_rows(root);
    json_decref(root);
    return *rows ? K3_OK : k3_fail(err, K3_ERR_FORMAT, "%s: is no list of results of k3bench", path);
}
