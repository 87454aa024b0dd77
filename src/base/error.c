/* error.c - error messages and the log hook. */
#include "base/error.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Bytes of the UTF-8 character at s, or 0 if it is none or a control character. */
static size_t printable(const unsigned char *s)
{
    if (s[0] < 0x80) return s[0] >= 0x20 && s[0] != 0x7f;
    size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || (s[0] == 0xc2 && s[1] < 0xa0))
        return 0; /* U+0080 .. U+009F control terminals */
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    return n;
}

/* Names and strings from a hostile file end up in messages, and messages end up on terminals. */
void k3_clean_text(char *text)
{
    for (unsigned char *s = (unsigned char *)text; *s;) {
        size_t n = printable(s);
        if (n == 0) *s = '?';
        s += n ? n : 1;
    }
}

static void format_message(char *out, size_t size, const char *format, va_list args)
{
    int n = vsnprintf(out, size, format, args);
    if (n < 0) snprintf(out, size, "(message could not be formatted)");
    if (n >= (int)size) memcpy(out + size - 4, "...", 4);
    k3_clean_text(out);
}

k3_status k3_fail(struct k3_error *err, k3_status status, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        format_message(err->message, sizeof err->message, format, args);
        va_end(args);
        err->status = status;
    }
    return status;
}

k3_status k3_fail_errno(struct k3_error *err, int errnum, const char *format, ...)
{
    if (err) {
        char what[K3_MESSAGE_MAX - 80], reason[64];
        va_list args;
        va_start(args, format);
        format_message(what, sizeof what, format, args);
        va_end(args);
        k3_fail(err, K3_ERR_IO, "%s: %s", what, strerror_r(errnum, reason, sizeof reason));
    }
    return K3_ERR_IO;
}

k3_status k3_fail_memory(struct k3_error *err, const char *what, uint64_t bytes)
{
    return k3_fail(err, K3_ERR_MEMORY, "not enough memory for %s (%llu bytes)", what,
                   (unsigned long long)bytes);
}

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static k3_log_fn log_fn; /* under log_lock */
static void *log_ctx;    /* under log_lock */

void k3_set_log(k3_log_fn fn, void *ctx)
{
    pthread_mutex_lock(&log_lock);
    log_fn = fn;
    log_ctx = ctx;
    pthread_mutex_unlock(&log_lock);
}

void k3_log(const char *format, ...)
{
    char message[K3_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    format_message(message, sizeof message, format, args);
    va_end(args);

    pthread_mutex_lock(&log_lock);
    if (log_fn) log_fn(log_ctx, message);
    pthread_mutex_unlock(&log_lock);
}
