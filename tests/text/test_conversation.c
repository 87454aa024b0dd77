/* Whole conversations as prompts, and arguments as the protocol writes them. */
#include "small_vocab.h"
#include "text/chat_internal.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* ---- segments ---- */

static k3_status collect(void *ctx, const char *text, size_t n, bool special, struct k3_error *err)
{
    (void)err;
    json_t *pair = json_pack("[s%, b]", text, n, special);
    return json_array_append_new(ctx, pair) == 0 ? K3_OK : K3_ERR_MEMORY;
}

static json_t *segments_of(const char *name, const char *conversation)
{
    struct k3_error err;
    json_t *segments = json_array();
    if (k3_chat_segments(conversation, strlen(conversation), collect, segments, &err) != K3_OK)
        fail_msg("%s: %s", name, err.message);
    return segments;
}

/* A case as a request: its options beside its messages. */
static char *conversation_of(const json_t *root)
{
    json_t *conversation = json_deep_copy(json_object_get(root, "options"));
    json_object_set(conversation, "messages", json_object_get(root, "messages"));
    char *text = json_dumps(conversation, 0);
    json_decref(conversation);
    return text;
}

static struct k3_tokenizer *small;

static void check_tokens(const char *name, const char *conversation, const json_t *segments)
{
    struct k3_tokens got = {0}, want = {0};
    struct k3_error err;
    size_t i;
    const json_t *segment;
    if (k3_chat_render(small, conversation, strlen(conversation), &got, &err) != K3_OK)
        fail_msg("%s: %s", name, err.message);
    json_array_foreach((json_t *)segments, i, segment) {
        const json_t *text = json_array_get(segment, 0);
        assert_int_equal(k3_tokenize(small, json_string_value(text), json_string_length(text),
                                     json_is_true(json_array_get(segment, 1)), &want, NULL),
                         K3_OK);
    }
    if (got.n != want.n || memcmp(got.ids, want.ids, got.n * sizeof *got.ids))
        fail_msg("%s: the prompt has other tokens than its segments", name);
    k3_tokens_free(&got);
    k3_tokens_free(&want);
}

static void the_written_cases_have_their_segments_and_tokens(void **state)
{
    (void)state;
    FILE *file = fopen(K3_TEST_DATA "/text/chat_cases.jsonl", "r");
    char *line = NULL;
    size_t size = 0, n = 0;
    assert_non_null(file);
    for (; getline(&line, &size, file) > 0; n++) {
        json_t *root = json_loads(line, 0, NULL), *want = json_object_get(root, "segments");
        const char *name = json_string_value(json_object_get(root, "name"));
        char *conversation = conversation_of(root);
        json_t *got = segments_of(name, conversation);
        if (!json_equal(got, want)) fail_msg("%s: the segments are %s", name, json_dumps(got, 0));
        check_tokens(name, conversation, want);
        free(conversation);
        json_decref(got);
        json_decref(root);
    }
    assert_int_equal(n, 21);
    free(line);
    fclose(file);
}

/* The text of all segments. */
static char *text_of(const char *conversation)
{
    json_t *segments = segments_of(conversation, conversation), *segment;
    struct k3_growing text = {0};
    size_t i;
    json_array_foreach(segments, i, segment) {
        const json_t *part = json_array_get(segment, 0);
        k3_growing_put(&text, json_string_value(part), json_string_length(part));
    }
    k3_growing_put(&text, "", 1);
    json_decref(segments);
    return text.bytes;
}

static void expect_part(const char *conversation, const char *part)
{
    char *text = text_of(conversation);
    if (!strstr(text, part)) fail_msg("%s\nis not in\n%s", part, text);
    free(text);
}

#define USER "{\"role\":\"user\",\"content\":\"u\"}"
#define CALLS(a)                                                                                             \
    "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\","     \
    "\"arguments\":" a "}}]}]}"
