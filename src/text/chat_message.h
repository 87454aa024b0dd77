/* chat_message.h - the events of an answer, put together again as one message of a chat API.
 *
 * Arguments are kept as JSON text, so that numbers keep the spelling the model gave them: a client that sends them back
 * gets the prompt that the model wrote. */
#ifndef K3_TEXT_CHAT_MESSAGE_H
#define K3_TEXT_CHAT_MESSAGE_H

#include "text/chat_internal.h"

struct k3_called {
    char *name;
    struct k3_members members; /* values as JSON text */
    struct k3_growing json;    /* what came as one JSON text instead */
};

/* Zero-initialise; end with k3_chat_message_free. */
struct k3_chat_message {
    const json_t *schema; /* {tool: {key: type}} for arguments whose type the model left out; NULL: none */
    struct k3_growing reasoning, content;
    struct k3_called *calls; /* owned */
    size_t n_calls;
    bool open, ended, failed; /* the last call is not complete; the answer is; memory was out */

    /* The argument that is open. */
    bool in_argument;
    char *key, *type;
    struct k3_growing value;
};

/* A k3_chat_fn whose ctx is a message. */
void k3_chat_message_add(void *message, const struct k3_chat_event *event);

/* {"reasoning_content", "content", "tool_calls": [{"name", "arguments"}], "finish_reason"} as JSON text. Arguments are an
 * object, or a string where the model's were none. A call that is not complete is left out. */
k3_status k3_chat_message_json(struct k3_chat_message *message, struct k3_growing *out, struct k3_error *err);

/* "tool_calls", "stop", or "length" if the answer did not come to its end. */
const char *k3_chat_message_reason(const struct k3_chat_message *message);

/* The arguments of a call as JSON text; false: the model's were none, and they are in call->json. */
bool k3_called_arguments(const struct k3_called *call, struct k3_growing *out);

void k3_chat_message_free(struct k3_chat_message *message);

#endif
