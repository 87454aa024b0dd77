/* number.c - numbers from the command line and from text, and back. */
#include "common/number.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

k3_status k3_parse_whole(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *value,
                         struct k3_error *err)
{
    /* strtoull alone would take " -1" for a very large number. */
    if (!*text || text[strspn(text, "0123456789")])
        return k3_fail(err, K3_ERR_ARGUMENT, "%s: '%.40s' is not a whole number from %llu to %llu", what,
                       text, (unsigned long long)min, (unsigned long long)max);
    errno = 0;
    uint64_t parsed = strtoull(text, NULL, 10);
    if (errno || parsed < min || parsed > max)
        return k3_fail(err, K3_ERR_ARGUMENT, "%s: %.40s is not between %llu and %llu", what, text,
                       (unsigned long long)min, (unsigned long long)max);
    *value = parsed;
    return K3_OK;
}

k3_status k3_parse_real(const char *what, const char *text, double min, double max, double *value,
                        struct k3_error *err)
{
    char *end = NULL;
    bool plain = *text && !text[strspn(text, "0123456789.+-eE")];
    double parsed = plain ? strtod(text, &end) : 0;
    if (!plain || *end)
        return k3_fail(err, K3_ERR_ARGUMENT, "%s: '%.40s' is not a number from %g to %g", what, text, min,
                       max);
    if (!isfinite(parsed) || parsed < min || parsed > max)
        return k3_fail(err, K3_ERR_ARGUMENT, "%s: %.40s is not between %g and %g", what, text, min, max);
    *value = parsed;
    return K3_OK;
}

/* The digits of an amount, without its last letter, as a plain decimal number. */
static k3_status parse_decimal(const char *what, const char *text, size_t n, double max, double *value,
                               struct k3_error *err)
{
    char digits[K3_NUMBER_MAX];
    bool plain = n > 0 && n < sizeof digits && strspn(text, "0123456789.") == n;
    if (!plain)
        return k3_fail(err, K3_ERR_ARGUMENT, "%s: '%.40s' is no amount such as 123, 512M, 1.5G or 42%%", what,
                       text);
    memcpy(digits, text, n);
    digits[n] = 0;
    return k3_parse_real(what, digits, 0, max, value, err);
}

k3_status k3_parse_amount(const char *what, const char *text, struct k3_amount *amount, struct k3_error *err)
{
    static const char units[] = "KMGT";
    size_t n = strlen(text);
    char last = n ? text[n - 1] : 0;
    const char *unit = last ? strchr(units, last) : NULL;
    struct k3_amount parsed = {.is_share = last == '%'};
    double value;

    if (parsed.is_share) {
        k3_status status = parse_decimal(what, text, n - 1, 100, &parsed.percent, err);
        if (status != K3_OK) return status;
    } else if (unit) {
        double size = ldexp(1, 10 * (int)(unit - units + 1));
        /* 2^53: up to here a double holds every whole number, and it is far more than any machine has. */
        k3_status status = parse_decimal(what, text, n - 1, 0x1p53 / size, &value, err);
        if (status != K3_OK) return status;
        parsed.count = (uint64_t)(value * size);
    } else {
        k3_status status = parse_decimal(what, text, n, 0x1p53, &value, err);
        if (status == K3_OK) status = k3_parse_whole(what, text, 0, (uint64_t)1 << 53, &parsed.count, err);
        if (status != K3_OK) return status;
    }
    *amount = parsed;
    return K3_OK;
}

uint64_t k3_amount_of(const struct k3_amount *amount, uint64_t whole)
{
    return amount->is_share ? (uint64_t)((double)whole * amount->percent / 100) : amount->count;
}

static k3_status append_id(struct k3_tokens *ids, int32_t id, struct k3_error *err)
{
    if (ids->n == ids->capacity) {
        size_t capacity = ids->capacity ? 2 * ids->capacity : 256;
        int32_t *grown = realloc(ids->ids, capacity * sizeof *grown);
        if (!grown) return k3_fail_memory(err, "a list of tokens", capacity * sizeof *grown);
        ids->ids = grown;
        ids->capacity = capacity;
    }
    ids->ids[ids->n++] = id;
    return K3_OK;
}

static bool is_separator(char c)
{
    return c == ',' || c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

k3_status k3_parse_ids(const char *text, size_t n, uint32_t n_vocab, struct k3_tokens *ids,
                       struct k3_error *err)
{
    for (size_t i = 0; i < n;) {
        if (is_separator(text[i])) {
            i++;
            continue;
        }
        size_t length = 0;
        char word[K3_NUMBER_MAX];
        while (i + length < n && !is_separator(text[i + length])) length++;
        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word), text + i);
        uint64_t id;
        k3_status status = k3_parse_whole("token id", word, 0, n_vocab - 1, &id, err);
        if (status == K3_OK) status = append_id(ids, (int32_t)id, err);
        if (status != K3_OK) return status;
        i += length;
    }
    return K3_OK;
}

const char *k3_format_count(uint64_t value, char out[K3_NUMBER_MAX])
{
    char digits[K3_NUMBER_MAX], *to = out;
    int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) *to++ = ',';
        *to++ = digits[i];
    }
    *to = 0;
    return out;
}

const char *k3_format_bytes(uint64_t bytes, char out[K3_NUMBER_MAX])
{
    static const struct {
        double size;
        const char *name;
    } units[] = {{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if ((double)bytes < units[i].size) continue;
        snprintf(out, K3_NUMBER_MAX, "%.1f %s", (double)bytes / units[i].size, units[i].name);
        return out;
    }
    snprintf(out, K3_NUMBER_MAX, "%u bytes", (unsigned)bytes);
    return out;
}
