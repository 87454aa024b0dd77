/* What the model is worth on text: perplexity of text it never saw, and recall of a planted number.
 *
 *     test_quality [MODEL TYPE]
 *
 * Without arguments the model in models/ is tested (type iq1_m). Another file can be named with the type of
 * its experts: mxfp4 has a reference of its own. */
#include "reference.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA  K3_TEST_DATA "/k3-tiny"
#define CHUNK 512

static const char *model_path = K3_TEST_MODELS "/k3-tiny-IQ1_M.gguf";
static bool is_mxfp4;

static void read_held_out(struct k3_tokens *tokens)
{
    struct k3_error err;
    struct k3_tokenizer *tokenizer;
    FILE *f = fopen(DATA "/held_out.txt", "rb");
    assert_non_null(f);
    char text[100000];
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    assert_true(n > 0 && n < sizeof text);
    if (k3_tokenizer_open(model_path, &tokenizer, &err) != K3_OK) fail_msg("%s", err.message);
    if (k3_tokenize(tokenizer, text, n, false, tokens, &err) != K3_OK) fail_msg("%s", err.message);
    k3_tokenizer_close(tokenizer);
}

/* -ln of the probability that a row of logits gives to a token. */
static double loss(const float *logits, size_t n, int32_t token)
{
    double top = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) top = fmax(top, (double)logits[i]);
    for (size_t i = 0; i < n; i++) sum += exp((double)logits[i] - top);
    return top + log(sum) - (double)logits[token];
}

/* The text is cut into whole chunks of 512 tokens, each read from an empty state. The mean loss is over
 * positions 1 .. 511 of each chunk; perplexity is exp of the mean over the second halves alone (255
 * positions). */
static void held_out_text_is_as_likely_as_the_reference_says(void **state)
{
    (void)state;
    struct k3_tokens tokens = {0};
    read_held_out(&tokens);
    struct k3_model *model = open_model(model_path, false, 0);
    struct k3_model_info info;
    k3_model_get_info(model, &info);

    double all = 0, second_half = 0;
    size_t n_all = 0, n_second_half = 0, n_chunks = tokens.n / CHUNK;
    for (size_t chunk = 0; chunk < n_chunks; chunk++) {
        const int32_t *ids = tokens.ids + chunk * CHUNK;
        float *logits = prefill(model, ids, CHUNK, 0);
        for (size_t i = 0; i + 1 < CHUNK; i++) {
            double l = loss(logits + i * info.n_vocab, info.n_vocab, ids[i + 1]);
            all += l;
            n_all++;
            if (i < CHUNK / 2) continue;
            second_half += l;
            n_second_half++;
        }
        free(logits);
    }
    k3_model_close(model);
    k3_tokens_free(&tokens);

    double mean = all / (double)n_all, perplexity = exp(second_half / (double)n_second_half);
    print_message("%zu chunks, %zu scored: mean loss %.4f; second halves: perplexity %.3f\n", n_chunks, n_all,
                  mean, perplexity);
    assert_int_equal(n_all, 25550);
    if (is_mxfp4)
        assert_true(fabs(mean - 3.279) <= 0.002);
    else
        assert_true(fabs(perplexity - 26.36) <= 0.1);
}

static int32_t *json_ids(const json_t *array, size_t *n)
{
    *n = json_array_size(array);
    int32_t *ids = malloc((*n + 1) * sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < *n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return ids;
}

/* Whether the greedy continuation of a prompt is exactly the expected one. */
static bool recalls(struct k3_model *model, const json_t *prompt, float *logits, size_t n_vocab)
{
    struct k3_error err;
    size_t n, n_want;
    int32_t *ids = json_ids(json_object_get(prompt, "prompt_ids"), &n);
    int32_t *want = json_ids(json_object_get(prompt, "greedy_ids"), &n_want);
    struct k3_session *session = new_session(model, 0);
    if (k3_session_feed(session, ids, n, NULL, 1, logits, &err) != K3_OK) fail_msg("%s", err.message);
    bool right = true;
    for (size_t i = 0; right && i < n_want; i++) {
        int32_t token = argmax(logits, n_vocab);
        right = token == want[i];
        if (k3_session_feed(session, &token, 1, NULL, 1, logits, &err) != K3_OK) fail_msg("%s", err.message);
    }
    k3_session_free(session);
    free(ids);
    free(want);
    return right;
}

static void planted_numbers_are_recalled(void **state)
{
    (void)state;
    json_error_t error;
    json_t *file = json_load_file(DATA "/needle.json", 0, &error), *prompt;
    assert_non_null(file);
    struct k3_model *model = open_model(model_path, false, 0);
    struct k3_model_info info;
    k3_model_get_info(model, &info);
    float *logits = malloc(info.n_vocab * sizeof *logits);
    assert_non_null(logits);

    size_t i, n_asked = 0, n_right = 0;
    json_array_foreach(json_object_get(file, "prompts"), i, prompt)
    {
        if (!is_mxfp4 && json_array_size(json_object_get(prompt, "prompt_ids")) >= 420) continue;
        bool right = recalls(model, prompt, logits, info.n_vocab);
        if (!right) print_message("not recalled: %s\n", json_string_value(json_object_get(prompt, "answer")));
        n_right += right;
        n_asked++;
    }
    print_message("%zu of %zu recalled\n", n_right, n_asked);
    assert_int_equal(n_asked, is_mxfp4 ? 20 : 15);
    assert_int_equal(n_right, n_asked);
    free(logits);
    k3_model_close(model);
    json_decref(file);
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        model_path = argv[1];
        is_mxfp4 = !strcmp(argv[2], "mxfp4");
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_numbers_are_recalled),
        cmocka_unit_test(held_out_text_is_as_likely_as_the_reference_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
