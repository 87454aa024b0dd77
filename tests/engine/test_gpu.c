/* Whole models on the emulated GPU: the bits of the CPU, in batches and token by token, and after going back. */
#include "reference.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURES K3_TEST_DATA "/fixtures/models/"

static struct k3_model *open_on(int gpu, const char *path, struct k3_model_options options)
{
    struct k3_error err;
    struct k3_model *model;
    options.gpu = gpu;
    if (k3_model_open(path, &options, &model, &err) != K3_OK) fail_msg("%s", err.message);
    return model;
}

static void feed(struct k3_session *s, const int32_t *ids, size_t n, size_t n_rows, float *logits)
{
    struct k3_error err;
    if (k3_session_feed(s, ids, n, NULL, n_rows, logits, &err) != K3_OK) fail_msg("%s", err.message);
}

struct run {
    size_t n_prompt, n_decoded; /* tokens; a prompt goes in batches of `batch` */
    uint32_t batch;
};

/* The logits of all tokens. */
static float *logits_of(struct k3_model *model, const struct run *run, size_t *n_logits)
{
    struct k3_model_info info;
    k3_model_get_info(model, &info);
    struct k3_session *s = new_session(model, run->batch);
    size_t n = run->n_prompt + run->n_decoded;
    int32_t ids[256];
    assert_true(n <= 256);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(i * 7919 % info.n_vocab);
    float *logits = calloc(n * info.n_vocab, sizeof *logits);
    assert_non_null(logits);
    feed(s, ids, run->n_prompt, run->n_prompt, logits);
    for (size_t i = run->n_prompt; i < n; i++) feed(s, ids + i, 1, 1, logits + i * info.n_vocab);
    k3_session_free(s);
    *n_logits = n * info.n_vocab;
    return logits;
}

static void same_logits(const char *what, const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got))
            fail_msg("%s: logit %zu is %a, not %a", what, i, (double)got[i], (double)want[i]);
}

static void check_model(const char *path, const struct run *run)
{
    size_t n;
    /* A context that is just long enough leaves MLA no room for the scores of a whole batch. */
    uint32_t context = (uint32_t)(run->n_prompt + run->n_decoded);
    struct k3_model_options options = {.threads = 2, .context = context, .lookahead = K3_LOOKAHEAD_ON};
    struct k3_model *cpu = open_on(K3_GPU_OFF, path, options), *gpu = open_on(K3_GPU(0), path, options);
    struct k3_memory_plan memory;
    k3_model_get_memory(gpu, &memory);
    assert_string_equal(memory.no_gpu, "");
    assert_int_equal(memory.gpu, 0);
    float *want = logits_of(cpu, run, &n), *got = logits_of(gpu, run, &n);
    same_logits(path, got, want, n);
    free(want);
    free(got);
    k3_model_close(gpu);
    k3_model_close(cpu);
}

static void small_models_have_the_bits_of_the_cpu(void **state)
{
    const char *const files[] = {
        "k3-tiny-a-f32.gguf",
        "k3-tiny-a-q8_0-mxfp4.gguf",
        "k3-tiny-b-q8_0-mxfp4.gguf",
        "k3-tiny-c-f32.gguf",
        "k3-tiny-q-q8_0-iq1_m-iq2_xxs.gguf",
        "split/k3-tiny-c-q8_0-mxfp4-00002-of-00003.gguf",
    };
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[256];
        snprintf(path, sizeof path, FIXTURES "%s", files[i]);
        check_model(path, &(struct run){21, 3, 16});
    }
}

static void a_trained_model_has_the_bits_of_the_cpu(void **state)
{
    (void)state;
    check_model(K3_TEST_MODELS "/k3-tiny-IQ1_M.gguf", &(struct run){19, 2, 16});
}

static void a_session_goes_back_as_on_the_cpu(void **state)
{
    (void)state;
    struct k3_error err;
    const int32_t ids[] = {5, 6, 7, 8, 9, 10, 11}, other[] = {5, 6, 7, 8, 100, 101};
    float *logits[2];
    struct k3_model_info info;
    for (int on_gpu = 0; on_gpu < 2; on_gpu++) {
        struct k3_model *model =
            open_on(on_gpu ? K3_GPU(0) : K3_GPU_OFF, FIXTURES "k3-tiny-a-q8_0-mxfp4.gguf",
                    (struct k3_model_options){.threads = 1, .context = 64});
        struct k3_session *s = new_session(model, 0), *copy = new_session(model, 0);
        struct k3_snapshot *snapshot;
        size_t kept;
        k3_model_get_info(model, &info);
        float *rows = logits[on_gpu] = calloc((size_t)3 * info.n_vocab, sizeof *rows);
        assert_non_null(rows);
        feed(s, ids, 4, 0, NULL);
        assert_int_equal(k3_session_checkpoint(s, &err), K3_OK);
        feed(s, ids + 4, 3, 1, rows);
        assert_int_equal(k3_session_snapshot(s, &snapshot, &err), K3_OK);
        assert_int_equal(k3_session_resume(s, other, 6, &kept, &err), K3_OK);
        assert_int_equal(kept, 4);
        feed(s, other + 4, 2, 1, rows + info.n_vocab);
        assert_int_equal(k3_session_restore(copy, snapshot, &err), K3_OK);
        feed(copy, other + 4, 1, 1, rows + 2 * info.n_vocab);
        k3_snapshot_free(snapshot);
        k3_session_free(copy);
        k3_session_free(s);
        k3_model_close(model);
    }
    same_logits("after going back", logits[1], logits[0], (size_t)3 * info.n_vocab);
    free(logits[0]);
    free(logits[1]);
}

static void check_fallback(struct k3_model_options options, const char *why)
{
    struct k3_error err;
    struct k3_memory_plan memory;
    const char *path = FIXTURES "k3-tiny-a-q8_0-mxfp4.gguf";
    if (k3_memory_plan(path, &options, &memory, &err) != K3_OK) fail_msg("%s", err.message);
    assert_int_equal(memory.gpu, -1);
    assert_true(memory.dense > 0);
    assert_string_equal(memory.no_gpu, why);
}

static void what_the_gpu_cannot_do_is_said_and_left_to_the_cpu(void **state)
{
    (void)state;
    check_fallback((struct k3_model_options){.gpu = K3_GPU(3)}, "there is no GPU 3: the last one is 0");
    check_fallback((struct k3_model_options){.gpu = K3_GPU(0), .exact = true},
                   "the GPU has no exact arithmetic");
    check_fallback((struct k3_model_options){.gpu = K3_GPU_OFF}, "");
    check_fallback((struct k3_model_options){.gpu = K3_GPU_AUTO}, ""); /* an emulated one must be asked for */
    check_fallback((struct k3_model_options){.gpu = K3_GPU(0), .context = 2000000},
                   "GPU 0 (emulated) has 0.24 GiB of memory for this, but 0.71 GiB are needed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_models_have_the_bits_of_the_cpu),
        cmocka_unit_test(a_trained_model_has_the_bits_of_the_cpu),
        cmocka_unit_test(a_session_goes_back_as_on_the_cpu),
        cmocka_unit_test(what_the_gpu_cannot_do_is_said_and_left_to_the_cpu),
    };
    return cmocka_run_group_tests_name("models on the GPU", tests, NULL, NULL);
}
