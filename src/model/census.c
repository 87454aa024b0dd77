/* census.c - counts, and the list of problems, of any GGUF file. */
#include "model/census.h"
#include "model/model_internal.h"

#include <stdlib.h>
#include <string.h>

/* The role of an expert tensor, K3_ROLE_COUNT for others. By name, so that a file with problems is counted
 * too. */
static enum k3_role expert_role(const char *name)
{
    uint32_t layer;
    const char *rest;
    if (!k3_split_name(name, &layer, &rest)) return K3_ROLE_COUNT;
    for (int role = K3_FIRST_EXPERT_ROLE; role < K3_ROLE_COUNT; role++) {
        char wanted[K3_GGUF_NAME_MAX + 1];
        k3_role_tensor_name((enum k3_role)role, layer, wanted);
        if (!strcmp(name, wanted)) return (enum k3_role)role;
    }
    return K3_ROLE_COUNT;
}

static void count(struct k3_census *census, const struct k3_gguf_tensor *t)
{
    uint64_t weights = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    census->n_tensors++;
    census->bytes += t->bytes;
    census->parameters += weights;
    census->types[t->type].count++;
    census->types[t->type].bytes += t->bytes;

    enum k3_role role = expert_role(t->name);
    if (role == K3_ROLE_COUNT) return;
    census->n_expert_tensors++;
    census->expert_bytes += t->bytes;
    census->expert_parameters += weights;
    if (role == K3_EXPERTS_GATE) census->n_slots += t->ne[2];
}

static k3_status take_problems(struct k3_census *census, struct k3_exam *exam, struct k3_error *err)
{
    if (!exam->n_problems) return K3_OK;
    census->problems = calloc(exam->n_problems, sizeof *census->problems);
    if (!census->problems)
        return k3_fail_memory(err, "a list of problems", exam->n_problems * sizeof(char *));
    for (size_t i = 0; i < exam->n_problems; i++) {
        census->problems[i] = exam->problems[i].text;
        exam->problems[i].text = NULL;
    }
    census->n_problems = exam->n_problems;
    return K3_OK;
}

k3_status k3_census_take(const struct k3_gguf *gguf, struct k3_census *census, struct k3_error *err)
{
    struct k3_exam exam;
    memset(census, 0, sizeof *census);
    k3_status status = k3_exam_take(&exam, gguf, err);
    if (status != K3_OK) return status;
    for (size_t i = 0; i < gguf->n_tensors; i++) count(census, &gguf->tensors[i]);
    status = take_problems(census, &exam, err);
    k3_exam_free(&exam);
    return status;
}

void k3_census_free(struct k3_census *census)
{
    for (size_t i = 0; i < census->n_problems; i++) free(census->problems[i]);
    free(census->problems);
    memset(census, 0, sizeof *census);
}
