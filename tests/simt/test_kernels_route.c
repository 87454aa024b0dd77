/* The router on the device: the CPU's choices, ties included, and its weights to the bit. */
#include "on_device.h"

#include "ops/ffn.h"

#include <math.h>

enum { N = 3 };

static void check(float *logits, const float *bias, size_t n_experts, size_t top_k, bool normalise,
                  float scale)
{
    struct k3_hparams hp = {.n_experts = (uint32_t)n_experts,
                            .top_k = (uint32_t)top_k,
                            .normalise_weights = normalise,
                            .weight_scale = scale};
    float *probs = on_device("probs", logits, N * n_experts * sizeof *probs);
    uint32_t *ids = unwritten("ids", N * top_k * sizeof *ids),
             *want_ids = host_bytes(N * top_k * sizeof *ids);
    float *weights = unwritten("weights", N * top_k * sizeof *weights);
    float *want = host_bytes(N * top_k * sizeof *want);
    k3_gpu_route(probs, on_device("bias", bias, n_experts * sizeof *bias), N, n_experts, top_k, normalise,
                 scale, ids, weights, NULL);
    k3_route(&cpu, &hp, bias, logits, N, 0, want_ids, want);
    same_bits("ids", taken_back(ids, N * top_k * sizeof *ids), want_ids, N * top_k, sizeof *ids);
    same_floats("weights", weights, want, N * top_k);
    same_floats("probs", probs, logits, N * n_experts);
}

static void experts_are_those_of_the_cpu(void **state)
{
    (void)state;
    struct test_random r = fresh(1);
    static const size_t shapes[][2] = {{1, 1}, {7, 3}, {5, 5}, {400, 16}, {896, 16}, {2048, 64}};
    for (size_t i = 0; i < 6; i++) {
        size_t n = shapes[i][0], k = shapes[i][1];
        check(host_floats(&r, N * n, 2), host_floats(&r, n, 0.2f), n, k, i % 2, i % 2 ? 1.0f : 2.5f);
    }
}

static void the_lower_index_wins_a_tie(void **state)
{
    (void)state;
    struct test_random r = fresh(2);
    enum { E = 300, K = 16 };
    float *logits = host_bytes(N * E * sizeof *logits), *bias = host_bytes(E * sizeof *bias);
    for (size_t i = 0; i < N * E; i++)
        logits[i] = (float)test_random_below(&r, 3); /* every score many times */
    for (size_t i = 0; i < E; i++) bias[i] = 0.25f * (float)test_random_below(&r, 2);
    check(logits, bias, E, K, true, 1);
    for (size_t i = 0; i < N * E; i++) logits[i] = i % 2 ? 200.0f : -200.0f; /* sigmoids of 1 and 0 */
    for (size_t i = 0; i < E; i++) bias[i] = 0;
    check(logits, bias, E, K, true, 1);
}

static void every_place_has_an_expert_whatever_the_scores(void **state)
{
    (void)state;
    enum { E = 40, K = 8 };
    float logits[N * E], bias[E] = {0};
    for (size_t i = 0; i < N * E; i++) logits[i] = i % 3 ? NAN : 1;
    uint32_t *ids = unwritten("ids", N * K * sizeof *ids);
    float *weights = unwritten("weights", N * K * sizeof *weights);
    k3_gpu_route(on_device("probs", logits, sizeof logits), on_device("bias", bias, sizeof bias), N, E, K, 1,
                 1, ids, weights, NULL);
    const uint32_t *got = taken_back(ids, N * K * sizeof *ids);
    for (size_t i = 0; i < N * K; i++) assert_true(got[i] < E);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KERNEL_TEST(experts_are_those_of_the_cpu),
        KERNEL_TEST(the_lower_index_wins_a_tie),
        KERNEL_TEST(every_place_has_an_expert_whatever_the_scores),
    };
    return RUN_KERNEL_TESTS("the router on the device", tests);
}
