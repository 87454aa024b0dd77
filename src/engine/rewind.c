/* rewind.c - going back in a session: checkpoints in it, and snapshots apart from it. */
#include "engine/engine_internal.h"

#include <stdlib.h>
#include <string.h>

/* Copies the state of a session, on the account of its model. */
static k3_status save(const struct k3_session *s, bool cache, struct k3_saved_state **saved,
                      struct k3_error *err)
{
    struct k3_model *model = s->model;
    size_t cached = cache ? s->n_tokens : 0;
    k3_status status = k3_memory_take(model, cached, "a copy of a session", err);
    if (status != K3_OK) return status;
    status = model->device->ops->state_save(s->state, s->n_tokens, cache, saved, err);
    if (status != K3_OK) k3_memory_give(model, cached);
    return status;
}

/* `cached`: tokens whose cache is in the copy. */
static void drop(struct k3_model *model, struct k3_saved_state *saved, size_t cached)
{
    k3_memory_give(model, cached);
    model->device->ops->saved_free(saved);
}

/* ---- checkpoints ---- */

void k3_checkpoints_forget(struct k3_session *s, size_t n_tokens)
{
    while (s->n_checkpoints && (n_tokens == 0 || s->checkpoints[s->n_checkpoints - 1].n_tokens > n_tokens))
        drop(s->model, s->checkpoints[--s->n_checkpoints].saved, 0);
}

static void forget_oldest(struct k3_session *s)
{
    drop(s->model, s->checkpoints[0].saved, 0);
    memmove(s->checkpoints, s->checkpoints + 1, --s->n_checkpoints * sizeof *s->checkpoints);
}

k3_status k3_session_checkpoint(struct k3_session *s, struct k3_error *err)
{
    if (s->n_checkpoints && s->checkpoints[s->n_checkpoints - 1].n_tokens == s->n_tokens) return K3_OK;
    if (s->n_checkpoints == s->max_checkpoints) forget_oldest(s);
    struct k3_saved_state *saved;
    k3_status status = save(s, false, &saved, err);
    while (status == K3_ERR_MEMORY && s->n_checkpoints) { /* a newer one is worth more than older ones */
        forget_oldest(s);
        status = save(s, false, &saved, err);
    }
    if (status == K3_OK) s->checkpoints[s->n_checkpoints++] = (struct k3_checkpoint){s->n_tokens, saved};
    return status;
}

k3_status k3_session_resume(struct k3_session *s, const int32_t *tokens, size_t n, size_t *kept,
                            struct k3_error *err)
{
    if (n && !tokens)
        return k3_fail(err, K3_ERR_ARGUMENT, "a session cannot resume at %zu tokens that are not given", n);
    size_t common = 0;
    while (common < n && common < s->n_tokens && tokens[common] == s->tokens[common]) common++;
    if (common == n && n > 0) common--; /* something must be left to feed, or there would be no logits */

    if (common == 0) {
        k3_session_reset(s);
    } else if (common < s->n_tokens) {
        k3_checkpoints_forget(s, common);
        if (s->n_checkpoints) {
            const struct k3_checkpoint *c = &s->checkpoints[s->n_checkpoints - 1];
            s->model->device->ops->state_load(s->state, c->saved);
            s->n_tokens = c->n_tokens;
        } else {
            k3_session_reset(s);
        }
    }
    *kept = s->n_tokens;
    return K3_OK;
}

/* ---- snapshots ---- */

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
    struct k3_saved_state *saved = NULL;
    k3_status status = K3_OK;
    if (!snapshot || !tokens) status = k3_fail_memory(err, "a snapshot", s->n_tokens * sizeof *tokens);
    if (status == K3_OK) status = save(s, true, &saved, err);
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
    drop(snapshot->model, snapshot->saved, snapshot->n_tokens);
    free(snapshot->tokens);
    free(snapshot);
}

uint64_t k3_snapshot_bytes(const struct k3_snapshot *snapshot)
{
    const struct k3_model_info *info = &snapshot->model->info;
    return info->session_bytes + snapshot->n_tokens * (info->token_bytes + sizeof(int32_t));
}

k3_status k3_session_restore(struct k3_session *s, const struct k3_snapshot *snapshot, struct k3_error *err)
{
    if (snapshot->model != s->model)
        return k3_fail(err, K3_ERR_ARGUMENT, "the snapshot was taken on another model than the session's");
    if (snapshot->n_tokens > s->max_tokens)
        return k3_fail(err, K3_ERR_FULL, "the snapshot has %zu tokens, the session's context %zu",
                       snapshot->n_tokens, s->max_tokens);
    k3_status status = k3_session_reserve(s, snapshot->n_tokens, err);
    if (status != K3_OK) return status;
    k3_checkpoints_forget(s, 0);
    s->model->device->ops->state_load(s->state, snapshot->saved);
    if (snapshot->n_tokens) memcpy(s->tokens, snapshot->tokens, snapshot->n_tokens * sizeof *s->tokens);
    s->n_tokens = snapshot->n_tokens;
    return K3_OK;
}
