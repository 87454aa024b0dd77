/* synth.h - models with random weights: what the files of k3tool synth share.
 *
 * synth.c          the sizes, and the file from beginning to end
 * synth_vocab.c    its vocabulary
 * synth_weights.c  its weights, row by row
 *
 * How the weights are made so that the router behaves: docs/synthetic.md. */
#ifndef K3_TOOLS_SYNTH_H
#define K3_TOOLS_SYNTH_H

#include "base/arena.h"
#include "model/model.h"

struct k3_synth_options {
    bool tiny;                       /* widths of a test model; else those of K3 */
    uint32_t layers, experts, vocab; /* 0: 4 layers, 400 experts, 4096 tokens; if tiny 4, 32, 1024 */
    uint64_t seed;
    float skew;              /* of the router's choices: 0 none, 1 as in real traces */
    int threads;             /* 0: one per processor; never changes what is written */
    k3_progress_fn progress; /* in bytes; may be NULL */
    void *progress_ctx;
};

/* The sizes of K3, in so many layers and with its whole vocabulary. */
struct k3_hparams k3_synth_real_sizes(uint32_t layers);

/* Writes the model. Numbers that make no K3 are K3_ERR_ARGUMENT. */
k3_status k3_synth_write(const char *path, const struct k3_synth_options *options, struct k3_error *err);

/* ---- vocabulary ---- */

#define K3_SYNTH_CONTROLS  256 /* ids at the end that are control tokens, as in the release */
#define K3_SYNTH_VOCAB_MIN (256 + K3_SYNTH_CONTROLS) /* one token for each byte */
#define K3_SYNTH_VOCAB_MAX 163840

struct k3_synth_vocab {
    struct k3_arena arena;
    struct k3_gguf_string *tokens, *merges; /* in the arena */
    int32_t *types;                         /* as GGUF numbers them */
    uint32_t n, n_merges;
    uint32_t n_text; /* tokens that stand for text: the first ones */
};

/* n is K3_SYNTH_VOCAB_MIN to _MAX. End with k3_synth_vocab_free, also after an error. */
k3_status k3_synth_vocab_make(struct k3_synth_vocab *vocab, uint32_t n, struct k3_error *err);
void k3_synth_vocab_free(struct k3_synth_vocab *vocab);
k3_status k3_synth_vocab_put(const struct k3_synth_vocab *vocab, struct k3_gguf_writer *writer,
                             struct k3_error *err);

/* ---- weights ---- */

/* One tensor to be filled. A vector, and a set of convolutions, is one row. */
struct k3_synth_tensor {
    enum k3_role role;
    enum k3_type type;
    bool mla;         /* of an MLA layer */
    uint64_t columns; /* weights of a row */
    uint64_t rows;
    size_t row_bytes;
    uint64_t inputs; /* that are summed for one output: `columns`, but for attn_k_b */
    uint64_t stream; /* number of tensor and seed: where its random numbers begin */
    uint32_t n_text; /* rows of `output` that are not zero */
    uint32_t conv_taps;
    float skew;
    double unit; /* rms of the type's weights when their scale is 1 */
};

/* The rms of a type's weights when everything but the scale is random bits and the scale is 1. */
double k3_synth_unit(enum k3_type type);

/* The type that a tensor of this role has. */
enum k3_type k3_synth_type(enum k3_role role);

/* Whether it is one row of f32: a vector or a set of convolutions. */
bool k3_synth_is_vector(enum k3_role role);

/* Fills row `row`: the same bytes for the same tensor and row, whatever was filled before. */
void k3_synth_fill(const struct k3_synth_tensor *tensor, uint64_t row, void *bytes);

#endif
