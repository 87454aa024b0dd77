/* norm.c - RMS norm and the AttnRes mix, one row of a batch at a time. */
#include "ops/norm.h"

#include "ops/vmath.h"

#include <string.h>

/* Values that are worth a piece of work. */
#define VALUE_GRAIN 8192

static size_t grain(size_t width)
{
    return width < VALUE_GRAIN ? VALUE_GRAIN / width : 1;
}

void k3_rms_norm_row(const struct k3_compute *c, const float *x, const float *w, float eps, size_t width,
                     float *y)
{
    const struct k3_vectors *v = c->vectors;
    v->norm(x, w, 1.0f / sqrtf(v->dot(x, x, width) / (float)width + eps), y, width);
}

struct norm {
    const struct k3_compute *c;
    const float *x, *w;
    float eps;
    size_t width;
    float *y;
};

static void norm_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct norm *n = ctx;
    (void)thread;
    for (size_t t = begin; t < end; t++)
        k3_rms_norm_row(n->c, n->x + t * n->width, n->w, n->eps, n->width, n->y + t * n->width);
}

void k3_rms_norm(struct k3_compute *c, const float *x, const float *w, float eps, size_t n, size_t width,
                 float *y)
{
    struct norm norm = {c, x, w, eps, width, y};
    k3_pool_run(c->pool, norm_rows, &norm, n, grain(width));
}

struct mix {
    const struct k3_compute *c;
    const struct k3_streams *streams;
    const float *score;
    float eps;
    const uint32_t *rows;
    size_t width;
    float *y, *probs;
};

/* One row of the result. */
static void mix_row(const struct mix *m, size_t i)
{
    const struct k3_vectors *v = m->c->vectors;
    const struct k3_streams *s = m->streams;
    size_t n_sources = s->n_bank + 1, width = m->width, at = (m->rows ? m->rows[i] : i) * width;
    const float *sources[K3_MAX_BANK + 1];
    float prob[K3_MAX_BANK + 1], top = -INFINITY, sum = 0, *y = m->y + i * width;

    for (size_t j = 0; j < n_sources; j++) {
        float square;
        sources[j] = (j < s->n_bank ? s->bank[j] : s->p) + at;
        v->square_and_dot(sources[j], m->score, width, &square, &prob[j]);
        prob[j] /= sqrtf(square / (float)width + m->eps);
        if (prob[j] > top) top = prob[j];
    }
    for (size_t j = 0; j < n_sources; j++) {
        prob[j] = k3_expf(prob[j] - top);
        sum += prob[j];
    }
    memset(y, 0, width * sizeof *y);
    for (size_t j = 0; j < n_sources; j++) {
        prob[j] /= sum;
        v->add_scaled(y, prob[j], sources[j], width);
    }
    if (m->probs) memcpy(m->probs + i * n_sources, prob, n_sources * sizeof *prob);
}

static void mix_rows(void *ctx, size_t begin, size_t end, int thread)
{
    (void)thread;
    for (size_t i = begin; i < end; i++) mix_row(ctx, i);
}

void k3_mix(struct k3_compute *c, const struct k3_streams *streams, const float *score, float eps,
            const uint32_t *rows, size_t n, size_t width, float *y, float *probs)
{
    struct mix mix = {c, streams, score, eps, rows, width, y, probs};
    k3_pool_run(c->pool, mix_rows, &mix, n, 1);
}
