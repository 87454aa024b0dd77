/* bind.c - finds the tensor of every role and checks its shape and type (gguf.md sections 4, 6 and 7). */
#include "model/model_internal.h"
#include "quant/quant.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const struct k3_gguf_tensor *find(const struct k3_exam *exam, enum k3_role role, uint32_t layer)
{
    char name[K3_GGUF_NAME_MAX + 1];
    k3_role_tensor_name(role, layer, name);
    return k3_gguf_find_tensor(exam->gguf, name);
}

/* ---- parts ---- */

static bool in_any_layer(const struct k3_exam *exam, enum k3_role role)
{
    for (uint32_t i = 0; i < exam->hp.n_layers; i++)
        if (k3_role_in_layer(exam, role, i) && find(exam, role, i)) return true;
    return false;
}

static bool has_part(const struct k3_exam *exam, enum k3_part part, uint32_t layer)
{
    switch (part) {
    case K3_PART_ALWAYS:
        return true;
    case K3_PART_RES:
        return exam->hp.res_block != 0;
    case K3_PART_Q_LOW:
        return exam->hp.q_rank != 0;
    case K3_PART_Q_FULL:
        return exam->hp.q_rank == 0 && !find(exam, K3_MLA_Q_A, layer);
    case K3_PART_LATENT:
        return exam->hp.has_latent;
    case K3_PART_LATENT_NORM:
        return exam->latent_norm;
    case K3_PART_MLA_GATE:
        return exam->mla_gate;
    case K3_PART_KV_SPLIT:
        return find(exam, K3_MLA_K_B, layer) || !find(exam, K3_MLA_KV_B, layer);
    case K3_PART_KV_JOINT:
        return !has_part(exam, K3_PART_KV_SPLIT, layer);
    }
    return false;
}

/* The key without which a tensor of this part cannot be understood; NULL if there is none. */
static const char *key_of_part(enum k3_part part)
{
    switch (part) {
    case K3_PART_RES:
        return K3_KEY("attn_res.block_size");
    case K3_PART_Q_LOW:
        return K3_KEY("attention.q_lora_rank");
    case K3_PART_LATENT:
    case K3_PART_LATENT_NORM:
        return K3_KEY("expert_latent_length");
    default:
        return NULL;
    }
}

/* ---- one tensor ---- */

static void squeeze(uint64_t ne[K3_GGUF_MAX_DIMS], int dim)
{
    for (int i = dim; i + 1 < K3_GGUF_MAX_DIMS; i++) ne[i] = ne[i + 1];
    ne[K3_GGUF_MAX_DIMS - 1] = 1;
}

static bool fits(const struct k3_gguf_tensor *t, enum k3_form form, const struct k3_shape *shape)
{
    uint64_t ne[K3_GGUF_MAX_DIMS];
    for (int i = 0; i < K3_GGUF_MAX_DIMS; i++) ne[i] = t->ne[i];
    if (form == K3_FORM_CONV && ne[1] == 1) squeeze(ne, 1);
    if (form == K3_FORM_AT_LEAST && ne[0] == 1) squeeze(ne, 0);

    for (int i = 0; i < K3_GGUF_MAX_DIMS; i++) {
        uint64_t wanted = i < K3_SHAPE_MAX ? shape->ne[i] : 1;
        bool padded = form == K3_FORM_AT_LEAST && i == 0 && ne[i] >= wanted;
        if (wanted && ne[i] != wanted && !padded) return false;
    }
    return true;
}

struct line {
    char text[320];
    size_t n;
};

static void add(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct line *line, const char *format, ...)
{
    size_t room = sizeof line->text - line->n;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line->text + line->n, room, format, args);
    va_end(args);
    line->n += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

static void add_shape(struct line *line, const uint64_t *ne, int n)
{
    while (n > 1 && ne[n - 1] == 1) n--;
    for (int i = 0; i < n; i++) {
        add(line, "%s", i ? ", " : "[");
        if (ne[i])
            add(line, "%" PRIu64, ne[i]);
        else
            add(line, "?");
    }
    add(line, "]");
}

static void note_shape(struct k3_exam *exam, const struct k3_gguf_tensor *t, enum k3_form form,
                       const struct k3_shape *shape)
{
    struct line line = {"", 0};
    add_shape(&line, t->ne, K3_GGUF_MAX_DIMS);
    add(&line, " but %s", form == K3_FORM_AT_LEAST ? "at least " : "");
    add_shape(&line, shape->ne, K3_SHAPE_MAX);
    add(&line, " is expected");
    for (int i = 0; i < K3_SHAPE_MAX && shape->text[i]; i++)
        add(&line, "%s%s", i ? ", " : ": ", shape->text[i]);
    k3_exam_note(exam, K3_ERR_FORMAT, "tensor %s has shape %s", t->name, line.text);
}

