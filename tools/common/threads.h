/* threads.h - the number of threads when none is asked for: measured once on a machine and remembered. */
#ifndef K3_TOOLS_THREADS_H
#define K3_TOOLS_THREADS_H

#include <stdbool.h>
#include <stddef.h>

struct k3_thread_choice {
    int n, n_processors;
    enum k3_thread_source {
        K3_THREADS_ASKED,      /* by an option */
        K3_THREADS_ALL,        /* too few processors to choose */
        K3_THREADS_MEASURED,   /* now */
        K3_THREADS_REMEMBERED, /* from an earlier run */
    } source;
};

/* The best number of threads here. It is kept in $XDG_CACHE_HOME/k3, or ~/.cache/k3; where that cannot be written, it is
 * measured each time. */
struct k3_thread_choice k3_threads_choose(void);

/* What the plan of a run says of it: a line. Returns `out`. */
const char *k3_threads_line(const struct k3_thread_choice *choice, char *out, size_t size);

/* The number that `folder` has for a machine described by `key`, 1 .. most; else what `measure` says, which is then
 * written there. `folder` NULL: nothing is remembered. */
int k3_threads_recall(const char *folder, const char *key, int most, int (*measure)(void), bool *remembered);

#endif
