/* lists.c - options that are lists. */
#include "lists.h"

#include "common/number.h"

#include <stdio.h>
#include <string.h>

k3_status k3_numbers_parse(const char *what, const char *text, uint32_t min, uint32_t max,
                           struct k3_numbers *numbers, struct k3_error *err)
{
    numbers->n = 0;
    for (const char *word = text; word; word = strchr(word, ',') ? strchr(word, ',') + 1 : NULL) {
        char number[K3_NUMBER_MAX];
        struct k3_amount amount;
        snprintf(number, sizeof number, "%.*s", (int)strcspn(word, ","), word);
        k3_status status = k3_parse_amount(what, number, &amount, err);
        if (status != K3_OK) return status;
        if (amount.is_share || amount.count < min || amount.count > max)
            return k3_fail(err, K3_ERR_ARGUMENT, "%s: %s is not between %u and %u", what, number, min, max);
        if (numbers->n == K3_MAX_LIST)
            return k3_fail(err, K3_ERR_ARGUMENT, "%s: a list of more than %d", what, K3_MAX_LIST);
        numbers->list[numbers->n++] = (uint32_t)amount.count;
    }
    return K3_OK;
}

bool k3_list_has(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *word = list; word; word = strchr(word, ',') ? strchr(word, ',') + 1 : NULL)
        if (strcspn(word, ",") == n && memcmp(word, name, n) == 0) return true;
    return !list;
}

k3_status k3_list_check(const char *what, const char *list, const char *(*known)(size_t i),
                        struct k3_error *err)
{
    for (const char *word = list; word; word = strchr(word, ',') ? strchr(word, ',') + 1 : NULL) {
        int n = (int)strcspn(word, ",");
        size_t i = 0;
        while (known(i) && !(strlen(known(i)) == (size_t)n && memcmp(known(i), word, (size_t)n) == 0)) i++;
        if (known(i)) continue;
        char names[256] = "";
        for (i = 0; known(i); i++) {
            size_t at = strlen(names);
            snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", known(i));
        }
        return k3_fail(err, K3_ERR_ARGUMENT, "%s: '%.*s' is none of: %s", what, n < 40 ? n : 40, word, names);
    }
    return K3_OK;
}
