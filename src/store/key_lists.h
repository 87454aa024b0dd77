/* key_lists.h - lists of keys, each key in at most one of them, as policies keep them. All operations O(1). */
#ifndef K3_STORE_KEY_LISTS_H
#define K3_STORE_KEY_LISTS_H

#include <stdbool.h>
#include <stdint.h>

/* The lists are rings through two arrays. Node n_keys + i is the head of list i: it comes before the first
 * key and after the last one. */
struct k3_key_lists {
    uint32_t n_keys;
    uint32_t *next, *previous; /* [n_keys + n_lists]; next[key] is K3_NO_KEY for a key in no list */
};

/* False: memory is out. End with k3_key_lists_free either way. */
bool k3_key_lists_init(struct k3_key_lists *lists, uint32_t n_keys, uint32_t n_lists);
void k3_key_lists_free(struct k3_key_lists *lists);

/* `key` must be in no list. */
void k3_key_lists_push_front(struct k3_key_lists *lists, uint32_t list, uint32_t key);
void k3_key_lists_push_back(struct k3_key_lists *lists, uint32_t list, uint32_t key);

/* `key` must be in a list. */
void k3_key_lists_remove(struct k3_key_lists *lists, uint32_t key);

#endif
