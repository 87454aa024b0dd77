/* The heap of keys that policies with scores stand on. */
#include "store/key_heap.h"

#include "random.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#define N_KEYS  64
#define N_SLOTS 48

static bool is_odd(void *ctx, uint32_t key)
{
    (void)ctx;
    return key % 2;
}

static bool anything(void *ctx, uint32_t key)
{
    (void)ctx, (void)key;
    return true;
}

static void random_change(struct k3_key_heap *heap, struct test_random *r)
{
    uint32_t key = test_random_below(r, N_KEYS);
    double score = test_random_below(r, 20); /* many are equal */
    if (!k3_key_heap_has(heap, key)) {
        if (heap->n < N_SLOTS) k3_key_heap_put(heap, key, score);
    } else if (test_random_below(r, 2)) {
        k3_key_heap_change(heap, key, score);
    } else {
        k3_key_heap_remove(heap, key);
    }
}

/* Takes out all that may go; checks that they come by score, equal ones by key. Returns how many. */
static uint32_t drain(struct k3_key_heap *heap, k3_may_evict_fn may_evict)
{
    uint32_t n = 0, last = K3_NO_KEY, key;
    for (; (key = k3_key_heap_victim(heap, may_evict, NULL)) != K3_NO_KEY; last = key, n++) {
        assert_true(may_evict(NULL, key));
        assert_false(k3_key_heap_has(heap, key));
        if (last == K3_NO_KEY) continue;
        assert_true(heap->score[last] < heap->score[key] ||
                    (heap->score[last] == heap->score[key] && last < key));
    }
    return n;
}

static void keys_leave_in_order_after_any_changes(void **state)
{
    (void)state;
    struct test_random r = {3};
    for (int round = 0; round < 500; round++) {
        struct k3_key_heap heap;
        assert_true(k3_key_heap_init(&heap, N_KEYS, N_SLOTS));
        for (int i = 0; i < 200; i++) random_change(&heap, &r);
        uint32_t n = heap.n, odd = 0;
        for (uint32_t key = 1; key < N_KEYS; key += 2) odd += k3_key_heap_has(&heap, key);
        assert_int_equal(drain(&heap, is_odd), odd);
        assert_int_equal(drain(&heap, anything), n - odd);
        assert_int_equal(heap.n, 0);
        k3_key_heap_free(&heap);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(keys_leave_in_order_after_any_changes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
