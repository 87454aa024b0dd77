/* key_heap.c - keys with scores, of which the lowest is found at once. */
#include "store/key_heap.h"

#include <stdlib.h>
#include <string.h>

bool k3_key_heap_init(struct k3_key_heap *heap, uint32_t n_keys, uint32_t n_slots)
{
    heap->n = 0;
    heap->keys = calloc(n_slots, sizeof *heap->keys);
    heap->place = malloc((size_t)n_keys * sizeof *heap->place);
    heap->score = calloc(n_keys, sizeof *heap->score);
    if (!heap->keys || !heap->place || !heap->score) return false;
    memset(heap->place, 0xff, (size_t)n_keys * sizeof *heap->place);
    return true;
}

void k3_key_heap_free(struct k3_key_heap *heap)
{
    free(heap->keys);
    free(heap->place);
    free(heap->score);
}

static bool before(const struct k3_key_heap *heap, uint32_t a, uint32_t b)
{
    return heap->score[a] < heap->score[b] || (heap->score[a] == heap->score[b] && a < b);
}

static void set_place(struct k3_key_heap *heap, uint32_t place, uint32_t key)
{
    heap->keys[place] = key;
    heap->place[key] = place;
}

static void sift_up(struct k3_key_heap *heap, uint32_t place)
{
    uint32_t key = heap->keys[place];
    for (; place > 0; place = (place - 1) / 2) {
        uint32_t parent = heap->keys[(place - 1) / 2];
        if (!before(heap, key, parent)) break;
        set_place(heap, place, parent);
    }
    set_place(heap, place, key);
}

static void sift_down(struct k3_key_heap *heap, uint32_t place)
{
    uint32_t key = heap->keys[place];
    for (uint32_t child; (child = 2 * place + 1) < heap->n; place = child) {
        if (child + 1 < heap->n && before(heap, heap->keys[child + 1], heap->keys[child])) child++;
        if (!before(heap, heap->keys[child], key)) break;
        set_place(heap, place, heap->keys[child]);
    }
    set_place(heap, place, key);
}

void k3_key_heap_put(struct k3_key_heap *heap, uint32_t key, double score)
{
    heap->score[key] = score;
    set_place(heap, heap->n++, key);
    sift_up(heap, heap->n - 1);
}

void k3_key_heap_change(struct k3_key_heap *heap, uint32_t key, double score)
{
    heap->score[key] = score;
    sift_up(heap, heap->place[key]);
    sift_down(heap, heap->place[key]);
}

void k3_key_heap_remove(struct k3_key_heap *heap, uint32_t key)
{
    uint32_t place = heap->place[key], last = heap->keys[--heap->n];
    heap->place[key] = K3_NO_KEY;
    if (last == key) return;
    set_place(heap, place, last);
    sift_up(heap, place);
    sift_down(heap, heap->place[last]);
}

uint32_t k3_key_heap_victim(struct k3_key_heap *heap, k3_may_evict_fn may_evict, void *ctx)
{
    uint32_t before_n = heap->n, victim = K3_NO_KEY;
    while (heap->n > 0 && victim == K3_NO_KEY) {
        uint32_t key = heap->keys[0];
        k3_key_heap_remove(heap, key);
        if (may_evict(ctx, key))
            victim = key;
        else
            heap->keys[heap->n] = key; /* the place that became free: kept there until the search ends */
    }
    /* Those passed over stand behind the heap, the first one last. The victim left the place after the heap.
     */
    uint32_t passed = heap->n + (victim != K3_NO_KEY);
    while (passed < before_n) {
        uint32_t key = heap->keys[passed++];
        k3_key_heap_put(heap, key, heap->score[key]);
    }
    return victim;
}
