/* verb_tokenize.c - text into token ids and back. */
#include "verbs.h"

#include <string.h>

#define ABOUT_TOKENIZE                                                                                       \
    "Usage: k3tool tokenize [-m FILE] [-p TEXT | -f FILE]\n"                                                 \
    "Writes the token ids of a text on one line. Every byte of the text counts, a newline at its end too.\n"

#define ABOUT_DETOKENIZE                                                                                     \
    "Usage: k3tool detokenize [-m FILE] [--ids 1,2,3 | -f FILE]\n"                                           \
    "Writes the bytes that token ids stand for and nothing else; control tokens by their names, so that\n"   \
    "\"tokenize --special\" reads them back.\n"

static void write_ids(const struct k3_tokens *tokens)
{
    for (size_t i = 0; i < tokens->n; i++) k3_out("%s%d", i ? " " : "", tokens->ids[i]);
    k3_out("\n");
}

int k3_verb_tokenize(int argc, char **argv)
{
    struct k3_error err;
    struct k3_engine engine = {0};
    const char *given = NULL, *file = NULL;
    bool special = false, help = false;
    const struct k3_option table[] = {
        {.kind = K3_OPTION_HEADING, .help = "Options"},
        {K3_OPTION_TEXT, 'p', "prompt", &given, 0, 0, "TEXT", "the text"},
        {K3_OPTION_TEXT, 'f', "file", &file, 0, 0, "FILE",
         "read the text from FILE (without -p and -f: standard input)"},
        {K3_OPTION_FLAG, 0, "special", &special, 0, 0, NULL, "names of control tokens become control tokens"},
        K3_HELP_OPTION(help),
        {.kind = K3_OPTION_HEADING,
         .help = "Model and engine (accepted everywhere; only the model matters here)"},
        K3_ENGINE_OPTIONS(engine),
        {.kind = K3_OPTION_END},
    };
    k3_status status = k3_options_parse(argc, argv, table, 0, &err);
    if (status == K3_OK && help) k3_options_help(ABOUT_TOKENIZE, table);
    if (status != K3_OK || help) return k3_program_end(status, &err);

    struct k3_tokenizer *tokenizer = NULL;
    struct k3_tokens tokens = {0};
    struct k3_text text = {0};
    status = k3_engine_find_model(&engine, &err);
    if (status == K3_OK) status = k3_tokenizer_open(engine.model, &tokenizer, &err);
    if (status == K3_OK) status = k3_text_choose(given, file, &text, &err);
    if (status == K3_OK) status = k3_tokenize(tokenizer, text.bytes, text.n, special, &tokens, &err);
    if (status == K3_OK) write_ids(&tokens);
    k3_text_free(&text);
    k3_tokens_free(&tokens);
    k3_tokenizer_close(tokenizer);
    return k3_program_end(status, &err);
}

static void write_tokens(const struct k3_tokenizer *tokenizer, const struct k3_tokens *tokens)
{
    for (size_t i = 0; i < tokens->n; i++) {
        size_t n;
        const char *text = k3_token_text(tokenizer, tokens->ids[i], &n);
        k3_out_bytes(text, n);
    }
}

int k3_verb_detokenize(int argc, char **argv)
{
    struct k3_error err;
    struct k3_engine engine = {0};
    const char *ids = NULL, *file = NULL;
    bool help = false;
    const struct k3_option table[] = {
        {.kind = K3_OPTION_HEADING, .help = "Options"},
        K3_IDS_OPTIONS(ids, file),
        K3_HELP_OPTION(help),
        {.kind = K3_OPTION_HEADING,
         .help = "Model and engine (accepted everywhere; only the model matters here)"},
        K3_ENGINE_OPTIONS(engine),
        {.kind = K3_OPTION_END},
    };
    k3_status status = k3_options_parse(argc, argv, table, 0, &err);
    if (status == K3_OK && help) k3_options_help(ABOUT_DETOKENIZE, table);
    if (status != K3_OK || help) return k3_program_end(status, &err);

    struct k3_tokenizer *tokenizer = NULL;
    struct k3_tokens tokens = {0};
    status = k3_engine_find_model(&engine, &err);
    if (status == K3_OK) status = k3_tokenizer_open(engine.model, &tokenizer, &err);
    if (status == K3_OK) status = k3_verb_read_ids(ids, file, k3_tokenizer_size(tokenizer), &tokens, &err);
    if (status == K3_OK) write_tokens(tokenizer, &tokens);
    k3_tokens_free(&tokens);
    k3_tokenizer_close(tokenizer);
    return k3_program_end(status, &err);
}
