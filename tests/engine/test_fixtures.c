/* The small random models of tests/data/fixtures against the reference values that stand beside them. */
#include "reference.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURES  K3_TEST_DATA "/fixtures"
#define TOLERANCE 1e-3 /* absolute, on logits up to 12: fixtures/README of the reference */

struct fixture {
    const char *name, *path;
    /* Mean KL of the reference's own run with 8-bit activations against its exact run, over all prompts'
     * tokens; 0: an f32 file. */
    double native_kl;
};

static const struct fixture fixtures[] = {
    {"k3-tiny-a-f32", "k3-tiny-a-f32.gguf", 0},
    {"k3-tiny-a-q8_0-mxfp4", "k3-tiny-a-q8_0-mxfp4.gguf", 0.0365},
    {"k3-tiny-b-q8_0-mxfp4", "k3-tiny-b-q8_0-mxfp4.gguf", 0.0148},
    {"k3-tiny-c-f32", "k3-tiny-c-f32.gguf", 0},
    {"k3-tiny-c-q8_0-mxfp4", "split/k3-tiny-c-q8_0-mxfp4-00002-of-00003.gguf", 0.0356},
    {"k3-tiny-q-q8_0-iq1_m-iq2_xxs", "k3-tiny-q-q8_0-iq1_m-iq2_xxs.gguf", 0.0132},
};
enum { N_FIXTURES = sizeof fixtures / sizeof *fixtures };

static struct prompts prompts;

static struct k3_model *open_fixture(const struct fixture *f, bool exact)
{
    char path[256];
    snprintf(path, sizeof path, FIXTURES "/models/%s", f->path);
    return open_model(path, exact, 0);
}

static float *reference(const struct fixture *f, const char *file, const char *prompt, size_t n_rows,
                        size_t *n_vocab)
{
    char path[256];
    snprintf(path, sizeof path, FIXTURES "/ref/%s/exact/%s_%s.f32", f->name, file, prompt);
    size_t n;
    float *values = read_floats(path, &n);
    if (values) assert_int_equal(n % n_rows, 0);
    *n_vocab = n / n_rows;
    return values;
}

static void check_exact(const struct fixture *f, const char *what, const struct prompt *p,
                        const float *logits, const float *want, size_t n_rows, size_t n_vocab)
{
    struct difference d = compare_logits(logits, want, n_rows, n_vocab);
    if (!(d.max_abs <= TOLERANCE))
        fail_msg("%s %s %s: logits differ by %g", f->name, p->name, what, d.max_abs);
}

static void exact_logits_agree_in_batches_of_any_size(void **state)
{
    (void)state;
    const uint32_t batches[] = {0, 1, 7, 16, 64};
    for (size_t i = 0; i < N_FIXTURES; i++) {
        const struct fixture *f = &fixtures[i];
        struct k3_model *model = open_fixture(f, true);
        double worst = 0;
        size_t n_checked = 0, n_vocab;
        for (size_t j = 0; j < prompts.n; j++) {
            const struct prompt *p = &prompts.list[j];
            float *want = reference(f, "logits_prefill", p->name, p->n, &n_vocab);
            if (!want) fail_msg("no reference of %s %s", f->name, p->name);
            float *decoded = reference(f, "logits_decode", p->name, p->n, &n_vocab); /* p0 and p1 */
            for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
                char what[32];
                snprintf(what, sizeof what, "in batches of %u", batches[b]);
                float *logits = prefill(model, p->ids, p->n, batches[b]);
                check_exact(f, what, p, logits, want, p->n, n_vocab);
                if (decoded && batches[b] == 1) check_exact(f, "decoded", p, logits, decoded, p->n, n_vocab);
                worst = fmax(worst, compare_logits(logits, want, p->n, n_vocab).max_abs);
                n_checked += p->n;
                free(logits);
            }
            free(want);
            free(decoded);
        }
        k3_model_close(model);
        print_message("%s: %zu rows, largest difference %.2g\n", f->name, n_checked, worst);
    }
}

/* Greedy tokens, and for p0 the logits each was taken from. */
static void check_greedy(const struct fixture *f, struct k3_model *model, const struct prompt *p)
{
    char dir[256];
    size_t n_vocab;
    snprintf(dir, sizeof dir, FIXTURES "/ref/%s/exact", f->name);
    float *logits = follow_greedy(model, dir, p, 32, TOLERANCE);
    float *want = reference(f, "logits_greedy", p->name, 32, &n_vocab);
    if (want) check_exact(f, "greedy", p, logits, want, 32, n_vocab);
    free(want);
    free(logits);
}

static void greedy_tokens_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FIXTURES; i++) {
        struct k3_model *model = open_fixture(&fixtures[i], true);
        for (size_t j = 0; j < prompts.n; j++) check_greedy(&fixtures[i], model, &prompts.list[j]);
        k3_model_close(model);
    }
}

/* These models are random, so one expert chosen otherwise shows. What rounding activations to 8 bits costs
 * must be of the size that it costs the reference; a mean KL over 0.2 or a relative rms over 0.3 on any
 * prompt is a defect. */
static void rounded_activations_stray_as_far_as_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FIXTURES; i++) {
        const struct fixture *f = &fixtures[i];
        if (f->native_kl == 0) continue;
        struct k3_model *model = open_fixture(f, false);
        double kl = 0;
        size_t n_rows = 0, n_top1 = 0, n_vocab;
        for (size_t j = 0; j < prompts.n; j++) {
            const struct prompt *p = &prompts.list[j];
            float *want = reference(f, "logits_prefill", p->name, p->n, &n_vocab);
            float *logits = prefill(model, p->ids, p->n, 0);
            struct difference d = compare_logits(logits, want, p->n, n_vocab);
            if (!(d.sum_kl / (double)p->n <= 0.2) || !(d.relative_rms <= 0.3))
                fail_msg("%s %s: mean KL %g, relative rms %g", f->name, p->name, d.sum_kl / (double)p->n,
                         d.relative_rms);
            kl += d.sum_kl;
            n_rows += d.n_rows;
            n_top1 += d.n_top1;
            free(want);
            free(logits);
        }
        kl /= (double)n_rows;
        print_message("%s: mean KL %.4f (reference %.4f), top-1 equal at %zu of %zu\n", f->name, kl,
                      f->native_kl, n_top1, n_rows);
        if (!(kl <= 1.5 * f->native_kl))
            fail_msg("%s: mean KL %g, the reference's is %g", f->name, kl, f->native_kl);
        assert_true(kl > 1e-5); /* they were rounded at all */
        k3_model_close(model);
    }
}

int main(void)
{
    prompts = read_prompts(FIXTURES "/prompts.tsv");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_logits_agree_in_batches_of_any_size),
        cmocka_unit_test(greedy_tokens_agree),
        cmocka_unit_test(rounded_activations_stray_as_far_as_the_reference),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free_prompts(&prompts);
    return failed;
}
