/* fail.h - reports. */
#ifndef K3_SIMT_FAIL_H
#define K3_SIMT_FAIL_H

namespace k3_simt
{

/* Where in the source of a kernel something happens. */
struct place {
    const char *file;
    int line;
};

/* Makes the sentence the report, unless there is one already. */
__attribute__((format(printf, 1, 2))) void fail_on_host(const char *format, ...);

/* The same for the thread that runs, whose kernel, block and number go before the sentence. Does not return: the
 * launch is given up. */
[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char *format, ...);

/* Whether there is a report. */
bool failed();

} // namespace k3_simt

#endif
