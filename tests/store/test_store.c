/* The store: right bytes from everywhere, and what stays in its slots. */
#include "subject.h"

#include "store/reader_internal.h"
#include "store/store_internal.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>
#include <unistd.h>

static void every_expert_has_the_bytes_of_the_file(void **state)
{
    (void)state;
    const char *models[] = {
        SMALL_MODEL,
        FIXTURES "k3-tiny-c-f32.gguf",
        FIXTURES "k3-tiny-q-q8_0-iq1_m-iq2_xxs.gguf",
        FIXTURES "split/k3-tiny-c-q8_0-mxfp4-00002-of-00003.gguf",
        K3_TEST_MODELS "/k3-tiny-IQ1_M.gguf",
    };
    const enum k3_io ways[] = {K3_IO_AUTO, K3_IO_THREADS, K3_IO_MMAP};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct subject s = open_subject(models[m]);
        const struct k3_hparams *hp = &s.plan->hp;
        uint32_t all = (uint32_t)k3_store_experts(s.plan), least = k3_store_least_slots(s.plan);
        uint32_t part = all * 42 / 100 > least ? all * 42 / 100 : least,
                 sizes[] = {least, part, all, 2 * all};
        for (int k = 0; k < 3 * 2 * 4; k++) {
            enum k3_direct direct = k / 3 % 2 ? K3_DIRECT_AUTO : K3_DIRECT_OFF;
            struct k3_store *store = open_store(&s, ways[k % 3], direct, sizes[k / 6]);
            for (int round = 0; round < 2; round++)
                for (uint32_t layer = hp->n_dense_layers; layer < hp->n_layers; layer++) {
                    use_range(&s, store, layer, 0, hp->n_experts, true);
                    use_range(&s, store, layer, 1, hp->top_k, false);
                    use_range(&s, store, layer, 0, hp->n_experts, false);
                }
            k3_store_close(store);
        }
        close_subject(&s);
    }
}

static void the_depth_test_reads_and_leaves_no_trace_in_the_statistics(void **state)
{
    (void)state;
    struct subject s = open_subject(SMALL_MODEL);
    struct k3_store *store = open_store(&s, K3_IO_AUTO, K3_DIRECT_AUTO, 16);
    struct k3_store_stats before, after;
    k3_store_get_stats(store, K3_ALL_LAYERS, &before);
    assert_int_equal(before.bytes_read, 0); /* small models do without */
    k3_store_find_depth(store, 0);
    k3_store_get_stats(store, K3_ALL_LAYERS, &after);
    assert_true(after.bytes_read > 0);
    assert_int_equal(after.requests + after.hits + after.misses, 0);
    uint32_t limit = store->reader->limit;
    assert_true(limit == 32 || limit == 64 || limit == 128);
    use_range(&s, store, s.plan->hp.n_dense_layers, 0, s.plan->hp.n_experts, false);
    k3_store_close(store);
    close_subject(&s);
}

static void too_few_slots_are_refused_with_the_number_that_would_do(void **state)
{
    (void)state;
    struct subject s = open_subject(SMALL_MODEL);
    assert_int_equal(k3_store_least_slots(s.plan), 8);
    struct k3_store *store = open_store(&s, K3_IO_AUTO, K3_DIRECT_AUTO, 8);
    assert_int_equal(k3_store_slots(store), 8);
    use_range(&s, store, FIRST_LAYER, 0, 4, false);
    k3_store_close(store);

    struct k3_error err;
    struct k3_store_options options = {.n_slots = 7};
    assert_int_equal(k3_store_open(s.plan, &options, &store, &err), K3_ERR_ARGUMENT);
    if (!strstr(err.message, "7 slots") || !strstr(err.message, "at least 8")) fail_msg("%s", err.message);
    close_subject(&s);
}

