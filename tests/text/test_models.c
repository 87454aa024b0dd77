/* The tokenizers of model files: ids that others computed, and files that are no vocabulary. Ids of the
 * release's own vocabulary are not among them: it is far too large to be kept here. */
#include "gguf_builder.h"
#include "random.h"
#include "text/text_internal.h"
#include "text/utf8.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURE K3_TEST_DATA "/fixtures/models/k3-tiny-a-q8_0-mxfp4.gguf"
#define TRAINED K3_TEST_MODELS "/k3-tiny-IQ1_M.gguf"

static struct k3_tokenizer *open_tokenizer(const char *path)
{
    struct k3_tokenizer *t;
    struct k3_error err;
    if (k3_tokenizer_open(path, &t, &err)) fail_msg("%s", err.message);
    return t;
}

static void expect_ids(const char *what, const struct k3_tokens *got, const int32_t *want, size_t n)
{
    for (size_t i = 0; i < got->n && i < n; i++)
        if (got->ids[i] != want[i])
            fail_msg("%s: token %zu is %d, expected %d", what, i, got->ids[i], want[i]);
    if (got->n != n) fail_msg("%s: %zu tokens, expected %zu", what, got->n, n);
}

/* ---- tables of texts and ids ---- */

/* Undoes \n, \t, \r and \\ in place. */
static void unescape(char *s)
{
    char *out = s;
    for (; *s; s++) {
        if (*s == '\\' && s[1]) {
            s++;
            *out++ = *s == 'n' ? '\n' : *s == 't' ? '\t' : *s == 'r' ? '\r' : *s;
        } else {
            *out++ = *s;
        }
    }
    *out = 0;
}

static size_t read_ids(const char *s, int32_t *ids, size_t most)
{
    size_t n = 0;
    char *end;
    for (long id = strtol(s, &end, 10); end != s && n < most; s = end, id = strtol(s, &end, 10))
        ids[n++] = (int32_t)id;
    return n;
}

/* Lines of fields between tabs; the first line names them. special_field -1: names are always control tokens. */
static size_t compare_table(const char *path, int special_field, int text_field, int ids_field)
{
    struct k3_tokenizer *t = open_tokenizer(FIXTURE);
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t size = 0, n_lines = 0;
    assert_non_null(file);
    while (getline(&line, &size, file) > 0) {
        if (line[0] == '#') continue;
        char *fields[5] = {0}, *rest = line;
        for (int i = 0; i < 5 && rest; i++) fields[i] = strsep(&rest, "\t\n");
        unescape(fields[text_field]);
        int32_t want[256];
        struct k3_tokens got = {0};
        const bool special = special_field < 0 || fields[special_field][0] == '1';
        assert_int_equal(k3_tokenize(t, fields[text_field], strlen(fields[text_field]), special, &got, NULL),
                         K3_OK);
        expect_ids(fields[text_field], &got, want, read_ids(fields[ids_field], want, 256));
        k3_tokens_free(&got);
        n_lines++;
    }
    free(line);
    fclose(file);
    k3_tokenizer_close(t);
    return n_lines;
}

static void the_fixture_texts_have_the_ids_of_the_published_pattern(void **state)
{
    (void)state;
    assert_int_equal(compare_table(K3_TEST_DATA "/fixtures/tokenizer.tsv", 0, 1, 2), 62);
    assert_int_equal(compare_table(K3_TEST_DATA "/fixtures/prompts.tsv", -1, 1, 2), 5);
}

/* ---- the trained model ---- */

static struct k3_tokens ids_of(const json_t *array)
{
    struct k3_tokens tokens = {.n = json_array_size(array)};
    tokens.ids = malloc(tokens.n * sizeof *tokens.ids + 1);
    for (size_t i = 0; i < tokens.n; i++)
        tokens.ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return tokens;
}

/* The text between two marks, or NULL. */
static char *between(const char *text, const char *before, const char *after)
{
    const char *begin = strstr(text, before);
    if (!begin) return NULL;
    begin += strlen(before);
    const char *end = strstr(begin, after);
    return end ? strndup(begin, (size_t)(end - begin)) : NULL;
}

