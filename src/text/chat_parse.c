/* chat_parse.c - split what the model writes into channels, token by token.
 *
 *     thoughts <|close|>think<|sep|> <|open|>response<|sep|> answer <|close|>response<|sep|> ...
 * <|end_of_msg|>
 *
 * Three control tokens delimit: OPEN and CLOSE begin a header, SEP ends it and makes it a tag. What is
 * between tags goes to the sink that the innermost open element stands for. A model does not always keep to
 * the grammar, so every order of tags means something: elements left open are closed, one that is missing is
 * implied, a tag that makes no sense is text. Only ids decide; text that spells a marker is text. */
#include "text/chat_internal.h"

#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

/* A header longer than this is none: models write less than a hundred bytes. */
#define HEADER_MAX 256

/* White space between elements that is held until it is known whether text follows. */
#define BLANK_MAX 256

enum element { MESSAGE, THINK, RESPONSE, TOOLS, CALL, ARGUMENT, JSON, N_ELEMENTS };

static const char *const ELEMENT_NAMES[N_ELEMENTS] = {"message", "think",    "response", "tools",
                                                      "call",    "argument", "json"};

struct k3_chat_parser {
    const struct k3_tokenizer *tokenizer;
    k3_chat_fn fn;
    void *ctx;

    enum element stack[4]; /* open elements: message, tools, call, argument is the deepest there is */
    size_t depth;          /* at least 1, message, until the answer is over */
    bool over;

    int32_t marker; /* OPEN or CLOSE whose header is being read, or -1 */
    char header[HEADER_MAX];
    size_t n_header;

    struct k3_utf8_stream stream; /* of the sink */
    char blank[BLANK_MAX];        /* held white space at message level */
    size_t n_blank;
    bool recovering; /* text was seen at message level since the last tag */

    char name[K3_UTF8_ROOM(HEADER_MAX)],
        type[K3_UTF8_ROOM(HEADER_MAX) + 1]; /* attribute values of an event */
    char text[];                            /* what a token or a header gives */
};

static void send(struct k3_chat_parser *p, enum k3_chat_kind kind, const char *text, size_t n)
{
    p->fn(p->ctx, &(struct k3_chat_event){.kind = kind, .text = text, .n = n, .type = p->type});
}

/* ---- sinks ---- */

/* Text between elements is taken as part of the answer if it is not blank. White space is held until that is
 * known. */
static void recover_text(struct k3_chat_parser *p, const char *text, size_t n)
{
    size_t at = 0, length;
    uint32_t code = 0;
    while (!p->recovering && at < n) {
        k3_utf8_next(text + at, n - at, &code, &length);
        if (!k3_is_space(code)) {
            p->recovering = true;
            if (p->n_blank) send(p, K3_CHAT_RESPONSE, p->blank, p->n_blank);
            break;
        }
        /* More white space than a model writes between tags adds nothing to an answer that is out of place.
         */
        if (length <= BLANK_MAX - p->n_blank) {
            memcpy(p->blank + p->n_blank, text + at, length);
            p->n_blank += length;
        }
        at += length;
    }
    if (at < n) send(p, K3_CHAT_RESPONSE, text + at, n - at);
}

/* Whole characters go where the innermost element says. */
static void deliver(struct k3_chat_parser *p, size_t n)
{
    if (n == 0) return;
    switch (p->stack[p->depth - 1]) {
    case THINK:
        send(p, K3_CHAT_THINK, p->text, n);
        break;
    case RESPONSE:
        send(p, K3_CHAT_RESPONSE, p->text, n);
        break;
    case ARGUMENT:
        send(p, K3_CHAT_VALUE, p->text, n);
        break;
    case JSON:
        send(p, K3_CHAT_JSON, p->text, n);
        break;
    case MESSAGE:
        recover_text(p, p->text, n);
        break;
    case TOOLS:
    case CALL:
    case N_ELEMENTS:
        break;
    }
}

static void sink(struct k3_chat_parser *p, const char *bytes, size_t n)
{
    deliver(p, k3_utf8_feed(&p->stream, bytes, n, p->text));
}

