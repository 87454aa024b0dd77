/* model_internal.h - what the files of the model room share.
 *
 * exam.c     looks at a whole file and lists its problems; plan and census are made from that one list
 * hparams.c  keys to hyper-parameters
 * keys.c     hyper-parameters to keys
 * foreign.c  recognises the files of other converters
 * roles.c    the table of tensors: names, shapes, when there is one
 * bind.c     finds the tensor of every role
 * plan.c     the public plan
 * census.c   the public census
 * values.c   checks of values, at load
 * weights.c  reading dense weights */
#ifndef K3_MODEL_INTERNAL_H
#define K3_MODEL_INTERNAL_H

#include "model/model.h"

#include <inttypes.h>

/* The number of layers that Kimi-K3 itself has. Small models may lack optional parts; one of this size may
 * not. */
#define K3_FULL_LAYERS 93

/* Parts that a model of this architecture may have or not, whole or per layer. */
enum k3_part {
    K3_PART_ALWAYS,
    K3_PART_RES,         /* residual attention: hp.res_block */
    K3_PART_Q_LOW,       /* low-rank queries in MLA: hp.q_rank */
    K3_PART_Q_FULL,      /* full ones: neither that nor attn_q_a */
    K3_PART_LATENT,      /* experts in a latent space: hp.has_latent */
    K3_PART_LATENT_NORM, /* its norm; no key tells, in all MoE layers or in none */
    K3_PART_MLA_GATE,    /* output gate of MLA; no key tells, in all MLA layers or in none */
    K3_PART_KV_SPLIT,    /* attn_k_b and attn_v_b, by layer */
    K3_PART_KV_JOINT,    /* attn_kv_b instead */
};

/* A look at a file: what was understood and what is wrong. */
struct k3_exam {
    const struct k3_gguf *gguf;
    const char *file;     /* its name, for messages */
    struct k3_hparams hp; /* what could not be read is 0 */
    bool kinds_known;     /* hp.is_mla is set */
    bool latent_norm, mla_gate;
    const struct k3_gguf_tensor **tensors; /* [n_layers][K3_ROLE_COUNT]; owned */
    bool *used;                            /* by index in gguf->tensors; owned */
    size_t n_problems;
    struct k3_problem {
        k3_status status;
        char *text;
    } * problems; /* owned */
    bool out_of_memory;
};

/* ---- exam.c ---- */

/* Fails only when memory is out. What is wrong with the file is in exam->problems. End with k3_exam_free. */
k3_status k3_exam_take(struct k3_exam *exam, const struct k3_gguf *gguf, struct k3_error *err);
void k3_exam_free(struct k3_exam *exam);

/* Adds "file: sentence" to the list. */
void k3_exam_note(struct k3_exam *exam, k3_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds an error as it is. */
void k3_exam_note_error(struct k3_exam *exam, const struct k3_error *err);

/* ---- hparams.c ---- */

#define K3_KEY(name) "kimi-k3." name

/* False, and noted, when the file is of another architecture: then nothing else can be said about it. */
bool k3_exam_architecture(struct k3_exam *exam);
void k3_exam_hparams(struct k3_exam *exam);

/* ---- foreign.c ---- */

/* Divides "blk.7.attn_q.weight" into 7 and "attn_q.weight"; false for names of another form. */
bool k3_split_name(const char *name, uint32_t *layer, const char **rest);
void k3_exam_foreign(struct k3_exam *exam);

/* ---- roles.c ---- */

enum k3_form {
    K3_FORM_MATRIX,   /* of any type that can be decoded */
    K3_FORM_VECTOR,   /* f32 */
    K3_FORM_AT_LEAST, /* f32 vector whose tail is padding; [n] or [1, n] */
    K3_FORM_CONV,     /* f32, [taps, channels] or [taps, 1, channels] */
};

#define K3_SHAPE_MAX 3

struct k3_shape {
    uint64_t ne[K3_SHAPE_MAX];      /* 0: not known, because a key is wrong */
    const char *text[K3_SHAPE_MAX]; /* in words of the keys; NULL for a missing dimension */
};

/* Whether layer `layer` has a tensor of this role if the model has the role's part at all. */
bool k3_role_in_layer(const struct k3_exam *exam, enum k3_role role, uint32_t layer);
enum k3_part k3_role_part(enum k3_role role);
enum k3_form k3_role_form(enum k3_role role);
struct k3_shape k3_role_shape(const struct k3_exam *exam, enum k3_role role, uint32_t layer);
bool k3_role_is_norm(enum k3_role role);

/* The whole name of a tensor. */
void k3_role_tensor_name(enum k3_role role, uint32_t layer, char name[K3_GGUF_NAME_MAX + 1]);

/* ---- bind.c ---- */

void k3_exam_tensors(struct k3_exam *exam);

#endif
