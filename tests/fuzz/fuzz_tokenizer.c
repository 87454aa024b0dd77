/* fuzz_tokenizer.c - any bytes, as text and as token ids.
 *
 * Promises: text that goes through the tokenizer and back is the text, repaired if it was not UTF-8; what is
 * fed to the detokenizer and the chat parser one id at a time comes out in whole characters. */
#include "small_vocab.h"
#include "text/utf8.h"

#include <assert.h>
#include <stdlib.h>

static struct k3_tokenizer *small;

static void make_vocabulary(void)
{
    if (!small && !(small = small_tokenizer())) abort();
}

static void check_event(void *ctx, const struct k3_chat_event *event)
{
    bool *over = ctx;
    assert(!*over);
    assert(k3_utf8_valid(event->text, event->n) == event->n);
    *over = event->kind == K3_CHAT_MESSAGE_END;
}

static void parse(const int32_t *ids, size_t n, bool no_thinking)
{
    struct k3_chat_parser *parser;
    bool over = false;
    if (k3_chat_parser_create(small, no_thinking, check_event, &over, &parser, NULL)) abort();
    for (size_t i = 0; i < n; i++) k3_chat_parse(parser, ids[i]);
    k3_chat_parse_end(parser);
    k3_chat_parser_free(parser);
}

/* Compares what the tokens give with `want`. */
static void expect_text(const struct k3_tokens *tokens, const char *want, size_t n_want)
{
    struct k3_detokenizer *d;
    size_t at = 0;
    if (k3_detokenizer_create(small, true, &d, NULL)) abort();
    for (size_t i = 0; i <= tokens->n; i++) {
        size_t n;
        const char *text = i < tokens->n ? k3_detokenize(d, tokens->ids[i], &n) : k3_detokenize_end(d, &n);
        assert(n <= n_want - at && memcmp(text, want + at, n) == 0);
        assert(k3_utf8_valid(text, n) == n);
        at += n;
    }
    assert(at == n_want);
    k3_detokenizer_free(d);
}

static void text_comes_back(const char *text, size_t n, bool special)
{
    struct k3_utf8_stream stream = {0};
    struct k3_tokens tokens = {0};
    char *repaired = malloc(K3_UTF8_ROOM(n));
    size_t n_repaired = k3_utf8_feed(&stream, text, n, repaired);
    n_repaired += k3_utf8_end(&stream, repaired + n_repaired);
    if (k3_tokenize(small, text, n, special, &tokens, NULL)) abort();
    expect_text(&tokens, repaired, n_repaired);
    for (size_t i = 0; !special && i < tokens.n; i++) assert(!k3_token_is_control(small, tokens.ids[i]));
    parse(tokens.ids, tokens.n, n & 1);
    k3_tokens_free(&tokens);
    free(repaired);
}

/* Two bytes an id, some of them out of range. */
static void any_ids_are_parsed(const uint8_t *data, size_t n)
{
    int32_t *ids = malloc(n / 2 * sizeof *ids + 1);
    for (size_t i = 0; i < n / 2; i++)
        ids[i] = (int32_t)((data[2 * i] | data[2 * i + 1] << 8) % (SMALL_VOCAB_SIZE + 3)) - 1;
    parse(ids, n / 2, n & 2);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    make_vocabulary();
    text_comes_back((const char *)data, n, false);
    text_comes_back((const char *)data, n, true);
    any_ids_are_parsed(data, n);
    return 0;
}
