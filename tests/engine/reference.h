/* reference.h - reads reference values and compares logits with them. Everything here ends the test when it
 * fails. */
#ifndef TEST_REFERENCE_H
#define TEST_REFERENCE_H

#include <k3/k3.h>

struct prompt {
    char name[32];
    int32_t *ids; /* owned */
    size_t n;
};

struct prompts {
    struct prompt *list; /* owned */
    size_t n;
};

/* Lines "name ids" or "name<tab>text<tab>ids", ids separated by spaces; lines that begin with '#' are
 * skipped. */
struct prompts read_prompts(const char *path);
void free_prompts(struct prompts *prompts);
const struct prompt *find_prompt(const struct prompts *prompts, const char *name);

/* Reads a file of f32; *n is their number. NULL if there is no such file. End with free(). */
float *read_floats(const char *path, size_t *n);

/* A line "name value value ..." as numbers; *n of them. */
double *read_number_line(const char *path, const char *name, size_t *n);

struct difference {
    double max_abs;      /* over all logits */
    double relative_rms; /* of the difference, to the rms of the reference */
    double sum_kl;       /* nats, over the rows: reference to ours */
    size_t n_rows, n_top1;
};

/* ours, reference: [n_rows][n_vocab]. */
struct difference compare_logits(const float *ours, const float *reference, size_t n_rows, size_t n_vocab);

struct k3_model *open_model(const char *path, bool exact, int threads);
struct k3_session *new_session(struct k3_model *model, uint32_t batch);

/* Feeds ids to a new session, `batch` at a time, and returns the logits of every row. End with free(). */
float *prefill(struct k3_model *model, const int32_t *ids, size_t n, uint32_t batch);

/* Feeds a prompt and then the `n` greedy tokens of the reference in `dir` (greedy.txt, greedy_margin.txt) one
 * by one. Where our own choice is another, the reference's margin must be below `tolerance`. Returns the
 * logits that each choice was made from, [n][n_vocab]; end with free(). */
float *follow_greedy(struct k3_model *model, const char *dir, const struct prompt *p, size_t n,
                     double tolerance);

int32_t argmax(const float *logits, size_t n);

#endif
