/* utf8.h - read UTF-8 that may be broken.
 *
 * Broken input is repaired in one way everywhere: each maximal subpart (the longest prefix of a character
 * that the bytes agree with, or one byte if there is none) becomes one U+FFFD. The Unicode Standard,
 * section 3.9, "U+FFFD Substitution of Maximal Subparts". */
#ifndef K3_TEXT_UTF8_H
#define K3_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum k3_utf8_kind {
    K3_UTF8_CHARACTER, /* the bytes begin with a character */
    K3_UTF8_BROKEN,    /* the bytes begin with a maximal subpart, and what follows does not continue it */
    K3_UTF8_PARTIAL,   /* all n bytes are the beginning of a character */
};

/* Looks at the front of n >= 1 bytes. *length: bytes of the character or subpart; *code: of a character. */
enum k3_utf8_kind k3_utf8_next(const char *bytes, size_t n, uint32_t *code, size_t *length);

/* The number of bytes before the first that is broken; n if none is. */
size_t k3_utf8_valid(const char *bytes, size_t n);

/* Repairs a text that comes in pieces; holds at most 3 bytes of an unfinished character. Zero-initialise. */
struct k3_utf8_stream {
    char held[4];
    size_t n_held;
};

/* Most bytes that k3_utf8_feed writes for n bytes: 3 for each, held ones included. */
#define K3_UTF8_ROOM(n) (3 * ((n) + 3))

/* Writes the characters that n more bytes complete and returns their bytes. */
size_t k3_utf8_feed(struct k3_utf8_stream *stream, const char *bytes, size_t n, char *out);

/* Writes U+FFFD if anything is held and returns its bytes; the stream is as new. `out` has room for 3. */
size_t k3_utf8_end(struct k3_utf8_stream *stream, char *out);

/* White_Space and U+001C .. U+001F: what the release's long-input rule and its parser call white space. */
bool k3_is_space(uint32_t code);

#endif
