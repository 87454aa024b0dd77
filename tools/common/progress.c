/* progress.c - one line that says how far long work is. */
#include "common/progress.h"
#include "common/number.h"
#include "common/program.h"
#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define QUIET_NS  300000000u /* shorter work is not worth a flicker */
#define REDRAW_NS 100000000u
#define BAR_WIDTH 24

static void format_amount(enum k3_progress_unit unit, uint64_t amount, char out[K3_NUMBER_MAX])
{
    if (unit == K3_PROGRESS_BYTES)
        k3_format_bytes(amount, out);
    else
        k3_format_count(amount, out);
}

static void draw(const struct k3_progress *progress, const char *what, uint64_t done, uint64_t total,
                 uint64_t ns)
{
    static const char *const names[] = {[K3_PROGRESS_BYTES] = "",
                                        [K3_PROGRESS_TOKENS] = " tokens",
                                        [K3_PROGRESS_MEASUREMENTS] = " measurements"};
    double fraction = total ? (double)done / (double)total : 0, seconds = (double)ns / 1e9;
    char bar[BAR_WIDTH + 1], at[K3_NUMBER_MAX], end[K3_NUMBER_MAX], rate[K3_NUMBER_MAX];
    int filled = (int)(fraction * BAR_WIDTH);
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', (size_t)(filled < BAR_WIDTH ? filled : BAR_WIDTH));
    bar[BAR_WIDTH] = 0;

    format_amount(progress->unit, done, at);
    format_amount(progress->unit, total, end);
    format_amount(progress->unit, (uint64_t)((double)done / seconds), rate);
    double left = fraction > 0 ? seconds / fraction - seconds : 0;
    fprintf(stderr, "\r\033[K%s [%s] %s of %s%s, %s/s, %.0f s left", what, bar, at, end,
            names[progress->unit], rate, left);
    fflush(stderr);
}

void k3_progress_begin(struct k3_progress *progress)
{
    progress->started_ns = k3_now_ns();
}

bool k3_progress_show(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    struct k3_progress *progress = ctx;
    if (!progress->quiet && isatty(STDERR_FILENO)) {
        uint64_t now = k3_now_ns();
        uint64_t elapsed = now - progress->started_ns;
        if (done >= total) {
            k3_progress_clear(progress);
        } else if (elapsed >= QUIET_NS && now - progress->shown_ns >= REDRAW_NS) {
            draw(progress, what, done, total, elapsed);
            progress->visible = true;
            progress->shown_ns = now;
        }
    }
    return !k3_interrupted();
}

void k3_progress_clear(struct k3_progress *progress)
{
    if (progress->visible) fputs("\r\033[K", stderr);
    progress->visible = false;
}
