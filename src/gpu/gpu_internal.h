/* gpu_internal.h - what the files of the GPU device share.
 *
 * find.c       devices, and what kernels can do
 * arrays.c     lists of device memory: counted before they are allocated
 * weights.c    dense weights: placed and uploaded
 * state.c      sessions
 * multiply.c   products
 * attention.c  KDA and MLA sublayers
 * device.c     the device and the walk */
#ifndef K3_GPU_INTERNAL_H
#define K3_GPU_INTERNAL_H

#include "gpu/runtime.h"

/* ---- memory ---- */

/* Arrays in device memory. Without `allocate` they are only counted, so that what is needed is known before any of it is
 * taken. */
struct k3_gpu_arrays {
    bool allocate;
    uint64_t bytes;
    void **list; /* owned, and so is what it names */
    size_t n, capacity;
    const char *failed; /* the first array there was no memory for, or NULL */
    uint64_t failed_bytes;
};

/* An array of n * size bytes; NULL if it is only counted, or there is no memory. The caller knows that the product does
 * not overflow. */
void *k3_gpu_array(struct k3_gpu_arrays *arrays, const char *name, size_t n, size_t size);

/* K3_ERR_MEMORY if there was no memory for an array. */
k3_status k3_gpu_arrays_check(const struct k3_gpu_arrays *arrays, struct k3_error *err);
void k3_gpu_arrays_free(struct k3_gpu_arrays *arrays);

/* ---- weights ---- */

/* One of the two; neither: the model or the share has no such matrix. */
struct k3_gpu_matrix {
    size_t rows, cols;
    const float *f32;
    struct k3_gpu_q8_0 q8_0; /* its q is NULL where the matrix is f32 */
};

struct k3_gpu_weights {
    struct k3_gpu_matrix model[K3_FIRST_LAYER_ROLE];
    struct k3_gpu_matrix (*layers)[K3_FIRST_EXPERT_ROLE]; /* [n_layers], owned */
    struct k3_gpu_arrays arrays;
};

/* Whether a tensor of this role stays q8_0 on the device; others become f32. */
bool k3_gpu_keeps_q8_0(const struct k3_gguf_tensor *tensor, enum k3_role role);

uint64_t k3_gpu_weights_bytes(const struct k3_plan *plan, const struct k3_share *share);
uint64_t k3_gpu_staging_bytes(void); /* while they are loaded */
k3_status k3_gpu_weights_load(struct k3_gpu_weights *w, const struct k3_plan *plan,
                              const struct k3_gpu_options *options, struct k3_error *err);
void k3_gpu_weights_free(struct k3_gpu_weights *w);

/* ---- the device ---- */

#define K3_GPU_LOGIT_ROWS 8 /* computed together */

/* Activations of a batch of B tokens in device memory, as in ops/cpu_internal.h. */
struct k3_gpu_scratch {
    float *streams; /* [bank + 1][n][D]: kernels.h, AttnRes */
    float *roots;   /* [bank + 1][n] */
    float *dots[2]; /* [bank + 1][n]: of the bank with the score of the mix to come, and the one after */
    float *x, *y, *product;    /* [B][D] */
    struct k3_gpu_acts x_acts; /* x rounded; its q is NULL if D is no multiple of 32 */
    float *wide[8];            /* [B][max(H*dk, H*dq, H*dv)] */
    float *low, *low_q, *beta; /* [B][max(dk, Rk+dr)], [B][Rq], [B][H] */
    float *absorbed, *z;       /* [B][H][Rk] */
    float *ffn_gate, *ffn_up;  /* [B][max(F0, Fs)] */
    float *router;             /* [B][E] */
    float *routing;    /* of n tokens, one after the other: ids [n][K], weights [n][K], latent input [n][Z] */
    float *sum;        /* [B][Z] */
    float *logits;     /* [K3_GPU_LOGIT_ROWS][V] */
    uint32_t *rows;    /* [B] */
    uint32_t *guesses; /* [K3_GPU_MAX_TOP_K] */
    float *guess_weights;    /* [K3_GPU_MAX_TOP_K] */
    int32_t *tokens;         /* [B] */
    struct k3_gpu_acts acts; /* of one product */
    struct k3_gpu_arrays arrays;
};

struct k3_gpu_device {
    struct k3_device base;
    const struct k3_plan *plan;
    const struct k3_hparams *hp;
    const struct k3_share *share;
    struct k3_gpu gpu;
    struct k3_gpu_sizes sizes;
    k3_stream stream;
    struct k3_gpu_weights weights;
    struct k3_gpu_scratch s;
    float *routing; /* what route brings to the host, as in the scratch; memory of k3_gpu_alloc_host */

    /* The current batch. */
    struct k3_state *state;
    size_t n, position, n_bank;
    const float *scored; /* s.dots[0] has the dots of the bank with this score, or NULL */
    char problem[160];   /* the first thing that went wrong in it, or "" */
};

