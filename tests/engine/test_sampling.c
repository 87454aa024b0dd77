/* The sampler: what each option keeps, and that a seed decides everything else. */
#include <k3/k3.h>

#include "random.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#define N 50

static struct k3_sampler *sampler(struct k3_sampling options, uint32_t n_vocab)
{
    struct k3_sampler *s;
    struct k3_error err;
    if (k3_sampler_create(&options, n_vocab, &s, &err) != K3_OK) fail_msg("%s", err.message);
    return s;
}

static void greedy_takes_the_first_of_the_best(void **state)
{
    (void)state;
    struct k3_sampler *s = sampler((struct k3_sampling){0}, 5);
    assert_int_equal(k3_sampler_pick(s, (float[]){1, 3, 2, 3, -1}), 1);
    assert_int_equal(k3_sampler_pick(s, (float[]){NAN, -3, -2, NAN, -4}), 2);
    k3_sampler_free(s);
}

/* How often each of n tokens is picked in 20,000 tries. */
static void count(struct k3_sampling options, const float *logits, uint32_t n, int *counts)
{
    struct k3_sampler *s = sampler(options, n);
    memset(counts, 0, n * sizeof *counts);
    for (int i = 0; i < 20000; i++) counts[k3_sampler_pick(s, logits)]++;
    k3_sampler_free(s);
}

static void frequencies_follow_probabilities(void **state)
{
    (void)state;
    /* Logits ln 8, ln 4, ln 2, ln 1, ln 1: probabilities 1/2, 1/4, 1/8, 1/16, 1/16. */
    const float logits[5] = {logf(8), logf(4), logf(2), 0, 0};
    int c[5];
    count((struct k3_sampling){.temperature = 1, .seed = 1}, logits, 5, c);
    const double p[5] = {0.5, 0.25, 0.125, 0.0625, 0.0625};
    for (int i = 0; i < 5; i++) assert_true(fabs(c[i] / 20000.0 - p[i]) < 0.02);

    count((struct k3_sampling){.temperature = 0.5f, .seed = 1}, logits, 5,
          c); /* squares: 64 16 4 1 1 of 86 */
    assert_true(fabs(c[0] / 20000.0 - 64.0 / 86) < 0.02 && fabs(c[1] / 20000.0 - 16.0 / 86) < 0.02);

    count((struct k3_sampling){.temperature = 1, .top_k = 2, .seed = 1}, logits, 5, c);
    assert_true(c[0] + c[1] == 20000 && fabs(c[0] / 20000.0 - 2.0 / 3) < 0.02);
    count((struct k3_sampling){.temperature = 1, .top_p = 0.7f, .seed = 1}, logits, 5,
          c); /* 1/2 is short of it */
    assert_true(c[0] + c[1] == 20000 && c[1] > 0);
    count((struct k3_sampling){.temperature = 1, .top_p = 0.5f, .seed = 1}, logits, 5, c);
    assert_int_equal(c[0], 20000);
    count((struct k3_sampling){.temperature = 1, .min_p = 0.2f, .seed = 1}, logits, 5,
          c); /* 1/16 < 0.2 / 2 */
    assert_true(c[0] + c[1] + c[2] == 20000 && c[2] > 0);
    count((struct k3_sampling){.temperature = 1, .top_k = 1, .seed = 1}, logits, 5, c);
    assert_int_equal(c[0], 20000);
}

