/* telemetry.c - opens, feeds and closes the files that tell about a run. */
#include "common/telemetry.h"

#include <stdlib.h>
#include <string.h>

static void see_step(void *ctx, const char *name, int layer, uint64_t start_ns, uint64_t end_ns)
{
    struct k3_telemetry *t = ctx;
    if (t->timeline_path) k3_timeline_step(&t->timeline, name, layer, start_ns, end_ns);
    if (t->also.step) t->also.step(t->also.ctx, name, layer, start_ns, end_ns);
}

static void see_routing(void *ctx, uint32_t layer, const uint32_t *ids, size_t n_tokens, size_t top_k)
{
    struct k3_telemetry *t = ctx;
    k3_routing_add(&t->routing, layer, ids, n_tokens, top_k);
}

/* Each file holds one thing: of two under one name the last would win without a word. */
static k3_status check_names(const struct k3_telemetry *t, struct k3_error *err)
{
    const char *names[] = {t->stats_path, t->timeline_path, t->routing_path};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < i; j++)
            if (names[i] && names[j] && !strcmp(names[i], names[j]))
                return k3_fail(err, K3_ERR_ARGUMENT, "%s: is named for two outputs", names[i]);
    return K3_OK;
}

k3_status k3_telemetry_open(struct k3_telemetry *t, struct k3_model *model, struct k3_error *err)
{
    struct k3_model_info info;
    k3_status status = check_names(t, err);
    k3_model_get_info(model, &info);
    t->stats.fd = t->timeline.stream.out.fd = t->routing.stream.out.fd = -1;
    if (status == K3_OK && t->stats_path) status = k3_output_open(t->stats_path, &t->stats, err);
    if (status == K3_OK && t->timeline_path) status = k3_timeline_open(&t->timeline, t->timeline_path, err);
    if (status == K3_OK && t->routing_path)
        status = k3_routing_open(&t->routing, t->routing_path, info.n_layers, err);
    if (status != K3_OK) {
        k3_output_discard(&t->stats);
        k3_stream_discard(&t->timeline.stream);
        k3_stream_discard(&t->routing.stream);
        return status;
    }
    t->model = model;
    struct k3_observer observer = {t, t->timeline_path || t->also.step ? see_step : NULL,
                                   t->routing_path ? see_routing : NULL};
    k3_model_observe(model, &observer);
    return K3_OK;
}

static k3_status write_statistics(struct k3_telemetry *t, const struct k3_session *session,
                                  struct k3_error *err)
{
    char *text = k3_statistics_json(t->model, session);
    k3_status status =
        text ? k3_output_write(&t->stats, text, strlen(text), err) : k3_fail_memory(err, "the JSON text", 0);
    free(text);
    if (status == K3_OK) status = k3_output_write(&t->stats, "\n", 1, err);
    if (status == K3_OK) return k3_output_commit(&t->stats, err);
    k3_output_discard(&t->stats);
    return status;
}

k3_status k3_telemetry_close(struct k3_telemetry *t, const struct k3_session *session, struct k3_error *err)
{
    /* Each file is finished, whatever became of the one before; the first failure is told. */
    k3_status statuses[3] = {K3_OK, K3_OK, K3_OK};
    struct k3_error errors[3];
    if (!t->model) return K3_OK;
    k3_model_observe(t->model, NULL);
    if (t->stats_path) statuses[0] = write_statistics(t, session, &errors[0]);
    if (t->timeline_path) statuses[1] = k3_timeline_close(&t->timeline, &errors[1]);
    if (t->routing_path) statuses[2] = k3_routing_close(&t->routing, &errors[2]);
    t->model = NULL;
    for (int i = 0; i < 3; i++)
        if (statuses[i] != K3_OK) return k3_fail(err, statuses[i], "%s", errors[i].message);
    return K3_OK;
}
