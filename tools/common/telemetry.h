/* telemetry.h - what a run tells about itself: statistics, a timeline, and a record of the routing. */
#ifndef K3_TOOLS_TELEMETRY_H
#define K3_TOOLS_TELEMETRY_H

#include "common/options.h"
#include "common/routing.h"
#include "common/timeline.h"

/* Zero-initialise; the paths are set by the options. */
struct k3_telemetry {
    const char *stats_path, *timeline_path, *routing_path; /* NULL: not wanted */
    struct k3_observer also; /* who else watches the steps; `step` may be NULL. Set before it is opened */
    struct k3_model *model;  /* that is watched; NULL: not open */
    struct k3_output stats;
    struct k3_timeline timeline;
    struct k3_routing_record routing;
};

/* clang-format off */
#define K3_TELEMETRY_OPTIONS(t) \
    {K3_OPTION_TEXT, 0, "stats", &(t).stats_path, 0, 0, "FILE", \
     "write statistics of the experts as JSON, by layer and in all"}, \
    {K3_OPTION_TEXT, 0, "trace", &(t).timeline_path, 0, 0, "FILE", \
     "write a timeline that ui.perfetto.dev opens"}, \
    {K3_OPTION_TEXT, 0, "trace-routing", &(t).routing_path, 0, 0, "FILE", \
     "write which experts each token used, for k3bench policy"}
/* clang-format on */

/* Opens what is wanted and begins to watch. On failure nothing is left behind. */
k3_status k3_telemetry_open(struct k3_telemetry *telemetry, struct k3_model *model, struct k3_error *err);

/* Ends it and puts the files in their places, also after work that failed or was interrupted. `session` gives the
 * statistics of tokens. Accepts one that is not open. */
k3_status k3_telemetry_close(struct k3_telemetry *telemetry, const struct k3_session *session,
                             struct k3_error *err);

/* The closing statistics, a few lines on standard error. */
void k3_telemetry_print(const struct k3_model *model, const struct k3_session *session);

/* The statistics as JSON text to be freed, or NULL. For telemetry.c. */
char *k3_statistics_json(const struct k3_model *model, const struct k3_session *session);

/* Of the time in which experts were being read, the share in which there was something to compute. */
double k3_overlap(const struct k3_expert_stats *stats);

#endif
