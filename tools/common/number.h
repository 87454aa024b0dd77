/* number.h - numbers from the command line and from text. */
#ifndef K3_TOOLS_NUMBER_H
#define K3_TOOLS_NUMBER_H

#include "base/error.h"

/* All of `text` must be decimal digits, the value between min and max. `what` is named in the message. */
k3_status k3_parse_whole(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *value,
                         struct k3_error *err);

/* A decimal number such as 0.7 or 1e-3; no NaN, no infinity, no hexadecimal. */
k3_status k3_parse_real(const char *what, const char *text, double min, double max, double *value,
                        struct k3_error *err);

/* Appends the token ids in n bytes of text, separated by white space or commas, each below n_vocab. */
k3_status k3_parse_ids(const char *text, size_t n, uint32_t n_vocab, struct k3_tokens *ids,
                       struct k3_error *err);

#define K3_NUMBER_MAX 32 /* enough for what the functions below write */

/* "1,234,567". Returns `out`. */
const char *k3_format_count(uint64_t value, char out[K3_NUMBER_MAX]);

/* "8.7 MB", and "319.0 GiB" from a GiB on. Returns `out`. */
const char *k3_format_bytes(uint64_t bytes, char out[K3_NUMBER_MAX]);

#endif
