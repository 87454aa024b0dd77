/* inspect.h - the two ways to show what k3tool inspect found. */
#ifndef K3_TOOLS_INSPECT_H
#define K3_TOOLS_INSPECT_H

#include "model/census.h"

struct k3_inspection {
    const char *path;        /* as given */
    struct k3_gguf *gguf;    /* NULL if it could not be opened */
    struct k3_census census; /* empty then */
    struct k3_error broken;  /* why not, or what is wrong with the tokenizer; status K3_OK: neither */
};

/* How many things are wrong, and the i-th of them as a sentence. */
size_t k3_inspection_problems(const struct k3_inspection *found);
const char *k3_inspection_problem(const struct k3_inspection *found, size_t i);

/* general.architecture, or "" with n 0. */
struct k3_gguf_string k3_inspection_architecture(const struct k3_inspection *found);

/* Element i of an array of f32 or f64. */
double k3_inspection_real(const struct k3_gguf_value *value, uint64_t i);

/* A table for people, on standard output; needs an open gguf. */
void k3_inspection_table(const struct k3_inspection *found);

/* One JSON object, on standard output. */
k3_status k3_inspection_json(const struct k3_inspection *found, struct k3_error *err);

#endif
