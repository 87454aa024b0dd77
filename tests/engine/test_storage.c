/* Where experts come from, and how many stay in memory, never changes a bit of what is computed. */
#include "reference.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_PROMPT = 40, N_DECODED = 8 };

static struct k3_model *open_with(const char *path, const struct k3_model_options *options)
{
    struct k3_error err;
    struct k3_model *model;
    if (k3_model_open(path, options, &model, &err) != K3_OK) fail_msg("%s: %s", path, err.message);
    return model;
}

/* Logits of a prompt fed at once, of some tokens fed one by one, and of a second prompt: sweeps between steps. */
static float *compute(struct k3_model *model, size_t *n)
{
    struct k3_error err;
    struct k3_model_info info;
    int32_t ids[N_PROMPT];
    k3_model_get_info(model, &info);
    *n = (size_t)(2 * N_PROMPT + N_DECODED) * info.n_vocab;
    float *logits = malloc(*n * sizeof *logits), *to = logits;
    assert_non_null(logits);
    for (int i = 0; i < N_PROMPT; i++) ids[i] = (int32_t)((uint32_t)i * 37 % info.n_vocab);
    struct k3_session *session = new_session(model, 0);
    for (int i = 0; i < N_DECODED + 2; i++) {
        size_t n_fed = i == 0 || i == N_DECODED + 1 ? N_PROMPT : 1;
        if (k3_session_feed(session, ids, n_fed, NULL, n_fed, to, &err) != K3_OK) fail_msg("%s", err.message);
        to += n_fed * info.n_vocab;
    }
    k3_session_free(session);
    return logits;
}

static void no_way_of_storing_experts_changes_a_bit(void **state)
{
    (void)state;
    const char *models[] = {
        K3_TEST_DATA "/fixtures/models/k3-tiny-a-q8_0-mxfp4.gguf",
        K3_TEST_DATA "/fixtures/models/k3-tiny-q-q8_0-iq1_m-iq2_xxs.gguf",
        K3_TEST_DATA "/fixtures/models/split/k3-tiny-c-q8_0-mxfp4-00002-of-00003.gguf",
        K3_TEST_MODELS "/k3-tiny-IQ1_M.gguf",
    };
    const enum k3_io ways[] = {K3_IO_AUTO, K3_IO_THREADS};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct k3_model_options options = {.threads = 1, .io = K3_IO_MMAP};
        struct k3_model *model = open_with(models[m], &options);
        struct k3_model_info info;
        k3_model_get_info(model, &info);
        size_t n, n_again;
        float *want = compute(model, &n);
        k3_model_close(model);
        for (int k = 0; k < 2 * 2 * 3; k++) {
            options = (struct k3_model_options){.threads = 1 + (k / 3 + k) % 2,
                                                .io = ways[k / 6],
                                                .direct = k / 3 % 2 ? K3_DIRECT_OFF : K3_DIRECT_AUTO,
                                                .slots = k % 3 == 0 ? 2 * info.top_k : 0,
                                                .slots_percent = k % 3 == 1 ? 42 : 100};
            model = open_with(models[m], &options);
            float *got = compute(model, &n_again);
            k3_model_close(model);
            assert_int_equal(n, n_again);
            for (size_t i = 0; i < n; i++)
                if (got[i] != want[i])
                    fail_msg("%s, variant %d: logit %zu is %.9g, not %.9g", models[m], k, i, (double)got[i],
                             (double)want[i]);
            free(got);
        }
        free(want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_way_of_storing_experts_changes_a_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
