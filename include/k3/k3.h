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

/* ---- status and errors ---- */

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

/* ---- models ---- */

/* Weights and the threads that compute with them. */
struct k3_model;

/* How experts come from the drive. Never changes results. */
enum k3_io {
    K3_IO_AUTO = 0, /* io_uring, or threads where it cannot be used */
    K3_IO_URING,
    K3_IO_THREADS,
    K3_IO_MMAP, /* files are mapped and the system pages experts in: for models that fit in its page cache */
};

/* Whether experts are read past the page cache. */
enum k3_direct {
    K3_DIRECT_AUTO = 0, /* where the file system can */
    K3_DIRECT_ON,
    K3_DIRECT_OFF,
};

#define K3_SHARE_TEXT_MAX 256 /* bytes of the words for a part of the layers; more is cut */

/* How memory is used, in bytes. */
struct k3_memory_plan {
    uint64_t available; /* to this process, when the plan was made: of the machine and its control groups */
    uint64_t limit;     /* what follows stays below it; the default is a share of what is available */
    uint64_t dense;     /* dense weights */
    uint64_t scratch;   /* activations of a batch */
    uint64_t sessions;  /* a session of `context` tokens, and two copies of its recurrent state */
    uint64_t slots;     /* experts: n_slots of slot_bytes */
    uint64_t reserve;   /* program, headers, tokenizer */
    uint64_t slot_bytes;
    uint32_t n_slots, least_slots, n_experts; /* kept in memory; that are needed; in all layers */
    uint32_t context;                         /* tokens */
    uint32_t batch;                           /* most tokens computed together */

    /* What a GPU has of dense weights and sessions is not in the above, and what it has not is not in the below. */
    int gpu; /* its number; -1: none */
    char gpu_name[64];
    uint32_t pcie_generation, pcie_width, pcie_max_width; /* of its link: lanes in use, that it has; 0: not known */
    char no_gpu[K3_MESSAGE_MAX]; /* why it has not everything, or "" if that is nothing to wonder at */
    uint64_t vram_limit;         /* of its memory, what follows stays below it */
    uint64_t vram_dense, vram_scratch, vram_sessions;

    /* Which layers the GPU has, and which the processor, in words as gpu_layers takes them; "" for none. */
    char on_gpu[K3_SHARE_TEXT_MAX], on_host[K3_SHARE_TEXT_MAX];
};

/* Whether experts of the next layer are guessed, and read before they are asked for. */
enum k3_lookahead {
    K3_LOOKAHEAD_AUTO = 0, /* when measuring says that it makes decoding faster */
    K3_LOOKAHEAD_ON,
    K3_LOOKAHEAD_OFF,
};

/* A GPU computes all but the experts, or as much of it as it has memory and kernels for; then the log says why not all, and
 * the CPU computes the rest. */
#define K3_GPU_AUTO  0         /* the one with most free memory, if there is one */
#define K3_GPU_OFF   (-1)      /* none */
#define K3_GPU(n)    ((n) + 1) /* the one of that number, from 0 on */

/* Whoever calls into a model needs 512 KiB of stack, for the calling thread computes, too. */
struct k3_model_options {
    int threads; /* 0: one per processor the process may use. Never changes results */
    int gpu;     /* which one has dense weights and sessions: see K3_GPU. Never changes results */
    /* What is on the GPU; NULL: what fits. Never changes results.
     *     "all"         everything
     *     "N"           the last N layers and the head; "0" nothing
     *     "A-B,C,..."   these, and no others: layers from 0 on, with ".attention" or ".ffn" behind that part of each;
     *                   "embedding", the table of tokens; "head"
     * An error if it does not fit, or has tensors for which the GPU has no kernels. */
    const char *gpu_layers;
    uint64_t vram;      /* bytes of the GPU's memory to stay below; 0: see vram_percent */
    float vram_percent; /* the same, as a part of all of it; 0: most of what is free */
    bool exact;  /* reference arithmetic: activations and cache in f32. Slower; the default rounds activations to 8
                    bits where the weights are quantised, and the MLA cache to f16 */
    uint64_t ram;         /* bytes of host memory to stay below; 0: chosen */
    uint32_t context;     /* tokens that sessions hold by default, kept room for; 0: chosen */
    uint32_t slots;       /* experts kept in memory; 0: see slots_percent. Never changes results */
    float slots_percent;  /* the same, as a part of all experts; 0: as memory allows */
    enum k3_io io;
    enum k3_direct direct;
    enum k3_lookahead lookahead;
    bool verify; /* what is uploaded to a GPU is read back and compared: loading takes longer */
    k3_progress_fn progress; /* of loading, in bytes; may be NULL */
    void *progress_ctx;
};

