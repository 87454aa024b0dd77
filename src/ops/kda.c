/* kda.c - Kimi Delta Attention: divides tokens, channels and heads among threads. The loops are in vectors_kda.c and
 * vectors.c. */
#include "ops/kda.h"

#include "ops/vmath.h"

#define CHANNEL_GRAIN 256
#define HEAD_GRAIN    16

/* ---- convolution ---- */

struct convolution {
    const struct k3_compute *c;
    struct k3_conv all;
};

static void conv_channels(void *ctx, size_t begin, size_t end, int thread)
{
    const struct convolution *v = ctx;
    struct k3_conv part = v->all;
    (void)thread;
    part.z += begin;
    part.taps += begin * part.n_taps;
    part.u += begin;
    part.n_channels = end - begin;
    v->c->vectors->conv(&part);
}

void k3_kda_conv(struct k3_compute *c, const float *z, const float *taps, size_t n_taps, size_t n,
                 size_t width, float *u)
{
    struct convolution conv = {c, {z, taps, n, n_taps, width, width, u}};
    k3_pool_run(c->pool, conv_channels, &conv, width, CHANNEL_GRAIN);
}

/* ---- heads ---- */

struct heads {
    const struct k3_compute *c;
    float *x;
    size_t n_heads, dim;
    float scale;
    const float *a, *dt;
    bool bounded;
    float floor;
};

static void normalise_heads(void *ctx, size_t begin, size_t end, int thread)
{
    const struct heads *w = ctx;
    const struct k3_vectors *v = w->c->vectors;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        float *x = w->x + i * w->dim;
        v->scale(x, w->scale / sqrtf(v->dot(x, x, w->dim) + 1e-6f), w->dim);
    }
}

void k3_kda_normalise(struct k3_compute *c, float *x, size_t n, size_t n_heads, size_t dim, float scale)
{
    struct heads work = {.c = c, .x = x, .dim = dim, .scale = scale};
    k3_pool_run(c->pool, normalise_heads, &work, n * n_heads, 4 * HEAD_GRAIN);
}

static void gate_heads(void *ctx, size_t begin, size_t end, int thread)
{
    const struct heads *w = ctx;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        size_t h = i % w->n_heads;
        float *g = w->x + i * w->dim, a = w->a[h];
        const float *dt = w->dt + h * w->dim;
        if (w->bounded)
            w->c->vectors->decay(g, dt, a, w->floor, w->dim);
        else
            for (size_t d = 0; d < w->dim; d++) g[d] = a * k3_softplus(g[d] + dt[d]);
    }
}

void k3_kda_gate(struct k3_compute *c, float *r, const float *a, const float *dt, bool bounded, float floor,
                 size_t n, size_t n_heads, size_t dim)
{
    struct heads work = {
        .c = c, .x = r, .n_heads = n_heads, .dim = dim, .a = a, .dt = dt, .bounded = bounded, .floor = floor};
    k3_pool_run(c->pool, gate_heads, &work, n * n_heads, HEAD_GRAIN);
}

/* ---- recurrence ---- */

struct recurrence {
    const struct k3_compute *c;
    struct k3_kda_head first; /* head 0 */
};

static void recur_heads(void *ctx, size_t begin, size_t end, int thread)
{
    const struct recurrence *r = ctx;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        struct k3_kda_head head = r->first;
        size_t at = i * head.dim;
        head.q += at;
        head.k += at;
        head.v += at;
        head.alpha += at;
        head.o += at;
        head.beta += i;
        head.state += at * head.dim;
        r->c->vectors->kda_head(&head);
    }
}

void k3_kda_recur(struct k3_compute *c, const float *q, const float *k, const float *v, const float *alpha,
                  const float *beta, size_t n, size_t n_heads, size_t dim, float *state, float *o)
{
    struct k3_kda_head first = {q, k, v, alpha, beta, n, dim, n_heads * dim, n_heads, state, o};
    struct recurrence r = {c, first};
    k3_pool_run(c->pool, recur_heads, &r, n_heads, 1);
}
