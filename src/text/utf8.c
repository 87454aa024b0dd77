/* utf8.c - decoding and repair of UTF-8. */
#include "text/utf8.h"

#include <string.h>

static const char REPLACEMENT[3] = {'\xef', '\xbf', '\xbd'};

/* Table 3-7 of the Unicode Standard: how long a character is by its first byte (0: none begins so), and
 * between which values its second byte must lie; all later ones lie between 0x80 and 0xBF. */
static size_t lead(unsigned char first, unsigned char *low, unsigned char *high)
{
    *low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    *high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (first < 0x80) return 1;
    if (first < 0xc2 || first > 0xf4) return 0;
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

enum k3_utf8_kind k3_utf8_next(const char *bytes, size_t n, uint32_t *code, size_t *length)
{
    const unsigned char *s = (const unsigned char *)bytes;
    unsigned char low, high;
    size_t want = lead(s[0], &low, &high);
    *length = 1;
    if (want == 0) return K3_UTF8_BROKEN;

    uint32_t c = want == 1 ? s[0] : s[0] & (0x7fu >> want);
    for (size_t i = 1; i < want; i++) {
        *length = i;
        if (i == n) return K3_UTF8_PARTIAL;
        if (s[i] < low || s[i] > high) return K3_UTF8_BROKEN;
        c = c << 6 | (s[i] & 0x3f);
        low = 0x80;
        high = 0xbf;
    }
    *code = c;
    *length = want;
    return K3_UTF8_CHARACTER;
}

size_t k3_utf8_valid(const char *bytes, size_t n)
{
    size_t at = 0, length;
    uint32_t code;
    while (at < n && k3_utf8_next(bytes + at, n - at, &code, &length) == K3_UTF8_CHARACTER) at += length;
    return at;
}

/* Adds a byte to the held ones and takes out what is decided then. A byte that does not continue the held
 * ones ends them: it is looked at again as the first of the next character. */
static size_t feed_held(struct k3_utf8_stream *stream, char byte, bool *used, char *out)
{
    uint32_t code;
    size_t length;
    stream->held[stream->n_held] = byte;
    *used = true;
    switch (k3_utf8_next(stream->held, stream->n_held + 1, &code, &length)) {
    case K3_UTF8_PARTIAL:
        stream->n_held++;
        return 0;
    case K3_UTF8_CHARACTER:
        memcpy(out, stream->held, length);
        stream->n_held = 0;
        return length;
    case K3_UTF8_BROKEN:
        break;
    }
    *used = stream->n_held == 0;
    stream->n_held = 0;
    memcpy(out, REPLACEMENT, sizeof REPLACEMENT);
    return sizeof REPLACEMENT;
}

size_t k3_utf8_feed(struct k3_utf8_stream *stream, const char *bytes, size_t n, char *out)
{
    size_t n_out = 0, at = 0;
    while (at < n) {
        if (stream->n_held == 0) {
            size_t valid = k3_utf8_valid(bytes + at, n - at);
            memcpy(out + n_out, bytes + at, valid);
            n_out += valid;
            at += valid;
            if (at == n) break;
        }
        bool used;
        n_out += feed_held(stream, bytes[at], &used, out + n_out);
        at += used;
    }
    return n_out;
}

size_t k3_utf8_end(struct k3_utf8_stream *stream, char *out)
{
    if (stream->n_held == 0) return 0;
    stream->n_held = 0;
    memcpy(out, REPLACEMENT, sizeof REPLACEMENT);
    return sizeof REPLACEMENT;
}

bool k3_is_space(uint32_t c)
{
    if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
    if (c < 0x2000) return c == 0x85 || c == 0xa0 || c == 0x1680;
    return c <= 0x200a || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}
