/* runs.h - runs of a model on one device, to be compared with those on another. Everything here ends the test when it
 * fails. */
#ifndef TEST_RUNS_H
#define TEST_RUNS_H

#include <k3/k3.h>

#define FIXTURES K3_TEST_DATA "/fixtures/models/"

/* gpu_layers may be NULL. */
struct k3_model *open_on(int gpu, const char *gpu_layers, const char *path, struct k3_model_options options);

struct run {
    size_t n_prompt, n_decoded; /* tokens; a prompt goes in batches of `batch` */
    uint32_t batch;
};

/* The logits of all tokens of a run; end with free(). */
float *logits_of(struct k3_model *model, const struct run *run, size_t *n_logits);

/* Those of a session that goes back to a checkpoint and is copied from a snapshot. */
float *logits_of_going_back(struct k3_model *model, size_t *n_logits);

void same_logits(const char *what, const float *got, const float *want, size_t n);

#endif
