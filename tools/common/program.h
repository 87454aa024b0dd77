/* program.h - what every program does alike: start, write to standard output, stop on Ctrl-C, say what went
 * wrong. */
#ifndef K3_TOOLS_PROGRAM_H
#define K3_TOOLS_PROGRAM_H

#include "base/error.h"

#define K3_EXIT_OK          0
#define K3_EXIT_FAILED      1
#define K3_EXIT_INTERRUPTED 130 /* 128 + SIGINT, as shells say it */

/* Makes descriptors 0 to 2 safe to use, catches Ctrl-C, and lets a closed pipe be seen as a failed write. */
void k3_program_start(void);

/* As it was called, without folders. */
const char *k3_program_name(void);

/* Whether Ctrl-C was pressed. A second one ends the program at once. */
bool k3_interrupted(void);

/* Standard output. The first failure is remembered, after it nothing is written and these return false. */
bool k3_out(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool k3_out_bytes(const char *bytes, size_t n);
bool k3_out_flush(void);

/* Ends a program: flushes standard output, prints the error of `status`, if there is one, and returns the
 * exit status. A reader that closed the pipe had enough; that is no error. */
int k3_program_end(k3_status status, const struct k3_error *err);

/* "PROGRAM: message" on standard error. */
void k3_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A k3_log_fn: what the library has to say, on standard error. */
void k3_say_log(void *ctx, const char *message);

#endif
