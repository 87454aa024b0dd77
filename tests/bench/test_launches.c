/* What a token asks of a GPU: the formulas against what the emulator counts while small models decode. */
#include "launches.h"

#include "emulator/host.h"
#include "k3/k3.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FIXTURES K3_TEST_DATA "/fixtures/models/"

/* Of keys that fill a group of MLA, for which the formulas are exact. */
#define KEYS 64

static const struct k3_gpu_work *find(const struct k3_gpu_token *token, const char *name)
{
    for (uint32_t i = 0; i < token->n_works; i++)
        if (strcmp(token->works[i].name, name) == 0) return &token->works[i];
    return NULL;
}

static void feed(struct k3_session *s, size_t n, float *logits)
{
    struct k3_error err;
    int32_t ids[KEYS];
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)i + 3;
    if (k3_session_feed(s, ids, n, NULL, logits ? 1 : 0, logits, &err) != K3_OK) fail_msg("%s", err.message);
}

/* Decodes the last of KEYS tokens, counting. */
static size_t count(const char *path, const struct k3_simt_count **counts)
{
    static float logits[1 << 18];
    struct k3_error err;
    struct k3_model *model;
    struct k3_session *s;
    struct k3_model_info info;
    struct k3_model_options options = {
        .threads = 1, .context = KEYS, .gpu = K3_GPU(0), .lookahead = K3_LOOKAHEAD_OFF};
    if (k3_model_open(path, &options, &model, &err) != K3_OK) fail_msg("%s", err.message);
    k3_model_get_info(model, &info);
    assert_true(info.n_vocab <= sizeof logits / sizeof *logits);
    if (k3_session_create(model, NULL, &s, &err) != K3_OK) fail_msg("%s", err.message);
    feed(s, KEYS - 1, NULL);
    k3_simt_count_begin();
    feed(s, 1, logits);
    size_t n = k3_simt_count_end(counts);
    k3_session_free(s);
    k3_model_close(model);
    return n;
}

static void check_model(const char *path)
{
    const struct k3_simt_count *counts;
    struct k3_error err;
    struct k3_plan *plan;
    struct k3_gpu_token token;
    size_t n = count(path, &counts);
    assert_true(n > 0);
    if (k3_plan_open(path, &plan, &err) != K3_OK) fail_msg("%s", err.message);
    k3_gpu_token_of_plan(plan, &token);
    k3_plan_close(plan);
    for (size_t i = 0; i < n; i++) {
        const struct k3_gpu_work *work = find(&token, counts[i].name);
        if (!work) {
            print_error("%s: there is no formula for %s\n", path, counts[i].name);
            assert_non_null(work);
            return;
        }
        double bytes = work->bytes + KEYS * work->key_bytes;
        if (work->calls != (double)counts[i].calls || fabs(bytes - (double)counts[i].bytes) > 0.5)
            fail_msg("%s: %s is called %llu times and takes %llu bytes, not %g and %g", path, counts[i].name,
                     (unsigned long long)counts[i].calls, (unsigned long long)counts[i].bytes, work->calls,
                     bytes);
    }
    assert_int_equal(token.n_works, n);
}

static void formulas_say_what_the_emulator_counts(void **state)
{
    (void)state;
    static const char *const files[] = {"k3-tiny-a-f32.gguf", "k3-tiny-a-q8_0-mxfp4.gguf",
                                        "k3-tiny-b-q8_0-mxfp4.gguf", "k3-tiny-c-f32.gguf",
                                        "k3-tiny-q-q8_0-iq1_m-iq2_xxs.gguf"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[256];
        snprintf(path, sizeof path, FIXTURES "%s", files[i]);
        check_model(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formulas_say_what_the_emulator_counts),
    };
    return cmocka_run_group_tests_name("launches of a token", tests, NULL, NULL);
}
