/* session.c - a sequence of tokens: feed it. Going back in it: rewind.c. */
#include "engine/engine_internal.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_CHECKPOINTS 4

k3_status k3_session_create(struct k3_model *model, const struct k3_session_options *options,
                            struct k3_session **out, struct k3_error *err)
{
    static const struct k3_session_options defaults;
    if (!options) options = &defaults;
    if (options->batch > model->memory.batch)
        return k3_fail(err, K3_ERR_ARGUMENT, "a batch of %u tokens was asked for; at most %u are possible",
                       options->batch, model->memory.batch);

    struct k3_session *s = calloc(1, sizeof *s);
    if (!s) return k3_fail_memory(err, "a session", sizeof *s);
    s->model = model;
    s->max_tokens = options->context ? options->context : model->memory.context;
    s->batch = options->batch ? options->batch : model->memory.batch;
    s->max_checkpoints = options->max_checkpoints ? options->max_checkpoints : DEFAULT_CHECKPOINTS;

    k3_status status = K3_OK;
    s->checkpoints = calloc(s->max_checkpoints, sizeof *s->checkpoints);
    if (!s->checkpoints)
        status = k3_fail_memory(err, "a session", s->max_checkpoints * sizeof *s->checkpoints);
    if (status == K3_OK) status = k3_memory_take(model, s->max_tokens, "a session", err);
    s->is_counted = status == K3_OK;
    if (status == K3_OK)
        status = model->device->ops->state_create(model->device, s->max_tokens, &s->state, err);
    if (status != K3_OK) {
        k3_session_free(s);
        return status;
    }
    *out = s;
    return K3_OK;
}

void k3_session_reset(struct k3_session *s)
{
    k3_checkpoints_forget(s, 0);
    s->model->device->ops->state_reset(s->state);
    s->n_tokens = 0;
}

void k3_session_free(struct k3_session *s)
{
    if (!s) return;
    k3_checkpoints_forget(s, 0);
    s->model->device->ops->state_free(s->state);
    if (s->is_counted) k3_memory_give(s->model, s->max_tokens);
    free(s->checkpoints);
    free(s->tokens);
    free(s);
}

void k3_session_set_progress(struct k3_session *s, k3_progress_fn progress, void *ctx)
{
    s->progress = progress;
    s->progress_ctx = ctx;
}

const int32_t *k3_session_tokens(const struct k3_session *s)
{
    return s->tokens;
}

size_t k3_session_length(const struct k3_session *s)
{
    return s->n_tokens;
}

void k3_session_get_stats(const struct k3_session *s, struct k3_stats *stats)
{
    *stats = s->stats;
}

k3_status k3_session_reserve(struct k3_session *s, size_t n_tokens, struct k3_error *err)
{
    if (n_tokens <= s->capacity) return K3_OK;
    size_t capacity = s->capacity ? s->capacity : 256;
    while (capacity < n_tokens) capacity *= 2;
    int32_t *larger = realloc(s->tokens, capacity * sizeof *larger);
    if (!larger) return k3_fail_memory(err, "the tokens of a session", capacity * sizeof *larger);
    s->tokens = larger;
    s->capacity = capacity;
    return K3_OK;
}

/* Everything that can be wrong with a request, before any of it is done. */
static k3_status check_request(const struct k3_session *s, const int32_t *tokens, size_t n,
                               const uint32_t *rows, size_t n_rows, const float *logits, struct k3_error *err)
{
    if (n > s->max_tokens - s->n_tokens)
        return k3_fail(err, K3_ERR_FULL,
                       "the context of %zu tokens is full: %zu are in it and %zu more were to be fed",
                       s->max_tokens, s->n_tokens, n);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= s->model->info.n_vocab)
            return k3_fail(err, K3_ERR_ARGUMENT, "token %zu is %d, but the vocabulary ends at %u", i,
                           tokens[i], s->model->info.n_vocab - 1);
    if (n_rows > n || (n_rows && !logits))
        return k3_fail(err, K3_ERR_ARGUMENT, "logits of %zu rows were asked for, of %zu tokens%s", n_rows, n,
                       logits ? "" : ", and no place to put them");
    for (size_t i = 0; rows && i < n_rows; i++)
        if (rows[i] >= n || (i && rows[i] <= rows[i - 1]))
            return k3_fail(err, K3_ERR_ARGUMENT,
                           "row %zu of the logits asked for is %u: rows must ascend below %zu", i, rows[i],
                           n);
    return K3_OK;
}

/* Of the wanted rows (see k3_session_feed) those in [first, first + n), from *next on; counted from `first`. */
static size_t rows_within(const uint32_t *rows, size_t n_rows, size_t n_all, size_t first, size_t n,
                          size_t *next, uint32_t *out)
{
    size_t count = 0;
    for (; *next < n_rows; ++*next) {
        size_t row = rows ? rows[*next] : n_all - n_rows + *next;
        if (row >= first + n) break;
        out[count++] = (uint32_t)(row - first);
    }
    return count;
}

/* Broken weights show here at the latest: nothing that is not a number becomes one again. */
static k3_status check_finite(const struct k3_session *s, const float *logits, size_t n_rows,
                              struct k3_error *err)
{
    for (size_t i = 0; i < n_rows * s->model->info.n_vocab; i++)
        if (!(logits[i] - logits[i] == 0))
            return k3_fail(err, K3_ERR_FORMAT, "%s: gives logits that are no numbers: its weights are broken",
                           k3_file_name(s->model->plan->gguf->path));
    return K3_OK;
}

k3_status k3_session_feed(struct k3_session *s, const int32_t *tokens, size_t n, const uint32_t *rows,
                          size_t n_rows, float *logits, struct k3_error *err)
{
    k3_status status = check_request(s, tokens, n, rows, n_rows, logits, err);
    if (status == K3_OK) status = k3_session_reserve(s, s->n_tokens + n, err);
    if (status != K3_OK) return status;

    pthread_mutex_lock(&s->model->lock);
    uint64_t start = k3_now_ns();
    size_t next_row = 0, done = 0;
    while (status == K3_OK && done < n) {
        uint32_t wanted[K3_MAX_BATCH];
        size_t batch = n - done < s->batch ? n - done : s->batch, at = next_row;
        size_t n_wanted = rows_within(rows, n_rows, n, done, batch, &next_row, wanted);
        float *to = n_wanted ? logits + at * s->model->info.n_vocab : NULL;
        s->feed_done = done;
        s->feed_total = n;
        status = k3_walk(s, tokens + done, batch, wanted, n_wanted, to, err);
        if (status == K3_OK) status = check_finite(s, to, n_wanted, err);
        if (status != K3_OK) {
            /* Layers before the failure have moved on, the others have not: only a fresh start is sound. */
            k3_session_reset(s);
            break;
        }
        memcpy(s->tokens + s->n_tokens, tokens + done, batch * sizeof *tokens);
        s->n_tokens += batch;
        done += batch;
        if (s->progress && !s->progress(s->progress_ctx, K3_FEEDING, done, n) && done < n)
            status = k3_fail(err, K3_ERR_CANCELLED, "cancelled after %zu of %zu tokens", done, n);
    }
    double seconds = (double)(k3_now_ns() - start) * 1e-9;
    pthread_mutex_unlock(&s->model->lock);

    if (n == 1) {
        s->stats.decode_tokens += done;
        s->stats.decode_seconds += seconds;
    } else {
        s->stats.prefill_tokens += done;
        s->stats.prefill_seconds += seconds;
    }
    return status;
}
