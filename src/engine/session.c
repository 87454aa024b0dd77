/* session.c - a sequence of tokens: feed it, and go back in it. */
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
    if (options->batch > K3_MAX_BATCH)
        return k3_fail(err, K3_ERR_ARGUMENT, "a batch of %u tokens was asked for; at most %d are possible",
                       options->batch, K3_MAX_BATCH);

    struct k3_session *s = calloc(1, sizeof *s);
    if (!s) return k3_fail_memory(err, "a session", sizeof *s);
    s->model = model;
    s->max_tokens = options->context ? options->context : model->info.context_length;
    if (!s->max_tokens) s->max_tokens = SIZE_MAX;
    s->batch = options->batch ? options->batch : K3_MAX_BATCH;
    s->max_checkpoints = options->max_checkpoints ? options->max_checkpoints : DEFAULT_CHECKPOINTS;

    k3_status status = K3_OK;
    s->checkpoints = calloc(s->max_checkpoints, sizeof *s->checkpoints);
    if (!s->checkpoints)
        status = k3_fail_memory(err, "a session", s->max_checkpoints * sizeof *s->checkpoints);
    if (status == K3_OK) status = model->device->ops->state_create(model->device, &s->state, err);
    if (status != K3_OK) {
        k3_session_free(s);
        return status;
    }
    *out = s;
    return K3_OK;
}

static void forget_checkpoints_after(struct k3_session *s, size_t n_tokens)
{
    while (s->n_checkpoints && s->checkpoints[s->n_checkpoints - 1].n_tokens > n_tokens)
        s->model->device->ops->saved_free(s->checkpoints[--s->n_checkpoints].saved);
}

void k3_session_reset(struct k3_session *s)
{
    while (s->n_checkpoints) s->model->device->ops->saved_free(s->checkpoints[--s->n_checkpoints].saved);
    s->model->device->ops->state_reset(s->state);
    s->n_tokens = 0;
}

