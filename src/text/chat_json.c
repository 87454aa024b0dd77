/* chat_json.c - JSON as the protocol writes it.
 *
 * The release writes json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False) of Python.
 * The model saw that and nothing else, so it is copied to the letter: numbers too. Jansson reads; its own
 * writer spells 0.1 with 17 digits and control characters in upper-case hex, so what is read is written here.
 */
#include "text/chat_internal.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void k3_growing_put(struct k3_growing *t, const char *bytes, size_t n)
{
    if (t->failed) return;
    if (n > t->capacity - t->n) {
        size_t capacity = 2 * t->capacity + n + 256;
        char *grown = realloc(t->bytes, capacity);
        if (!grown) {
            t->failed = true;
            return;
        }
        t->bytes = grown;
        t->capacity = capacity;
    }
    memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
}

static void put(struct k3_growing *t, const char *bytes, size_t n)
{
    k3_growing_put(t, bytes, n);
}

void k3_json_put_string(struct k3_growing *t, const char *s, size_t n)
{
    static const char plain[] = "\"\\\b\f\n\r\t", escaped[] = "\"\\bfnrt";
    put(t, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        const char *special = s[i] ? strchr(plain, s[i]) : NULL;
        char text[8];
        if (special)
            put(t, (const char[]){'\\', escaped[special - plain]}, 2);
        else if ((unsigned char)s[i] < 0x20)
            put(t, text, (size_t)snprintf(text, sizeof text, "\\u%04x", (unsigned char)s[i]));
        else
            put(t, s + i, 1);
    }
    put(t, "\"", 1);
}

/* The shortest digits that are read back as x > 0: d[0].d[1]d[2].. times ten to the *exponent. Only digits
 * are taken from what printf writes, so the locale does not matter. */
static size_t shortest_digits(double x, char digits[17], int *exponent)
{
    char text[40];
    int precision = 0;
    do snprintf(text, sizeof text, "%.*e", precision, x);
    while (strtod(text, NULL) != x && precision++ < 16);

    size_t n = 0;
    const char *at = text;
    for (; *at != 'e'; at++)
        if (isdigit((unsigned char)*at)) digits[n++] = *at;
    *exponent = (int)strtol(at + 1, NULL, 10);
    return n;
}

/* As Python's repr: 1.0, 0.1, 1e-05, 1e+16. */
static void put_real(struct k3_growing *t, double x)
{
    char digits[17], text[16];
    int exponent = 0;
    size_t n = 1;
    digits[0] = '0';
    if (signbit(x)) put(t, "-", 1);
    if (x != 0) n = shortest_digits(fabs(x), digits, &exponent);

    if (exponent < -4 || exponent >= 16) {
        put(t, digits, 1);
        if (n > 1) put(t, ".", 1);
        put(t, digits + 1, n - 1);
        put(t, text, (size_t)snprintf(text, sizeof text, "e%+03d", exponent));
        return;
    }
    int point = exponent + 1; /* digits before the point; the first is at 0 */
    if (point <= 0) put(t, "0", 1);
    for (int i = 0; i < point; i++) put(t, i < (int)n ? digits + i : "0", 1);
    put(t, ".", 1);
    for (int i = point; i < 0; i++) put(t, "0", 1);
    for (int i = point > 0 ? point : 0; i < (int)n; i++) put(t, digits + i, 1);
    if (point >= (int)n) put(t, "0", 1);
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b); /* UTF-8 sorts as its code points do */
}

static void put_object(struct k3_growing *t, const json_t *object, bool sorted)
{
    size_t n = 0;
    const char *key;
    json_t *value;
    const char **keys = malloc(json_object_size(object) * sizeof *keys + 1);
    if (!keys) {
        t->failed = true;
        return;
    }
    json_object_foreach((json_t *)object, key, value) keys[n++] = key;
    if (sorted) qsort(keys, n, sizeof *keys, compare_keys);
    put(t, "{", 1);
    for (size_t i = 0; i < n; i++) {
        if (i) put(t, ",", 1);
        k3_json_put_string(t, keys[i], strlen(keys[i]));
        put(t, ":", 1);
        k3_json_put(t, json_object_get(object, keys[i]), sorted);
    }
    put(t, "}", 1);
    free(keys);
}

static void put_array(struct k3_growing *t, const json_t *array, bool sorted)
{
    put(t, "[", 1);
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (i) put(t, ",", 1);
        k3_json_put(t, json_array_get(array, i), sorted);
    }
    put(t, "]", 1);
}

/* Jansson refuses to read what is nested deeper than 2048 levels, so the recursion ends. */
void k3_json_put(struct k3_growing *t, const json_t *value, bool sorted)
{
    char text[32];
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        put_object(t, value, sorted);
        break;
    case JSON_ARRAY:
        put_array(t, value, sorted);
        break;
    case JSON_STRING:
        k3_json_put_string(t, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER:
        put(t, text, (size_t)snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value)));
        break;
    case JSON_REAL:
        put_real(t, json_real_value(value));
        break;
    case JSON_TRUE:
        put(t, "true", 4);
        break;
    case JSON_FALSE:
        put(t, "false", 5);
        break;
    case JSON_NULL:
        put(t, "null", 4);
        break;
    }
}
