/* input.c - whole texts, from the command line, a file or standard input. */
#include "common/input.h"
#include "common/program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_BYTES 4096
#define MOST_BYTES  (1 << 30)

/* Reads until the end and always leaves room for the final zero. */
static k3_status read_all(int fd, const char *name, struct k3_text *text, struct k3_error *err)
{
    for (size_t capacity = 0;;) {
        if (capacity - text->n < 2) {
            capacity = capacity ? 2 * capacity : FIRST_BYTES;
            char *grown = realloc(text->bytes, capacity);
            if (!grown) return k3_fail_memory(err, name, capacity);
            text->bytes = grown;
        }
        ssize_t got = read(fd, text->bytes + text->n, capacity - text->n - 1);
        if (k3_interrupted()) return k3_fail(err, K3_ERR_CANCELLED, "interrupted");
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return k3_fail_errno(err, errno, "%s: cannot be read", name);
        text->n += (size_t)got;
        text->bytes[text->n] = 0;
        if (text->n > MOST_BYTES)
            return k3_fail(err, K3_ERR_ARGUMENT, "%s: is longer than %d MiB, which no text is", name,
                           MOST_BYTES >> 20);
        if (got == 0) return K3_OK;
    }
}

k3_status k3_text_read(const char *path, struct k3_text *text, struct k3_error *err)
{
    *text = (struct k3_text){0};
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    if (fd < 0) return k3_fail_errno(err, errno, "%s: cannot be opened", path);
    k3_status status = read_all(fd, path ? path : "standard input", text, err);
    if (path) close(fd);
    if (status != K3_OK) k3_text_free(text);
    return status;
}

k3_status k3_text_require_string(const struct k3_text *text, const char *name, struct k3_error *err)
{
    size_t n = strlen(text->bytes);
    if (n == text->n) return K3_OK;
    return k3_fail(err, K3_ERR_ARGUMENT, "%s: holds a zero byte at %zu", name ? name : "standard input", n);
}

k3_status k3_text_choose(const char *given, const char *path, struct k3_text *text, struct k3_error *err)
{
    *text = (struct k3_text){0};
    if (given && path)
        return k3_fail(err, K3_ERR_ARGUMENT, "text is given twice: in an option and by -f %s", path);
    if (!given) return k3_text_read(path, text, err);
    text->bytes = strdup(given);
    if (!text->bytes) return k3_fail_memory(err, "the text", strlen(given));
    text->n = strlen(given);
    return K3_OK;
}

void k3_text_free(struct k3_text *text)
{
    free(text->bytes);
    *text = (struct k3_text){0};
}
