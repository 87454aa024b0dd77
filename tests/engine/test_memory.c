/* The memory plan, the account of sessions, lookahead and the observer. */
#include "reference.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define MODEL K3_TEST_MODELS "/k3-tiny-IQ1_M.gguf"

enum { N = 40 };
static int32_t ids[N];

static struct k3_memory_plan plan_of(struct k3_model_options options)
{
    struct k3_error err;
    struct k3_memory_plan m;
    options.gpu = K3_GPU_OFF; /* it is the plan of the host's memory */
    if (k3_memory_plan(MODEL, &options, &m, &err) != K3_OK) fail_msg("%s", err.message);
    return m;
}

static struct k3_model *open_with(struct k3_model_options options)
{
    struct k3_error err;
    struct k3_model *model;
    options.gpu = K3_GPU_OFF;
    if (k3_model_open(MODEL, &options, &model, &err) != K3_OK) fail_msg("%s", err.message);
    return model;
}

static uint64_t sum(const struct k3_memory_plan *m)
{
    return m->dense + m->scratch + m->sessions + m->slots + m->reserve;
}

static void the_plan_stays_below_its_limit(void **state)
{
    (void)state;
    struct k3_memory_plan m = plan_of((struct k3_model_options){0});
    assert_true(m.available > 0 && m.limit < m.available);
    assert_true(sum(&m) <= m.limit);
    assert_int_equal(m.n_experts, 5 * 16);
    assert_int_equal(m.n_slots, m.n_experts); /* they all fit */
    assert_int_equal(m.slots, m.n_slots * m.slot_bytes);
    assert_int_equal(m.context, 4096);

    m = plan_of((struct k3_model_options){.slots_percent = 42, .context = 100});
    assert_int_equal(m.n_slots, 33);
    assert_int_equal(m.context, 100);
    m = plan_of((struct k3_model_options){.slots = 10});
    assert_int_equal(m.n_slots, 10);
    m = plan_of((struct k3_model_options){.slots = 100000});
    assert_int_equal(m.n_slots, m.n_experts);
    m = plan_of((struct k3_model_options){.io = K3_IO_MMAP});
    assert_int_equal(m.slots, 0);
}

/* What everything but slots takes with batches of the usual size. */
static uint64_t fixed_part(uint32_t context)
{
    struct k3_memory_plan m = plan_of((struct k3_model_options){.context = context});
    assert_int_equal(m.batch, 512); /* all experts fit: nothing is gained by larger ones */
    return sum(&m) - m.slots;
}

static void the_limit_decides_how_many_slots_there_are(void **state)
{
    (void)state;
    uint64_t fixed = fixed_part(0), slot = plan_of((struct k3_model_options){0}).slot_bytes;
    struct k3_memory_plan m = plan_of((struct k3_model_options){.ram = fixed + 13 * slot});
    assert_int_equal(m.n_slots, 13);
    assert_int_equal(m.batch, 512);
    m = plan_of((struct k3_model_options){.ram = fixed + 8 * slot});
    assert_int_equal(m.least_slots, 8); /* twice top-4 */
    assert_int_equal(m.n_slots, 8);
    m = plan_of((struct k3_model_options){.ram = fixed + 8 * slot - 1});
    assert_int_equal(m.batch, 256); /* smaller batches make room */
    assert_true(m.n_slots >= 8 && sum(&m) <= m.limit);
    m = plan_of((struct k3_model_options){.slots = 20});
    assert_true(m.batch > 512); /* there is memory, and each batch reads most experts again */

    struct k3_error err;
    struct k3_model_options options = {.slots = 7};
    assert_int_equal(k3_memory_plan(MODEL, &options, &m, &err), K3_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "at least 8 are needed"));
    options = (struct k3_model_options){.slots_percent = 101};
    assert_int_equal(k3_memory_plan(MODEL, &options, &m, &err), K3_ERR_ARGUMENT);
}

static void a_limit_that_is_too_low_is_answered_with_one_that_does(void **state)
{
    (void)state;
    struct k3_error err;
    struct k3_memory_plan m;
    struct k3_model_options options = {.ram = 1};
    assert_int_equal(k3_memory_plan(MODEL, &options, &m, &err), K3_ERR_MEMORY);
    const char *number = strstr(err.message, "too low: ");
    assert_non_null(number);
    options.ram = (uint64_t)(strtod(number + 9, NULL) * (1 << 30));
    m = plan_of(options);
    assert_true(m.batch < 512 && sum(&m) <= m.limit);
    options.ram -= (uint64_t)1 << 24; /* more than what was rounded up */
    assert_int_equal(k3_memory_plan(MODEL, &options, &m, &err), K3_ERR_MEMORY);
}

static void batches_of_any_planned_size_give_the_same_bits(void **state)
{
    (void)state;
    struct k3_model *model = open_with((struct k3_model_options){0});
    float *one = prefill(model, ids, N, 0);
    for (uint32_t batch = 16; batch <= 256; batch *= 2) {
        float *other = prefill(model, ids, N, batch);
        assert_memory_equal(one, other, N * 2048 * sizeof *one);
        free(other);
    }
    free(one);
    k3_model_close(model);
}

