/* lists.h - options that are lists: "1,8,32" and "iq1_m,q8_0". */
#ifndef K3_BENCH_LISTS_H
#define K3_BENCH_LISTS_H

#include "base/error.h"

#define K3_MAX_LIST 16

struct k3_numbers {
    uint32_t list[K3_MAX_LIST];
    uint32_t n;
};

/* Numbers between min and max, separated by commas; "4K" is 4096. `what` is named in the message. */
k3_status k3_numbers_parse(const char *what, const char *text, uint32_t min, uint32_t max,
                           struct k3_numbers *numbers, struct k3_error *err);

/* Whether `name` is one of the names in `list`, which are separated by commas. NULL has every name. */
bool k3_list_has(const char *list, const char *name);

/* Refuses a list that has a name which known(i) does not give; known ends with NULL. */
k3_status k3_list_check(const char *what, const char *list, const char *(*known)(size_t i),
                        struct k3_error *err);

#endif
