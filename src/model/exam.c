/* exam.c - one look at a file, from which both the plan and the census are made. */
#include "model/model_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void k3_exam_note_error(struct k3_exam *exam, const struct k3_error *err)
{
    size_t n = exam->n_problems;
    if ((n & (n - 1)) == 0) { /* room for twice as many */
        struct k3_problem *grown = realloc(exam->problems, (n ? 2 * n : 1) * sizeof *grown);
        if (!grown) {
            exam->out_of_memory = true;
            return;
        }
        exam->problems = grown;
    }
    char *text = strdup(err->message);
    if (text)
        exam->problems[exam->n_problems++] = (struct k3_problem){err->status, text};
    else
        exam->out_of_memory = true;
}

void k3_exam_note(struct k3_exam *exam, k3_status status, const char *format, ...)
{
    struct k3_error err;
    char what[K3_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    k3_fail(&err, status, "%s: %s", exam->file, what);
    k3_exam_note_error(exam, &err);
}

k3_status k3_exam_take(struct k3_exam *exam, const struct k3_gguf *gguf, struct k3_error *err)
{
    memset(exam, 0, sizeof *exam);
    exam->gguf = gguf;
    exam->file = k3_file_name(gguf->shards[0].path);
    if (k3_exam_architecture(exam)) {
        k3_exam_foreign(exam);
        k3_exam_hparams(exam);
        k3_exam_tensors(exam);
    }
    if (!exam->out_of_memory) return K3_OK;
    k3_exam_free(exam);
    return k3_fail_memory(err, "the list of tensors", gguf->n_tensors * sizeof(void *));
}

void k3_exam_free(struct k3_exam *exam)
{
    for (size_t i = 0; i < exam->n_problems; i++) free(exam->problems[i].text);
    free(exam->problems);
    free(exam->tensors);
    free(exam->used);
    memset(exam, 0, sizeof *exam);
}
