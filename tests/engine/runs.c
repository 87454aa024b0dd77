/* runs.c - see runs.h. */
#include "runs.h"
#include "reference.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

struct k3_model *open_on(int gpu, const char *gpu_layers, const char *path, struct k3_model_options options)
{
    struct k3_error err;
    struct k3_model *model;
    options.gpu = gpu;
    options.gpu_layers = gpu_layers;
    if (k3_model_open(path, &options, &model, &err) != K3_OK) fail_msg("%s", err.message);
    return model;
}

static void feed(struct k3_session *s, const int32_t *ids, size_t n, size_t n_rows, float *logits)
{
    struct k3_error err;
    if (k3_session_feed(s, ids, n, NULL, n_rows, logits, &err) != K3_OK) fail_msg("%s", err.message);
}

float *logits_of(struct k3_model *model, const struct run *run, size_t *n_logits)
{
    struct k3_model_info info;
    k3_model_get_info(model, &info);
    struct k3_session *s = new_session(model, run->batch);
    size_t n = run->n_prompt + run->n_decoded;
    int32_t ids[256];
    assert_true(n <= 256);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(i * 7919 % info.n_vocab);
    float *logits = calloc(n * info.n_vocab, sizeof *logits);
    assert_non_null(logits);
    feed(s, ids, run->n_prompt, run->n_prompt, logits);
    for (size_t i = run->n_prompt; i < n; i++) feed(s, ids + i, 1, 1, logits + i * info.n_vocab);
    k3_session_free(s);
    *n_logits = n * info.n_vocab;
    return logits;
}

float *logits_of_going_back(struct k3_model *model, size_t *n_logits)
{
    const int32_t ids[] = {5, 6, 7, 8, 9, 10, 11}, other[] = {5, 6, 7, 8, 100, 101};
    struct k3_error err;
    struct k3_snapshot *snapshot;
    struct k3_model_info info;
    struct k3_session *s = new_session(model, 0), *copy = new_session(model, 0);
    size_t kept;
    k3_model_get_info(model, &info);
    float *rows = calloc((size_t)3 * info.n_vocab, sizeof *rows);
    assert_non_null(rows);
    feed(s, ids, 4, 0, NULL);
    assert_int_equal(k3_session_checkpoint(s, &err), K3_OK);
    feed(s, ids + 4, 3, 1, rows);
    assert_int_equal(k3_session_snapshot(s, &snapshot, &err), K3_OK);
    assert_int_equal(k3_session_resume(s, other, 6, &kept, &err), K3_OK);
    assert_int_equal(kept, 4);
    feed(s, other + 4, 2, 1, rows + info.n_vocab);
    assert_int_equal(k3_session_restore(copy, snapshot, &err), K3_OK);
    feed(copy, other + 4, 1, 1, rows + 2 * info.n_vocab);
    k3_snapshot_free(snapshot);
    k3_session_free(copy);
    k3_session_free(s);
    *n_logits = (size_t)3 * info.n_vocab;
    return rows;
}

void same_logits(const char *what, const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got))
            fail_msg("%s: logit %zu is %a, not %a", what, i, (double)got[i], (double)want[i]);
}