struct k3_state {
    struct k3_gpu_device *device;
    size_t max_tokens;
    struct k3_gpu_arrays arrays;
    /* KDA state [H][key dk][value dk] of every KDA layer here, then its three convolution histories [W-1][H*dk]. */
    float *recurrent;
    uint16_t **caches; /* [n_layers], NULL where there is no MLA layer: [max_tokens][Rk+dr] f16; owned list */
    float *scores;     /* [max_tokens][K3_GPU_SCORES][H] of MLA, while it computes; NULL without MLA layers */
    float *groups;     /* [K3_GPU_SCORES][H][k3_gpu_mla_group_floats(max_tokens)], beside them */
};

/* The scores of MLA are as many as queries times keys. A session has room for this many tokens at its end, and so for
 * more before. */
#define K3_GPU_SCORES 4

/* What a product takes: x, [n][cols], and the same rounded, or NULL where nothing has rounded it yet. */
struct k3_gpu_input {
    const float *x;
    const struct k3_gpu_acts *acts;
};

/* The normed input of a sublayer. */
struct k3_gpu_input k3_gpu_normed(const struct k3_gpu_device *dev);

/* Waits for the stream, and remembers what went wrong. */
void k3_gpu_settle(struct k3_gpu_device *dev);

/* ---- products ---- */

/* The acts of the scratch, for the kernel that makes the input of w to leave it rounded there; NULL if w takes f32. */
const struct k3_gpu_acts *k3_gpu_acts_for(const struct k3_gpu_device *dev, const struct k3_gpu_matrix *w);

/* y = W x for n tokens; y: [n][rows]. */
void k3_gpu_matmul(struct k3_gpu_device *dev, const struct k3_gpu_matrix *w, const struct k3_gpu_input *in,
                   size_t n, float *y);

struct k3_gpu_target {
    const struct k3_gpu_matrix *w;
    float *y;
};

/* The same for up to K3_GPU_MAX_PRODUCTS matrices of one x. */
void k3_gpu_matmul_all(struct k3_gpu_device *dev, const struct k3_gpu_target *targets, size_t n_targets,
                       const struct k3_gpu_input *in, size_t n);

/* y += plus + W x, or y += W x if plus is NULL. W has as many rows as the model is wide, at most. */
void k3_gpu_matmul_add(struct k3_gpu_device *dev, const struct k3_gpu_matrix *w,
                       const struct k3_gpu_input *in, size_t n, const float *plus, float *y);

/* y[t][h] = W[h] x[t][h]: W a stack of a matrix for each head; rows of x, [n][H], are `stride` apart; acts are
 * x rounded, or NULL. */
void k3_gpu_matmul_heads(struct k3_gpu_device *dev, const struct k3_gpu_matrix *w, const float *x,
                         const struct k3_gpu_acts *acts, size_t stride, size_t n, float *y);

/* ---- sublayers and sessions ---- */

/* From the normed input, x of the scratch, to the output, which is `out` or is added to it. */
void k3_gpu_kda(struct k3_gpu_device *dev, uint32_t layer, bool add, float *out);
void k3_gpu_mla(struct k3_gpu_device *dev, uint32_t layer, bool add, float *out);

/* Where the recurrent part of a KDA layer begins in those of all that are here; of layer n_layers: their floats. */
size_t k3_gpu_recurrent_place(const struct k3_hparams *hp, const struct k3_share *share, uint32_t layer);

void k3_gpu_state_sizes(const struct k3_hparams *hp, const struct k3_share *share,
                        struct k3_gpu_sizes *sizes);
k3_status k3_gpu_state_create(struct k3_device *dev, size_t max_tokens, struct k3_state **state,
                              struct k3_error *err);
void k3_gpu_state_free(struct k3_state *state);
void k3_gpu_state_reset(struct k3_state *state);
k3_status k3_gpu_state_save(const struct k3_state *state, size_t n_tokens, bool cache,
                            struct k3_saved_state **saved, struct k3_error *err);
void k3_gpu_state_load(struct k3_state *state, const struct k3_saved_state *saved);
void k3_gpu_saved_free(struct k3_saved_state *saved);

/* ---- the backend ---- */

k3_status k3_gpu_find(int number, struct k3_gpu *gpu, struct k3_error *err);
k3_status k3_gpu_check(const struct k3_plan *plan, const struct k3_share *share, struct k3_error *err);
struct k3_gpu_sizes k3_gpu_device_sizes(const struct k3_plan *plan, const struct k3_share *share,
                                        size_t max_batch);
k3_status k3_gpu_device_create(const struct k3_plan *plan, const struct k3_gpu *gpu,
                               const struct k3_gpu_options *options, struct k3_device **device,
                               struct k3_error *err);

#endif