/* Of the chats, those that k3_chat_prompt can say: one user turn, and effort if there is thinking. */
static bool compare_chat(const struct k3_tokenizer *t, const char *prompt, const struct k3_tokens *want)
{
    static const char user_mark[] = "role=\"user\"<|sep|>";
    const char *first = strstr(prompt, user_mark);
    if (!first || strstr(first + 1, user_mark)) return false;
    const bool thinking = strstr(first, "<|open|>think<|sep|>") != NULL;
    if (thinking && !strstr(prompt, "thinking-effort")) return false;

    char *user = between(prompt, user_mark, "<|close|>"), *tools = between(prompt, "```json\n", "\n```");
    const struct k3_chat_options options = {.no_thinking = !thinking, .tools = tools};
    struct k3_tokens got = {0};
    assert_int_equal(k3_chat_prompt(t, user, strlen(user), &options, &got, NULL), K3_OK);
    expect_ids(prompt, &got, want->ids, want->n);
    k3_tokens_free(&got);
    free(user);
    free(tools);
    return true;
}

static void expect_text(const struct k3_tokenizer *t, const struct k3_tokens *tokens, const char *want)
{
    struct k3_detokenizer *d;
    size_t at = 0, n;
    assert_int_equal(k3_detokenizer_create(t, true, &d, NULL), K3_OK);
    for (size_t i = 0; i <= tokens->n; i++) {
        const char *text = i < tokens->n ? k3_detokenize(d, tokens->ids[i], &n) : k3_detokenize_end(d, &n);
        assert_true(at + n <= strlen(want));
        assert_memory_equal(text, want + at, n);
        at += n;
    }
    assert_int_equal(at, strlen(want));
    k3_detokenizer_free(d);
}

static void the_trained_model_has_its_own_ids_for_texts_and_chats(void **state)
{
    (void)state;
    struct k3_tokenizer *t = open_tokenizer(TRAINED);
    json_t *cases = json_load_file(K3_TEST_DATA "/k3-tiny/prompts.json", 0, NULL), *one;
    size_t i, n_chats = 0;
    assert_int_equal(json_array_size(cases), 12);
    json_array_foreach(cases, i, one)
    {
        const char *prompt = json_string_value(json_object_get(one, "prompt"));
        struct k3_tokens want = ids_of(json_object_get(one, "prompt_ids")), got = {0};
        struct k3_tokens answer = ids_of(json_object_get(one, "ids"));
        assert_int_equal(k3_tokenize(t, prompt, strlen(prompt), true, &got, NULL), K3_OK);
        expect_ids(prompt, &got, want.ids, want.n);
        expect_text(t, &want, prompt);
        expect_text(t, &answer, json_string_value(json_object_get(one, "text")));
        n_chats += compare_chat(t, prompt, &want);
        k3_tokens_free(&want);
        k3_tokens_free(&got);
        k3_tokens_free(&answer);
    }
    assert_int_equal(n_chats, 5);
    json_decref(cases);
    k3_tokenizer_close(t);
}

static void the_stop_tokens_are_found_by_name(void **state)
{
    (void)state;
    static const char *const stops[] = {"[EOS]", "[EOT]", "<|end_of_msg|>"};
    struct k3_tokenizer *t = open_tokenizer(TRAINED);
    int n_stops = 0;
    for (int32_t id = 0; id < (int32_t)k3_tokenizer_size(t); id++) n_stops += k3_token_is_stop(t, id);
    assert_int_equal(n_stops, 3);
    for (int i = 0; i < 3; i++) assert_true(k3_token_is_stop(t, k3_token_find(t, stops[i])));
    k3_tokenizer_close(t);
}

/* ---- round trips ---- */

