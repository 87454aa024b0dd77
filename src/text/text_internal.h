/* text_internal.h - what the files of the text room share.
 *
 * A tokenizer is made once and not changed after, so threads may share it. What one call needs to write to is
 * in an encoder, which lives as long as the call. */
#ifndef K3_TEXT_TEXT_INTERNAL_H
#define K3_TEXT_TEXT_INTERNAL_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/arena.h"
#include "base/error.h"
#include "gguf/gguf.h"

/* ---- the vocabulary (vocab.c) ---- */

enum k3_token_kind {
    K3_TOKEN_NORMAL,  /* bytes of text */
    K3_TOKEN_CONTROL, /* a mark of the protocol: has a name and stands for no text */
    K3_TOKEN_UNUSED,  /* an id without meaning */
};

struct k3_token {
    const char *text; /* the bytes, or the name; followed by a zero; in the arena */
    uint32_t n;       /* bytes of it, 1 .. K3_TOKEN_MAX_BYTES */
    uint8_t kind;     /* enum k3_token_kind */
    bool stop;        /* generation ends at it */
};

/* The longest token of the release has a few hundred bytes. A bound keeps what depends on it small: buffers,
 * and the time to look for a control name. */
#define K3_TOKEN_MAX_BYTES 4096

struct k3_tokenizer {
    struct k3_arena arena;
    struct k3_token *tokens; /* [n_tokens], in the arena, as all below */
    uint32_t n_tokens;
    uint32_t max_bytes; /* of the longest token */

    struct k3_vocab_slot {
        uint32_t hash;
        int32_t id; /* of a normal token, or -1 */
    } * slots;      /* [slot_mask + 1]: open addressing, at most half full */
    uint32_t slot_mask;
    int32_t byte_ids[256]; /* the token of each single byte */

    int32_t *controls; /* ids of the control tokens, sorted by name */
    uint32_t n_controls;
    uint32_t control_first[257];          /* where the names that begin with a byte lie in `controls` */
    int32_t open, close, sep, end_of_msg; /* ids of the chat markers, or -1 */

    pcre2_code *split; /* the pattern of split.c */
};

/* The names of the chat markers. */
#define K3_OPEN       "<|open|>"
#define K3_CLOSE      "<|close|>"
#define K3_SEP        "<|sep|>"
#define K3_END_OF_MSG "<|end_of_msg|>"

/* The alphabet in which GGUF writes bytes: a character for each, as UTF-8 that ends with a zero, in the order of the
 * release's ids. */
void k3_byte_alphabet(char text[256][3]);

/* What a vocabulary is made of. */
struct k3_vocab_source {
    const char *name;                    /* of the file, for messages */
    const struct k3_gguf_string *tokens; /* as GGUF stores them: normal ones in the byte alphabet */
    const int32_t *types;                /* as GGUF numbers them: 1 normal, 3 control, 5 unused */
    size_t n;
    int32_t eos; /* also a stop token; -1: none */
};

/* Checks all of it and copies what it needs. K3_ERR_FORMAT, K3_ERR_UNSUPPORTED or K3_ERR_MEMORY. */
k3_status k3_tokenizer_create(const struct k3_vocab_source *source, struct k3_tokenizer **tokenizer,
                              struct k3_error *err);

/* The normal token that stands for exactly these bytes, or -1. */
int32_t k3_vocab_find(const struct k3_tokenizer *tokenizer, const char *bytes, size_t n);

/* ---- control names (controls.c) ---- */

/* Sorts the names of the control tokens; two of the same name are an error. */
k3_status k3_controls_build(struct k3_tokenizer *tokenizer, const char *name, struct k3_error *err);

/* The control token of this name, or -1. */
int32_t k3_controls_find(const struct k3_tokenizer *tokenizer, const char *name, size_t n);

/* Where the leftmost name of a control token begins in a text, n if there is none, and which it is: the
 * longest, if several begin there. */
size_t k3_controls_search(const struct k3_tokenizer *tokenizer, const char *text, size_t n, int32_t *id);

/* ---- pieces (split.c) ---- */

k3_status k3_split_compile(pcre2_code **code, struct k3_error *err);

struct k3_splitter {
    const pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    uint32_t options; /* of pcre2_match */
};

/* Free it also if this failed. */
k3_status k3_splitter_init(struct k3_splitter *splitter, const pcre2_code *code, struct k3_error *err);
void k3_splitter_free(struct k3_splitter *splitter);

/* The bytes of the first piece of a text: UTF-8, n >= 1. The end of the text is the end of its segment. */
k3_status k3_split_next(struct k3_splitter *splitter, const char *text, size_t n, size_t *length,
                        struct k3_error *err);

/* ---- tokens of a piece (bpe.c) ---- */

/* Memory to work in; grows with the longest piece seen. Zero-initialise. A part is named by its first byte. */
struct k3_bpe {
    uint32_t *next, *prev; /* parts in order; the next of the last is n. `next` owns the memory of all four */
    uint32_t *rank;        /* of the pair of a part and the next; UINT32_MAX where no token or no part is */
    uint32_t *id;          /* of the part */
    uint64_t *heap;        /* [3 * capacity]; owned */
    size_t n_heap;
    size_t capacity; /* bytes of a piece */
};

void k3_bpe_free(struct k3_bpe *bpe);

/* Writes the tokens of a piece of n >= 1 bytes to ids[] (room for n) and their number to *n_ids. */
k3_status k3_bpe_encode(struct k3_bpe *bpe, const struct k3_tokenizer *tokenizer, const char *piece, size_t n,
                        int32_t *ids, size_t *n_ids, struct k3_error *err);

/* ---- encoders (tokenize.c) ---- */

struct k3_encoder {
    const struct k3_tokenizer *tokenizer;
    struct k3_tokens *tokens; /* that are appended to */
    size_t n_before;          /* tokens that were there when it began */
    struct k3_splitter splitter;
    struct k3_bpe bpe;
};

/* Free it also if this failed. */
k3_status k3_encoder_init(struct k3_encoder *encoder, const struct k3_tokenizer *tokenizer,
                          struct k3_tokens *tokens, struct k3_error *err);
void k3_encoder_free(struct k3_encoder *encoder);

/* Takes back all tokens this encoder appended. */
void k3_encoder_undo(struct k3_encoder *encoder);

/* Appends the tokens of one segment: nothing merges over its ends. See k3_tokenize. */
k3_status k3_encoder_text(struct k3_encoder *encoder, const char *text, size_t n, bool special,
                          struct k3_error *err);

/* Appends one token. */
k3_status k3_encoder_token(struct k3_encoder *encoder, int32_t id, struct k3_error *err);

/* Where the long-input rule cuts: the bytes of the first part of a text (UTF-8, n >= 1). `walk` is zeroed at
 * the beginning of a segment and kept between the parts of it. */
struct k3_chunk_walk {
    uint32_t n_chunk; /* characters since the last cut at K3_CHUNK_MAX */
    uint32_t n_run;   /* characters since white space began or ended, or a cut in it */
    bool space;       /* the run is white space */
};
#define K3_CHUNK_MAX 400000
#define K3_RUN_MAX   25000
size_t k3_chunk_next(struct k3_chunk_walk *walk, const char *text, size_t n);

#endif
