/* k3tool.c - the verbs of k3tool. */
#include "verbs.h"

#include "common/dispatch.h"

static const struct k3_verb verbs[] = {
    {"plan", "how a model would use the memory, without loading it", k3_verb_plan},
    {"inspect", "what a GGUF file holds and what is wrong with it", k3_verb_inspect},
    {"tokenize", "text into token ids", k3_verb_tokenize},
    {"detokenize", "token ids into text", k3_verb_detokenize},
    {"chat-render", "conversations into the parts of a prompt", k3_verb_chat_render},
    {"chat-parse", "what a model wrote into messages", k3_verb_chat_parse},
    {"logits", "the model's predictions after each token, into a file", k3_verb_logits},
    {"synth", "a model with random weights, for measurements", k3_verb_synth},
    {"routing", "statistics of a recorded trace of routing", k3_verb_routing},
    {0},
};

k3_status k3_verb_read_ids(const char *ids, const char *file, uint32_t n_vocab, struct k3_tokens *tokens,
                           struct k3_error *err)
{
    struct k3_text text;
    k3_status status = k3_text_choose(ids, file, &text, err);
    if (status == K3_OK) status = k3_text_require_string(&text, ids ? "--ids" : file, err);
    if (status == K3_OK) status = k3_parse_ids(text.bytes, text.n, n_vocab, tokens, err);
    k3_text_free(&text);
    return status;
}

int main(int argc, char **argv)
{
    return k3_dispatch(argc, argv, "Looks into Kimi-K3 models.", verbs);
}
