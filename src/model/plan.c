/* plan.c - a model file that was found in order, and where its tensors are. */
#include "model/model_internal.h"

#include <stdlib.h>

k3_status k3_plan_open(const char *path, struct k3_plan **plan, struct k3_error *err)
{
    struct k3_exam exam = {0};
    struct k3_plan *p = calloc(1, sizeof *p);
    if (!p) return k3_fail_memory(err, "the plan of a model", sizeof *p);

    k3_status status = k3_gguf_open(path, &p->gguf, err);
    if (status == K3_OK) status = k3_exam_take(&exam, p->gguf, err);
    if (status == K3_OK && exam.n_problems)
        status = k3_fail(err, exam.problems[0].status, "%s", exam.problems[0].text);
    if (status == K3_OK) {
        p->hp = exam.hp;
        p->tensors = exam.tensors;
        exam.tensors = NULL;
        *plan = p;
    } else {
        k3_plan_close(p);
    }
    k3_exam_free(&exam);
    return status;
}

void k3_plan_close(struct k3_plan *plan)
{
    if (!plan) return;
    k3_gguf_close(plan->gguf);
    free(plan->tensors);
    free(plan);
}

const struct k3_gguf_tensor *k3_plan_tensor(const struct k3_plan *plan, uint32_t layer, enum k3_role role)
{
    size_t row = role < K3_FIRST_LAYER_ROLE ? 0 : layer;
    return plan->tensors[row * K3_ROLE_COUNT + role];
}
