/* norm.c - RMS norm and the AttnRes mix, one row of a batch at a time. */
#include "ops/norm.h"

#include "ops/vmath.h"

#include <string.h>

void k3_rms_norm_row(const struct k3_compute *c, const float *x, const float *w, float eps, size_t width,
                     float *y)
{
    float scale = 1.0f / sqrtf(k3_dot(c, x, x, width) / (float)width + eps);
    for (size_t i = 0; i < width; i++) y[i] = w[i] * (x[i] * scale);
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
    k3_pool_run(c->pool, norm_rows, &norm, n, 4);
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

static void mix_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct mix *m = ctx;
    const struct k3_streams *s = m->streams;
    size_t n_sources = s->n_bank + 1;
    (void)thread;

    for (size_t i = begin; i < end; i++) {
        size_t at = (m->rows ? m->rows[i] : i) * m->width;
        float prob[K3_MAX_BANK + 1], top = -INFINITY, sum = 0;
        for (size_t j = 0; j < n_sources; j++) {
            const float *source = (j < s->n_bank ? s->bank[j] : s->p) + at;
            float mean = k3_dot(m->c, source, source, m->width) / (float)m->width;
            prob[j] = k3_dot(m->c, m->score, source, m->width) / sqrtf(mean + m->eps);
            if (prob[j] > top) top = prob[j];
        }
        for (size_t j = 0; j < n_sources; j++) {
            prob[j] = k3_expf(prob[j] - top);
            sum += prob[j];
        }
        float *y = m->y + i * m->width;
        memset(y, 0, m->width * sizeof *y);
        for (size_t j = 0; j < n_sources; j++) {
            const float *source = (j < s->n_bank ? s->bank[j] : s->p) + at;
            prob[j] /= sum;
            for (size_t d = 0; d < m->width; d++) y[d] += prob[j] * source[d];
        }
        if (m->probs) memcpy(m->probs + i * n_sources, prob, n_sources * sizeof *prob);
    }
}

void k3_mix(struct k3_compute *c, const struct k3_streams *streams, const float *score, float eps,
            const uint32_t *rows, size_t n, size_t width, float *y, float *probs)
{
    struct mix mix = {c, streams, score, eps, rows, width, y, probs};
    k3_pool_run(c->pool, mix_rows, &mix, n, 1);
}
