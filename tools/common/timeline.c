/* timeline.c - what happened when, in the JSON that Perfetto and chrome://tracing open.
 *
 * The format is the "Trace Event Format" of Chrome: one row for the steps of the computing thread, which follow each
 * other ("X", complete events), and one for reads, which overlap each other ("b" and "e", the two ends of an
 * asynchronous event). Times are microseconds. Events go to the file as they come, so that a long run takes no memory. */
#include "common/timeline.h"
#include "base/clock.h"

#include <string.h>

k3_status k3_timeline_open(struct k3_timeline *t, const char *path, struct k3_error *err)
{
    k3_status status = k3_stream_open(&t->stream, path, err);
    if (status != K3_OK) return status;
    t->start_ns = k3_now_ns();
    t->n_reads = 0;
    k3_stream_print(
        &t->stream,
        "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
        "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"k3\"}},\n"
        "{\"ph\":\"M\",\"pid\":1,\"tid\":1,\"name\":\"thread_name\",\"args\":{\"name\":\"compute\"}}");
    return K3_OK;
}

/* What began before the timeline did begins with it. */
static double microseconds(const struct k3_timeline *t, uint64_t ns)
{
    return ns > t->start_ns ? (double)(ns - t->start_ns) / 1e3 : 0;
}

static void add_read(struct k3_timeline *t, int layer, double begin, double end)
{
    unsigned long long id = ++t->n_reads;
    k3_stream_print(
        &t->stream,
        ",\n{\"ph\":\"b\",\"cat\":\"drive\",\"name\":\"read\",\"pid\":1,\"tid\":2,\"id\":%llu,\"ts\":%.3f,"
        "\"args\":{\"layer\":%d}}",
        id, begin, layer);
    k3_stream_print(
        &t->stream,
        ",\n{\"ph\":\"e\",\"cat\":\"drive\",\"name\":\"read\",\"pid\":1,\"tid\":2,\"id\":%llu,\"ts\":%.3f}",
        id, end);
}

void k3_timeline_step(struct k3_timeline *t, const char *name, int layer, uint64_t start_ns, uint64_t end_ns)
{
    double begin = microseconds(t, start_ns), end = microseconds(t, end_ns);
    if (strcmp(name, "read") == 0) {
        add_read(t, layer, begin, end);
        return;
    }
    k3_stream_print(&t->stream,
                    ",\n{\"ph\":\"X\",\"name\":\"%s\",\"pid\":1,\"tid\":1,\"ts\":%.3f,\"dur\":%.3f", name,
                    begin, end - begin);
    if (layer < 0)
        k3_stream_print(&t->stream, "}");
    else
        k3_stream_print(&t->stream, ",\"args\":{\"layer\":%d}}", layer);
}

k3_status k3_timeline_close(struct k3_timeline *t, struct k3_error *err)
{
    k3_stream_print(&t->stream, "\n]}\n");
    return k3_stream_commit(&t->stream, err);
}
