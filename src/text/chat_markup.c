/* chat_markup.c - the elements of the chat protocol as segments, and segments as tokens. */
#include "text/chat_internal.h"

#include <stdlib.h>
#include <string.h>

k3_status k3_markup_check(const struct k3_tokenizer *t, struct k3_error *err)
{
    const char *missing = t->open < 0         ? K3_OPEN
                          : t->close < 0      ? K3_CLOSE
                          : t->sep < 0        ? K3_SEP
                          : t->end_of_msg < 0 ? K3_END_OF_MSG
                                              : NULL;
    if (!missing) return K3_OK;
    return k3_fail(err, K3_ERR_UNSUPPORTED,
                   "the vocabulary has no control token %s, so it cannot be used to chat", missing);
}

void k3_markup_text(struct k3_markup *m, const char *text, size_t n)
{
    if (!m->status && n) m->status = m->fn(m->ctx, text, n, false, m->err);
}

void k3_markup_control(struct k3_markup *m, const char *name)
{
    if (!m->status) m->status = m->fn(m->ctx, name, strlen(name), true, m->err);
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
    k3_markup_control(m, K3_OPEN);
    put(m, tag);
    for (; attributes && attributes->key; attributes++) put_attribute(m, attributes);
    k3_markup_control(m, K3_SEP);
}

void k3_markup_close(struct k3_markup *m, const char *tag)
{
    k3_markup_control(m, K3_CLOSE);
    put(m, tag);
    k3_markup_control(m, K3_SEP);
}

/* ---- segments as tokens ---- */

static k3_status encode(void *ctx, const char *text, size_t n, bool special, struct k3_error *err)
{
    struct k3_encoder *encoder = ctx;
    if (!special) return k3_encoder_text(encoder, text, n, false, err);
    return k3_encoder_token(encoder, k3_controls_find(encoder->tokenizer, text, n), err);
}

k3_status k3_markup_encode(const struct k3_tokenizer *tokenizer,
                           void (*write)(struct k3_markup *m, const void *what), const void *what,
                           struct k3_tokens *tokens, struct k3_error *err)
{
    struct k3_encoder encoder;
    struct k3_markup m = {encode, &encoder, K3_OK, err};
    m.status = k3_encoder_init(&encoder, tokenizer, tokens, err);
    if (!m.status) m.status = k3_markup_check(tokenizer, err);
    if (!m.status) write(&m, what);
    if (m.status) k3_encoder_undo(&encoder);
    k3_encoder_free(&encoder);
    return m.status;
}
