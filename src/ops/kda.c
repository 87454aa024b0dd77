/* kda.c - Kimi Delta Attention: convolution, normalisation and gate. The recurrence is in kda_recur.c. */
#include "ops/kda.h"

#include "ops/vmath.h"

#define CHANNEL_GRAIN 256

struct conv {
    const float *z, *taps;
    size_t n_taps, n, width;
    float *u;
};

static void conv_channels(void *ctx, size_t begin, size_t end, int thread)
{
    const struct conv *v = ctx;
    (void)thread;
    for (size_t t = 0; t < v->n; t++)
        for (size_t c = begin; c < end; c++) {
            float sum = 0;
            for (size_t j = 0; j < v->n_taps; j++)
                sum += v->taps[c * v->n_taps + j] * v->z[(t + j) * v->width + c];
            v->u[t * v->width + c] = k3_silu(sum);
        }
}

void k3_kda_conv(struct k3_compute *c, const float *z, const float *taps, size_t n_taps, size_t n,
                 size_t width, float *u)
{
    struct conv conv = {z, taps, n_taps, n, width, u};
    k3_pool_run(c->pool, conv_channels, &conv, width, CHANNEL_GRAIN);
}

struct heads {
    const struct k3_compute *c;
    float *x;
    size_t n_heads, dim;
    float scale;
    const float *a, *dt;
    bool bounded;
    float floor;
};

static void normalise_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct heads *w = ctx;
    (void)thread;
    for (size_t i = begin * w->n_heads; i < end * w->n_heads; i++) {
        float *x = w->x + i * w->dim;
        float scale = w->scale / sqrtf(k3_dot(w->c, x, x, w->dim) + 1e-6f);
        for (size_t d = 0; d < w->dim; d++) x[d] *= scale;
    }
}

void k3_kda_normalise(struct k3_compute *c, float *x, size_t n, size_t n_heads, size_t dim, float scale)
{
    struct heads work = {.c = c, .x = x, .n_heads = n_heads, .dim = dim, .scale = scale};
    k3_pool_run(c->pool, normalise_rows, &work, n, 1);
}

static void gate_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct heads *w = ctx;
    (void)thread;
    for (size_t t = begin; t < end; t++)
        for (size_t h = 0; h < w->n_heads; h++) {
            float *g = w->x + (t * w->n_heads + h) * w->dim;
            const float *dt = w->dt + h * w->dim;
            float a = w->a[h];
            if (w->bounded)
                for (size_t d = 0; d < w->dim; d++) g[d] = w->floor * k3_sigmoid(-a * (g[d] + dt[d]));
            else
                for (size_t d = 0; d < w->dim; d++) g[d] = a * k3_softplus(g[d] + dt[d]);
        }
}

void k3_kda_gate(struct k3_compute *c, float *r, const float *a, const float *dt, bool bounded, float floor,
                 size_t n, size_t n_heads, size_t dim)
{
    struct heads work = {
        .c = c, .x = r, .n_heads = n_heads, .dim = dim, .a = a, .dt = dt, .bounded = bounded, .floor = floor};
    k3_pool_run(c->pool, gate_rows, &work, n, 1);
}