#define CALL_OPEN "<|open|>call tool=\"f\" index=\"1\"<|sep|>"
#define ARGUMENT(key, type, value)                                                                           \
    "<|open|>argument key=\"" key "\" type=\"" type "\"<|sep|>" value "<|close|>argument<|sep|>"

static void arguments_keep_their_order_and_the_spelling_of_numbers(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"\"{\\\"b\\\":1e2,\\\"a\\\":-0.50}\"",
         ARGUMENT("b", "number", "1e2") ARGUMENT("a", "number", "-0.50")},
        {"\"{\\\"n\\\":123456789012345678901234567890}\"",
         ARGUMENT("n", "number", "123456789012345678901234567890")},
        {"\" { \\\"o\\\" : {\\\"x\\\":[1 ,true,null],\\\"y\\\":{}} } \"",
         ARGUMENT("o", "object", "{\"x\": [1, true, null], \"y\": {}}")},
        {"\"{\\\"s\\\":\\\"a\\\\\\\\n\\\\u00e9 \\\"}\"", ARGUMENT("s", "string", "a\\n\u00e9 ")},
        {"\"{\\\"l\\\":[],\\\"t\\\":false,\\\"z\\\":null}\"",
         ARGUMENT("l", "array", "[]") ARGUMENT("t", "boolean", "false") ARGUMENT("z", "null", "null")},
        {"\"{\\\"k\\\":1,\\\"j\\\":2,\\\"k\\\":3}\"",
         ARGUMENT("k", "number", "3") ARGUMENT("j", "number", "2")},
        {"{\"b\":0.1,\"a\":2.0,\"i\":7}",
         ARGUMENT("b", "number", "0.1") ARGUMENT("a", "number", "2.0") ARGUMENT("i", "number", "7")},
        {"\"{}\"", ""},
        {"\" \\n\"", ""},
        {"null", ""},
        {"{}", ""},
        {"\"{\\\"a\\\":01}\"", "<|open|>json type=\"object\"<|sep|>{\"a\":01}<|close|>json<|sep|>"},
        {"\"{\\\"a\\\":NaN}\"", "<|open|>json type=\"object\"<|sep|>{\"a\":NaN}<|close|>json<|sep|>"},
        {"\"{\\\"a\\\":1\"", "<|open|>json type=\"object\"<|sep|>{\"a\":1<|close|>json<|sep|>"},
        {"\"{\\\"a\\\":1}x\"", "<|open|>json type=\"object\"<|sep|>{\"a\":1}x<|close|>json<|sep|>"},
        {"\"{,}\"", "<|open|>json type=\"object\"<|sep|>{,}<|close|>json<|sep|>"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char conversation[512], part[512];
        snprintf(conversation, sizeof conversation, CALLS("%s"), cases[i][0]);
        snprintf(part, sizeof part, CALL_OPEN "%s<|close|>call<|sep|>", cases[i][1]);
        expect_part(conversation, part);
    }
}

static void results_are_numbered_over_a_whole_turn(void **state)
{
    (void)state;
    static const char conversation[] =
        "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\"}},"
        "{\"id\":\"b\",\"name\":\"g\"}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"b\",\"content\":\"2\"}," USER ","
        "{\"role\":\"tool\",\"id\":\"a\",\"content\":\"1\"}]}";
    expect_part(conversation, "role=\"tool\" tool=\"g\" index=\"1\"<|sep|>2");
    expect_part(conversation, "role=\"tool\" tool=\"f\" index=\"2\"<|sep|>1");
}

