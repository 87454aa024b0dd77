/* program.c - start, output, interruption and end of a program. */
#include "common/program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;
static int out_errno; /* of the first failed write to standard output; 0: none */

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

void k3_program_start(void)
{
    /* Were a standard descriptor closed, the next file opened would take its number, and messages would go
     * into it. Opened the wrong way round, each fails when it is used, as a closed one would. */
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            _exit(K3_EXIT_FAILED);

    /* SA_RESETHAND: the second Ctrl-C kills. No SA_RESTART: it also ends a read from the terminal. */
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that grows over the limit is a failed write, too */
}

const char *k3_program_name(void)
{
    return program_invocation_short_name;
}

bool k3_interrupted(void)
{
    return interrupted != 0;
}

static bool note_failure(bool failed)
{
    if (failed && !out_errno) out_errno = errno ? errno : EIO;
    return !out_errno;
}

bool k3_out(const char *format, ...)
{
    if (out_errno) return false;
    va_list args;
    va_start(args, format);
    bool ok = note_failure(vprintf(format, args) < 0);
    va_end(args);
    return ok;
}

bool k3_out_bytes(const char *bytes, size_t n)
{
    return !out_errno && note_failure(fwrite(bytes, 1, n, stdout) != n);
}

bool k3_out_flush(void)
{
    return !out_errno && note_failure(fflush(stdout) != 0);
}

void k3_say(const char *format, ...)
{
    char message[K3_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    fprintf(stderr, "%s: %s\n", k3_program_name(), message);
}

void k3_say_log(void *ctx, const char *message)
{
    (void)ctx;
    k3_say("note: %s", message);
}

int k3_program_end(k3_status status, const struct k3_error *err)
{
    k3_out_flush();
    if (status == K3_ERR_CANCELLED && k3_interrupted()) return K3_EXIT_INTERRUPTED;
    if (status != K3_OK) {
        k3_say("%s", err->message);
        return K3_EXIT_FAILED;
    }
    if (!out_errno || out_errno == EPIPE) return K3_EXIT_OK;
    struct k3_error failure;
    k3_fail_errno(&failure, out_errno, "standard output: cannot be written");
    k3_say("%s", failure.message);
    return K3_EXIT_FAILED;
}
