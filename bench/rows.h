/* rows.h - results that k3bench wrote as JSON, read again. */
#ifndef K3_BENCH_ROWS_H
#define K3_BENCH_ROWS_H

#include "base/error.h"

#include <jansson.h>

/* The rows of a file: a list of objects, or the list `rows` in an object. In that case each row gets the object's other
 * members. */
k3_status k3_rows_read(const char *path, json_t **rows, struct k3_error *err);

/* A member; "" if there is none of that kind. */
const char *k3_row_text(const json_t *row, const char *key);

/* A member; 0 if there is none of that kind, or what is no result: files may have been edited, and what is negative or
 * beyond all measure was not measured. */
double k3_row_number(const json_t *row, const char *key);

#endif