/* A character that a marker cuts in two belongs, broken, to the text before it. */
static void flush(struct k3_chat_parser *p)
{
    deliver(p, k3_utf8_end(&p->stream, p->text));
}

static void sink_token(struct k3_chat_parser *p, int32_t id)
{
    size_t n;
    const char *bytes = k3_token_text(p->tokenizer, id, &n);
    sink(p, bytes, n);
}

/* A header that turns out to be none is text, marker included. */
static void sink_header(struct k3_chat_parser *p)
{
    sink_token(p, p->marker);
    sink(p, p->header, p->n_header);
    p->marker = -1;
}

/* ---- headers ---- */

static size_t identifier(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && ((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
                     (s[i] >= '0' && s[i] <= '9') || s[i] == '_' || s[i] == '-'))
        i++;
    return i;
}

/* The element the header names, or N_ELEMENTS. */
static enum element header_element(const struct k3_chat_parser *p)
{
    size_t n = identifier(p->header, p->n_header);
    int e = 0;
    while (e < N_ELEMENTS && (strlen(ELEMENT_NAMES[e]) != n || memcmp(ELEMENT_NAMES[e], p->header, n) != 0))
        e++;
    return (enum element)e;
}

/* Undoes &quot; and &amp; in place and returns the new length. */
static size_t unescape(char *s, size_t n)
{
    size_t out = 0;
    for (size_t i = 0; i < n;) {
        size_t left = n - i;
        if (left >= 6 && memcmp(s + i, "&quot;", 6) == 0) {
            s[out++] = '"';
            i += 6;
        } else if (left >= 5 && memcmp(s + i, "&amp;", 5) == 0) {
            s[out++] = '&';
            i += 5;
        } else {
            s[out++] = s[i++];
        }
    }
    return out;
}

/* Writes the value of an attribute, as UTF-8, and returns its bytes: 0 if it is not there. Attributes are
 * k="v" after white space; what does not look like one is skipped byte by byte. */
static size_t attribute(const struct k3_chat_parser *p, const char *key, char out[K3_UTF8_ROOM(HEADER_MAX)])
{
    const char *s = p->header, *end = s + p->n_header;
    s += identifier(s, p->n_header);
    while (s < end) {
        size_t n = identifier(s, (size_t)(end - s));
        if (n == 0 || end - s < (ptrdiff_t)n + 2 || memcmp(s + n, "=\"", 2) != 0) {
            s += n ? n : 1;
            continue;
        }
        const char *value = s + n + 2, *quote = memchr(value, '"', (size_t)(end - value));
        if (!quote) return 0;
        if (n == strlen(key) && memcmp(s, key, n) == 0) {
            char raw[HEADER_MAX];
            memcpy(raw, value, (size_t)(quote - value));
            struct k3_utf8_stream stream = {0};
            size_t n_out = k3_utf8_feed(&stream, raw, unescape(raw, (size_t)(quote - value)), out);
            return n_out + k3_utf8_end(&stream, out + n_out);
        }
        s = quote + 1;
    }
    return 0;
}

/* ---- elements ---- */

static bool is_open(const struct k3_chat_parser *p, enum element e)
{
    for (size_t i = 0; i < p->depth; i++)
        if (p->stack[i] == e) return true;
    return false;
}

static void pop(struct k3_chat_parser *p)
{
    if (p->stack[--p->depth] == CALL) send(p, K3_CHAT_CALL_END, "", 0);
}

/* Closes what is above e, which is open. */
static void close_above(struct k3_chat_parser *p, enum element e)
{
    while (p->stack[p->depth - 1] != e) pop(p);
}

/* The answer is complete: what is open is closed, a call included. */
static void finish(struct k3_chat_parser *p)
{
    close_above(p, MESSAGE);
    p->over = true;
    send(p, K3_CHAT_MESSAGE_END, "", 0);
}