static void check_tensor(struct k3_exam *exam, const struct k3_gguf_tensor *t, enum k3_role role,
                         uint32_t layer)
{
    struct k3_shape shape = k3_role_shape(exam, role, layer);
    enum k3_form form = k3_role_form(role);
    const char *type = k3_type_info(t->type)->name;
    if (!fits(t, form, &shape)) note_shape(exam, t, form, &shape);
    if (form != K3_FORM_MATRIX && t->type != K3_TYPE_F32)
        k3_exam_note(exam, K3_ERR_UNSUPPORTED, "tensor %s is of type %s; vectors must be f32", t->name, type);
    if (form == K3_FORM_MATRIX && !k3_decoder(t->type))
        k3_exam_note(exam, K3_ERR_UNSUPPORTED, "tensor %s is of type %s, which cannot be decoded", t->name,
                     type);
}

static void bind(struct k3_exam *exam, enum k3_role role, uint32_t layer)
{
    if (!k3_role_in_layer(exam, role, layer)) return;
    enum k3_part part = k3_role_part(role);
    const struct k3_gguf_tensor *t = find(exam, role, layer);
    if (!has_part(exam, part, layer)) {
        if (t && key_of_part(part))
            k3_exam_note(exam, K3_ERR_FORMAT, "tensor %s is there but key %s is missing or 0", t->name,
                         key_of_part(part));
        return;
    }
    if (!t) {
        char name[K3_GGUF_NAME_MAX + 1];
        k3_role_tensor_name(role, layer, name);
        k3_exam_note(exam, K3_ERR_FORMAT, "tensor %s is missing", name);
        return;
    }
    check_tensor(exam, t, role, layer);
    exam->tensors[(size_t)layer * K3_ROLE_COUNT + role] = t;
    exam->used[t - exam->gguf->tensors] = true;
}

/* ---- all of them ---- */

/* Small models may be without; in a K3 a missing part would go unnoticed and give garbage. */
static void check_full_size(struct k3_exam *exam)
{
    const struct k3_hparams *hp = &exam->hp;
    const struct {
        bool there;
        const char *what;
    } parts[] = {
        {hp->q_rank != 0, "key " K3_KEY("attention.q_lora_rank")},
        {hp->has_latent, "key " K3_KEY("expert_latent_length")},
        {hp->res_block != 0, "key " K3_KEY("attn_res.block_size")},
        {hp->bounded_gate, "key " K3_KEY("kda.gate_lower_bound")},
        {hp->normalise_weights, "key " K3_KEY("expert_weights_norm")},
        {hp->situ_linear_beta != 0, "key " K3_KEY("activation.situ_linear_beta")},
        {exam->mla_gate, "tensor attn_gate of MLA layers"},
        {exam->latent_norm, "tensor ffn_routed_norm of MoE layers"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!parts[i].there)
            k3_exam_note(exam, K3_ERR_FORMAT,
                         "%s is missing or off, which a K3 of %d layers cannot be without", parts[i].what,
                         K3_FULL_LAYERS);
}

static void log_unused(const struct k3_exam *exam)
{
    const size_t shown = 8;
    size_t n = 0;
    for (size_t i = 0; i < exam->gguf->n_tensors; i++)
        if (!exam->used[i] && n++ < shown)
            k3_log("%s: tensor %s is not used", exam->file, exam->gguf->tensors[i].name);
    if (n > shown) k3_log("%s: %zu more tensors are not used", exam->file, n - shown);
}

void k3_exam_tensors(struct k3_exam *exam)
{
    uint32_t n_layers = exam->hp.n_layers;
    exam->tensors = calloc(n_layers ? (size_t)n_layers * K3_ROLE_COUNT : 1, sizeof(*exam->tensors));
    exam->used = calloc(exam->gguf->n_tensors ? exam->gguf->n_tensors : 1, sizeof *exam->used);
    if (!exam->tensors || !exam->used) {
        exam->out_of_memory = true;
        return;
    }
    exam->mla_gate = in_any_layer(exam, K3_MLA_GATE);
    exam->latent_norm = exam->hp.has_latent && in_any_layer(exam, K3_LATENT_NORM);
    for (uint32_t layer = 0; layer < n_layers; layer++)
        for (int role = 0; role < K3_ROLE_COUNT; role++) bind(exam, (enum k3_role)role, layer);
    if (n_layers == K3_FULL_LAYERS) check_full_size(exam);
    log_unused(exam);
}