/* Opens a GGUF file, or a split set by any of its shards, checks it and reads the dense weights.
 * `options` may be NULL: all defaults. */
k3_status k3_model_open(const char *path, const struct k3_model_options *options, struct k3_model **model,
                        struct k3_error *err);

/* What k3_model_open would plan for these options, from the headers of the file alone. K3_ERR_MEMORY, with the number
 * that would do, when the limit is too low. */
k3_status k3_memory_plan(const char *path, const struct k3_model_options *options, struct k3_memory_plan *memory,
                         struct k3_error *err);

/* All sessions on the model must have been freed before. */
void k3_model_close(struct k3_model *model);

struct k3_model_info {
    uint32_t n_layers, n_embd, n_vocab;
    uint32_t n_experts, top_k; /* experts in a MoE layer; how many a token uses */
    uint32_t context_length;   /* tokens the model was made for; 0: the file does not say */
    uint32_t slots;            /* experts kept in memory; 0 with K3_IO_MMAP */
    int threads;               /* that compute */
    uint64_t file_bytes;       /* all shards */
    uint64_t dense_bytes;      /* read into memory */
    uint64_t expert_bytes;     /* all experts, on disk */
    uint64_t session_bytes;    /* state of a session without any token */
    uint64_t token_bytes;      /* of cache for each token of a session */
};

void k3_model_get_info(const struct k3_model *model, struct k3_model_info *info);
void k3_model_get_memory(const struct k3_model *model, struct k3_memory_plan *memory);

/* What a layer's experts cost, or those of all layers. */
struct k3_expert_stats {
    uint64_t requests;                /* experts that were asked for */
    uint64_t hits;                    /* wholly in memory before they were asked for */
    uint64_t misses;                  /* the others. With K3_IO_MMAP neither is known */
    uint64_t bytes_read;              /* as they came from the files: alignment and repeated reads included */
    double wait_seconds;              /* for experts, with nothing to compute */
    double read_seconds;              /* while experts were being read, from asking to arrival */
    double compute_seconds;           /* with experts */
    uint64_t reads, depth_sum;        /* reads of about 1 MiB; how many were under way when each arrived, added up */
    uint64_t guessed, guessed_right;  /* of the experts not in memory: names by lookahead; those then asked for */
    uint64_t hints, useful_hints;     /* reads that were started on a guess; those that were asked for in time */
};

#define K3_ALL_LAYERS UINT32_MAX

/* Since the model was opened. `layer` may be K3_ALL_LAYERS. */
void k3_model_get_expert_stats(const struct k3_model *model, uint32_t layer, struct k3_expert_stats *stats);

/* Watches the work of a model; a member that is NULL is not called. Calls come from the thread that feeds a session. */
struct k3_observer {
    void *ctx;
    /* A step ended: "attention", "dense_ffn", "router", "submit", "guess", "shared", "expert", "wait", "sum" of a layer,
     * or "logits" with layer -1. A "read" is that of an expert which was missing, from asking for it to its arrival; reads overlap
     * all else. Nanoseconds of CLOCK_MONOTONIC. */
    void (*step)(void *ctx, const char *name, int layer, uint64_t start_ns, uint64_t end_ns);
    /* The router chose: ids[n_tokens][top_k] of a layer. */
    void (*routing)(void *ctx, uint32_t layer, const uint32_t *ids, size_t n_tokens, size_t top_k);
};