/* Any ids, to text, to ids, to text: the texts are the same. And each name gives its id. */
static void round_trips(const char *path)
{
    struct k3_tokenizer *t = open_tokenizer(path);
    struct test_random random = {5};
    const uint32_t size = k3_tokenizer_size(t);
    for (int32_t id = 0; id < (int32_t)size; id++) {
        size_t n;
        const char *text = k3_token_text(t, id, &n);
        if (t->tokens[id].kind != K3_TOKEN_CONTROL) continue;
        struct k3_tokens tokens = {0};
        assert_int_equal(k3_tokenize(t, text, n, true, &tokens, NULL), K3_OK);
        expect_ids(text, &tokens, &id, 1);
        k3_tokens_free(&tokens);
    }
    struct k3_detokenizer *d;
    assert_int_equal(k3_detokenizer_create(t, true, &d, NULL), K3_OK);
    for (int round = 0; round < 2000; round++) {
        char text[8192], again[8192];
        struct k3_tokens tokens = {0};
        size_t n_text = 0, n_again = 0, n;
        for (int i = 0; i < 20; i++) {
            int32_t id = (int32_t)test_random_below(&random, size);
            const char *part = k3_detokenize(d, id, &n);
            memcpy(text + n_text, part, n);
            n_text += n;
        }
        const char *part = k3_detokenize_end(d, &n);
        memcpy(text + n_text, part, n);
        n_text += n;
        assert_int_equal(k3_utf8_valid(text, n_text), n_text);
        assert_int_equal(k3_tokenize(t, text, n_text, round & 1, &tokens, NULL), K3_OK);
        for (size_t i = 0; i < tokens.n; i++) {
            part = k3_detokenize(d, tokens.ids[i], &n);
            memcpy(again + n_again, part, n);
            n_again += n;
        }
        k3_detokenize_end(d, &n);
        assert_int_equal(n, 0);
        assert_int_equal(n_again, n_text);
        assert_memory_equal(again, text, n_text);
        k3_tokens_free(&tokens);
    }
    k3_detokenizer_free(d);
    k3_tokenizer_close(t);
}

static void any_ids_survive_the_way_to_text_and_back(void **state)
{
    (void)state;
    round_trips(FIXTURE);
    round_trips(TRAINED);
}

/* ---- files that lie ---- */

/* A file of 512 tokens with a good vocabulary, of which one key is changed. */
static void describe(struct gb *gb)
{
    struct k3_gguf *gguf;
    assert_int_equal(k3_gguf_open(FIXTURE, &gguf, NULL), K3_OK);
    gb_init(gb);
    gb_add_gguf(gb, gguf);
    k3_gguf_close(gguf);
    while (gb->n_tensors) gb_drop_tensor(gb, gb->tensors[0].name);
}

static void drop_tokens(struct gb *gb)
{
    gb_drop_key(gb, "tokenizer.ggml.tokens");
}
static void drop_types(struct gb *gb)
{
    gb_drop_key(gb, "tokenizer.ggml.token_type");
}
static void drop_model(struct gb *gb)
{
    gb_drop_key(gb, "tokenizer.ggml.model");
}
static void other_model(struct gb *gb)
{
    drop_model(gb);
    gb_add_string(gb, "tokenizer.ggml.model", "llama");
}
static void number_as_model(struct gb *gb)
{
    drop_model(gb);
    gb_add_u32(gb, "tokenizer.ggml.model", 2);
}
static void other_pre(struct gb *gb)
{
    gb_drop_key(gb, "tokenizer.ggml.pre");
    gb_add_string(gb, "tokenizer.ggml.pre", "qwen2");
}
static void text_as_tokens(struct gb *gb)
{
    drop_tokens(gb);
    gb_add_string(gb, "tokenizer.ggml.tokens", "a b c");
}
static void numbers_as_tokens(struct gb *gb)
{
    drop_tokens(gb);
    gb_add_array(gb, "tokenizer.ggml.tokens", K3_GGUF_I32, (int32_t[512]){0}, 512, 4);
}
static void few_tokens(struct gb *gb)
{
    drop_tokens(gb);
    gb_add_strings(gb, "tokenizer.ggml.tokens", (const char *const[]){"a", "b"}, 2);
}
static void floats_as_types(struct gb *gb)
{
    drop_types(gb);
    gb_add_array(gb, "tokenizer.ggml.token_type", K3_GGUF_F32, (float[512]){0}, 512, 4);
}
static void huge_types(struct gb *gb)
{
    drop_types(gb);
    gb_add_array(gb, "tokenizer.ggml.token_type", K3_GGUF_U64, (uint64_t[512]){UINT64_C(1) << 32 | 1}, 512,
                 8);
}
static void eos_too_large(struct gb *gb)
{
    gb_drop_key(gb, "tokenizer.ggml.eos_token_id");
    gb_add_u32(gb, "tokenizer.ggml.eos_token_id", 512);
}
static void eos_no_token(struct gb *gb)
{
    gb_drop_key(gb, "tokenizer.ggml.eos_token_id");
    gb_add_u32(gb, "tokenizer.ggml.eos_token_id", UINT32_MAX);
}
static void eos_as_text(struct gb *gb)
{
    gb_drop_key(gb, "tokenizer.ggml.eos_token_id");
    gb_add_string(gb, "tokenizer.ggml.eos_token_id", "[EOS]");
}

