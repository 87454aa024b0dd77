/* key_heap.h - keys with scores, of which the lowest is found at once. */
#ifndef K3_STORE_KEY_HEAP_H
#define K3_STORE_KEY_HEAP_H

#include "store/policy.h"

/* A binary heap. Of equal scores the lower key comes first, so the order does not depend on its history. */
struct k3_key_heap {
    uint32_t n;
    uint32_t *keys;  /* [n_slots], the first n of them in heap order */
    uint32_t *place; /* [n_keys]: where in `keys`; K3_NO_KEY: nowhere */
    double *score;   /* [n_keys]: of those in the heap */
};

/* For at most n_slots keys at a time. False: memory is out. End with k3_key_heap_free either way. */
bool k3_key_heap_init(struct k3_key_heap *heap, uint32_t n_keys, uint32_t n_slots);
void k3_key_heap_free(struct k3_key_heap *heap);

static inline bool k3_key_heap_has(const struct k3_key_heap *heap, uint32_t key)
{
    return heap->place[key] != K3_NO_KEY;
}

/* All O(log n). put: `key` is not in the heap; change and remove: it is. */
void k3_key_heap_put(struct k3_key_heap *heap, uint32_t key, double score);
void k3_key_heap_change(struct k3_key_heap *heap, uint32_t key, double score);
void k3_key_heap_remove(struct k3_key_heap *heap, uint32_t key);

/* Removes and returns the key of the lowest score that may be evicted; K3_NO_KEY if there is none. O(log n)
 * for each key it has to look at. */
uint32_t k3_key_heap_victim(struct k3_key_heap *heap, k3_may_evict_fn may_evict, void *ctx);

#endif
