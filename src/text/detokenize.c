/* detokenize.c - tokens into text, one at a time.
 *
 * A token may end in the middle of a character. The bytes of all tokens run together through a stream that
 * repairs UTF-8 (utf8.h), so the text is the same however it was cut into tokens. */
#include "text/text_internal.h"

#include "text/utf8.h"

#include <stdlib.h>

struct k3_detokenizer {
    const struct k3_tokenizer *tokenizer;
    bool control; /* write names of control tokens */
    struct k3_utf8_stream stream;
    char text[]; /* room for what the longest token gives */
};

k3_status k3_detokenizer_create(const struct k3_tokenizer *tokenizer, bool control,
                                struct k3_detokenizer **out, struct k3_error *err)
{
    struct k3_detokenizer *d = calloc(1, sizeof *d + K3_UTF8_ROOM(tokenizer->max_bytes));
    if (!d) return k3_fail_memory(err, "a detokenizer", sizeof *d + K3_UTF8_ROOM(tokenizer->max_bytes));
    d->tokenizer = tokenizer;
    d->control = control;
    *out = d;
    return K3_OK;
}

void k3_detokenizer_free(struct k3_detokenizer *d)
{
    free(d);
}

const char *k3_detokenize(struct k3_detokenizer *d, int32_t id, size_t *n)
{
    size_t n_bytes;
    const char *bytes = k3_token_text(d->tokenizer, id, &n_bytes);
    if (k3_token_is_control(d->tokenizer, id) && !d->control) n_bytes = 0;
    *n = k3_utf8_feed(&d->stream, bytes, n_bytes, d->text);
    return d->text;
}

const char *k3_detokenize_end(struct k3_detokenizer *d, size_t *n)
{
    *n = k3_utf8_end(&d->stream, d->text);
    return d->text;
}