static void sessions_take_from_one_account(void **state)
{
    (void)state;
    struct k3_error err;
    uint64_t slot = plan_of((struct k3_model_options){0}).slot_bytes;
    struct k3_model *model =
        open_with((struct k3_model_options){.slots = 8, .context = 1000, .ram = fixed_part(1000) + 8 * slot});
    struct k3_session *sessions[8];
    int n = 0;
    while (n < 8 && k3_session_create(model, NULL, &sessions[n], &err) == K3_OK) n++;
    assert_in_range(n, 1, 7); /* one was planned for; the room of its copies may hold others */
    assert_non_null(strstr(err.message, "a session takes"));

    /* Checkpoints: the newest is worth more than older ones. */
    size_t kept;
    for (int i = 0; i < 4; i++) {
        k3_status status = k3_session_feed(sessions[0], ids + 5 * i, 5, NULL, 0, NULL, &err);
        assert_int_equal(status, K3_OK);
        status = k3_session_checkpoint(sessions[0], &err);
        assert_true(status == K3_OK || status == K3_ERR_MEMORY);
    }
    while (n > 1) k3_session_free(sessions[--n]);
    assert_int_equal(k3_session_checkpoint(sessions[0], &err), K3_OK);
    assert_int_equal(k3_session_feed(sessions[0], ids + 20, 5, NULL, 0, NULL, &err), K3_OK);
    assert_int_equal(k3_session_resume(sessions[0], ids, 22, &kept, &err), K3_OK);
    assert_int_equal(kept, 20);

    k3_session_free(sessions[0]);
    assert_int_equal(k3_session_create(model, NULL, &sessions[0], &err), K3_OK);
    k3_session_free(sessions[0]);
    k3_model_close(model);
}

/* Greedy tokens and the logits of the last. */
static void generate(struct k3_model *model, int32_t *tokens, float *logits)
{
    struct k3_error err;
    struct k3_model_info info;
    k3_model_get_info(model, &info);
    struct k3_session *s = new_session(model, 0);
    assert_int_equal(k3_session_feed(s, ids, N, NULL, 1, logits, &err), K3_OK);
    for (int i = 0; i < 60; i++) {
        tokens[i] = argmax(logits, info.n_vocab);
        assert_int_equal(k3_session_feed(s, &tokens[i], 1, NULL, 1, logits, &err), K3_OK);
    }
    k3_session_free(s);
}

static void lookahead_changes_no_bit_and_counts_what_it_does(void **state)
{
    (void)state;
    static float logits[3][2048];
    int32_t tokens[3][60];
    const enum k3_lookahead options[3] = {K3_LOOKAHEAD_OFF, K3_LOOKAHEAD_ON, K3_LOOKAHEAD_AUTO};
    for (int i = 0; i < 3; i++) {
        struct k3_model *model = open_with((struct k3_model_options){.slots = 12, .lookahead = options[i]});
        generate(model, tokens[i], logits[i]);
        struct k3_expert_stats all, sum_of_layers = {0};
        k3_model_get_expert_stats(model, K3_ALL_LAYERS, &all);
        for (uint32_t layer = 0; layer < 6; layer++) {
            struct k3_expert_stats one;
            k3_model_get_expert_stats(model, layer, &one);
            sum_of_layers.requests += one.requests;
            sum_of_layers.misses += one.misses;
            sum_of_layers.guessed += one.guessed;
        }
        assert_int_equal(all.requests, sum_of_layers.requests);
        assert_int_equal(all.misses, sum_of_layers.misses);
        assert_int_equal(all.guessed, sum_of_layers.guessed);
        assert_int_equal(all.requests, all.hits + all.misses);
        assert_true(all.misses > 0 && all.bytes_read > 0 && all.compute_seconds > 0);
        assert_true(all.guessed_right <= all.guessed && all.useful_hints <= all.hints);
        if (i == 0) assert_true(all.guessed == 0 && all.hints == 0);
        if (i == 1) {
            print_message("lookahead: %llu names, %llu right\n", (unsigned long long)all.guessed,
                          (unsigned long long)all.guessed_right);
            assert_true(all.guessed > 0 && all.guessed_right > 0);
        }
        k3_model_close(model);
    }
    for (int i = 1; i < 3; i++) {
        assert_memory_equal(tokens[i], tokens[0], sizeof tokens[0]);
        assert_memory_equal(logits[i], logits[0], sizeof logits[0]);
    }
}

struct seen {
    uint64_t steps, routings;
};

static void see_step(void *ctx, const char *name, int layer, uint64_t start_ns, uint64_t end_ns)
{
    assert_true(strlen(name) > 0 && layer >= -1 && layer < 6 && start_ns <= end_ns && start_ns > 0);
    ((struct seen *)ctx)->steps++;
}

static void see_routing(void *ctx, uint32_t layer, const uint32_t *chosen, size_t n_tokens, size_t top_k)
{
    assert_true(layer >= 1 && layer < 6 && top_k == 4);
    for (size_t i = 0; i < n_tokens * top_k; i++) assert_true(chosen[i] < 16);
    ((struct seen *)ctx)->routings += n_tokens;
}

static void an_observer_sees_every_step(void **state)
{
    (void)state;
    struct k3_model *model = open_with((struct k3_model_options){0});
    struct seen seen = {0};
    struct k3_observer observer = {&seen, see_step, see_routing};
    k3_model_observe(model, &observer);
    free(prefill(model, ids, N, 16));
    assert_int_equal(seen.routings, 5 * N);
    assert_true(seen.steps > 3 * 6);
    k3_model_observe(model, NULL);
    seen = (struct seen){0};
    free(prefill(model, ids, N, 16));
    assert_int_equal(seen.steps + seen.routings, 0);
    k3_model_close(model);
}

int main(void)
{
    for (int i = 0; i < N; i++) ids[i] = (i * 37 + 11) % 256;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_stays_below_its_limit),
        cmocka_unit_test(the_limit_decides_how_many_slots_there_are),
        cmocka_unit_test(a_limit_that_is_too_low_is_answered_with_one_that_does),
        cmocka_unit_test(batches_of_any_planned_size_give_the_same_bits),
        cmocka_unit_test(sessions_take_from_one_account),
        cmocka_unit_test(lookahead_changes_no_bit_and_counts_what_it_does),
        cmocka_unit_test(an_observer_sees_every_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