static k3_status open_written(struct gb *gb, struct k3_tokenizer **t, struct k3_error *err)
{
    char folder[64];
    test_folder_make(folder);
    gb_write(gb, test_path(folder, "vocabulary.gguf"));
    k3_status status = k3_tokenizer_open(test_path(folder, "vocabulary.gguf"), t, err);
    test_folder_remove(folder);
    return status;
}

static void a_file_that_lies_about_its_vocabulary_is_refused(void **state)
{
    (void)state;
    const struct {
        void (*lie)(struct gb *);
        k3_status status;
        const char *message;
    } cases[] = {
        {drop_tokens, K3_ERR_FORMAT, "there is no key tokenizer.ggml.tokens"},
        {drop_types, K3_ERR_FORMAT, "there is no key tokenizer.ggml.token_type"},
        {drop_model, K3_ERR_FORMAT, "tokenizer.ggml.model"},
        {other_model, K3_ERR_UNSUPPORTED, "tokenizer.ggml.model is \"llama\""},
        {number_as_model, K3_ERR_FORMAT, "tokenizer.ggml.model"},
        {other_pre, K3_ERR_UNSUPPORTED, "tokenizer.ggml.pre is \"qwen2\""},
        {text_as_tokens, K3_ERR_FORMAT, "tokens is of kind string, not an array of strings"},
        {numbers_as_tokens, K3_ERR_FORMAT, "tokens is an array of i32, not of strings"},
        {few_tokens, K3_ERR_FORMAT, "there are 2 tokens but types of 512"},
        {floats_as_types, K3_ERR_FORMAT, "token_type is an array of f32, not of integers"},
        {huge_types, K3_ERR_FORMAT, "token 0 is of type -1"},
        {eos_too_large, K3_ERR_FORMAT, "the eos token is 512, but there are 512 tokens"},
        {eos_no_token, K3_ERR_FORMAT, "eos_token_id is 4294967295, which is no token"},
        {eos_as_text, K3_ERR_FORMAT, "tokenizer.ggml.eos_token_id"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gb gb;
        struct k3_error err;
        struct k3_tokenizer *t = NULL;
        describe(&gb);
        cases[i].lie(&gb);
        assert_int_equal(open_written(&gb, &t, &err), cases[i].status);
        assert_null(t);
        if (!strstr(err.message, cases[i].message))
            fail_msg("\"%s\" is not in: %s", cases[i].message, err.message);
        gb_free(&gb);
    }
}

static void merges_and_other_keys_are_not_needed(void **state)
{
    (void)state;
    struct gb gb;
    struct k3_tokenizer *t;
    describe(&gb);
    gb_drop_key(&gb, "tokenizer.ggml.merges");
    gb_drop_key(&gb, "tokenizer.ggml.pre");
    gb_drop_key(&gb, "tokenizer.ggml.eos_token_id");
    assert_int_equal(open_written(&gb, &t, NULL), K3_OK);
    assert_int_equal(k3_tokenizer_size(t), 512);
    assert_true(k3_token_is_stop(t, 502)); /* [EOS] by its name */
    k3_tokenizer_close(t);
    gb_free(&gb);
}

static void a_file_that_is_not_there_is_an_error(void **state)
{
    (void)state;
    struct k3_error err;
    struct k3_tokenizer *t = NULL;
    assert_int_equal(k3_tokenizer_open("/nowhere.gguf", &t, &err), K3_ERR_IO);
    assert_non_null(strstr(err.message, "/nowhere.gguf"));
    assert_null(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fixture_texts_have_the_ids_of_the_published_pattern),
        cmocka_unit_test(the_trained_model_has_its_own_ids_for_texts_and_chats),
        cmocka_unit_test(the_stop_tokens_are_found_by_name),
        cmocka_unit_test(any_ids_survive_the_way_to_text_and_back),
        cmocka_unit_test(a_file_that_lies_about_its_vocabulary_is_refused),
        cmocka_unit_test(merges_and_other_keys_are_not_needed),
        cmocka_unit_test(a_file_that_is_not_there_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
