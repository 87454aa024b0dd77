/* chat_internal.h - what the files of the chat protocol share.
 *
 * A prompt is elements: a marker, a tag with attributes, a marker, a body, and the same to close it. Its text
 * is cut into segments that are tokenised one by one, so that neither a user's text nor a tool's name can
 * merge with the markup around it, or be taken for it. */
#ifndef K3_TEXT_CHAT_INTERNAL_H
#define K3_TEXT_CHAT_INTERNAL_H

#include "text/text_internal.h"

#include <jansson.h>

/* Whether the vocabulary has the four markers of the protocol; an error that names what is missing if not. */
k3_status k3_markup_check(const struct k3_tokenizer *tokenizer, struct k3_error *err);

/* Writes a prompt as segments. After the first failure the other calls do nothing, so only `status` of the end need be
 * looked at. */
struct k3_markup {
    k3_chat_segment_fn fn;
    void *ctx;
    k3_status status;
    struct k3_error *err; /* may be NULL */
};

/* Appends the tokens of what `write` writes; on failure all that were appended are taken back. */
k3_status k3_markup_encode(const struct k3_tokenizer *tokenizer,
                           void (*write)(struct k3_markup *m, const void *what), const void *what,
                           struct k3_tokens *tokens, struct k3_error *err);

struct k3_attribute {
    const char *key, *value;
};

void k3_markup_control(struct k3_markup *markup, const char *name);
void k3_markup_text(struct k3_markup *markup, const char *text, size_t n);

/* `attributes` ends with an entry whose key is NULL; NULL: none. */
void k3_markup_open(struct k3_markup *markup, const char *tag, const struct k3_attribute *attributes);
void k3_markup_close(struct k3_markup *markup, const char *tag);

/* Element `message` and the end of the message. */
void k3_markup_end_message(struct k3_markup *markup);

/* ---- parts of a prompt (chat_prompt.c) ---- */

/* A message of the system about itself, of three parts. */
void k3_chat_internal(struct k3_markup *markup, const char *kind, const char *before, const char *body,
                      size_t n, const char *after);

/* `tools` must be an array; an empty one is none. */
void k3_chat_declare_tools(struct k3_markup *markup, const json_t *tools);

/* "low", "high" or "max". */
void k3_chat_set_effort(struct k3_markup *markup, const char *effort);

/* Where the model answers. */
void k3_chat_open_answer(struct k3_markup *markup, bool no_thinking);

/* ---- messages (chat_messages.c) ---- */

void k3_chat_messages(struct k3_markup *markup, const json_t *messages, bool no_thinking);

/* ---- JSON (chat_json.c, chat_members.c) ---- */

/* Text that grows. After the first failed allocation it stays as it is. */
struct k3_growing {
    char *bytes; /* owned: free() */
    size_t n, capacity;
    bool failed;
};

void k3_growing_put(struct k3_growing *text, const char *bytes, size_t n);

/* A JSON string, quoted. */
void k3_json_put_string(struct k3_growing *text, const char *bytes, size_t n);

/* No white space, characters outside ASCII as they are; keys sorted by code point at every level, or as they came. */
void k3_json_put(struct k3_growing *text, const json_t *value, bool sorted);

/* The members of a JSON object: types and values as arguments of calls are written. */
struct k3_members {
    struct k3_member {
        char *key;
        const char *type; /* "string", "number", "boolean", "null", "object", "array" */
        char *value; /* of a string its text, else JSON with ", " and ": ", numbers spelled as they were */
        size_t n;
    } * list;
    size_t n;
};

enum k3_members_kind { K3_MEMBERS_OBJECT, K3_MEMBERS_OTHER, K3_MEMBERS_NOT_JSON };

/* Reads n bytes; the list is empty unless *kind is K3_MEMBERS_OBJECT. Of two members of one name the last one counts,
 * in the place of the first. */
k3_status k3_members_read(const char *json, size_t n, struct k3_members *members, enum k3_members_kind *kind,
                          struct k3_error *err);
void k3_members_free(struct k3_members *members);

/* Takes over what a member owns, whether or not there is room for it; false if there is none. */
bool k3_members_add(struct k3_members *members, struct k3_member member);

/* n bytes of JSON with ", " and ": " and no other white space, numbers spelled as they are. False: it is no JSON, and what
 * was put is worth nothing. */
bool k3_json_respace(const char *json, size_t n, struct k3_growing *out);

#endif
