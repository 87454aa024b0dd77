/* timeline.h - what happened when, in the JSON that Perfetto and chrome://tracing open. */
#ifndef K3_TOOLS_TIMELINE_H
#define K3_TOOLS_TIMELINE_H

#include "common/stream.h"

struct k3_timeline {
    struct k3_stream stream;
    uint64_t start_ns; /* what times are told from */
    uint64_t n_reads;
};

k3_status k3_timeline_open(struct k3_timeline *timeline, const char *path, struct k3_error *err);

/* As step of struct k3_observer. */
void k3_timeline_step(struct k3_timeline *timeline, const char *name, int layer, uint64_t start_ns,
                      uint64_t end_ns);

/* The file is whole then, however early that is. */
k3_status k3_timeline_close(struct k3_timeline *timeline, struct k3_error *err);

#endif
