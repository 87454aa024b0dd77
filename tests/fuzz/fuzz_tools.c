/* fuzz_tools.c - any bytes as the tools of a chat: they end in a prompt, or in a message and no token. */
#include "small_vocab.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct k3_tokenizer *small;
    if (!small) {
        struct small_vocab v;
        small_vocab_fill(&v);
        if (k3_tokenizer_create(&v.source, &small, NULL)) abort();
    }
    char *text = malloc(size + 1);
    if (!text) abort();
    memcpy(text, data, size);
    text[size] = 0;

    struct k3_error err = {K3_OK, ""};
    struct k3_tokens tokens = {0};
    struct k3_chat_options options = {.tools = text};
    k3_status status = k3_chat_prompt(small, "hello", 5, &options, &tokens, &err);
    if (status != K3_OK && (err.status != status || !err.message[0] || tokens.n)) abort();
    if (status == K3_OK && !tokens.n) abort();
    k3_tokens_free(&tokens);
    free(text);
    return 0;
}
