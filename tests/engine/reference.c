/* reference.c - reads reference values and compares logits with them. */
#include "reference.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_all(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(*n + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    bytes[*n] = 0;
    fclose(f);
    return bytes;
}

static double *parse_numbers(const char *text, size_t *n)
{
    double *values = malloc((strlen(text) / 2 + 1) * sizeof *values);
    assert_non_null(values);
    *n = 0;
    for (char *end;; text = end) {
        double value = strtod(text, &end);
        if (end == text) return values;
        values[(*n)++] = value;
    }
}

static void parse_prompt(char *line, struct prompt *prompt)
{
    size_t name = strcspn(line, " \t");
    assert_true(name < sizeof prompt->name);
    memcpy(prompt->name, line, name);
    char *tab = strrchr(line, '\t');
    double *ids = parse_numbers(tab ? tab : line + name, &prompt->n);
    prompt->ids = malloc(prompt->n * sizeof *prompt->ids);
    assert_non_null(prompt->ids);
    for (size_t i = 0; i < prompt->n; i++) prompt->ids[i] = (int32_t)ids[i];
    free(ids);
}

struct prompts read_prompts(const char *path)
{
    size_t n;
    char *text = read_all(path, &n);
    if (!text) fail_msg("%s cannot be read", path);
    struct prompts prompts = {calloc(64, sizeof(struct prompt)), 0};
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
        if (*line && *line != '#') {
            assert_true(prompts.n < 64);
            parse_prompt(line, &prompts.list[prompts.n++]);
        }
    free(text);
    assert_true(prompts.n > 0);
    return prompts;
}

void free_prompts(struct prompts *prompts)
{
    for (size_t i = 0; i < prompts->n; i++) free(prompts->list[i].ids);
    free(prompts->list);
}

const struct prompt *find_prompt(const struct prompts *prompts, const char *name)
{
    for (size_t i = 0; i < prompts->n; i++)
        if (!strcmp(prompts->list[i].name, name)) return &prompts->list[i];
    fail_msg("no prompt %s", name);
    return NULL;
}

float *read_floats(const char *path, size_t *n)
{
    char *bytes = read_all(path, n);
    *n /= sizeof(float);
    return (float *)bytes;
}

double *read_number_line(const char *path, const char *name, size_t *n)
{
    size_t size, length = strlen(name);
    char *text = read_all(path, &size);
    if (!text) fail_msg("%s cannot be read", path);
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
        if (!strncmp(line, name, length) && (line[length] == ' ' || line[length] == '\t')) {
            double *values = parse_numbers(line + length, n);
            free(text);
            return values;
        }
    fail_msg("%s has no line %s", path, name);
    return NULL;
}

static double log_sum_exp(const float *x, size_t n)
{
    double top = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) top = fmax(top, (double)x[i]);
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - top);
    return top + log(sum);
}

int32_t argmax(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

struct difference compare_logits(const float *ours, const float *reference, size_t n_rows, size_t n_vocab)
{
    struct difference d = {.n_rows = n_rows};
    double square = 0, reference_square = 0;
    for (size_t row = 0; row < n_rows; row++) {
        const float *a = ours + row * n_vocab, *b = reference + row * n_vocab;
        double za = log_sum_exp(a, n_vocab), zb = log_sum_exp(b, n_vocab);
        for (size_t i = 0; i < n_vocab; i++) {
            double difference = (double)a[i] - (double)b[i];
            if (!(fabs(difference) <= d.max_abs)) d.max_abs = fabs(difference); /* NaN counts */
            square += difference * difference;
            reference_square += (double)b[i] * (double)b[i];
            d.sum_kl += exp((double)b[i] - zb) * (((double)b[i] - zb) - ((double)a[i] - za));
        }
        d.n_top1 += argmax(a, n_vocab) == argmax(b, n_vocab);
    }
    d.relative_rms = sqrt(square / reference_square);
    return d;
}

struct k3_model *open_model(const char *path, bool exact, int threads)
{
    struct k3_error err;
    struct k3_model *model;
    struct k3_model_options options = {.exact = exact, .threads = threads};
    if (k3_model_open(path, &options, &model, &err) != K3_OK) fail_msg("%s", err.message);
    return model;
}

struct k3_session *new_session(struct k3_model *model, uint32_t batch)
{
    struct k3_error err;
    struct k3_session *session;
    struct k3_session_options options = {.batch = batch};
    if (k3_session_create(model, &options, &session, &err) != K3_OK) fail_msg("%s", err.message);
    return session;
}

float *prefill(struct k3_model *model, const int32_t *ids, size_t n, uint32_t batch)
{
    struct k3_error err;
    struct k3_model_info info;
    k3_model_get_info(model, &info);
    float *logits = malloc(n * info.n_vocab * sizeof *logits);
    assert_non_null(logits);
    struct k3_session *session = new_session(model, batch);
    if (k3_session_feed(session, ids, n, NULL, n, logits, &err) != K3_OK) fail_msg("%s", err.message);
    k3_session_free(session);
    return logits;
}

float *follow_greedy(struct k3_model *model, const char *dir, const struct prompt *p, size_t n,
                     double tolerance)
{
    char path[256];
    size_t n_ids, n_margins;
    snprintf(path, sizeof path, "%s/greedy.txt", dir);
    double *ids = read_number_line(path, p->name, &n_ids);
    snprintf(path, sizeof path, "%s/greedy_margin.txt", dir);
    double *margins = read_number_line(path, p->name, &n_margins);
    assert_int_equal(n_ids, n);
    assert_int_equal(n_margins, n);

    struct k3_error err;
    struct k3_model_info info;
    k3_model_get_info(model, &info);
    float *logits = malloc(n * info.n_vocab * sizeof *logits);
    assert_non_null(logits);
    struct k3_session *session = new_session(model, 0);
    if (k3_session_feed(session, p->ids, p->n, NULL, 1, logits, &err) != K3_OK) fail_msg("%s", err.message);
    for (size_t i = 0; i < n; i++) {
        float *row = logits + i * info.n_vocab;
        int32_t best = argmax(row, info.n_vocab), id = (int32_t)ids[i];
        if (best != id && margins[i] >= tolerance)
            fail_msg("%s: greedy token %zu is %d, expected %d (margin %g)", p->name, i, best, id, margins[i]);
        if (i + 1 < n && k3_session_feed(session, &id, 1, NULL, 1, row + info.n_vocab, &err) != K3_OK)
            fail_msg("%s", err.message);
    }
    k3_session_free(session);
    free(ids);
    free(margins);
    return logits;
}