/* NULL: nobody. Not while a session is being fed. */
void k3_model_observe(struct k3_model *model, const struct k3_observer *observer);

/* Writes down which experts are in memory, and how often they were used, so that a later run need not find out anew.
 * The file is there whole or not at all. K3_ERR_UNSUPPORTED with K3_IO_MMAP. Changes speed, never results. */
k3_status k3_model_save_warm(struct k3_model *model, const char *path, struct k3_error *err);

/* Reads the experts that such a file names into free slots, the most used first, as many as fit. K3_ERR_FORMAT when the
 * file is broken or of another model: nothing is read then. `progress`, in bytes, may be NULL. */
k3_status k3_model_load_warm(struct k3_model *model, const char *path, k3_progress_fn progress, void *progress_ctx,
                             struct k3_error *err);

/* ---- sessions ---- */

/* One sequence of tokens and the model's state after it. */
struct k3_session;

struct k3_session_options {
    uint32_t context;         /* most tokens it may hold; 0: as the memory plan says */
    uint32_t batch;           /* most tokens computed together; 0: as the memory plan says, which is also the most */
    uint32_t max_checkpoints; /* kept by k3_session_checkpoint; 0: four */
};

/* `options` may be NULL. */
k3_status k3_session_create(struct k3_model *model, const struct k3_session_options *options,
                            struct k3_session **session, struct k3_error *err);
void k3_session_free(struct k3_session *session);

/* Called during k3_session_feed of two or more tokens, in tokens: after each layer of a batch, and after each batch.
 * NULL: none. */
void k3_session_set_progress(struct k3_session *session, k3_progress_fn progress, void *ctx);

/* Appends n tokens and computes the logits of some of them: logits[i] is row i of [n_rows][n_vocab] f32, before
 * softmax, the prediction of what follows token rows[i]. `rows` holds ascending indices into `tokens`; NULL means the
 * last n_rows tokens. n_rows may be 0 and `logits` NULL then.
 * K3_ERR_FULL when the context has no room for all n: nothing is fed. When cancelled between two batches, the session
 * holds those that were done: see k3_session_length. When cancelled within a batch, or when reading or computing fails,
 * it is empty again; K3_ERR_FORMAT: the model gives logits that are no numbers. */
k3_status k3_session_feed(struct k3_session *session, const int32_t *tokens, size_t n, const uint32_t *rows,
                          size_t n_rows, float *logits, struct k3_error *err);

/* The tokens fed so far; valid until the next call with this session. */
const int32_t *k3_session_tokens(const struct k3_session *session);
size_t k3_session_length(const struct k3_session *session);

/* Forgets all tokens and checkpoints. */
void k3_session_reset(struct k3_session *session);

/* Remembers the state here, so that k3_session_resume can come back to it. The recurrent state of KDA cannot be cut
 * back, it can only be kept. The oldest checkpoint goes when there are more than max_checkpoints. */
k3_status k3_session_checkpoint(struct k3_session *session, struct k3_error *err);

/* Takes the session back to the longest prefix of `tokens` that it can still stand on (its current end or a
 * checkpoint) and says how long that is: 0 .. n-1. Feed tokens[*kept .. n-1] next; the result is that of feeding all
 * of them to a new session, batches divided in the same places. */
k3_status k3_session_resume(struct k3_session *session, const int32_t *tokens, size_t n, size_t *kept,
                            struct k3_error *err);

/* A copy of the whole state in memory. */
struct k3_snapshot;

k3_status k3_session_snapshot(const struct k3_session *session, struct k3_snapshot **snapshot, struct k3_error *err);
void k3_snapshot_free(struct k3_snapshot *snapshot);
uint64_t k3_snapshot_bytes(const struct k3_snapshot *snapshot);

/* Makes any session of the same model what the snapshot's session was; checkpoints are forgotten. */
k3_status k3_session_restore(struct k3_session *session, const struct k3_snapshot *snapshot, struct k3_error *err);