static void open_element(struct k3_chat_parser *p, enum element e)
{
    switch (e) {
    case THINK:
    case RESPONSE:
    case TOOLS:
        close_above(p, MESSAGE);
        break;
    case CALL: /* in tools, that are opened anew: it makes no difference, and a model may have forgotten it */
        close_above(p, MESSAGE);
        p->stack[p->depth++] = TOOLS;
        break;
    case ARGUMENT:
    case JSON:
        if (!is_open(p, CALL)) return;
        close_above(p, CALL);
        break;
    case MESSAGE: /* it is open already */
        return;
    case N_ELEMENTS:
        sink_header(p);
        sink_token(p, p->tokenizer->sep);
        return;
    }
    p->stack[p->depth++] = e;
    if (e == CALL) send(p, K3_CHAT_CALL, p->name, attribute(p, "tool", p->name));
    if (e == ARGUMENT) {
        p->type[attribute(p, "type", p->type)] = 0;
        send(p, K3_CHAT_ARGUMENT, p->name, attribute(p, "key", p->name));
        p->type[0] = 0;
    }
}

static void close_element(struct k3_chat_parser *p, enum element e)
{
    if (e == MESSAGE) {
        finish(p);
    } else if (e != N_ELEMENTS && is_open(p, e)) {
        close_above(p, e);
        pop(p);
    }
}

/* ---- tokens ---- */

static void begin_header(struct k3_chat_parser *p, int32_t marker)
{
    if (p->marker >= 0) sink_header(p);
    flush(p);
    p->marker = marker;
    p->n_header = 0;
}

static void end_header(struct k3_chat_parser *p)
{
    if (p->marker < 0) {
        sink_token(p, p->tokenizer->sep);
        return;
    }
    const bool opens = p->marker == p->tokenizer->open;
    const enum element e = header_element(p);
    if (!opens || e != N_ELEMENTS) {
        p->n_blank = 0;
        p->recovering = false;
    }
    if (opens)
        open_element(p, e);
    else
        close_element(p, e);
    p->marker = -1;
}

static void add_text(struct k3_chat_parser *p, const char *bytes, size_t n)
{
    if (p->marker >= 0 && n > HEADER_MAX - p->n_header) sink_header(p);
    if (p->marker < 0) {
        sink(p, bytes, n);
        return;
    }
    memcpy(p->header + p->n_header, bytes, n);
    p->n_header += n;
}

void k3_chat_parse(struct k3_chat_parser *p, int32_t id)
{
    const struct k3_tokenizer *t = p->tokenizer;
    if (p->over) return;
    if (k3_token_is_stop(t, id)) {
        if (p->marker < 0) flush(p);
        finish(p);
    } else if (id == t->open || id == t->close) {
        begin_header(p, id);
    } else if (id == t->sep) {
        end_header(p);
    } else if (!k3_token_is_control(t, id)) {
        size_t n;
        const char *bytes = k3_token_text(t, id, &n);
        if (bytes) add_text(p, bytes, n);
    }
}

void k3_chat_parse_end(struct k3_chat_parser *p)
{
    if (p->over) return;
    if (p->marker < 0) flush(p); /* an unfinished header says nothing */
    p->over = true;
}

k3_status k3_chat_parser_create(const struct k3_tokenizer *tokenizer, bool no_thinking, k3_chat_fn fn,
                                void *ctx, struct k3_chat_parser **out, struct k3_error *err)
{
    k3_status status = k3_markup_check(tokenizer, err);
    if (status) return status;
    size_t longest = tokenizer->max_bytes > HEADER_MAX ? tokenizer->max_bytes : HEADER_MAX;
    struct k3_chat_parser *p = calloc(1, sizeof *p + K3_UTF8_ROOM(longest));
    if (!p) return k3_fail_memory(err, "a chat parser", sizeof *p + K3_UTF8_ROOM(longest));
    *p = (struct k3_chat_parser){.tokenizer = tokenizer, .fn = fn, .ctx = ctx, .marker = -1, .depth = 2};
    p->stack[0] = MESSAGE;
    p->stack[1] = no_thinking ? RESPONSE : THINK;
    *out = p;
    return K3_OK;
}

void k3_chat_parser_free(struct k3_chat_parser *p)
{
    free(p);
}
