/* vocab.c - the tokens of a vocabulary and the way from bytes to ids.
 *
 * GGUF keeps normal tokens as text in an alphabet of 256 characters, one for each byte; that is undone here
 * once. A merge list is not needed: the id of a token is its rank, and every multi-byte token has one
 * derivation. What a file says about its vocabulary is believed only after it was checked here. */
#include "text/text_internal.h"

#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

/* Ids are int32_t, and no vocabulary comes near this. */
#define TOKENS_MAX ((size_t)1 << 24)

/* ---- the byte alphabet ---- */

/* Bytes that are printable in Latin-1 stand for themselves; the other 68, in order, are U+0100, U+0101, ... */
#define ALPHABET_END 0x144

static bool stands_for_itself(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* byte_of[code point] is a byte, or -1. */
static void invert_alphabet(int16_t byte_of[ALPHABET_END])
{
    memset(byte_of, -1, ALPHABET_END * sizeof *byte_of);
    unsigned other = 0x100;
    for (unsigned byte = 0; byte < 256; byte++)
        byte_of[stands_for_itself(byte) ? byte : other++] = (int16_t)byte;
}

void k3_byte_alphabet(char text[256][3])
{
    size_t n = 0;
    memset(text, 0, 256 * sizeof *text);
    for (unsigned code = 0; code < ALPHABET_END; code++) {
        if (code < 0x100 && !stands_for_itself(code)) continue;
        text[n][0] = (char)code;
        if (code >= 0x80) text[n][0] = (char)(0xc0 | code >> 6), text[n][1] = (char)(0x80 | (code & 0x3f));
        n++;
    }
}

/* ---- bytes -> id ---- */

/* Up to eight bytes as a number: different ones of the same length give different numbers. Loads of fixed
 * size, because most keys are a few bytes and a call of memcpy costs more than all the rest. */
static uint64_t load_short(const char *bytes, size_t n)
{
    const unsigned char *s = (const unsigned char *)bytes;
    uint32_t low, high;
    if (n < 4) return n == 0 ? 0 : (uint64_t)s[0] << 16 | (uint64_t)s[n / 2] << 8 | s[n - 1];
    memcpy(&low, s, 4);
    memcpy(&high, s + n - 4, 4);
    return (uint64_t)low << 32 | high;
}

/* Eight bytes at a time, multiplied and folded. The order of bytes in a word changes where a token lies in
 * the table, not what is found. */
static uint32_t hash_bytes(const char *bytes, size_t n)
{
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t h = n * odd;
    for (; n > 8; bytes += 8, n -= 8) {
        h = (h ^ load_short(bytes, 8)) * odd;
        h ^= h >> 32;
    }
    h = (h ^ load_short(bytes, n)) * odd;
    h ^= h >> 29;
    return (uint32_t)((h * odd) >> 32);
}

/* The slot that holds these bytes, or the empty one where they would be. */
static struct k3_vocab_slot *find_slot(const struct k3_tokenizer *t, const char *bytes, size_t n,
                                       uint32_t hash)
{
    for (uint32_t i = hash & t->slot_mask;; i = (i + 1) & t->slot_mask) {
        struct k3_vocab_slot *slot = &t->slots[i];
        if (slot->id < 0) return slot;
        const struct k3_token *token = &t->tokens[slot->id];
        if (slot->hash == hash && token->n == n && memcmp(token->text, bytes, n) == 0) return slot;
    }
}

int32_t k3_vocab_find(const struct k3_tokenizer *t, const char *bytes, size_t n)
{
    if (n > t->max_bytes) return -1;
    return find_slot(t, bytes, n, hash_bytes(bytes, n))->id;
}

static k3_status build_slots(struct k3_tokenizer *t, const char *name, struct k3_error *err)
{
    size_t n_slots = 16;
    while (n_slots < 2 * (size_t)t->n_tokens) n_slots *= 2;
    t->slots = k3_arena_alloc(&t->arena, n_slots * sizeof *t->slots);
    if (!t->slots) return k3_fail_memory(err, "the table of tokens", n_slots * sizeof *t->slots);
    t->slot_mask = (uint32_t)(n_slots - 1);
    for (size_t i = 0; i < n_slots; i++) t->slots[i].id = -1;

    for (uint32_t id = 0; id < t->n_tokens; id++) {
        const struct k3_token *token = &t->tokens[id];
        if (token->kind != K3_TOKEN_NORMAL) continue;
        uint32_t hash = hash_bytes(token->text, token->n);
        struct k3_vocab_slot *slot = find_slot(t, token->text, token->n, hash);
        if (slot->id >= 0)
            return k3_fail(err, K3_ERR_FORMAT, "%s: tokens %d and %u stand for the same %u bytes", name,
                           slot->id, id, token->n);
        *slot = (struct k3_vocab_slot){.hash = hash, .id = (int32_t)id};
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        char text = (char)byte;
        t->byte_ids[byte] = k3_vocab_find(t, &text, 1);
        if (t->byte_ids[byte] < 0)
            return k3_fail(err, K3_ERR_FORMAT, "%s: no token stands for the single byte 0x%02X", name, byte);
    }
    return K3_OK;
}

/* ---- checking and copying ---- */

/* Replaces the text of a normal token, in place, by the bytes it stands for: they are never more. */
static k3_status decode_token(struct k3_token *token, const int16_t *byte_of, const char *name, uint32_t id,
                              struct k3_error *err)
{
    char *bytes = (char *)token->text; /* our copy in the arena */
    size_t at = 0, length;
    uint32_t n = 0, code = 0;
    while (at < token->n) {
        if (k3_utf8_next(bytes + at, token->n - at, &code, &length) != K3_UTF8_CHARACTER)
            return k3_fail(err, K3_ERR_FORMAT, "%s: token %u is not UTF-8 at its byte %zu", name, id, at);
        if (code >= ALPHABET_END || byte_of[code] < 0)
            return k3_fail(err, K3_ERR_FORMAT, "%s: token %u has U+%04X in it, which stands for no byte",
                           name, id, (unsigned)code);
        bytes[n++] = (char)byte_of[code];
        at += length;
    }
    bytes[n] = 0;
    token->n = n;
    return K3_OK;
}

static k3_status token_kind(int32_t type, uint8_t *kind, const char *name, uint32_t id, struct k3_error *err)
{
    switch (type) {
    case 1:
        *kind = K3_TOKEN_NORMAL;
        return K3_OK;
    case 3:
        *kind = K3_TOKEN_CONTROL;
        return K3_OK;
    case 5:
        *kind = K3_TOKEN_UNUSED;
        return K3_OK;
    case 2:
    case 4:
    case 6:
        return k3_fail(
            err, K3_ERR_UNSUPPORTED,
            "%s: token %u is of type %d (unknown, user-defined or byte); a K3 vocabulary has none such", name,
            id, type);
    }
    return k3_fail(err, K3_ERR_FORMAT, "%s: token %u is of type %d; types are 1 to 6", name, id, type);
}

static k3_status copy_token(struct k3_tokenizer *t, const struct k3_vocab_source *source, uint32_t id,
                            const int16_t *byte_of, struct k3_error *err)
{
    const struct k3_gguf_string *text = &source->tokens[id];
    struct k3_token *token = &t->tokens[id];
    k3_status status = token_kind(source->types[id], &token->kind, source->name, id, err);
    if (status) return status;
    if (text->n == 0) return k3_fail(err, K3_ERR_FORMAT, "%s: token %u is empty", source->name, id);
    if (text->n > K3_TOKEN_MAX_BYTES)
        return k3_fail(err, K3_ERR_FORMAT, "%s: token %u has %zu bytes; at most %d are allowed", source->name,
                       id, text->n, K3_TOKEN_MAX_BYTES);
    token->n = (uint32_t)text->n;
    token->text = k3_arena_copy(&t->arena, text->text, text->n);
    if (!token->text) return k3_fail_memory(err, "a token", text->n);

    if (token->kind == K3_TOKEN_NORMAL) {
        status = decode_token(token, byte_of, source->name, id, err);
        if (status) return status;
    } else if (k3_utf8_valid(token->text, token->n) < token->n) {
        return k3_fail(err, K3_ERR_FORMAT, "%s: the name of token %u is not UTF-8", source->name, id);
    }
    if (token->n > t->max_bytes) t->max_bytes = token->n;
    return K3_OK;
}

static k3_status copy_tokens(struct k3_tokenizer *t, const struct k3_vocab_source *source,
                             struct k3_error *err)
{
    int16_t byte_of[ALPHABET_END];
    invert_alphabet(byte_of);

    if (source->n > TOKENS_MAX)
        return k3_fail(err, K3_ERR_FORMAT, "%s: a vocabulary of %zu tokens; at most %zu are allowed",
                       source->name, source->n, TOKENS_MAX);
    t->n_tokens = (uint32_t)source->n;
    t->tokens = k3_arena_alloc(&t->arena, source->n * sizeof *t->tokens);
    if (!t->tokens) return k3_fail_memory(err, "the tokens", source->n * sizeof *t->tokens);
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        k3_status status = copy_token(t, source, id, byte_of, err);
        if (status) return status;
    }
    return K3_OK;
}

