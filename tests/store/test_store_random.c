/* Random sequences of everything that can be asked of a store. What is held has the file's bytes from the moment it
 * is handed out until it is given back, and no two experts that are held share memory. */
#include "subject.h"
#include "random.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#define SEQUENCES 2500 /* times four kinds of store: 10,000 */

struct held {
    struct k3_expert experts[SMALL_EXPERTS];
    uint32_t n;
};

static void check_apart(const struct held *held, const struct k3_expert *new, uint64_t bytes)
{
    for (uint32_t i = 0; i < held->n; i++) {
        const struct k3_expert *old = &held->experts[i];
        if (new->gate < old->gate + bytes && old->gate < new->gate + bytes)
            fail_msg("experts %zu and %zu of a ticket share memory", old->index, new->index);
    }
}

static void give_back_one(const struct subject *s, struct test_random *r, struct k3_ticket *ticket,
                          uint32_t layer, const uint32_t *ids, struct held *held)
{
    uint32_t i = test_random_below(r, held->n);
    struct k3_expert *expert = &held->experts[i];
    check_expert(s, layer, ids[expert->index], expert);
    k3_store_give_back(ticket, expert);
    *expert = held->experts[--held->n];
}

static void hint_some(struct test_random *r, struct k3_store *store, const uint32_t *ids)
{
    uint32_t layer = FIRST_LAYER + test_random_below(r, SMALL_LAYERS);
    k3_store_hint(store, layer, ids, test_random_below(r, 5), test_random_below(r, 4) ? UINT64_MAX : 1);
}

static void shuffle(struct test_random *r, uint32_t *ids)
{
    for (uint32_t i = 0; i < SMALL_EXPERTS; i++) ids[i] = i;
    for (uint32_t i = SMALL_EXPERTS; i > 1; i--) {
        uint32_t j = test_random_below(r, i), id = ids[j];
        ids[j] = ids[i - 1];
        ids[i - 1] = id;
    }
}

/* One ticket, ended early at times, with at most `most` experts held at once, of a sweep one. */
static void one_sequence(const struct subject *s, struct test_random *r, struct k3_store *store,
                         uint32_t most)
{
    uint32_t ids[SMALL_EXPERTS], guesses[SMALL_EXPERTS],
        layer = FIRST_LAYER + test_random_below(r, SMALL_LAYERS);
    uint32_t n = 1 + test_random_below(r, test_random_below(r, 3) ? 4 : SMALL_EXPERTS);
    struct held held = {.n = 0};
    struct k3_error err;
    struct k3_ticket *ticket;
    uint64_t bytes = k3_store_expert_bytes(s->plan, layer);
    bool sweep = test_random_below(r, 3) == 0;
    if (sweep) most = 1;
    shuffle(r, ids);
    shuffle(r, guesses);
    if (test_random_below(r, 2)) hint_some(r, store, guesses);
    if (k3_store_acquire(store, layer, ids, n, sweep, &ticket, &err) != K3_OK) fail_msg("%s", err.message);
    if (test_random_below(r, 2)) hint_some(r, store, guesses);
    uint32_t n_taken = test_random_below(r, 8) ? n : test_random_below(r, n + 1);
    for (uint32_t i = 0; i < n_taken; i++) {
        struct k3_expert expert;
        if (k3_store_next(ticket, &expert, &err) != K3_OK) fail_msg("%s", err.message);
        check_expert(s, layer, ids[expert.index], &expert);
        check_apart(&held, &expert, bytes);
        held.experts[held.n++] = expert;
        while (held.n >= most || (held.n && test_random_below(r, 2)))
            give_back_one(s, r, ticket, layer, ids, &held);
        if (test_random_below(r, 16) == 0) hint_some(r, store, guesses);
    }
    if (test_random_below(r, 4))
        while (held.n) give_back_one(s, r, ticket, layer, ids, &held);
    k3_store_release(ticket);
}

static void whatever_is_asked_for_in_whatever_order(void **state)
{
    (void)state;
    const struct {
        enum k3_io io;
        uint32_t n_slots, most_held;
    } stores[] = {{K3_IO_AUTO, 8, 4}, {K3_IO_THREADS, 8, 4}, {K3_IO_AUTO, 26, 16}, {K3_IO_THREADS, 64, 16}};
    struct test_random r = {1};
    struct subject s = open_subject(SMALL_MODEL);
    for (int k = 0; k < 4; k++) {
        struct k3_store *store = open_store(&s, stores[k].io, K3_DIRECT_AUTO, stores[k].n_slots);
        for (int i = 0; i < SEQUENCES; i++) one_sequence(&s, &r, store, stores[k].most_held);
        struct k3_store_stats stats = stats_of(store);
        print_message("%d: %llu hits, %llu misses, %llu of %llu guesses right\n", k,
                      (unsigned long long)stats.hits, (unsigned long long)stats.misses,
                      (unsigned long long)stats.useful_hints, (unsigned long long)stats.hints);
        assert_int_equal(stats.hits + stats.misses, stats.requests);
        assert_true(stats.hits && stats.misses && stats.useful_hints <= stats.hints);
        k3_store_close(store);
    }
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_is_asked_for_in_whatever_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
