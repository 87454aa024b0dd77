/* chat_internal.h - what the files of the chat protocol share.
 *
 * A prompt is elements: a marker, a tag with attributes, a marker, a body, and the same to close it. Its text
 * is cut into segments that are tokenised one by one, so that neither a user's text nor a tool's name can
 * merge with the markup around it, or be taken for it. */
#ifndef K3_TEXT_CHAT_INTERNAL_H
#define K3_TEXT_CHAT_INTERNAL_H

#include "text/text_internal.h"

/* Whether the vocabulary has the four markers of the protocol; an error that names what is missing if not. */
k3_status k3_markup_check(const struct k3_tokenizer *tokenizer, struct k3_error *err);

/* Writes a prompt. After the first failure the other calls do nothing, so only `status` of the end need be
 * looked at. */
struct k3_markup {
    struct k3_encoder encoder;
    k3_status status;
    struct k3_error *err; /* may be NULL */
};

struct k3_attribute {
    const char *key, *value;
};

void k3_markup_begin(struct k3_markup *markup, const struct k3_tokenizer *tokenizer, struct k3_tokens *tokens,
                     struct k3_error *err);

/* Returns the status; on failure all tokens that were appended are taken back. */
k3_status k3_markup_end(struct k3_markup *markup);

void k3_markup_token(struct k3_markup *markup, int32_t id);
void k3_markup_text(struct k3_markup *markup, const char *text, size_t n);

/* `attributes` ends with an entry whose key is NULL; NULL: none. */
void k3_markup_open(struct k3_markup *markup, const char *tag, const struct k3_attribute *attributes);
void k3_markup_close(struct k3_markup *markup, const char *tag);

/* An array as the protocol writes it, to be freed with free(): no white space, keys sorted by code point at
 * every level, characters outside ASCII as they are. K3_ERR_ARGUMENT if it is not JSON or no array; `what`
 * names it then. *n_items: elements of the array. */
k3_status k3_json_canonical_array(const char *json, const char *what, char **text, size_t *n, size_t *n_items,
                                  struct k3_error *err);

#endif
