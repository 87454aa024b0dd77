/* json.c - what the programs' JSON has in common. */
#include "common/json.h"

#include <stdlib.h>

json_t *k3_json_text(const char *text, size_t n)
{
    json_t *string = json_stringn(text, n);
    if (string) return string;
    char *copy = malloc(n + 1);
    if (!copy) return NULL;
    for (size_t i = 0; i < n; i++) copy[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
    string = json_stringn(copy, n);
    free(copy);
    return string;
}
