/* k3tool.c - finds the verb and runs it. */
#include "verbs.h"

#include <string.h>

static const struct verb {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} verbs[] = {
    {"inspect", "what a GGUF file holds and what is wrong with it", k3_verb_inspect},
    {"tokenize", "text into token ids", k3_verb_tokenize},
    {"detokenize", "token ids into text", k3_verb_detokenize},
    {"logits", "the model's predictions after each token, into a file", k3_verb_logits},
};

#define N_VERBS (sizeof verbs / sizeof *verbs)

static void print_help(void)
{
    k3_out("Usage: k3tool VERB [OPTION]...\n"
           "Looks into Kimi-K3 models.\n\nVerbs\n");
    for (size_t i = 0; i < N_VERBS; i++) k3_out("  %-12s%s\n", verbs[i].name, verbs[i].summary);
    k3_out("\n\"k3tool VERB --help\" tells more. The exit status is 0, 1 after an error, and 130 after "
           "Ctrl-C.\n");
}

k3_status k3_verb_read_ids(const char *ids, const char *file, uint32_t n_vocab, struct k3_tokens *tokens,
                           struct k3_error *err)
{
    struct k3_text text;
    k3_status status = k3_text_choose(ids, file, &text, err);
    if (status == K3_OK) status = k3_parse_ids(text.bytes, text.n, n_vocab, tokens, err);
    k3_text_free(&text);
    return status;
}

int main(int argc, char **argv)
{
    struct k3_error err;
    k3_program_start();
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        print_help();
        return k3_program_end(K3_OK, NULL);
    }
    if (strcmp(name, "--version") == 0) {
        k3_out("k3tool %s\n", k3_version());
        return k3_program_end(K3_OK, NULL);
    }
    for (size_t i = 0; i < N_VERBS; i++)
        if (strcmp(name, verbs[i].name) == 0) return verbs[i].run(argc - 1, argv + 1);
    k3_status status = *name
                           ? k3_fail(&err, K3_ERR_ARGUMENT, "there is no verb '%s'; see k3tool --help", name)
                           : k3_fail(&err, K3_ERR_ARGUMENT, "a verb is missing; see k3tool --help");
    return k3_program_end(status, &err);
}
