/* chat_markup.c - the elements of the chat protocol as tokens. */
#include "text/chat_internal.h"

#include <stdlib.h>
#include <string.h>

k3_status k3_markup_check(const struct k3_tokenizer *t, struct k3_error *err)
{
    const char *missing = t->open < 0         ? "<|open|>"
                          : t->close < 0      ? "<|close|>"
                          : t->sep < 0        ? "<|sep|>"
                          : t->end_of_msg < 0 ? "<|end_of_msg|>"
                                              : NULL;
    if (!missing) return K3_OK;
    return k3_fail(err, K3_ERR_UNSUPPORTED,
                   "the vocabulary has no control token %s, so it cannot be used to chat", missing);
}

void k3_markup_begin(struct k3_markup *m, const struct k3_tokenizer *tokenizer, struct k3_tokens *tokens,
                     struct k3_error *err)
{
    m->err = err;
    m->status = k3_encoder_init(&m->encoder, tokenizer, tokens, err);
    if (!m->status) m->status = k3_markup_check(tokenizer, err);
}

k3_status k3_markup_end(struct k3_markup *m)
{
    if (m->status) k3_encoder_undo(&m->encoder);
    k3_encoder_free(&m->encoder);
    return m->status;
}

void k3_markup_token(struct k3_markup *m, int32_t id)
{
    if (!m->status) m->status = k3_encoder_token(&m->encoder, id, m->err);
}

void k3_markup_text(struct k3_markup *m, const char *text, size_t n)
{
    if (!m->status) m->status = k3_encoder_text(&m->encoder, text, n, false, m->err);
}

static void put(struct k3_markup *m, const char *text)
{
    k3_markup_text(m, text, strlen(text));
}

/* & and " are escaped in values, nowhere else. */
static char *escape(const char *value)
{
    size_t n = 0;
    char *out = malloc(6 * strlen(value) + 1);
    if (!out) return NULL;
    for (; *value; value++) {
        const char *text = *value == '&' ? "&amp;" : *value == '"' ? "&quot;" : NULL;
        size_t length = text ? strlen(text) : 1;
        memcpy(out + n, text ? text : value, length);
        n += length;
    }
    out[n] = 0;
    return out;
}

static void put_attribute(struct k3_markup *m, const struct k3_attribute *attribute)
{
    char *value = escape(attribute->value);
    if (!value) {
        m->status = k3_fail_memory(m->err, "an attribute", strlen(attribute->value));
        return;
    }
    /* The space belongs to the key: " key" is one token. */
    char key[32] = " ";
    strncat(key, attribute->key, sizeof key - 2);
    put(m, key);
    put(m, "=\"");
    put(m, value);
    put(m, "\"");
    free(value);
}

void k3_markup_open(struct k3_markup *m, const char *tag, const struct k3_attribute *attributes)
{
    k3_markup_token(m, m->encoder.tokenizer->open);
    put(m, tag);
    for (; attributes && attributes->key; attributes++) put_attribute(m, attributes);
    k3_markup_token(m, m->encoder.tokenizer->sep);
}

void k3_markup_close(struct k3_markup *m, const char *tag)
{
    k3_markup_token(m, m->encoder.tokenizer->close);
    put(m, tag);
    k3_markup_token(m, m->encoder.tokenizer->sep);
}
