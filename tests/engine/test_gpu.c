/* Whole models on the GPU, emulated or not: the bits of the CPU, in batches and token by token, and after going back. */
#include "reference.h"
#include "runs.h"

#include "gpu/gpu.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_model(const char *path, const struct run *run)
{
    size_t n;
    /* A context that is just long enough leaves MLA no room for the scores of a whole batch. */
    uint32_t context = (uint32_t)(run->n_prompt + run->n_decoded);
    struct k3_model_options options = {.threads = 2, .context = context, .lookahead = K3_LOOKAHEAD_ON};
    struct k3_model *cpu = open_on(K3_GPU_OFF, NULL, path, options),
                    *gpu = open_on(K3_GPU(0), NULL, path, options);
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
    const struct k3_model_options options = {.threads = 1, .context = 64};
    float *logits[2];
    size_t n;
    for (int on_gpu = 0; on_gpu < 2; on_gpu++) {
        struct k3_model *model =
            open_on(on_gpu ? K3_GPU(0) : K3_GPU_OFF, NULL, FIXTURES "k3-tiny-a-q8_0-mxfp4.gguf", options);
        logits[on_gpu] = logits_of_going_back(model, &n);
        k3_model_close(model);
    }
    same_logits("after going back", logits[1], logits[0], n);
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
    check_fallback((struct k3_model_options){.gpu = K3_GPU(0), .exact = true},
                   "the GPU has no exact arithmetic");
    check_fallback((struct k3_model_options){.gpu = K3_GPU_OFF}, "");
    if (!k3_gpu_backend()->emulated()) return;
    check_fallback((struct k3_model_options){.gpu = K3_GPU(3)}, "there is no GPU 3: the last one is 0");
    check_fallback((struct k3_model_options){.gpu = K3_GPU_AUTO}, ""); /* an emulated one must be asked for */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_models_have_the_bits_of_the_cpu),
        cmocka_unit_test(a_trained_model_has_the_bits_of_the_cpu),
        cmocka_unit_test(a_session_goes_back_as_on_the_cpu),
        cmocka_unit_test(what_the_gpu_cannot_do_is_said_and_left_to_the_cpu),
    };
    struct k3_gpu gpu;
    struct k3_error err;
    if (k3_gpu_backend()->find(0, &gpu, &err) != K3_OK) {
        puts(err.message);
        return 77;
    }
    return cmocka_run_group_tests_name("models on the GPU", tests, NULL, NULL);
}
