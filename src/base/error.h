/* error.h - the one way to fail: return a status and say in one sentence what was wrong. */
#ifndef K3_BASE_ERROR_H
#define K3_BASE_ERROR_H

#include <k3/k3.h>

/* Fills `err` (which may be NULL) and returns `status`, so that a function can `return k3_fail(...)`.
 * A message that is too long is cut and ends in "...". Control characters that come from files are replaced
 * by '?'. */
k3_status k3_fail(struct k3_error *err, k3_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As k3_fail(K3_ERR_IO), with ": " and the text of `errnum` at the end of the message. */
k3_status k3_fail_errno(struct k3_error *err, int errnum, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The only message for a failed allocation: `what` is the thing that was to be held, `bytes` its size. */
k3_status k3_fail_memory(struct k3_error *err, const char *what, uint64_t bytes);

/* Replaces control characters and what is no UTF-8 by '?'. */
void k3_clean_text(char *text);

/* Hands a message to the function set with k3_set_log. */
void k3_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
