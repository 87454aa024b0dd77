/* A device made of two has the bits of one, wherever the model is divided. Both are the CPU here, so that every build
 * tests it; with a GPU: test_placement.c. */
#include "reference.h"

#include "engine/split.h"
#include "ops/cpu_device.h"
#include "random.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURES K3_TEST_DATA "/fixtures/models/"

enum { BATCH = 16, N_TOKENS = 24, GUESSES = 3 };

struct subject {
    struct k3_plan *plan;
    struct k3_pool *pool;
    struct k3_share shares[2];
    struct k3_device *parts[2], *device; /* parts[1] is NULL if it is one */
};

/* What a walk found. */
struct found {
    float *logits; /* [N_TOKENS][V] */
    uint32_t guesses[N_TOKENS][64][GUESSES];
};

static const int32_t tokens[N_TOKENS] = {3,  1, 4,  1, 5,  9,  2,  6,  5,  35, 8,  97,
                                         93, 2, 38, 4, 62, 64, 33, 83, 27, 95, 28, 8};

static struct k3_device *open_share(const struct subject *s, const struct k3_share *share)
{
    struct k3_error err;
    struct k3_device *device;
    struct k3_cpu_options options = {.max_batch = BATCH, .share = share};
    if (k3_cpu_device_create(s->plan, s->pool, &options, &device, &err) != K3_OK) fail_msg("%s", err.message);
    return device;
}

static void open_subject(struct subject *s, const char *path)
{
    struct k3_error err;
    *s = (struct subject){0};
    if (k3_plan_open(path, &s->plan, &err) != K3_OK) fail_msg("%s", err.message);
    if (k3_pool_create(1, &s->pool, &err) != K3_OK) fail_msg("%s", err.message);
}

static void open_whole(struct subject *s)
{
    s->device = s->parts[0] = open_share(s, NULL);
}

static void open_split(struct subject *s, const struct k3_share *second)
{
    struct k3_error err;
    s->shares[0] = k3_share_rest(second, s->plan->hp.n_layers);
    s->shares[1] = *second;
    for (int i = 0; i < 2; i++) s->parts[i] = open_share(s, &s->shares[i]);
    assert_int_equal(
        k3_split_create(s->parts[0], s->parts[1], &s->shares[1], &s->plan->hp, BATCH, &s->device, &err),
        K3_OK);
}

static void close_devices(struct subject *s)
{
    if (s->parts[1]) s->device->ops->free(s->device);
    for (int i = 0; i < 2; i++)
        if (s->parts[i]) s->parts[i]->ops->free(s->parts[i]);
    s->parts[0] = s->parts[1] = s->device = NULL;
}

static void close_subject(struct subject *s)
{
    k3_pool_free(s->pool);
    k3_plan_close(s->plan);
}

/* As k3_walk, but the experts' sum is the latent input itself. */
static void walk(const struct subject *s, struct k3_state *state, size_t position, size_t n,
                 struct found *found)
{
    struct k3_device *dev = s->device;
    const struct k3_device_ops *ops = dev->ops;
    const struct k3_hparams *hp = &s->plan->hp;
    uint32_t rows[BATCH];
    struct k3_error err;
    ops->begin(dev, state, tokens + position, n, position);
    for (uint32_t layer = 0; layer < hp->n_layers; layer++) {
        ops->attention(dev, layer);
        if (layer < hp->n_dense_layers) {
            ops->dense_ffn(dev, layer);
            continue;
        }
        struct k3_routing routing = ops->route(dev, layer);
        float *sum = malloc(n * hp->latent * sizeof *sum);
        assert_non_null(sum);
        memcpy(sum, routing.latent, n * hp->latent * sizeof *sum);
        if (n == 1 && layer + 1 < hp->n_layers)
            ops->guess(dev, layer + 1, GUESSES, found->guesses[position][layer + 1]);
        ops->shared(dev, layer);
        ops->join(dev, layer, sum);
        free(sum);
    }
    for (size_t i = 0; i < n; i++) rows[i] = (uint32_t)i;
    ops->logits(dev, rows, n, found->logits + position * hp->n_vocab);
    assert_int_equal(ops->finish(dev, &err), K3_OK);
}

static struct found *new_found(const struct subject *s)
{
    struct found *found = calloc(1, sizeof *found);
    assert_non_null(found);
    found->logits = calloc((size_t)N_TOKENS * s->plan->hp.n_vocab, sizeof *found->logits);
    assert_non_null(found->logits);
    return found;
}

