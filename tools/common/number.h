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

/* How much of something: a number or a share. */
struct k3_amount {
    bool is_share;
    uint64_t count; /* if it is a number */
    double percent; /* of some whole, if it is a share: 0 .. 100 */
};

/* "123", "512M", "1.5G" (K, M, G, T are powers of 1024), "42%", "0.5%". */
k3_status k3_parse_amount(const char *what, const char *text, struct k3_amount *amount, struct k3_error *err);

/* The number itself, or the share of `whole`; rounded down. */
uint64_t k3_amount_of(const struct k3_amount *amount, uint64_t whole);

/* Appends the token ids in n bytes of text, separated by white space or commas, each below n_vocab. */
k3_status k3_parse_ids(const char *text, size_t n, uint32_t n_vocab, struct k3_tokens *ids,
                       struct k3_error *err);

#define K3_NUMBER_MAX 32 /* enough for what the functions below write */

/* "1,234,567". Returns `out`. */
const char *k3_format_count(uint64_t value, char out[K3_NUMBER_MAX]);

/* "8.7 MB", and "319.0 GiB" from a GiB on. Returns `out`. */
const char *k3_format_bytes(uint64_t bytes, char out[K3_NUMBER_MAX]);

#endif
