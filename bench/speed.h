/* speed.h - the parts of k3bench decode and prefill: verb_speed.c measures, speed_report.c tells. */
#ifndef K3_BENCH_SPEED_H
#define K3_BENCH_SPEED_H

#include "common/engine.h"
#include "common/telemetry.h"
#include "lists.h"
#include "machine.h"
#include "report.h"
#include "samples.h"
#include "steps.h"

struct k3_speed_options {
    struct k3_engine engine;
    struct k3_telemetry telemetry;
    bool prefill; /* else decode */
    uint32_t tokens, repetitions, batch;
    const char *at_text;
    struct k3_numbers at;
    struct k3_report report;
    bool help;
};

/* What a repetition is measured by. */
enum k3_speed_value {
    K3_SPEED_TOTAL,   /* seconds */
    K3_SPEED_COMPUTE, /* of them, all but waiting */
    K3_SPEED_IO,      /* while experts were being read */
    K3_SPEED_WAIT,
    K3_SPEED_HIT_RATE,
    K3_SPEED_BYTES_READ,
    K3_SPEED_ALONE,   /* seconds of the same tokens when all experts are in memory */
    K3_SPEED_OVERLAP, /* total / the longer of alone and io */
    K3_SPEED_VALUES,
};

extern const char *const k3_speed_names[K3_SPEED_VALUES]; /* of JSON members */

/* One place in the context. A value without samples is not known. */
struct k3_speed_row {
    uint32_t context, tokens;
    struct k3_samples values[K3_SPEED_VALUES];
    struct k3_samples steps[K3_MAX_STEPS]; /* seconds, in the order of the bench's steps */
};

struct k3_speed {
    struct k3_speed_options o;
    struct k3_model *model;
    struct k3_model_info info;
    struct k3_session *session;
    int32_t *ids;  /* [longest context], then [tokens] of the warm-up and of each repetition */
    float *logits; /* [n_vocab] */
    bool keep_out; /* telemetry tells of the repetitions alone: nothing else is fed after the warm-up */
    struct k3_progress loading, feeding;
    struct k3_steps steps;
    struct k3_noise noise;
    struct k3_speed_row rows[K3_MAX_LIST]; /* one for each of o.at */
};

/* Shows the rows as the options say. */
k3_status k3_speed_report(const struct k3_speed *b, struct k3_error *err);

#endif
