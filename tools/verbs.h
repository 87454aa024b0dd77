/* verbs.h - what k3tool can do. Each verb has a file; argv[0] is the verb's name, and the exit status is
 * returned. */
#ifndef K3_TOOLS_VERBS_H
#define K3_TOOLS_VERBS_H

#include "common/engine.h"
#include "common/input.h"
#include "common/number.h"
#include "common/program.h"

int k3_verb_plan(int argc, char **argv);
int k3_verb_inspect(int argc, char **argv);
int k3_verb_tokenize(int argc, char **argv);
int k3_verb_detokenize(int argc, char **argv);
int k3_verb_chat_render(int argc, char **argv);
int k3_verb_chat_parse(int argc, char **argv);
int k3_verb_logits(int argc, char **argv);
int k3_verb_synth(int argc, char **argv);
int k3_verb_routing(int argc, char **argv);

/* Options that give token ids, for verbs that take some. */
/* clang-format off */
#define K3_IDS_OPTIONS(ids, file) \
    {K3_OPTION_TEXT, 0, "ids", &(ids), 0, 0, "1,2,3", "token ids"}, \
    {K3_OPTION_TEXT, 'f', "file", &(file), 0, 0, "FILE", \
     "read the ids from FILE, separated by spaces, commas or\nnewlines (without --ids and -f: standard input)"}
/* clang-format on */

/* The ids that were given by these options. */
k3_status k3_verb_read_ids(const char *ids, const char *file, uint32_t n_vocab, struct k3_tokens *tokens,
                           struct k3_error *err);

#endif