static void free_found(struct found *found)
{
    free(found->logits);
    free(found);
}

/* A full batch, a part of one, and single tokens. */
static struct found *find_all(const struct subject *s)
{
    struct k3_error err;
    struct k3_state *state;
    struct found *found = new_found(s);
    assert_int_equal(s->device->ops->state_create(s->device, N_TOKENS, &state, &err), K3_OK);
    walk(s, state, 0, BATCH, found);
    walk(s, state, BATCH, 5, found);
    for (size_t t = BATCH + 5; t < N_TOKENS; t++) walk(s, state, t, 1, found);
    s->device->ops->state_free(state);
    return found;
}

static void check_found(const struct subject *s, const struct found *got, const struct found *want)
{
    char second[256];
    k3_share_format(&s->shares[1], s->plan->hp.n_layers, second, sizeof second);
    for (size_t i = 0; i < (size_t)N_TOKENS * s->plan->hp.n_vocab; i++)
        if (memcmp(&got->logits[i], &want->logits[i], sizeof *got->logits))
            fail_msg("with %s on the second: logit %zu is %a, not %a", second, i, (double)got->logits[i],
                     (double)want->logits[i]);
    if (memcmp(got->guesses, want->guesses, sizeof got->guesses))
        fail_msg("with %s on the second: other guesses", second);
}

static void check_share(struct subject *s, const struct k3_share *second, const struct found *want)
{
    open_split(s, second);
    struct found *got = find_all(s);
    check_found(s, got, want);
    free_found(got);
    close_devices(s);
}

static void check_model(const char *path)
{
    struct subject s;
    open_subject(&s, path);
    open_whole(&s);
    struct found *want = find_all(&s);
    close_devices(&s);

    uint32_t n_layers = s.plan->hp.n_layers, n = k3_n_groups(n_layers);
    for (uint32_t first = 0; first <= n; first++) { /* every place to divide, and its opposite */
        struct k3_share share = {0};
        for (uint32_t group = first; group < n; group++) share.has[group] = true;
        check_share(&s, &share, want);
        share = k3_share_rest(&share, n_layers);
        check_share(&s, &share, want);
    }
    for (uint32_t group = 0; group < n; group++) { /* each alone, and all but each */
        struct k3_share share = {0};
        share.has[group] = true;
        check_share(&s, &share, want);
        share = k3_share_rest(&share, n_layers);
        check_share(&s, &share, want);
    }
    struct test_random random = {5};
    for (int i = 0; i < 20; i++) {
        struct k3_share share = {0};
        for (uint32_t group = 0; group < n; group++) share.has[group] = test_random_below(&random, 2);
        check_share(&s, &share, want);
    }
    free_found(want);
    close_subject(&s);
}

static void a_model_divided_anywhere_has_the_bits_of_the_whole(void **state)
{
    (void)state;
    check_model(FIXTURES "k3-tiny-a-q8_0-mxfp4.gguf");
    check_model(FIXTURES "k3-tiny-b-q8_0-mxfp4.gguf");
    check_model(FIXTURES "k3-tiny-c-f32.gguf");
}

static void states_are_copied_of_both(void **unused)
{
    (void)unused;
    struct subject s;
    struct k3_error err;
    struct k3_share second;
    struct k3_state *state, *other;
    struct k3_saved_state *recurrent, *whole;
    open_subject(&s, FIXTURES "k3-tiny-a-q8_0-mxfp4.gguf");
    assert_int_equal(k3_share_parse("1-2,4.attention", s.plan->hp.n_layers, &second, &err), K3_OK);
    open_split(&s, &second);
    const struct k3_device_ops *ops = s.device->ops;
    struct found *want = find_all(&s), *got = new_found(&s);
    size_t width = s.plan->hp.n_vocab;

    assert_int_equal(ops->state_create(s.device, N_TOKENS, &state, &err), K3_OK);
    assert_int_equal(ops->state_create(s.device, N_TOKENS, &other, &err), K3_OK);
    walk(&s, state, 0, BATCH, got);
    assert_int_equal(ops->state_save(state, BATCH, false, &recurrent, &err), K3_OK);
    assert_int_equal(ops->state_save(state, BATCH, true, &whole, &err), K3_OK);
    walk(&s, state, BATCH, 5, got);
    ops->state_load(state, recurrent); /* in place, over its own cache */
    memset(got->logits + BATCH * width, 0, 5 * width * sizeof(float));
    walk(&s, state, BATCH, 5, got);
    assert_memory_equal(got->logits, want->logits, (BATCH + 5) * width * sizeof(float));
    ops->state_load(other, whole); /* elsewhere */
    memset(got->logits + BATCH * width, 0, 5 * width * sizeof(float));
    walk(&s, other, BATCH, 5, got);
    assert_memory_equal(got->logits, want->logits, (BATCH + 5) * width * sizeof(float));
    ops->state_reset(state);
    walk(&s, state, 0, BATCH, got);
    assert_memory_equal(got->logits, want->logits, BATCH * width * sizeof(float));

    ops->saved_free(whole);
    ops->saved_free(recurrent);
    ops->state_free(other);
    ops->state_free(state);
    free_found(want);
    free_found(got);
    close_devices(&s);
    close_subject(&s);
}

