/* The simulator of cache policies, on real routing traces. */
#include "policies.h"

#include "random.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const files[] = {K3_TEST_DATA "/traces/kimi-linear-48b-decode-300.jsonl",
                                    K3_TEST_DATA "/traces/olmoe-decode-299.jsonl"};
static struct k3_trace traces[2];

static const double shares[] = {7, 15, 30, 42, 54, 60};
#define N_SHARES (sizeof shares / sizeof *shares)

static int read_traces(void **state)
{
    (void)state;
    struct k3_error err;
    for (int i = 0; i < 2; i++) {
        if (k3_trace_read(files[i], &traces[i], &err) == K3_OK) continue;
        print_error("%s\n", err.message);
        return -1;
    }
    return 0;
}

static int free_traces(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) k3_trace_free(&traces[i]);
    return 0;
}

static const struct k3_candidate *candidate(const char *name)
{
    const struct k3_candidate *c = k3_candidates;
    while (c->name && strcmp(c->name, name) != 0) c++;
    if (!c->name) fail_msg("there is no policy %s", name);
    return c;
}

static struct k3_replay replay(const struct k3_trace *trace, const struct k3_candidate *c, uint32_t slots,
                               uint32_t warm_up)
{
    struct k3_error err;
    struct k3_replay result;
    const struct k3_policy_shape shape = {trace->n_layers, trace->n_experts, slots};
    if (k3_replay(trace, &shape, c, warm_up, &result, &err) != K3_OK) fail_msg("%s", err.message);
    return result;
}

static uint32_t slots_of(const struct k3_trace *trace, double percent)
{
    return (uint32_t)(trace->n_layers * trace->n_experts * percent / 100);
}

static double hits(const struct k3_trace *trace, const char *name, double percent)
{
    struct k3_replay r = replay(trace, candidate(name), slots_of(trace, percent), 60);
    return 100.0 * (double)r.hits / (double)r.requests;
}

static void hit_rates_are_what_they_were(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double hits[2][N_SHARES];
    } cases[] = {
        {"lru", {{44.7, 60.8, 77.9, 85.8, 91.3, 93.3}, {0.0, 44.0, 64.0, 72.9, 83.6, 87.7}}},
        {"lfu", {{44.7, 61.2, 78.7, 87.0, 91.9, 93.7}, {27.6, 44.0, 63.9, 75.4, 84.6, 88.5}}},
        {"arc", {{45.6, 61.2, 77.7, 86.2, 91.8, 94.0}, {0.0, 40.3, 63.1, 73.4, 83.8, 87.9}}},
        {"s3fifo", {{44.0, 61.7, 78.6, 86.6, 92.0, 93.7}, {15.9, 41.4, 63.6, 75.8, 85.3, 88.7}}},
        {"lfru", {{50.8, 65.3, 79.9, 87.2, 92.1, 93.9}, {29.5, 49.4, 67.0, 77.6, 86.0, 89.5}}},
        {"belady", {{66.4, 79.4, 90.1, 93.9, 95.6, 95.9}, {42.9, 65.2, 82.1, 89.4, 94.1, 95.7}}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int t = 0; t < 2; t++)
            for (size_t s = 0; s < N_SHARES; s++) {
                double got = hits(&traces[t], cases[c].name, shares[s]), want = cases[c].hits[t][s];
                if (fabs(got - want) > 0.06)
                    fail_msg("%s at %g %% of trace %d: %.2f, not %.1f", cases[c].name, shares[s], t, got,
                             want);
            }
}

static void nothing_beats_belady_and_lfru_beats_lru(void **state)
{
    (void)state;
    static const double sizes[] = {2, 3, 5, 7, 10, 15, 30, 42, 54, 60, 80, 100};
    for (int t = 0; t < 2; t++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            double bound = hits(&traces[t], "belady", sizes[s]), lru = hits(&traces[t], "lru", sizes[s]);
            for (const struct k3_candidate *c = k3_candidates; c->name; c++) {
                double got = hits(&traces[t], c->name, sizes[s]);
                if (got > bound)
                    fail_msg("%s at %g %% of trace %d: %.3f > %.3f", c->name, sizes[s], t, got, bound);
                if (strcmp(c->name, "lfru") == 0 && got < lru)
                    fail_msg("lfru at %g %% of trace %d: %.3f < %.3f", sizes[s], t, got, lru);
            }
        }
}

/* One layer of a trace, with each of its requests a token of its own. */
static struct k3_trace one_by_one(const struct k3_trace *trace, uint32_t layer)
{
    size_t n = trace->begin[(size_t)trace->n_tokens * trace->n_layers];
    struct k3_trace out = {.n_layers = 1, .n_experts = trace->n_experts};
    out.begin = calloc(n + 1, sizeof *out.begin);
    out.ids = calloc(n, sizeof *out.ids);
    assert_true(out.begin && out.ids);
    for (uint32_t token = 0; token < trace->n_tokens; token++) {
        const size_t *begin = &trace->begin[(size_t)token * trace->n_layers + layer];
        for (size_t i = begin[0]; i < begin[1]; i++) {
            out.ids[out.n_tokens++] = trace->ids[i];
            out.begin[out.n_tokens] = out.n_tokens;
        }
    }
    return out;
}

