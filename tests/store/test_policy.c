/* The policies of the store, against models of them that keep everything and look at everything. */
#include "store/policy.h"

#include "random.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#define N_LAYERS  3
#define N_EXPERTS 16
#define N_KEYS    (N_LAYERS * N_EXPERTS)
#define N_SLOTS   20
#define N_STEPS   10000

/* What a naive observer writes down. */
struct model {
    double order[N_KEYS];                          /* LRU: larger is later */
    uint32_t requests[N_KEYS][N_STEPS], n[N_KEYS]; /* LFRU: visits of the layer when asked for */
    uint32_t visits[N_LAYERS];
    double latest, earliest;
    bool resident[N_KEYS], pinned[N_KEYS];
    uint32_t used;
};

static double lru_score(const struct model *m, uint32_t key)
{
    return m->order[key];
}

static double lfru_score(const struct model *m, uint32_t key)
{
    if (!m->n[key]) return 0;
    double frequency = 0;
    uint32_t now = m->visits[key / N_EXPERTS];
    for (uint32_t i = 0; i < m->n[key]; i++) frequency += exp2((m->requests[key][i] - (double)now) / 128);
    return frequency / (now - m->requests[key][m->n[key] - 1] + 1);
}

typedef double (*score_fn)(const struct model *m, uint32_t key);

static bool not_pinned(void *ctx, uint32_t key)
{
    const struct model *m = ctx;
    return !m->pinned[key];
}

static void note_request(struct model *m, uint32_t key)
{
    m->order[key] = ++m->latest;
    m->requests[key][m->n[key]++] = m->visits[key / N_EXPERTS];
}

/* The lowest score of what may go; INFINITY if nothing may. */
static double lowest_score(const struct model *m, score_fn score)
{
    double lowest = INFINITY;
    for (uint32_t key = 0; key < N_KEYS; key++)
        if (m->resident[key] && !m->pinned[key]) lowest = fmin(lowest, score(m, key));
    return lowest;
}

static void evict(struct model *m, struct k3_policy *policy, score_fn score)
{
    double lowest = lowest_score(m, score);
    uint32_t victim = policy->kind->victim(policy, not_pinned, m);
    if (isinf(lowest)) {
        assert_int_equal(victim, K3_NO_KEY);
        return;
    }
    assert_true(victim < N_KEYS && m->resident[victim] && !m->pinned[victim]);
    double got = score(m, victim);
    if (got - lowest > 1e-9 * fabs(lowest)) fail_msg("evicts %.17g although there is %.17g", got, lowest);
    m->resident[victim] = false;
    m->used--;
}

static void admit(struct model *m, struct k3_policy *policy, score_fn score, uint32_t key, bool wanted)
{
    if (m->used == N_SLOTS) evict(m, policy, score);
    if (m->used == N_SLOTS) return; /* all are pinned */
    policy->kind->admit(policy, key, wanted);
    if (wanted)
        note_request(m, key);
    else
        m->order[key] = --m->earliest;
    m->resident[key] = true;
    m->used++;
}

/* Asks for up to four experts of a layer, low ids more often. */
static void request(struct model *m, struct k3_policy *policy, score_fn score, struct test_random *r)
{
    uint32_t layer = test_random_below(r, N_LAYERS);
    policy->kind->visit(policy, layer);
    m->visits[layer]++;
    for (int i = 0; i < 4; i++) {
        uint32_t key = layer * N_EXPERTS + test_random_below(r, 1 + test_random_below(r, N_EXPERTS));
        if (m->pinned[key]) continue;
        if (m->resident[key]) {
            policy->kind->touch(policy, key);
            note_request(m, key);
        } else {
            admit(m, policy, score, key, true);
        }
        m->pinned[key] = m->resident[key];
    }
}

static void random_step(struct model *m, struct k3_policy *policy, score_fn score, struct test_random *r)
{
    uint32_t key = test_random_below(r, N_KEYS);
    switch (test_random_below(r, 8)) {
    case 0:
        if (!m->resident[key]) break;
        policy->kind->forget(policy, key);
        m->resident[key] = m->pinned[key] = false;
        m->used--;
        break;
    case 1:
        if (!m->resident[key]) admit(m, policy, score, key, false);
        break;
    default:
        request(m, policy, score, r);
    }
    /* Pins last for a few steps; now and then until everything is pinned. */
    if (test_random_below(r, 200) < 50)
        for (key = 0; key < N_KEYS; key++) m->pinned[key] = false;
}

static void follow(const struct k3_policy_kind *kind, score_fn score)
{
    const struct k3_policy_shape shape = {N_LAYERS, N_EXPERTS, N_SLOTS};
    struct model *m = calloc(1, sizeof *m);
    struct k3_policy *policy = kind->create(&shape);
    struct test_random r = {1};
    assert_non_null(m);
    assert_non_null(policy);
    for (int i = 0; i < N_STEPS; i++) random_step(m, policy, score, &r);
    kind->free(policy);
    free(m);
}

static void lru_evicts_what_was_asked_for_longest_ago(void **state)
{
    (void)state;
    follow(&k3_policy_lru, lru_score);
}

static void lfru_evicts_the_lowest_frequency_by_age(void **state)
{
    (void)state;
    follow(&k3_policy_lfru, lfru_score);
}

static bool anything(void *ctx, uint32_t key)
{
    (void)ctx, (void)key;
    return true;
}

static bool nothing(void *ctx, uint32_t key)
{
    (void)ctx, (void)key;
    return false;
}

static const struct k3_policy_kind *const kinds[] = {&k3_policy_lru, &k3_policy_lfru};

static void what_nobody_wanted_goes_first(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct k3_policy_kind *kind = kinds[i];
        struct k3_policy *policy = kind->create(&(struct k3_policy_shape){1, 8, 6});
        kind->visit(policy, 0);
        for (uint32_t key = 0; key < 3; key++) kind->admit(policy, key, true);
        for (uint32_t key = 3; key < 6; key++) kind->admit(policy, key, false);
        for (int n = 0; n < 3; n++) assert_in_range(kind->victim(policy, anything, NULL), 3, 5);
        for (int n = 0; n < 3; n++) assert_in_range(kind->victim(policy, anything, NULL), 0, 2);
        assert_int_equal(kind->victim(policy, anything, NULL), K3_NO_KEY);
        kind->free(policy);
    }
}

static void a_pool_in_use_has_no_victim_and_stays_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct k3_policy_kind *kind = kinds[i];
        struct k3_policy *policy = kind->create(&(struct k3_policy_shape){1, 8, 8});
        kind->visit(policy, 0);
        for (uint32_t key = 0; key < 8; key++) kind->admit(policy, key, true);
        assert_int_equal(kind->victim(policy, nothing, NULL), K3_NO_KEY);
        uint32_t gone = 0;
        for (int n = 0; n < 8; n++) gone |= 1u << kind->victim(policy, anything, NULL);
        assert_int_equal(gone, 0xff);
        kind->free(policy);
        kind->free(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lru_evicts_what_was_asked_for_longest_ago),
        cmocka_unit_test(lfru_evicts_the_lowest_frequency_by_age),
        cmocka_unit_test(what_nobody_wanted_goes_first),
        cmocka_unit_test(a_pool_in_use_has_no_victim_and_stays_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