static void repetition_is_penalised_within_the_window(void **state)
{
    (void)state;
    struct k3_sampler *s = sampler((struct k3_sampling){.repetition_penalty = 2, .penalty_window = 2}, 3);
    const float logits[3] = {3, 2, -1};
    assert_int_equal(k3_sampler_pick(s, logits), 0);
    k3_sampler_accept(s, 0);
    assert_int_equal(k3_sampler_pick(s, logits), 1); /* 3 / 2 < 2 */
    k3_sampler_accept(s, 1);
    assert_int_equal(k3_sampler_pick(s, logits), 0); /* 1.5 against 1 */
    k3_sampler_accept(s, 2);
    assert_int_equal(k3_sampler_pick(s, logits), 0); /* 0 has left the window */
    k3_sampler_free(s);

    s = sampler((struct k3_sampling){.repetition_penalty = 2}, 2);
    k3_sampler_accept(s, 0);
    assert_int_equal(k3_sampler_pick(s, (float[]){-1, -1.5f}), 1); /* negative ones are multiplied */
    k3_sampler_free(s);
}

/* These tokens are part of the promise: any machine, compiler and version must give them. */
static void a_seed_gives_the_same_tokens_everywhere(void **state)
{
    (void)state;
    struct test_random r = {5};
    float logits[1000];
    for (int i = 0; i < 1000; i++) logits[i] = 3 * test_random_normal(&r);
    static const int32_t expected[8] = {199, 508, 472, 652, 508, 18, 302, 435};
    struct k3_sampler *a =
        sampler((struct k3_sampling){.temperature = 0.8f, .top_p = 0.95f, .seed = 42}, 1000);
    struct k3_sampler *b =
        sampler((struct k3_sampling){.temperature = 0.8f, .top_p = 0.95f, .seed = 42}, 1000);
    struct k3_sampler *c =
        sampler((struct k3_sampling){.temperature = 0.8f, .top_p = 0.95f, .seed = 43}, 1000);
    int same = 0;
    for (int i = 0; i < N; i++) {
        int32_t token = k3_sampler_pick(a, logits);
        if (i < 8 && token != expected[i]) fail_msg("token %d is %d, expected %d", i, token, expected[i]);
        assert_int_equal(k3_sampler_pick(b, logits), token);
        same += k3_sampler_pick(c, logits) == token;
    }
    assert_true(same < N / 2);
    k3_sampler_free(a);
    k3_sampler_free(b);
    k3_sampler_free(c);
}

static void strange_logits_give_some_token(void **state)
{
    (void)state;
    struct k3_sampler *s = sampler((struct k3_sampling){.temperature = 1, .top_p = 0.9f, .min_p = 0.1f}, 4);
    int32_t token = k3_sampler_pick(s, (float[]){NAN, NAN, NAN, NAN});
    assert_true(token >= 0 && token < 4);
    assert_int_equal(k3_sampler_pick(s, (float[]){0, INFINITY, 1, NAN}), 1);
    assert_int_equal(k3_sampler_pick(s, (float[]){-INFINITY, -INFINITY, 1, -INFINITY}), 2);
    assert_int_equal(k3_sampler_pick(s, (float[]){-1e30f, 1e30f, -1e30f, 0}), 1);
    k3_sampler_free(s);
}

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    const struct k3_sampling wrong[] = {
        {.temperature = -1},
        {.temperature = NAN},
        {.temperature = INFINITY},
        {.top_p = 1.5f},
        {.top_p = -0.1f},
        {.top_p = NAN},
        {.min_p = 2},
        {.min_p = NAN},
        {.repetition_penalty = -1},
        {.repetition_penalty = NAN},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct k3_error err = {0};
        struct k3_sampler *s;
        assert_int_equal(k3_sampler_create(&wrong[i], 10, &s, &err), K3_ERR_ARGUMENT);
        assert_non_null(strstr(err.message, "possible"));
    }
    struct k3_sampler *s;
    assert_int_equal(k3_sampler_create(&(struct k3_sampling){0}, 0, &s, NULL), K3_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_first_of_the_best),
        cmocka_unit_test(frequencies_follow_probabilities),
        cmocka_unit_test(repetition_is_penalised_within_the_window),
        cmocka_unit_test(a_seed_gives_the_same_tokens_everywhere),
        cmocka_unit_test(strange_logits_give_some_token),
        cmocka_unit_test(options_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