struct k3_stats {
    uint64_t prefill_tokens, decode_tokens; /* fed two or more at a time; fed one at a time */
    double prefill_seconds, decode_seconds;
    uint64_t dense_bytes;     /* of dense weights read from memory */
    uint64_t expert_bytes;    /* of expert weights used */
    uint64_t expert_requests; /* experts used */
};

void k3_session_get_stats(const struct k3_session *session, struct k3_stats *stats);

/* ---- sampling ---- */

/* Zero-initialised it is greedy. Steps apply in this order: repetition penalty, top-k, temperature, top-p, min-p. */
struct k3_sampling {
    float temperature;        /* 0: greedy */
    uint32_t top_k;           /* keep the k best; 0: all */
    float top_p;              /* keep the best until their probabilities sum to this; 0 or 1: all */
    float min_p;              /* keep those at least this times as probable as the best; 0: all */
    float repetition_penalty; /* logits of the last tokens are divided (if positive) or multiplied by it; 0 or 1: off */
    uint32_t penalty_window;  /* how many last tokens; 0: 64 */
    uint64_t seed;            /* the same seed, options and logits give the same tokens on any machine */
};

struct k3_sampler;

/* K3_ERR_ARGUMENT when an option is out of range (NaN and negative values are). */
k3_status k3_sampler_create(const struct k3_sampling *options, uint32_t n_vocab, struct k3_sampler **sampler,
                            struct k3_error *err);
void k3_sampler_free(struct k3_sampler *sampler);

/* Tells the repetition penalty what came before. */
void k3_sampler_accept(struct k3_sampler *sampler, int32_t token);

/* Chooses the next token from a row of n_vocab logits. It is not accepted by that. */
int32_t k3_sampler_pick(struct k3_sampler *sampler, const float *logits);

/* ---- text ---- */

struct k3_tokenizer;

/* Reads the tokenizer of a GGUF file (any shard of a set); weights are not touched. */
k3_status k3_tokenizer_open(const char *path, struct k3_tokenizer **tokenizer, struct k3_error *err);
void k3_tokenizer_close(struct k3_tokenizer *tokenizer);

uint32_t k3_tokenizer_size(const struct k3_tokenizer *tokenizer); /* ids, control tokens included */

/* The bytes a token stands for, or the name of a control token; *n is their number. NULL if there is no such id. */
const char *k3_token_text(const struct k3_tokenizer *tokenizer, int32_t id, size_t *n);

/* Whether it stands for no text: a control token, or an id that the file marks as unused. */
bool k3_token_is_control(const struct k3_tokenizer *tokenizer, int32_t id);

/* The id of a control token by its name, or -1. */
int32_t k3_token_find(const struct k3_tokenizer *tokenizer, const char *name);

/* Whether generation ends at this token: end of message, end of document, and the file's own eos. */
bool k3_token_is_stop(const struct k3_tokenizer *tokenizer, int32_t id);

/* A growing list. Zero-initialise before first use. */
struct k3_tokens {
    int32_t *ids; /* owned */
    size_t n, capacity;
};

void k3_tokens_free(struct k3_tokens *tokens);

/* Appends the tokens of n bytes of text. Names of control tokens become control tokens only if `special`; otherwise
 * they are ordinary text, as text from users must be. Invalid UTF-8 is read as U+FFFD. */
k3_status k3_tokenize(const struct k3_tokenizer *tokenizer, const char *text, size_t n, bool special,
                      struct k3_tokens *tokens, struct k3_error *err);

/* Turns a stream of tokens into a stream of UTF-8 text that is whole after every call: a character whose bytes are
 * spread over tokens is held until it is complete, bytes that are not UTF-8 become U+FFFD. */
struct k3_detokenizer;

/* `control`: write the names of control tokens; otherwise they give no text. */
k3_status k3_detokenizer_create(const struct k3_tokenizer *tokenizer, bool control, struct k3_detokenizer **out,
                                struct k3_error *err);
void k3_detokenizer_free(struct k3_detokenizer *detokenizer);

/* The text that the token completes, possibly empty, and its length; valid until the next call. */
const char *k3_detokenize(struct k3_detokenizer *detokenizer, int32_t id, size_t *n);