/* ---- what tokens mean ---- */

/* Where the release has its control tokens. A converter that moved them made a file that still works, because
 * they are found by name, but not one of K3 as it is known. */
#define K3_VOCAB_SIZE 163840
static const struct {
    int32_t id;
    const char *name;
} RELEASE[] = {
    {163584, "[BOS]"},    {163585, "[EOS]"},     {163586, "<|end_of_msg|>"},
    {163587, "<|open|>"}, {163588, "<|close|>"}, {163589, "<|sep|>"},
    {163593, "[EOT]"},    {163838, "[UNK]"},     {163839, "[PAD]"},
};

static void compare_with_release(const struct k3_tokenizer *t, const char *name)
{
    if (t->n_tokens != K3_VOCAB_SIZE) return;
    for (size_t i = 0; i < sizeof RELEASE / sizeof *RELEASE; i++)
        if (k3_token_find(t, RELEASE[i].name) != RELEASE[i].id)
            k3_log("%s: the id of %s is %d, in the release it is %d", name, RELEASE[i].name,
                   k3_token_find(t, RELEASE[i].name), RELEASE[i].id);
}

/* The markers and the stop tokens go by name: early conversions have the wrong one as eos. */
static k3_status find_meanings(struct k3_tokenizer *t, const struct k3_vocab_source *source,
                               struct k3_error *err)
{
    static const char *const stops[] = {"<|end_of_msg|>", "[EOS]", "[EOT]"};
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        int32_t id = k3_token_find(t, stops[i]);
        if (id >= 0) t->tokens[id].stop = true;
    }
    if (source->eos < -1 || (source->eos >= 0 && (uint32_t)source->eos >= t->n_tokens))
        return k3_fail(err, K3_ERR_FORMAT, "%s: the eos token is %d, but there are %u tokens", source->name,
                       source->eos, t->n_tokens);
    if (source->eos >= 0) t->tokens[source->eos].stop = true;

    t->open = k3_token_find(t, K3_OPEN);
    t->close = k3_token_find(t, K3_CLOSE);
    t->sep = k3_token_find(t, K3_SEP);
    t->end_of_msg = k3_token_find(t, K3_END_OF_MSG);
    return K3_OK;
}

