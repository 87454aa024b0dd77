/* k3.h - run Kimi-K3 models from GGUF files.
 *
 * A program opens a model once, makes any number of sessions on it, feeds tokens to a session and reads logits
 * back. A tokenizer turns text into tokens and tokens into text. Nothing here prints, exits or aborts.
 *
 *     struct k3_error err;
 *     struct k3_model *model;
 *     if (k3_model_open("model.gguf", NULL, &model, &err) != K3_OK) { puts(err.message); return 1; }
 *
 * Rules that hold for every function:
 * - Functions that can fail return k3_status and, when it is not K3_OK, fill `err` with one sentence that names
 *   the file or argument, what was wrong and what was expected. `err` may be NULL. Outputs are untouched then.
 * - Objects are created by *_open or *_create and ended by *_close or *_free, which accept NULL.
 * - Strings are UTF-8; sizes are bytes unless a name says tokens; token ids are int32_t, 0 .. n_vocab-1.
 * - A model and a tokenizer may be used by several threads. A session, a sampler and a decoder belong to one
 *   thread at a time; work of different sessions on one model is done one call after the other. */
#ifndef K3_H
#define K3_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status and errors ------------------------------------------------------------------------------------ */

typedef enum k3_status {
    K3_OK = 0,
    K3_ERR_ARGUMENT,    /* the caller asked for something that cannot be */
    K3_ERR_IO,          /* the system refused to open, read or write */
    K3_ERR_FORMAT,      /* a file is broken, truncated or not what it says */
    K3_ERR_UNSUPPORTED, /* a valid file that this program cannot run */
    K3_ERR_MEMORY,      /* an allocation failed */
    K3_ERR_FULL,        /* the session's context is full */
    K3_ERR_CANCELLED,   /* a progress callback asked to stop */
} k3_status;

#define K3_MESSAGE_MAX 512

struct k3_error {
    k3_status status;
    char message[K3_MESSAGE_MAX]; /* one sentence, no newline at its end */
};

/* "0.1.0" */
const char *k3_version(void);

/* Messages that are no errors (a tensor that is not used, a fallback) go to `fn`; NULL (the default) drops them. */
typedef void (*k3_log_fn)(void *ctx, const char *message);
void k3_set_log(k3_log_fn fn, void *ctx);

/* Long work reports what it does, how far it is and how far it goes (bytes or tokens, by `what`).
 * Returning false cancels the work: it ends with K3_ERR_CANCELLED and leaves a valid state. */
typedef bool (*k3_progress_fn)(void *ctx, const char *what, uint64_t done, uint64_t total);

#ifdef __cplusplus
}
#endif

#endif
