/* input.h - whole texts, from the command line, a file or standard input. */
#ifndef K3_TOOLS_INPUT_H
#define K3_TOOLS_INPUT_H

#include "base/error.h"

struct k3_text {
    char *bytes; /* owned, followed by a zero */
    size_t n;
};

/* All of a file, or of standard input if `path` is NULL. Ctrl-C in between is K3_ERR_CANCELLED. */
k3_status k3_text_read(const char *path, struct k3_text *text, struct k3_error *err);

/* `given` if it is not NULL, else as k3_text_read. Both at once are an error. */
k3_status k3_text_choose(const char *given, const char *path, struct k3_text *text, struct k3_error *err);

/* Refuses a text with a zero byte in it, which would end it early where a string is needed. `name`: its file; NULL:
 * standard input. */
k3_status k3_text_require_string(const struct k3_text *text, const char *name, struct k3_error *err);

void k3_text_free(struct k3_text *text);

#endif
