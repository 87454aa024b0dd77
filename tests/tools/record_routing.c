/* record_routing.c MODEL WHAT N - writes the routing of N tokens as a trace (tools/routing.h) to standard output.
 *
 * WHAT is random (ids as k3bench has them, fed together), greedy or sampled (an answer to eight such ids), or a file
 * of text, of which the first N tokens are fed. */
#include "engine/engine_internal.h"
#include "ops/cpu_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH  256
#define PROMPT 8

struct recording {
    uint32_t n_dense, n_moe, top_k;
    uint32_t *ids; /* [BATCH][n_moe][top_k] of the tokens fed last */
};

static void record(void *ctx, const char *name, int layer, size_t row, const float *values, size_t n_rows,
                   size_t width)
{
    struct recording *r = ctx;
    if (strcmp(name, "ffn_moe_topk") != 0) return;
    for (size_t i = 0; i < n_rows * width; i++)
        r->ids[((row + i / width) * r->n_moe + (size_t)layer - r->n_dense) * r->top_k + i % width] =
            (uint32_t)values[i];
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void print_tokens(struct recording *r, size_t first, size_t n)
{
    uint32_t *ids = r->ids;
    for (size_t t = 0; t < n; t++) {
        printf("{\"tok\": %zu, \"layers\": [", first + t);
        for (uint32_t layer = 0; layer < r->n_moe; layer++, ids += r->top_k) {
            qsort(ids, r->top_k, sizeof *ids, ascending);
            for (uint32_t i = 0; i < r->top_k; i++) printf("%s%u", i ? ", " : layer ? ", [" : "[", ids[i]);
            printf("]");
        }
        printf("]}\n");
    }
}

static void die(const struct k3_error *err)
{
    fprintf(stderr, "record_routing: %s\n", err->message);
    exit(1);
}

static void random_ids(int32_t *ids, size_t n, uint32_t n_vocab)
{
    uint64_t x = 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((x >> 33) % n_vocab);
    }
}

static size_t text_ids(const char *model, const char *path, int32_t *ids, size_t n)
{
    struct k3_error err;
    struct k3_tokenizer *tokenizer;
    struct k3_tokens tokens = {0};
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    size_t n_text = file ? fread(text, 1, sizeof text, file) : 0;
    if (file) fclose(file);
    if (k3_tokenizer_open(model, &tokenizer, &err) ||
        k3_tokenize(tokenizer, text, n_text, false, &tokens, &err))
        die(&err);
    if (tokens.n < n) n = tokens.n;
    memcpy(ids, tokens.ids, n * sizeof *ids);
    k3_tokens_free(&tokens);
    k3_tokenizer_close(tokenizer);
    return n;
}

int main(int argc, char **argv)
{
    if (argc != 4) return fprintf(stderr, "usage: record_routing MODEL random|greedy|sampled|FILE N\n"), 1;
    struct k3_error err;
    struct k3_model *model;
    struct k3_session *session;
    struct k3_sampler *sampler;
    struct k3_sampling sampling = {.temperature = strcmp(argv[2], "sampled") ? 0 : 1, .seed = 1};
    bool decode = !strcmp(argv[2], "greedy") || !strcmp(argv[2], "sampled");
    size_t n = strtoul(argv[3], NULL, 10), at = 0;
    if (k3_model_open(argv[1], NULL, &model, &err) || k3_session_create(model, NULL, &session, &err) ||
        k3_sampler_create(&sampling, model->info.n_vocab, &sampler, &err))
        die(&err);

    const struct k3_hparams *hp = &model->plan->hp;
    struct recording r = {hp->n_dense_layers, hp->n_layers - hp->n_dense_layers, hp->top_k, NULL};
    struct k3_tap tap = {record, &r};
    r.ids = calloc((size_t)BATCH * r.n_moe * r.top_k, sizeof *r.ids);
    int32_t *ids = calloc(n + PROMPT + 1, sizeof *ids);
    float *logits = calloc(hp->n_vocab, sizeof *logits);
    k3_cpu_device_set_tap(model->device, &tap);

    random_ids(ids, decode ? PROMPT : n, hp->n_vocab);
    if (!decode && strcmp(argv[2], "random")) n = text_ids(argv[1], argv[2], ids, n);
    size_t known = decode ? PROMPT : n, end = decode ? PROMPT + n : n;
    while (at < end) {
        size_t part = known - at < BATCH ? known - at : BATCH;
        if (k3_session_feed(session, ids + at, part, NULL, 1, logits, &err)) die(&err);
        if (!decode || at >= PROMPT) print_tokens(&r, at, part);
        at += part;
        if (decode && at == known) ids[known++] = k3_sampler_pick(sampler, logits);
    }
    k3_sampler_free(sampler);
    k3_session_free(session);
    k3_model_close(model);
    free(logits);
    free(ids);
    free(r.ids);
    return 0;
}