static k3_status fail_to_finish(struct k3_device *dev, struct k3_error *err)
{
    (void)dev;
    return k3_fail(err, K3_ERR_IO, "it broke");
}

static k3_status fail_to_create(struct k3_device *dev, size_t max_tokens, struct k3_state **state,
                                struct k3_error *err)
{
    (void)dev;
    (void)max_tokens;
    (void)state;
    return k3_fail(err, K3_ERR_MEMORY, "it is full");
}

static k3_status fail_to_save(const struct k3_state *state, size_t n_tokens, bool cache,
                              struct k3_saved_state **saved, struct k3_error *err)
{
    (void)state;
    (void)n_tokens;
    (void)cache;
    (void)saved;
    return k3_fail(err, K3_ERR_MEMORY, "it is full");
}

static void a_failure_of_either_is_that_of_both(void **unused)
{
    (void)unused;
    struct subject s;
    struct k3_error err;
    struct k3_share second;
    struct k3_state *state, *none;
    struct k3_saved_state *saved;
    open_subject(&s, FIXTURES "k3-tiny-c-f32.gguf");
    assert_int_equal(k3_share_parse("2", s.plan->hp.n_layers, &second, &err), K3_OK);
    open_split(&s, &second);
    assert_int_equal(s.device->ops->state_create(s.device, N_TOKENS, &state, &err), K3_OK);
    for (int i = 0; i < 2; i++) {
        const struct k3_device_ops *sound = s.parts[i]->ops;
        struct k3_device_ops broken = *sound;
        broken.finish = fail_to_finish;
        broken.state_create = fail_to_create;
        broken.state_save = fail_to_save;
        s.parts[i]->ops = &broken;
        s.device->ops->begin(s.device, state, tokens, 1, 0);
        assert_int_equal(s.device->ops->finish(s.device, &err), K3_ERR_IO);
        assert_string_equal(err.message, "it broke");
        assert_int_equal(s.device->ops->state_create(s.device, N_TOKENS, &none, &err), K3_ERR_MEMORY);
        assert_string_equal(err.message, "it is full");
        assert_int_equal(s.device->ops->state_save(state, 0, true, &saved, &err), K3_ERR_MEMORY);
        s.parts[i]->ops = sound;
    }
    s.device->ops->state_free(state);
    close_devices(&s);
    close_subject(&s);
}

/* What is counted before it is allocated: dense weights and state divide, and nothing is counted twice. */
static void sizes_of_shares_add_up(void **state)
{
    (void)state;
    struct subject s;
    open_subject(&s, FIXTURES "k3-tiny-a-q8_0-mxfp4.gguf");
    struct k3_cpu_sizes all = k3_cpu_device_sizes(s.plan, NULL, 1, false, BATCH);
    for (uint32_t group = 0; group < k3_n_groups(s.plan->hp.n_layers); group++) {
        struct k3_share one = {0};
        one.has[group] = true;
        struct k3_share rest = k3_share_rest(&one, s.plan->hp.n_layers);
        struct k3_cpu_sizes a = k3_cpu_device_sizes(s.plan, &one, 1, false, BATCH);
        struct k3_cpu_sizes b = k3_cpu_device_sizes(s.plan, &rest, 1, false, BATCH);
        assert_true(a.dense > 0 && b.dense > 0);
        assert_int_equal(a.dense + b.dense, all.dense);
        assert_int_equal(a.state + b.state, all.state);
        assert_int_equal(a.token + b.token, all.token);
    }
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_divided_anywhere_has_the_bits_of_the_whole),
        cmocka_unit_test(states_are_copied_of_both),
        cmocka_unit_test(a_failure_of_either_is_that_of_both),
        cmocka_unit_test(sizes_of_shares_add_up),
    };
    return cmocka_run_group_tests_name("a device made of two", tests, NULL, NULL);
}
