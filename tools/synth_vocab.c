/* synth_vocab.c - a byte-level vocabulary of any size that text can be written with.
 *
 * The 256 bytes come first, in the release's order; then, as far as there is room, tokens of letters in the order of
 * their frequency: pairs, a letter after a space, a pair after a space, triples, a triple after a space. What is left
 * is unused ids, and the last 256 are control tokens, in the places that the release has them (tokenizer.md
 * section 6).
 *
 * A token's id is its rank when pairs are merged, so a token's derivation follows from its letters: the earlier of the
 * two pairs in it is merged first. */
#include "synth.h"

#include "text/text_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char letters[] = "etaoinshrdlcumwfgypbvkjxqz";
#define N 26

#define SPACE "\xc4\xa0" /* U+0120, which stands for the space in the byte alphabet */

enum { NORMAL = 1, CONTROL = 3, UNUSED = 5 };

static k3_status no_memory(const struct k3_synth_vocab *v, struct k3_error *err)
{
    return k3_fail_memory(err, "a vocabulary", (uint64_t)v->n * sizeof *v->tokens);
}

static bool set(struct k3_synth_vocab *v, struct k3_gguf_string *to, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool set(struct k3_synth_vocab *v, struct k3_gguf_string *to, const char *format, ...)
{
    char text[64];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    *to = (struct k3_gguf_string){k3_arena_copy(&v->arena, text, (size_t)n), (size_t)n};
    return to->text != NULL;
}

/* ---- text ---- */

static bool add_bytes(struct k3_synth_vocab *v)
{
    char text[256][3];
    bool ok = true;
    k3_byte_alphabet(text);
    for (size_t i = 0; ok && i < 256; i++) ok = set(v, &v->tokens[v->n_text++], "%s", text[i]);
    return ok;
}

/* Token number `i` of those made of letters, as the two parts it is merged from; false when there is none. */
static bool letter_token(uint32_t i, char left[8], char right[8])
{
    static const uint32_t counts[] = {N * N, N, N * N, N * N * N, N * N * N};
    size_t kind = 0;
    while (kind < sizeof counts / sizeof *counts && i >= counts[kind]) i -= counts[kind++];
    unsigned a = i / (N * N), b = i / N % N, c = i % N; /* of triples; pairs have b and c */
    char x = letters[a < N ? a : 0], y = letters[b], z = letters[c];
    bool first = a * N + b <= b * N + c; /* the pair xy is the earlier one, or the same */
    switch (kind) {
    case 0:
        return snprintf(left, 8, "%c", y) && snprintf(right, 8, "%c", z);
    case 1:
        return snprintf(left, 8, SPACE) && snprintf(right, 8, "%c", z);
    case 2:
        return snprintf(left, 8, SPACE) && snprintf(right, 8, "%c%c", y, z);
    case 3:
        if (first) return snprintf(left, 8, "%c%c", x, y) && snprintf(right, 8, "%c", z);
        return snprintf(left, 8, "%c", x) && snprintf(right, 8, "%c%c", y, z);
    case 4:
        if (first) return snprintf(left, 8, SPACE "%c%c", x, y) && snprintf(right, 8, "%c", z);
        return snprintf(left, 8, SPACE "%c", x) && snprintf(right, 8, "%c%c", y, z);
    }
    return false;
}

static bool add_letters(struct k3_synth_vocab *v)
{
    char left[8], right[8];
    while (v->n_text < v->n - K3_SYNTH_CONTROLS && letter_token(v->n_merges, left, right))
        if (!set(v, &v->tokens[v->n_text++], "%s%s", left, right) ||
            !set(v, &v->merges[v->n_merges++], "%s %s", left, right))
            return false;
    return true;
}

/* ---- the rest ---- */

static bool add_control(struct k3_synth_vocab *v, uint32_t id, uint32_t place)
{
    static const struct {
        uint32_t place;
        const char *name;
    } known[] = {{0, "[BOS]"},
                 {1, "[EOS]"},
                 {2, "<|end_of_msg|>"},
                 {3, "<|open|>"},
                 {4, "<|close|>"},
                 {5, "<|sep|>"},
                 {6, "[start_header_id]"},
                 {7, "[end_header_id]"},
                 {9, "[EOT]"},
                 {18, "<|media_begin|>"},
                 {19, "<|media_content|>"},
                 {20, "<|media_end|>"},
                 {21, "<|media_pad|>"},
                 {65, "<osagent_mode>"},
                 {254, "[UNK]"},
                 {255, "[PAD]"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].place == place) return set(v, &v->tokens[id], "%s", known[i].name);
    return set(v, &v->tokens[id], "<|reserved_token_%u|>", id);
}

static bool add_rest(struct k3_synth_vocab *v)
{
    uint32_t first_control = v->n - K3_SYNTH_CONTROLS;
    bool ok = true;
    for (uint32_t id = 0; ok && id < v->n; id++) {
        v->types[id] = id < v->n_text ? NORMAL : id < first_control ? UNUSED : CONTROL;
        if (v->types[id] == UNUSED) ok = set(v, &v->tokens[id], "[PAD%u]", id);
        if (v->types[id] == CONTROL) ok = add_control(v, id, id - first_control);
    }
    return ok;
}

k3_status k3_synth_vocab_make(struct k3_synth_vocab *v, uint32_t n, struct k3_error *err)
{
    *v = (struct k3_synth_vocab){.n = n};
    v->tokens = k3_arena_alloc(&v->arena, n * sizeof *v->tokens);
    v->merges = k3_arena_alloc(&v->arena, n * sizeof *v->merges);
    v->types = k3_arena_alloc(&v->arena, n * sizeof *v->types);
    bool ok = v->tokens && v->merges && v->types && add_bytes(v) && add_letters(v) && add_rest(v);
    return ok ? K3_OK : no_memory(v, err);
}

void k3_synth_vocab_free(struct k3_synth_vocab *v)
{
    k3_arena_free(&v->arena);
}

k3_status k3_synth_vocab_put(const struct k3_synth_vocab *v, struct k3_gguf_writer *w, struct k3_error *err)
{
    uint32_t first_control = v->n - K3_SYNTH_CONTROLS;
    k3_status status = k3_gguf_put_string(w, "tokenizer.ggml.model", "gpt2", err);
    if (status == K3_OK) status = k3_gguf_put_string(w, "tokenizer.ggml.pre", "kimi-k2", err);
    if (status == K3_OK) status = k3_gguf_put_strings(w, "tokenizer.ggml.tokens", v->tokens, v->n, err);
    if (status == K3_OK) status = k3_gguf_put_i32s(w, "tokenizer.ggml.token_type", v->types, v->n, err);
    if (status == K3_OK)
        status = k3_gguf_put_strings(w, "tokenizer.ggml.merges", v->merges, v->n_merges, err);
    if (status == K3_OK) status = k3_gguf_put_u32(w, "tokenizer.ggml.bos_token_id", first_control, err);
    if (status == K3_OK) status = k3_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", first_control + 2, err);
    if (status == K3_OK) status = k3_gguf_put_u32(w, "tokenizer.ggml.padding_token_id", v->n - 1, err);
    if (status == K3_OK) status = k3_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false, err);
    return status;
}