/* Figures others found for this trace, with a cache a layer, experts asked for one after the other. */
static void the_published_figures_come_out(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double hits[N_SHARES];
    } published[] = {
        {"lru", {43.7, 60.6, 77.5, 85.5, 91.0, 93.0}},
        {"belady", {63.6, 78.2, 89.2, 93.5, 95.3, 95.8}},
    };
    for (size_t p = 0; p < 2; p++)
        for (size_t s = 0; s < N_SHARES; s++) {
            struct k3_replay sum = {0};
            for (uint32_t layer = 0; layer < traces[0].n_layers; layer++) {
                struct k3_trace trace = one_by_one(&traces[0], layer);
                struct k3_replay r =
                    replay(&trace, candidate(published[p].name), (uint32_t)(256 * shares[s] / 100), 60 * 8);
                sum.hits += r.hits;
                sum.requests += r.requests;
                k3_trace_free(&trace);
            }
            double got = 100.0 * (double)sum.hits / (double)sum.requests;
            if (fabs(got - published[p].hits[s]) > 0.0501)
                fail_msg("%s at %g %%: %.3f, not %.1f", published[p].name, shares[s], got,
                         published[p].hits[s]);
        }
}

static void a_pool_for_all_misses_each_expert_once(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        const struct k3_trace *trace = &traces[t];
        size_t n_lists = (size_t)trace->n_tokens * trace->n_layers, distinct = 0;
        bool *seen = calloc((size_t)trace->n_layers * trace->n_experts, sizeof *seen);
        for (size_t list = 0; list < n_lists; list++)
            for (size_t i = trace->begin[list]; i < trace->begin[list + 1]; i++) {
                bool *s = &seen[list % trace->n_layers * trace->n_experts + trace->ids[i]];
                distinct += !*s;
                *s = true;
            }
        for (const struct k3_candidate *c = k3_candidates; c->name; c++) {
            struct k3_replay r = replay(trace, c, trace->n_layers * trace->n_experts, 0);
            assert_int_equal(r.requests, trace->begin[n_lists]);
            assert_int_equal(r.requests - r.hits, distinct);
        }
        free(seen);
    }
}

static void the_same_replay_has_the_same_hits(void **state)
{
    (void)state;
    for (const struct k3_candidate *c = k3_candidates; c->name; c++) {
        uint64_t first = replay(&traces[1], c, 153, 0).hits;
        replay(&traces[0], c, 500, 0); /* other memory, other history */
        assert_int_equal(replay(&traces[1], c, 153, 0).hits, first);
    }
}

static void too_few_slots_are_refused(void **state)
{
    (void)state;
    for (const struct k3_candidate *c = k3_candidates; c->name; c++) {
        struct k3_error err;
        struct k3_replay result;
        struct k3_policy_shape shape = {traces[0].n_layers, traces[0].n_experts, 7};
        assert_int_equal(k3_replay(&traces[0], &shape, c, 0, &result, &err), K3_ERR_ARGUMENT);
        assert_non_null(strstr(err.message, "7 slots are too few"));
        shape.n_slots = 8;
        assert_int_equal(k3_replay(&traces[0], &shape, c, 0, &result, &err), K3_OK);
    }
}

#define N_KEYS  40
#define N_SLOTS 12

struct slots {
    bool resident[N_KEYS], pinned[N_KEYS];
    uint32_t used, n_pinned;
};

static bool not_pinned(void *ctx, uint32_t key)
{
    const struct slots *slots = ctx;
    return !slots->pinned[key];
}

/* A request, or a read ahead, with up to all slots pinned. */
static void random_step(struct slots *slots, struct k3_policy *policy, struct test_random *r)
{
    uint32_t key = test_random_below(r, 1 + test_random_below(r, N_KEYS));
    policy->kind->visit(policy, key / 10);
    if (slots->resident[key]) {
        policy->kind->touch(policy, key);
    } else {
        if (slots->used == N_SLOTS) {
            uint32_t victim = policy->kind->victim(policy, not_pinned, slots);
            if (slots->n_pinned == N_SLOTS) {
                assert_int_equal(victim, K3_NO_KEY);
                memset(slots->pinned, 0, sizeof slots->pinned);
                slots->n_pinned = 0;
                return;
            }
            assert_true(victim < N_KEYS && slots->resident[victim] && !slots->pinned[victim]);
            slots->resident[victim] = false;
            slots->used--;
        }
        policy->kind->admit(policy, key, test_random_below(r, 4) > 0);
        slots->resident[key] = true;
        slots->used++;
    }
    if (!slots->pinned[key] && test_random_below(r, 2)) {
        slots->pinned[key] = true;
        slots->n_pinned++;
    } else if (!slots->pinned[key] && test_random_below(r, 16) == 0) {
        policy->kind->forget(policy, key);
        slots->resident[key] = false;
        slots->used--;
    }
}

static void a_victim_is_resident_and_not_in_use(void **state)
{
    (void)state;
    const struct k3_policy_shape shape = {4, 10, N_SLOTS};
    for (const struct k3_candidate *c = k3_candidates; c->create != k3_belady_create; c++) {
        struct slots slots = {0};
        struct test_random r = {7};
        struct k3_policy *policy = c->create(&shape, NULL);
        assert_non_null(policy);
        for (int i = 0; i < 10000; i++) random_step(&slots, policy, &r);
        policy->kind->free(policy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hit_rates_are_what_they_were),
        cmocka_unit_test(nothing_beats_belady_and_lfru_beats_lru),
        cmocka_unit_test(the_published_figures_come_out),
        cmocka_unit_test(a_pool_for_all_misses_each_expert_once),
        cmocka_unit_test(the_same_replay_has_the_same_hits),
        cmocka_unit_test(too_few_slots_are_refused),
        cmocka_unit_test(a_victim_is_resident_and_not_in_use),
    };
    return cmocka_run_group_tests(tests, read_traces, free_traces);
}
