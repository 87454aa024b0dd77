/* progress.h - how far long work is: one line on a terminal, nothing elsewhere. */
#ifndef K3_TOOLS_PROGRESS_H
#define K3_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

enum k3_progress_unit {
    K3_PROGRESS_BYTES,
    K3_PROGRESS_TOKENS,
    K3_PROGRESS_MEASUREMENTS,
};

struct k3_progress {
    enum k3_progress_unit unit;
    bool quiet;   /* never show it; it still stops on Ctrl-C */
    bool visible; /* the line is on the screen */
    uint64_t started_ns;
    uint64_t shown_ns;
};

/* The work begins: rate and time left count from here. */
void k3_progress_begin(struct k3_progress *progress);

/* A k3_progress_fn whose ctx is a struct k3_progress. Asks to stop when Ctrl-C was pressed. Work that is done
 * in a moment is not shown at all; the line goes away when the work is done. */
bool k3_progress_show(void *ctx, const char *what, uint64_t done, uint64_t total);

/* Takes the line away, if it is there: before something else is printed, and after work that failed. */
void k3_progress_clear(struct k3_progress *progress);

#endif
