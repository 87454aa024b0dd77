/* The trained model in models/ against reference values of the same file: exact arithmetic and 8-bit
 * activations. */
#include "reference.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MODEL     K3_TEST_MODELS "/k3-tiny-IQ1_M.gguf"
#define REFERENCE K3_TEST_DATA "/k3-tiny/ref"
#define TOLERANCE 1e-3 /* absolute, on logits up to 29 */

/* The prompts whose logits the reference keeps. */
static const char *const with_logits[] = {"p_story",    "p_once",     "p_facts",
                                          "p_chat_add", "p_chat_sub", "p_chat_capital"};
enum { N_WITH_LOGITS = sizeof with_logits / sizeof *with_logits };

static struct prompts prompts;

static float *reference_logits(const char *prompt, size_t n_rows, size_t *n_vocab)
{
    char path[256];
    snprintf(path, sizeof path, REFERENCE "/exact/logits_prefill_%s.f32", prompt);
    size_t n;
    float *values = read_floats(path, &n);
    if (!values) fail_msg("%s cannot be read", path);
    *n_vocab = n / n_rows;
    return values;
}

static void exact_logits_agree(void **state)
{
    (void)state;
    const uint32_t batches[] = {0, 1, 16};
    struct k3_model *model = open_model(MODEL, true, 0);
    double worst = 0;
    for (size_t i = 0; i < N_WITH_LOGITS; i++) {
        const struct prompt *p = find_prompt(&prompts, with_logits[i]);
        size_t n_vocab;
        float *want = reference_logits(p->name, p->n, &n_vocab);
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            float *logits = prefill(model, p->ids, p->n, batches[b]);
            struct difference d = compare_logits(logits, want, p->n, n_vocab);
            if (!(d.max_abs <= TOLERANCE)) fail_msg("%s: logits differ by %g", p->name, d.max_abs);
            worst = fmax(worst, d.max_abs);
            free(logits);
        }
        free(want);
    }
    k3_model_close(model);
    print_message("largest difference %.2g\n", worst);
}

static void greedy_tokens_agree(void **state)
{
    (void)state;
    struct k3_model *model = open_model(MODEL, true, 0);
    for (size_t i = 0; i < prompts.n; i++)
        free(follow_greedy(model, REFERENCE "/exact", &prompts.list[i], 96, TOLERANCE));
    k3_model_close(model);
}

/* A trained model is smooth: rounding activations to 8 bits costs at most 3e-4 nats and no first choice. */
static void rounded_activations_change_no_choice(void **state)
{
    (void)state;
    struct k3_model *model = open_model(MODEL, false, 0);
    for (size_t i = 0; i < N_WITH_LOGITS; i++) {
        const struct prompt *p = find_prompt(&prompts, with_logits[i]);
        size_t n_vocab;
        float *want = reference_logits(p->name, p->n, &n_vocab), *logits = prefill(model, p->ids, p->n, 0);
        struct difference d = compare_logits(logits, want, p->n, n_vocab);
        double kl = d.sum_kl / (double)p->n;
        print_message("%s: mean KL %.1e, top-1 equal at %zu of %zu\n", p->name, kl, d.n_top1, p->n);
        if (!(kl <= 3e-4)) fail_msg("%s: mean KL %g", p->name, kl);
        assert_int_equal(d.n_top1, p->n);
        free(want);
        free(logits);
    }
    k3_model_close(model);
}

int main(void)
{
    prompts = read_prompts(REFERENCE "/prompts.ids");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_logits_agree),
        cmocka_unit_test(greedy_tokens_agree),
        cmocka_unit_test(rounded_activations_change_no_choice),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free_prompts(&prompts);
    return failed;
}