static void a_hit_was_there_before_it_was_asked_for(void **state)
{
    (void)state;
    struct subject s = open_subject(SMALL_MODEL);
    struct k3_store *store = open_store(&s, K3_IO_AUTO, K3_DIRECT_AUTO, SMALL_LAYERS * SMALL_EXPERTS);
    use_range(&s, store, FIRST_LAYER, 0, 4, false);
    struct k3_store_stats cold = stats_of(store);
    assert_int_equal(cold.requests, 4);
    assert_int_equal(cold.hits, 0);
    assert_int_equal(cold.misses, 4);
    assert_true(cold.bytes_read >= 4 * k3_store_expert_bytes(s.plan, FIRST_LAYER));

    use_range(&s, store, FIRST_LAYER, 2, 4, false); /* two of them again, two new */
    struct k3_store_stats warm = stats_of(store);
    assert_int_equal(warm.requests, 8);
    assert_int_equal(warm.hits, 2);
    assert_int_equal(warm.misses, 6);

    struct k3_store_stats layer;
    k3_store_get_stats(store, FIRST_LAYER, &layer);
    assert_memory_equal(&layer, &warm, sizeof layer);
    k3_store_get_stats(store, FIRST_LAYER + 1, &layer);
    assert_int_equal(layer.requests, 0);
    k3_store_close(store);
    close_subject(&s);
}

static void all_experts_are_read_once_when_there_is_a_slot_for_each(void **state)
{
    (void)state;
    struct subject s = open_subject(SMALL_MODEL);
    for (int sweep = 0; sweep < 2; sweep++) {
        struct k3_store *store = open_store(&s, K3_IO_AUTO, K3_DIRECT_OFF, SMALL_LAYERS * SMALL_EXPERTS);
        for (int round = 0; round < 3; round++)
            for (uint32_t layer = 0; layer < SMALL_LAYERS; layer++)
                use_range(&s, store, FIRST_LAYER + layer, 0, SMALL_EXPERTS, sweep);
        assert_int_equal(stats_of(store).misses, SMALL_LAYERS * SMALL_EXPERTS);
        assert_int_equal(stats_of(store).hits, 2 * SMALL_LAYERS * SMALL_EXPERTS);
        k3_store_close(store);
    }
    close_subject(&s);
}

static void a_sweep_evicts_nothing(void **state)
{
    (void)state;
    struct subject s = open_subject(SMALL_MODEL);
    struct k3_store *store = open_store(&s, K3_IO_AUTO, K3_DIRECT_AUTO, 16); /* 2 of them set aside */
    use_range(&s, store, FIRST_LAYER, 0, 14, false);
    for (uint32_t layer = 0; layer < SMALL_LAYERS; layer++)
        use_range(&s, store, FIRST_LAYER + layer, 0, SMALL_EXPERTS, true);
    uint64_t before = stats_of(store).hits;
    assert_int_equal(before, 14);
    use_range(&s, store, FIRST_LAYER, 0, 14, false);
    assert_int_equal(stats_of(store).hits - before, 14);
    k3_store_close(store);
    close_subject(&s);
}

static void a_sweep_leaves_behind_what_there_is_room_for(void **state)
{
    (void)state;
    struct subject s = open_subject(SMALL_MODEL);
    struct k3_store *store = open_store(&s, K3_IO_AUTO, K3_DIRECT_AUTO, 16);
    use_range(&s, store, FIRST_LAYER, 0, SMALL_EXPERTS, true);
    use_range(&s, store, FIRST_LAYER, 0, SMALL_EXPERTS, true);
    assert_int_equal(stats_of(store).hits, 14);
    k3_store_close(store);
    close_subject(&s);
}

/* Waits until hints have been read, by the only way there is: other work. */
static void let_hints_arrive(const struct subject *s, struct k3_store *store)
{
    (void)s;
    struct k3_store_stats stats;
    do {
        use_range(s, store, FIRST_LAYER, 0, 1, false);
        stats = stats_of(store);
    } while (stats.n_pieces < 3 * (stats.misses + stats.hints));
}

