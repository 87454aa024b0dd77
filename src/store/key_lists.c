/* key_lists.c - lists of keys, each key in at most one of them. */
#include "store/key_lists.h"

#include "store/policy.h"

#include <stdlib.h>
#include <string.h>

bool k3_key_lists_init(struct k3_key_lists *lists, uint32_t n_keys, uint32_t n_lists)
{
    size_t n = (size_t)n_keys + n_lists;
    lists->n_keys = n_keys;
    lists->next = malloc(n * sizeof *lists->next);
    lists->previous = malloc(n * sizeof *lists->previous);
    if (!lists->next || !lists->previous) return false;
    memset(lists->next, 0xff, n * sizeof *lists->next);
    for (uint32_t head = n_keys; head < n; head++) lists->next[head] = lists->previous[head] = head;
    return true;
}

void k3_key_lists_free(struct k3_key_lists *lists)
{
    free(lists->next);
    free(lists->previous);
}

static void insert_between(struct k3_key_lists *lists, uint32_t before, uint32_t key, uint32_t after)
{
    lists->next[before] = lists->previous[after] = key;
    lists->previous[key] = before;
    lists->next[key] = after;
}

void k3_key_lists_push_front(struct k3_key_lists *lists, uint32_t list, uint32_t key)
{
    uint32_t head = lists->n_keys + list;
    insert_between(lists, head, key, lists->next[head]);
}

void k3_key_lists_push_back(struct k3_key_lists *lists, uint32_t list, uint32_t key)
{
    uint32_t head = lists->n_keys + list;
    insert_between(lists, lists->previous[head], key, head);
}

void k3_key_lists_remove(struct k3_key_lists *lists, uint32_t key)
{
    uint32_t before = lists->previous[key], after = lists->next[key];
    lists->next[before] = after;
    lists->previous[after] = before;
    lists->next[key] = K3_NO_KEY;
}