k3_status k3_tokenizer_create(const struct k3_vocab_source *source, struct k3_tokenizer **out,
                              struct k3_error *err)
{
    struct k3_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return k3_fail_memory(err, "a tokenizer", sizeof *t);
    k3_status status = copy_tokens(t, source, err);
    if (!status) status = build_slots(t, source->name, err);
    if (!status) status = k3_controls_build(t, source->name, err);
    if (!status) status = find_meanings(t, source, err);
    if (!status) status = k3_split_compile(&t->split, err);
    if (status) {
        k3_tokenizer_close(t);
        return status;
    }
    compare_with_release(t, source->name);
    *out = t;
    return K3_OK;
}

void k3_tokenizer_close(struct k3_tokenizer *t)
{
    if (!t) return;
    pcre2_code_free(t->split);
    k3_arena_free(&t->arena);
    free(t);
}

/* ---- questions ---- */

static const struct k3_token *token_of(const struct k3_tokenizer *t, int32_t id)
{
    return id >= 0 && (uint32_t)id < t->n_tokens ? &t->tokens[id] : NULL;
}

uint32_t k3_tokenizer_size(const struct k3_tokenizer *t)
{
    return t->n_tokens;
}

const char *k3_token_text(const struct k3_tokenizer *t, int32_t id, size_t *n)
{
    const struct k3_token *token = token_of(t, id);
    *n = token ? token->n : 0;
    return token ? token->text : NULL;
}

bool k3_token_is_control(const struct k3_tokenizer *t, int32_t id)
{
    const struct k3_token *token = token_of(t, id);
    return token && token->kind != K3_TOKEN_NORMAL;
}

int32_t k3_token_find(const struct k3_tokenizer *t, const char *name)
{
    return k3_controls_find(t, name, strlen(name));
}

bool k3_token_is_stop(const struct k3_tokenizer *t, int32_t id)
{
    const struct k3_token *token = token_of(t, id);
    return token && token->stop;
}
