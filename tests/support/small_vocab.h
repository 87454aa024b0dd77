/* small_vocab.h - a vocabulary made in memory: the 256 bytes in the release's order, merges of a few letters,
 * and control tokens. */
#ifndef K3_TESTS_SMALL_VOCAB_H
#define K3_TESTS_SMALL_VOCAB_H

#include "text/text_internal.h"

#include <stdio.h>
#include <string.h>

/* In the byte alphabet: U+0120 (\xc4\xa0) is the space, U+010A (\xc4\x8a) the line end. */
static const char *const SMALL_VOCAB_MERGES[] = {
    "aa",
    "ab",
    "ba",
    "\xc4\xa0"
    "a",
    "aaa",
    "abab",
    "aaaa",
    "bb",
    "\xc4\xa0\xc4\xa0",
    "he",
    "ll",
    "hell",
    "hello",
    "\xc3\xa3\xc4\xa3", /* E3 81, the beginning of Hiragana */
    "th",
    "the",
    "\xc4\xa0"
    "the",
    "in",
    "think",
    "ink",
    "12",
    "123",
    "\xc4\x8a\xc4\x8a",
    "mess",
    "message",
    "age",
    "ca",
    "call",
    "=\"",
    "=\"_",
    "\xc3\xb0\xc5\x81", /* F0 9F, the beginning of most emoji */
};
static const char *const SMALL_VOCAB_CONTROLS[] = {
    "[BOS]", "[EOS]",          "<|end_of_msg|>", "<|open|>", "<|close|>", "<|sep|>", "<|reserved_token_7|>",
    "[EOT]", "<osagent_mode>", "[UNK]",          "[PAD]",
};

#define SMALL_VOCAB_N_MERGES   (sizeof SMALL_VOCAB_MERGES / sizeof *SMALL_VOCAB_MERGES)
#define SMALL_VOCAB_N_CONTROLS (sizeof SMALL_VOCAB_CONTROLS / sizeof *SMALL_VOCAB_CONTROLS)
#define SMALL_VOCAB_SIZE       (256 + SMALL_VOCAB_N_MERGES + SMALL_VOCAB_N_CONTROLS + 1)

struct small_vocab {
    char bytes[256][3];
    struct k3_gguf_string tokens[SMALL_VOCAB_SIZE];
    int32_t types[SMALL_VOCAB_SIZE];
    struct k3_vocab_source source;
};

static inline void small_vocab_fill(struct small_vocab *v)
{
    size_t n = 0;
    memset(v, 0, sizeof *v);
    k3_byte_alphabet(v->bytes);
    for (; n < 256; n++) {
        v->tokens[n] = (struct k3_gguf_string){v->bytes[n], strlen(v->bytes[n])};
        v->types[n] = 1;
    }
    for (size_t i = 0; i < SMALL_VOCAB_N_MERGES; i++, n++) {
        v->tokens[n] = (struct k3_gguf_string){SMALL_VOCAB_MERGES[i], strlen(SMALL_VOCAB_MERGES[i])};
        v->types[n] = 1;
    }
    for (size_t i = 0; i < SMALL_VOCAB_N_CONTROLS; i++, n++) {
        v->tokens[n] = (struct k3_gguf_string){SMALL_VOCAB_CONTROLS[i], strlen(SMALL_VOCAB_CONTROLS[i])};
        v->types[n] = 3;
    }
    v->tokens[n] = (struct k3_gguf_string){"[PAD296]", 8};
    v->types[n++] = 5;
    v->source =
        (struct k3_vocab_source){.name = "small", .tokens = v->tokens, .types = v->types, .n = n, .eos = -1};
}

/* A tokenizer of it; NULL when memory is out. */
static inline struct k3_tokenizer *small_tokenizer(void)
{
    struct small_vocab v;
    struct k3_tokenizer *tokenizer = NULL;
    small_vocab_fill(&v);
    k3_tokenizer_create(&v.source, &tokenizer, NULL);
    return tokenizer;
}

#endif