static void a_right_guess_is_a_hit(void **state)
{
    (void)state;
    struct subject s = open_subject(SMALL_MODEL);
    struct k3_store *store = open_store(&s, K3_IO_AUTO, K3_DIRECT_AUTO, 32); /* 4 set aside */
    use_range(&s, store, FIRST_LAYER, 0, 1, false);
    uint32_t ids[] = {0, 3, 5};
    k3_store_hint(store, FIRST_LAYER + 1, ids, 3, UINT64_MAX);
    assert_int_equal(stats_of(store).hints, 3);
    k3_store_hint(store, FIRST_LAYER + 1, ids, 3, UINT64_MAX); /* again: they are known */
    assert_int_equal(stats_of(store).hints, 3);

    struct k3_store_stats before = stats_of(store);
    uint32_t wanted[] = {5, 7, 3};
    use_experts(&s, store, FIRST_LAYER + 1, wanted, 3, false);
    struct k3_store_stats after = stats_of(store);
    assert_int_equal(after.useful_hints, 2);
    assert_int_equal(after.hits + after.misses, before.hits + before.misses + 3);
    before = after;
    use_experts(&s, store, FIRST_LAYER + 1, wanted, 3, false); /* they stay */
    assert_int_equal(stats_of(store).hits, before.hits + 3);
    k3_store_close(store);
    close_subject(&s);
}

/* Guesses until one is read: those that were given up have their slots until what was under way has arrived. */
static void hint_until_read(struct k3_store *store, uint32_t layer, const uint32_t *ids, uint32_t n)
{
    uint64_t before = stats_of(store).hints;
    for (int ms = 0; ms < 5000 && stats_of(store).hints == before; ms++) {
        k3_store_hint(store, layer, ids, n, UINT64_MAX);
        if (stats_of(store).hints == before) usleep(1000);
    }
    assert_true(stats_of(store).hints > before);
}

static void a_guess_evicts_nothing_and_expires(void **state)
{
    (void)state;
    struct subject s = open_subject(SMALL_MODEL);
    struct k3_store *store = open_store(&s, K3_IO_AUTO, K3_DIRECT_AUTO, 32); /* 4 set aside */
    uint32_t ids[] = {10, 11, 12, 13, 14, 15};
    for (uint32_t layer = 0; layer < 4; layer++)
        use_range(&s, store, FIRST_LAYER + layer, 0, 7, false); /* 28 */
    struct k3_store_stats before = stats_of(store);
    for (int round = 0; round < 10; round++) {
        for (uint32_t layer = 0; layer < 4; layer++) {
            hint_until_read(store, FIRST_LAYER + layer, ids, 6);
            use_range(&s, store, FIRST_LAYER + layer, 0, 7, false);
        }
    }
    struct k3_store_stats after = stats_of(store);
    assert_int_equal(after.hits - before.hits, 10 * 4 * 7);
    assert_true(after.hints <= 10 * 4 * 4);
    assert_int_equal(after.useful_hints, 0);

    /* One whose layer never comes goes too. */
    hint_until_read(store, FIRST_LAYER + 3, ids, 4);
    for (int i = 0; i < 3; i++) use_range(&s, store, FIRST_LAYER, 0, 7, false);
    hint_until_read(store, FIRST_LAYER + 2, ids, 4);
    k3_store_close(store);
    close_subject(&s);
}

static void guesses_read_no_more_than_they_may(void **state)
{
    (void)state;
    struct subject s = open_subject(SMALL_MODEL);
    struct k3_store *store = open_store(&s, K3_IO_AUTO, K3_DIRECT_AUTO, SMALL_LAYERS * SMALL_EXPERTS);
    uint32_t ids[] = {1, 2, 3, 4, 5};
    uint64_t bytes = k3_store_expert_bytes(s.plan, FIRST_LAYER);
    k3_store_hint(store, FIRST_LAYER, ids, 5, 3 * bytes - 1);
    assert_int_equal(stats_of(store).hints, 2);
    k3_store_hint(store, FIRST_LAYER, ids, 5, 0);
    assert_int_equal(stats_of(store).hints, 2);
    let_hints_arrive(&s, store);
    uint64_t hits = stats_of(store).hits;
    use_range(&s, store, FIRST_LAYER, 1, 3, false);
    assert_int_equal(stats_of(store).hits - hits, 2);
    assert_int_equal(stats_of(store).useful_hints, 2);
    k3_store_close(store);
    close_subject(&s);
}

