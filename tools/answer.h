/* answer.h - shows what the model writes, token by token, on standard output. */
#ifndef K3_TOOLS_ANSWER_H
#define K3_TOOLS_ANSWER_H

#include "base/error.h"

struct k3_answer;

/* `raw`: the text as it is, control tokens by name. Otherwise thinking, response and tool calls are told
 * apart: by a line "[thinking]", "[response]" or "[tool call] NAME" before each, and on a terminal by dim
 * thinking instead. */
k3_status k3_answer_create(const struct k3_tokenizer *tokenizer, bool raw, bool terminal,
                           struct k3_answer **answer, struct k3_error *err);
void k3_answer_free(struct k3_answer *answer);

/* Writes what the token completes and flushes. False when standard output takes no more. */
bool k3_answer_token(struct k3_answer *answer, int32_t id);

/* Writes what is held and ends the last line. */
void k3_answer_end(struct k3_answer *answer);

#endif