void k3_session_free(struct k3_session *s)
{
    if (!s) return;
    if (s->state) {
        k3_session_reset(s);
        s->model->device->ops->state_free(s->state);
    }
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

static k3_status reserve_tokens(struct k3_session *s, size_t n_tokens, struct k3_error *err)
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

/* Of the wanted rows (see k3_session_feed) those in [first, first + n), from *next on; counted from `first`.
 */
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

k3_status k3_session_feed(struct k3_session *s, const int32_t *tokens, size_t n, const uint32_t *rows,
                          size_t n_rows, float *logits, struct k3_error *err)
{
    k3_status status = check_request(s, tokens, n, rows, n_rows, logits, err);
    if (status == K3_OK) status = reserve_tokens(s, s->n_tokens + n, err);
    if (status != K3_OK) return status;

    pthread_mutex_lock(&s->model->lock);
    status = s->model->device->ops->state_reserve(s->state, s->n_tokens + n, err);
    uint64_t start = k3_now_ns();
    size_t next_row = 0, done = 0;
    while (status == K3_OK && done < n) {
        uint32_t wanted[K3_MAX_BATCH];
        size_t batch = n - done < s->batch ? n - done : s->batch, at = next_row;
        size_t n_wanted = rows_within(rows, n_rows, n, done, batch, &next_row, wanted);
        float *to = n_wanted ? logits + at * s->model->info.n_vocab : NULL;
        status = k3_walk(s, tokens + done, batch, wanted, n_wanted, to, err);
        if (status != K3_OK) {
            /* Layers before the failure have moved on, the others have not: only a fresh start is sound. */
            k3_session_reset(s);
            break;
        }
        memcpy(s->tokens + s->n_tokens, tokens + done, batch * sizeof *tokens);
        s->n_tokens += batch;
        done += batch;
        if (s->progress && !s->progress(s->progress_ctx, "reading the prompt", done, n) && done < n)
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

/* ---- going back -------------------------------------------------------------------------------------------
 */

k3_status k3_session_checkpoint(struct k3_session *s, struct k3_error *err)
{
    if (s->n_checkpoints && s->checkpoints[s->n_checkpoints - 1].n_tokens == s->n_tokens) return K3_OK;
    struct k3_saved_state *saved;
    k3_status status = s->model->device->ops->state_save(s->state, s->n_tokens, false, &saved, err);
    if (status != K3_OK) return status;
    if (s->n_checkpoints == s->max_checkpoints) {
        s->model->device->ops->saved_free(s->checkpoints[0].saved);
        memmove(s->checkpoints, s->checkpoints + 1, --s->n_checkpoints * sizeof *s->checkpoints);
    }
    s->checkpoints[s->n_checkpoints++] = (struct k3_checkpoint){s->n_tokens, saved};
    return K3_OK;
}

k3_status k3_session_resume(struct k3_session *s, const int32_t *tokens, size_t n, size_t *kept,
                            struct k3_error *err)
{
    size_t common = 0;
    while (common < n && common < s->n_tokens && tokens[common] == s->tokens[common]) common++;
    if (common == n && n > 0) common--; /* something must be left to feed, or there would be no logits */

    if (common < s->n_tokens) {
        forget_checkpoints_after(s, common);
        if (s->n_checkpoints) {
            const struct k3_checkpoint *c = &s->checkpoints[s->n_checkpoints - 1];
            k3_status status = s->model->device->ops->state_load(s->state, c->saved, err);
            if (status != K3_OK) return status;
            s->n_tokens = c->n_tokens;
        } else {
            k3_session_reset(s);
        }
    }
    *kept = s->n_tokens;
    return K3_OK;
}

struct k3_snapshot {
    struct k3_model *model;
    struct k3_saved_state *saved;
    size_t n_tokens;
    int32_t *tokens; /* owned */
};

k3_status k3_session_snapshot(const struct k3_session *s, struct k3_snapshot **out, struct k3_error *err)
{
    struct k3_snapshot *snapshot = calloc(1, sizeof *snapshot);
    int32_t *tokens = malloc((s->n_tokens + 1) * sizeof *tokens);
    k3_status status = K3_OK;
    if (!snapshot || !tokens) status = k3_fail_memory(err, "a snapshot", s->n_tokens * sizeof *tokens);
    struct k3_saved_state *saved = NULL;
    if (status == K3_OK) status = s->model->device->ops->state_save(s->state, s->n_tokens, true, &saved, err);
    if (status != K3_OK) {
        free(tokens);
        free(snapshot);
        return status;
    }
    if (s->n_tokens) memcpy(tokens, s->tokens, s->n_tokens * sizeof *tokens);
    *snapshot = (struct k3_snapshot){s->model, saved, s->n_tokens, tokens};
    *out = snapshot;
    return K3_OK;
}

void k3_snapshot_free(struct k3_snapshot *snapshot)
{
    if (!snapshot) return;
    snapshot->model->device->ops->saved_free(snapshot->saved);
    free(snapshot->tokens);
    free(snapshot);
}

uint64_t k3_snapshot_bytes(const struct k3_snapshot *snapshot)
{
    return snapshot->model->device->ops->saved_bytes(snapshot->saved) + snapshot->n_tokens * sizeof(int32_t);
}

k3_status k3_session_restore(struct k3_session *s, const struct k3_snapshot *snapshot, struct k3_error *err)
{
    if (snapshot->model != s->model)
        return k3_fail(err, K3_ERR_ARGUMENT, "the snapshot was taken on another model than the session's");
    if (snapshot->n_tokens > s->max_tokens)
        return k3_fail(err, K3_ERR_FULL, "the snapshot has %zu tokens, the session's context %zu",
                       snapshot->n_tokens, s->max_tokens);
    k3_status status = reserve_tokens(s, snapshot->n_tokens, err);
    if (status != K3_OK) return status;
    k3_session_reset(s);
    status = s->model->device->ops->state_load(s->state, snapshot->saved, err);
    if (status != K3_OK) return status;
    if (snapshot->n_tokens) memcpy(s->tokens, snapshot->tokens, snapshot->n_tokens * sizeof *s->tokens);
    s->n_tokens = snapshot->n_tokens;
    return K3_OK;
}
