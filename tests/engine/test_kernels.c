/* The kernels that this processor can run, in whole models: logits have the bits of portable C, in batches of every kind
 * and token by token. What a product of each is: tests/quant. */
#include "reference.h"

#include "quant/quant.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 70 /* tokens */

static void use(const char *name)
{
    struct k3_error err;
    if (k3_kernels_use(name, &err) != K3_OK) fail_msg("%s", err.message);
}

/* Logits of N tokens: the last ten one at a time, those before in batches. */
static float *logits_of(const char *path, const char *kernels, bool exact, int threads, size_t batch,
                        size_t *n)
{
    use(kernels);
    struct k3_error err;
    struct k3_model *model = open_model(path, exact, threads);
    struct k3_model_info info;
    k3_model_get_info(model, &info);
    struct k3_session *session = new_session(model, batch);
    int32_t ids[N];
    for (size_t i = 0; i < N; i++) ids[i] = (int32_t)(i * 7919 % info.n_vocab);
    float *logits = calloc((size_t)N * info.n_vocab, sizeof *logits);
    assert_non_null(logits);
    k3_status status = k3_session_feed(session, ids, N - 10, NULL, N - 10, logits, &err);
    for (size_t i = N - 10; i < N && status == K3_OK; i++)
        status = k3_session_feed(session, ids + i, 1, NULL, 1, logits + i * info.n_vocab, &err);
    if (status != K3_OK) fail_msg("%s", err.message);
    k3_session_free(session);
    k3_model_close(model);
    *n = (size_t)N * info.n_vocab;
    return logits;
}

static void check(const char *path, const char *kernels, bool exact, size_t batch, const float *expected,
                  size_t n)
{
    size_t same;
    float *logits = logits_of(path, kernels, exact, 3, batch, &same);
    assert_int_equal(n, same);
    for (size_t i = 0; i < n; i++)
        if (memcmp(&logits[i], &expected[i], sizeof *logits))
            fail_msg("%s, %s, batches of %zu: logit %zu is %a, not %a", path, kernels, batch, i,
                     (double)logits[i], (double)expected[i]);
    free(logits);
}

/* Batches of other sizes have other bits, for the recurrence of KDA rounds at other places: see ops/kda.h. */
static void check_model(const char *path)
{
    static const size_t batches[] = {60, 16, 5};
    for (int exact = 0; exact < 2; exact++)
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            size_t n;
            float *expected = logits_of(path, "portable", exact, 1, batches[b], &n);
            const struct k3_kernels *kernels;
            for (size_t k = 0; (kernels = k3_kernels_at(k)); k++)
                check(path, kernels->name, exact, batches[b], expected, n);
            free(expected);
        }
}

static void q8_0_and_mxfp4_give_the_same_bits(void **state)
{
    (void)state;
    check_model(K3_TEST_DATA "/fixtures/models/k3-tiny-a-q8_0-mxfp4.gguf");
}

static void iq1_m_and_iq2_xxs_give_the_same_bits(void **state)
{
    (void)state;
    check_model(K3_TEST_MODELS "/k3-tiny-IQ1_M.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(q8_0_and_mxfp4_give_the_same_bits),
        cmocka_unit_test(iq1_m_and_iq2_xxs_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