static void other_words_for_effort_are_understood(void **state)
{
    (void)state;
    static const char *const words[][2] = {{"\"minimal\"", "low"}, {"\"low\"", "low"},
                                           {"\"medium\"", "high"}, {"\"high\"", "high"},
                                           {"\"xhigh\"", "max"},   {"\"max\"", "max"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char conversation[128], part[64];
        snprintf(conversation, sizeof conversation, "{\"messages\":[" USER "],\"effort\":%s}", words[i][0]);
        snprintf(part, sizeof part, "thinking_effort=%s`.", words[i][1]);
        expect_part(conversation, part);
    }
}

/* ---- what is refused ---- */

static void what_is_no_conversation_is_refused_with_its_place(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "the conversation is not JSON at line 1"},
        {"[]", "the conversation is JSON but not an object"},
        {"{}", "a conversation needs a list of messages"},
        {"{\"messages\":{}}", "a conversation needs a list of messages"},
        {"{\"messages\":[" USER ",3]}", "message 2 has no role"},
        {"{\"messages\":[{\"role\":\"human\"}]}", "message 1 has a role that is none of"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":7}]}", "message 1 has content that is neither"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", "reads only text"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}", "without a text"},
        {"{\"messages\":[{\"role\":\"user\",\"name\":\"a\\u0000b\"}]}", "has a member \"name\" that is not"},
        {"{\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]}", "the result of a tool that is not named"},
        {CALLS("\"[1]\""), "message 1 has a call whose arguments are JSON but not an object"},
        {CALLS("7"), "message 1 has a call whose arguments are neither"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}",
         "message 1 has a call without a name"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":{}}]}", "tool_calls that are not a list"},
        {"{\"messages\":[{\"role\":\"assistant\",\"reasoning\":1}]}", "has reasoning that is not text"},
        {"{\"messages\":[{\"role\":\"system\",\"tools\":1}]}", "has tools that are not a list"},
        {"{\"messages\":[],\"tools\":{}}", "the list of tools is JSON but not an array"},
        {"{\"messages\":[],\"effort\":\"much\"}", "the effort \"much\" is not one of"},
        {"{\"messages\":[],\"effort\":3}", "the effort is not a string"},
        {"{\"messages\":[],\"thinking\":1}", "\"thinking\" is neither true nor false"},
        {"{\"messages\":[],\"tool_choice\":\"some\"}", "tool_choice is none of"},
        {"{\"messages\":[],\"response_format\":{\"type\":\"xml\"}}",
         "the type of response_format is none of"},
        {"{\"messages\":[],\"response_format\":{\"type\":\"json_schema\",\"json_schema\":1}}",
         "has no schema"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct k3_error err;
        json_t *segments = json_array();
        struct k3_tokens tokens = {0};
        const char *text = cases[i][0];
        assert_int_equal(k3_chat_segments(text, strlen(text), collect, segments, &err), K3_ERR_ARGUMENT);
        if (!strstr(err.message, cases[i][1])) fail_msg("%s: %s", text, err.message);
        assert_int_equal(k3_chat_render(small, text, strlen(text), &tokens, &err), K3_ERR_ARGUMENT);
        assert_int_equal(tokens.n, 0);
        k3_tokens_free(&tokens);
        json_decref(segments);
    }
}

static void depth_has_an_end(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    struct k3_growing deep = {0}, out = {0};
    for (int i = 0; i < DEPTH; i++) k3_growing_put(&deep, "[", 1);
    for (int i = 0; i < DEPTH; i++) k3_growing_put(&deep, "]", 1);
    assert_false(k3_json_respace(deep.bytes, deep.n, &out));
    free(deep.bytes);
    free(out.bytes);
}

static int set_up(void **state)
{
    (void)state;
    return !(small = small_tokenizer());
}

static int tear_down(void **state)
{
    (void)state;
    k3_tokenizer_close(small);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_written_cases_have_their_segments_and_tokens),
        cmocka_unit_test(arguments_keep_their_order_and_the_spelling_of_numbers),
        cmocka_unit_test(results_are_numbered_over_a_whole_turn),
        cmocka_unit_test(other_words_for_effort_are_understood),
        cmocka_unit_test(what_is_no_conversation_is_refused_with_its_place),
        cmocka_unit_test(depth_has_an_end),
    };
    return cmocka_run_group_tests_name("conversations", tests, set_up, tear_down);
}
