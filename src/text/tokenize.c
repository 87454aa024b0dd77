/* tokenize.c - text into tokens.
 *
 *     text -> repaired UTF-8 -> control names (if asked for) and what is between them
 *          -> parts of bounded length -> pieces (split.c) -> tokens (bpe.c)
 *
 * Each arrow is a hard border: nothing to the right of it looks across. */
#include "text/text_internal.h"

#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

/* ---- the list ---- */

void k3_tokens_free(struct k3_tokens *tokens)
{
    free(tokens->ids);
    *tokens = (struct k3_tokens){0};
}

/* Makes room for n more tokens. */
static k3_status reserve(struct k3_tokens *tokens, size_t n, struct k3_error *err)
{
    if (n <= tokens->capacity - tokens->n) return K3_OK;
    size_t capacity = tokens->capacity + tokens->capacity / 2;
    if (capacity < tokens->n + n) capacity = tokens->n + n;
    if (capacity < 64) capacity = 64;
    int32_t *ids = realloc(tokens->ids, capacity * sizeof *ids);
    if (!ids) return k3_fail_memory(err, "a list of tokens", capacity * sizeof *ids);
    tokens->ids = ids;
    tokens->capacity = capacity;
    return K3_OK;
}

/* ---- the long-input rule ---- */

/* The release cuts input twice, before anything else: after every 400,000 characters, and inside such a part
 * before the 25,001st character in a row that is white space or is none. */
size_t k3_chunk_next(struct k3_chunk_walk *walk, const char *text, size_t n)
{
    size_t at = 0, length;
    uint32_t code = 0;
    while (at < n) {
        k3_utf8_next(text + at, n - at, &code, &length);
        bool space = k3_is_space(code);
        if (walk->n_chunk == K3_CHUNK_MAX) {
            *walk = (struct k3_chunk_walk){0};
            return at;
        }
        if (space != walk->space) walk->n_run = 0;
        walk->space = space;
        if (walk->n_run == K3_RUN_MAX) {
            walk->n_run = 0;
            return at;
        }
        walk->n_chunk++;
        walk->n_run++;
        at += length;
    }
    return n;
}

/* ---- encoders ---- */

k3_status k3_encoder_init(struct k3_encoder *e, const struct k3_tokenizer *tokenizer,
                          struct k3_tokens *tokens, struct k3_error *err)
{
    *e = (struct k3_encoder){.tokenizer = tokenizer, .tokens = tokens, .n_before = tokens->n};
    return k3_splitter_init(&e->splitter, tokenizer->split, err);
}

void k3_encoder_free(struct k3_encoder *e)
{
    k3_splitter_free(&e->splitter);
    k3_bpe_free(&e->bpe);
}

void k3_encoder_undo(struct k3_encoder *e)
{
    e->tokens->n = e->n_before;
}

k3_status k3_encoder_token(struct k3_encoder *e, int32_t id, struct k3_error *err)
{
    k3_status status = reserve(e->tokens, 1, err);
    if (!status) e->tokens->ids[e->tokens->n++] = id;
    return status;
}

static k3_status add_piece(struct k3_encoder *e, const char *piece, size_t n, struct k3_error *err)
{
    int32_t whole = k3_vocab_find(e->tokenizer, piece, n);
    if (whole >= 0) return k3_encoder_token(e, whole, err);

    k3_status status = reserve(e->tokens, n, err);
    if (status) return status;
    size_t n_ids = 0;
    status = k3_bpe_encode(&e->bpe, e->tokenizer, piece, n, e->tokens->ids + e->tokens->n, &n_ids, err);
    e->tokens->n += n_ids;
    return status;
}

static k3_status add_chunk(struct k3_encoder *e, const char *text, size_t n, struct k3_error *err)
{
    k3_status status = K3_OK;
    for (size_t at = 0, length; at < n && !status; at += length) {
        status = k3_split_next(&e->splitter, text + at, n - at, &length, err);
        if (!status) status = add_piece(e, text + at, length, err);
    }
    return status;
}

/* Text without control tokens. */
static k3_status add_plain(struct k3_encoder *e, const char *text, size_t n, struct k3_error *err)
{
    if (n <= K3_RUN_MAX)
        return add_chunk(e, text, n, err); /* bytes are at least characters: no cut is near */
    k3_status status = K3_OK;
    struct k3_chunk_walk walk = {0};
    for (size_t at = 0, length; at < n && !status; at += length) {
        length = k3_chunk_next(&walk, text + at, n - at);
        status = add_chunk(e, text + at, length, err);
    }
    return status;
}

static k3_status add_valid(struct k3_encoder *e, const char *text, size_t n, bool special,
                           struct k3_error *err)
{
    if (!special) return add_plain(e, text, n, err);
    k3_status status = K3_OK;
    size_t at = 0;
    while (at < n && !status) {
        int32_t id = -1;
        size_t plain = k3_controls_search(e->tokenizer, text + at, n - at, &id);
        status = add_plain(e, text + at, plain, err);
        at += plain;
        if (!status && at < n) {
            status = k3_encoder_token(e, id, err);
            at += e->tokenizer->tokens[id].n;
        }
    }
    return status;
}

k3_status k3_encoder_text(struct k3_encoder *e, const char *text, size_t n, bool special,
                          struct k3_error *err)
{
    if (k3_utf8_valid(text, n) == n) return add_valid(e, text, n, special, err);

    if (n > SIZE_MAX / 4 - 3) return k3_fail_memory(err, "a text", n);
    char *repaired = malloc(K3_UTF8_ROOM(n));
    if (!repaired) return k3_fail_memory(err, "a text that is not UTF-8", K3_UTF8_ROOM(n));
    struct k3_utf8_stream stream = {0};
    size_t n_repaired = k3_utf8_feed(&stream, text, n, repaired);
    n_repaired += k3_utf8_end(&stream, repaired + n_repaired);
    k3_status status = add_valid(e, repaired, n_repaired, special, err);
    free(repaired);
    return status;
}

k3_status k3_tokenize(const struct k3_tokenizer *tokenizer, const char *text, size_t n, bool special,
                      struct k3_tokens *tokens, struct k3_error *err)
{
    struct k3_encoder encoder;
    k3_status status = k3_encoder_init(&encoder, tokenizer, tokens, err);
    if (!status) status = k3_encoder_text(&encoder, text, n, special, err);
    if (status) k3_encoder_undo(&encoder);
    k3_encoder_free(&encoder);
    return status;
}