/* A sweep needs the slots that guesses are in. */
static void guesses_are_in_nobodys_way(void **state)
{
    (void)state;
    struct subject s = open_subject(SMALL_MODEL);
    struct k3_store *store = open_store(&s, K3_IO_AUTO, K3_DIRECT_AUTO, 8);
    uint32_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    use_range(&s, store, FIRST_LAYER, 0, 8, false);
    for (int i = 0; i < 20; i++) {
        k3_store_hint(store, FIRST_LAYER + 1, ids, 9, UINT64_MAX);
        use_range(&s, store, FIRST_LAYER + 2, 0, SMALL_EXPERTS, i % 2);
    }
    k3_store_close(store);
    close_subject(&s);
}

static void asking_for_more_than_the_slots_hold_is_an_error_not_a_hang(void **state)
{
    (void)state;
    struct subject s = open_subject(SMALL_MODEL);
    struct k3_store *store = open_store(&s, K3_IO_AUTO, K3_DIRECT_AUTO, 8);
    struct k3_error err;
    struct k3_ticket *ticket, *other;
    struct k3_expert held[SMALL_EXPERTS];
    uint32_t ids[SMALL_EXPERTS], n = 0;
    for (uint32_t i = 0; i < SMALL_EXPERTS; i++) ids[i] = i;
    assert_int_equal(k3_store_acquire(store, FIRST_LAYER, ids, SMALL_EXPERTS, false, &ticket, &err), K3_OK);
    while (n < SMALL_EXPERTS && k3_store_next(ticket, &held[n], &err) == K3_OK) n++;
    assert_int_equal(n, 8);
    assert_string_equal(err.message, "no slot is free for the next expert: give back some of 8");
    assert_int_equal(k3_store_acquire(store, FIRST_LAYER, ids, 1, false, &other, &err), K3_ERR_ARGUMENT);
    for (; n > 0; n--) {
        check_expert(&s, FIRST_LAYER, ids[held[n - 1].index], &held[n - 1]);
        k3_store_give_back(ticket, &held[n - 1]);
    }
    assert_int_equal(k3_store_next(ticket, &held[0], &err), K3_OK);
    k3_store_release(ticket); /* with one held, one or more under way, others waiting */

    for (uint32_t layer = 0; layer < SMALL_LAYERS; layer++)
        use_range(&s, store, FIRST_LAYER + layer, 0, SMALL_EXPERTS, false);
    uint32_t wrong = SMALL_EXPERTS;
    assert_int_equal(k3_store_acquire(store, FIRST_LAYER, &wrong, 1, false, &ticket, &err), K3_ERR_ARGUMENT);
    assert_int_equal(k3_store_acquire(store, 0, ids, 1, false, &ticket, &err), K3_ERR_ARGUMENT);
    k3_store_close(store);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_expert_has_the_bytes_of_the_file),
        cmocka_unit_test(the_depth_test_reads_and_leaves_no_trace_in_the_statistics),
        cmocka_unit_test(too_few_slots_are_refused_with_the_number_that_would_do),
        cmocka_unit_test(a_hit_was_there_before_it_was_asked_for),
        cmocka_unit_test(all_experts_are_read_once_when_there_is_a_slot_for_each),
        cmocka_unit_test(a_sweep_evicts_nothing),
        cmocka_unit_test(a_sweep_leaves_behind_what_there_is_room_for),
        cmocka_unit_test(a_right_guess_is_a_hit),
        cmocka_unit_test(a_guess_evicts_nothing_and_expires),
        cmocka_unit_test(guesses_read_no_more_than_they_may),
        cmocka_unit_test(guesses_are_in_nobodys_way),
        cmocka_unit_test(asking_for_more_than_the_slots_hold_is_an_error_not_a_hang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
