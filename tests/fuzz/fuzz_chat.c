/* fuzz_chat.c - any bytes as a conversation, as arguments of a call, and as what a model wrote.
 *
 * Promises: a prompt's control tokens are the four of the protocol, however its texts spell them; JSON that is written with
 * other white space is the same JSON; a message is JSON, and one that is given back to the model and parsed again is the
 * same message. */
#include "small_vocab.h"
#include "text/chat_message.h"
#include "text/utf8.h"

#include <assert.h>
#include <stdlib.h>

static struct k3_tokenizer *small;

static void make_vocabulary(void)
{
    if (!small && !(small = small_tokenizer())) abort();
}

/* ---- conversations ---- */

static k3_status check_segment(void *ctx, const char *text, size_t n, bool special, struct k3_error *err)
{
    static const char *const names[] = {K3_OPEN, K3_CLOSE, K3_SEP, K3_END_OF_MSG};
    size_t i = 0;
    (void)ctx;
    (void)err;
    assert(n > 0);
    while (special && i < 4 && (strlen(names[i]) != n || memcmp(names[i], text, n) != 0)) i++;
    assert(i < 4);
    return K3_OK;
}

static void is_a_conversation_or_refused(const char *text, size_t n)
{
    struct k3_error err;
    struct k3_tokens tokens = {0};
    k3_status status = k3_chat_segments(text, n, check_segment, NULL, &err);
    assert(status == K3_OK || status == K3_ERR_ARGUMENT);
    assert(k3_chat_render(small, text, n, &tokens, &err) == status);
    assert(status == K3_OK || tokens.n == 0);
    k3_tokens_free(&tokens);
}

static void is_the_same_json(const char *text, size_t n)
{
    struct k3_growing once = {0}, twice = {0};
    if (k3_json_respace(text, n, &once)) {
        assert(k3_json_respace(once.bytes, once.n, &twice));
        assert(once.n == twice.n && memcmp(once.bytes, twice.bytes, once.n) == 0);
    }
    free(once.bytes);
    free(twice.bytes);
}

/* ---- answers ---- */

/* The message of some ids, as JSON. */
static json_t *message_of(const int32_t *ids, size_t n)
{
    struct k3_chat_message message = {0};
    struct k3_growing text = {0};
    struct k3_chat_parser *parser;
    if (k3_chat_parser_create(small, false, k3_chat_message_add, &message, &parser, NULL)) abort();
    for (size_t i = 0; i < n; i++) k3_chat_parse(parser, ids[i]);
    k3_chat_parse_end(parser);
    k3_chat_parser_free(parser);
    if (k3_chat_message_json(&message, &text, NULL)) abort();
    json_t *json = json_loadb(text.bytes, text.n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    free(text.bytes);
    k3_chat_message_free(&message);
    return json;
}

static bool is_blank(const json_t *text)
{
    const char *s = json_string_value(text);
    uint32_t code = 0;
    for (size_t at = 0, n = json_string_length(text), length; at < n; at += length)
        if (k3_utf8_next(s + at, n - at, &code, &length) != K3_UTF8_CHARACTER || !k3_is_space(code))
            return false;
    return true;
}

/* Where the answer begins in the tokens of an assistant's turn: behind the tag that opens thinking. */
static size_t begin_of_answer(const struct k3_tokens *tokens)
{
    size_t at = 0;
    for (int tags = 0; tags < 2; at++) tags += tokens->ids[at] == small->sep;
    return at;
}

/* Blank thinking is not kept; a call without a name, or with arguments that are no object, cannot be given back. */
static void can_be_given_back(const json_t *message)
{
    json_t *turn =
        json_pack("{s:s, s:O, s:O, s:O}", "role", "assistant", "reasoning_content",
                  json_object_get(message, "reasoning_content"), "content",
                  json_object_get(message, "content"), "tool_calls", json_object_get(message, "tool_calls"));
    json_t *conversation =
        json_pack("{s:[o], s:n, s:b}", "messages", turn, "effort", "add_generation_prompt", 0);
    char *text = json_dumps(conversation, 0);
    struct k3_tokens tokens = {0};
    if (text && k3_chat_render(small, text, strlen(text), &tokens, NULL) == K3_OK) {
        size_t at = begin_of_answer(&tokens);
        json_t *again = message_of(tokens.ids + at, tokens.n - at);
        assert(json_equal(json_object_get(again, "content"), json_object_get(message, "content")));
        assert(json_equal(json_object_get(again, "tool_calls"), json_object_get(message, "tool_calls")));
        if (!is_blank(json_object_get(message, "reasoning_content")))
            assert(json_equal(json_object_get(again, "reasoning_content"),
                              json_object_get(message, "reasoning_content")));
        json_decref(again);
    }
    k3_tokens_free(&tokens);
    free(text);
    json_decref(conversation);
}

/* Names of control tokens in the data are such tokens. */
static void is_an_answer(const uint8_t *data, size_t n)
{
    struct k3_tokens tokens = {0};
    if (k3_tokenize(small, (const char *)data, n, true, &tokens, NULL)) abort();
    json_t *message = message_of(tokens.ids, tokens.n);
    /* A number beyond a double's range, or a zero in a name, is JSON that Jansson does not read. */
    if (message) can_be_given_back(message);
    json_decref(message);
    k3_tokens_free(&tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    make_vocabulary();
    is_a_conversation_or_refused((const char *)data, size);
    is_the_same_json((const char *)data, size);
    is_an_answer(data, size);
    return 0;
}