/* What is still held, as U+FFFD; the detokenizer can be used again. */
const char *k3_detokenize_end(struct k3_detokenizer *detokenizer, size_t *n);

/* ---- chat ---- */

struct k3_chat_options {
    bool no_thinking;   /* start in the response channel */
    const char *effort; /* "low", "high" or "max"; NULL: "max". Unused without thinking */
    const char *tools;  /* JSON array of tool declarations, or NULL */
};

/* Appends the tokens of a conversation of one user turn, up to where the model answers. The user's text cannot forge
 * control tokens. `options` may be NULL. */
k3_status k3_chat_prompt(const struct k3_tokenizer *tokenizer, const char *user, size_t n,
                         const struct k3_chat_options *options, struct k3_tokens *tokens, struct k3_error *err);

/* A whole conversation, as n bytes of JSON: an object with
 *     messages         what OpenAI's chat API calls so; "reasoning_content" of past answers is kept
 *     tools            declarations, or absent
 *     tool_choice      "none", "auto" (as if absent), "required", or an object that names a tool
 *     response_format  {"type": "text" | "json_object" | "json_schema", ..}
 *     thinking         false: start in the response channel
 *     effort           "low", "high", "max" (as if absent), or what others call minimal, medium, xhigh; null: not said
 *     add_generation_prompt  false: end after the messages
 * Other members are ignored. Appends its tokens, up to where the model answers. No text in it can forge control tokens.
 * K3_ERR_ARGUMENT: it is no conversation. */
k3_status k3_chat_render(const struct k3_tokenizer *tokenizer, const char *conversation, size_t n, struct k3_tokens *tokens,
                         struct k3_error *err);

/* A part of a prompt: the name of a control token if `special`, or text that is made tokens by itself. Any other status than
 * K3_OK ends the call that sends them. */
typedef k3_status (*k3_chat_segment_fn)(void *ctx, const char *text, size_t n, bool special, struct k3_error *err);

/* The parts that k3_chat_render makes tokens of. */
k3_status k3_chat_segments(const char *conversation, size_t n, k3_chat_segment_fn fn, void *ctx, struct k3_error *err);

enum k3_chat_kind {
    K3_CHAT_THINK,        /* text of the think channel */
    K3_CHAT_RESPONSE,     /* text of the response channel */
    K3_CHAT_CALL,         /* a tool call begins; text: the tool's name */
    K3_CHAT_ARGUMENT,     /* an argument begins; text: its key, type: its JSON type ("" if the model gave none) */
    K3_CHAT_VALUE,        /* text of that argument's value, raw */
    K3_CHAT_JSON,         /* text of a call's arguments given as one JSON text */
    K3_CHAT_CALL_END,     /* the tool call is complete; no text */
    K3_CHAT_MESSAGE_END,  /* the answer is complete; no text */
};

struct k3_chat_event {
    enum k3_chat_kind kind;
    const char *text; /* whole UTF-8 characters, not terminated; valid during the call */
    size_t n;
    const char *type; /* of K3_CHAT_ARGUMENT */
};

typedef void (*k3_chat_fn)(void *ctx, const struct k3_chat_event *event);

/* Splits what the model writes into its channels. Only control token ids delimit, so text cannot forge a marker and
 * no marker leaks into text. */
struct k3_chat_parser;

k3_status k3_chat_parser_create(const struct k3_tokenizer *tokenizer, bool no_thinking, k3_chat_fn fn, void *ctx,
                                struct k3_chat_parser **parser, struct k3_error *err);
void k3_chat_parser_free(struct k3_chat_parser *parser);

/* Events happen during these calls. Tokens after the end of the message are ignored. */
void k3_chat_parse(struct k3_chat_parser *parser, int32_t id);

/* The model was stopped before it came to an end: what is held is flushed. There is no K3_CHAT_MESSAGE_END then, and a
 * call that had no K3_CHAT_CALL_END is unfinished. Nothing happens after the end of the message. */
void k3_chat_parse_end(struct k3_chat_parser *parser);

#ifdef __cplusplus
}
#endif

#endif
