/* kda_recur.c - the delta-rule recurrence in chunks.
 *
 * For one head, tokens t = 0 .. m-1 of a chunk, state M[value][key] from before it (architecture.md section
 * 5):
 *
 *   D[s](t) = k[s] * alpha[s+1] * .. * alpha[t]      key s as it has decayed at token t, key channel by key
 * channel c[t]    = alpha[0] * .. * alpha[t] A[t][s] = beta[t] * k[t] . D[s](t)               s < t P[t][s] =
 * q[t] . D[s](t)                         s <= t U[t]    = beta[t] * (v[t] - M (k[t] c[t])) - sum_{s<t}
 * A[t][s] U[s] o[t]    = M (q[t] c[t]) + sum_{s<=t} P[t][s] U[s] M       = M diag(c[m-1]) + sum_s U[s]
 * D[s](m-1)^T
 *
 * The published form writes D with quotients of exponentials, which overflow in f32 after 17 tokens of strong
 * decay. Here D is carried along and multiplied by alpha <= 1 at every token: nothing can overflow, whatever
 * the gate, and no exponential is needed. With m = 1 this is the plain recurrence, so decode runs the same
 * code.
 *
 * Work per token and head, dim = d: 4 d^2 multiply-adds with M (a third of them its update), and 2 m d + m d
 * in the chunk. M (64 KiB at d = 128) is read twice and written once per chunk. One thread does a head. */
#include "ops/kda.h"

#include <string.h>

#define C       K3_KDA_CHUNK
#define MAX_DIM K3_MAX_KDA_DIM

struct recurrence {
    const struct k3_compute *c;
    const float *q, *k, *v, *alpha, *beta;
    size_t n, n_heads, dim;
    float *state, *o;
};

/* The arrays of the head comment. */
struct chunk {
    float decayed_k[C][MAX_DIM]; /* D */
    float kc[C][MAX_DIM], qc[C][MAX_DIM];
    float decay[MAX_DIM]; /* c */
    float a[C][C], p[C][C];
    float u[C];
};

/* Everything that does not need the state. `at` is the first token's row of the head, `stride` the way to the
 * next. */
static void prepare(const struct recurrence *r, struct chunk *w, size_t at, size_t stride, const float *beta,
                    size_t m)
{
    size_t dim = r->dim;
    for (size_t t = 0; t < m; t++) {
        const float *q = r->q + at + t * stride, *k = r->k + at + t * stride,
                    *alpha = r->alpha + at + t * stride;
        for (size_t s = 0; s < t; s++)
            for (size_t i = 0; i < dim; i++) w->decayed_k[s][i] *= alpha[i];
        memcpy(w->decayed_k[t], k, dim * sizeof *k);
        for (size_t i = 0; i < dim; i++) {
            w->decay[i] = t ? w->decay[i] * alpha[i] : alpha[i];
            w->kc[t][i] = k[i] * w->decay[i];
            w->qc[t][i] = q[i] * w->decay[i];
        }
        for (size_t s = 0; s < t; s++)
            w->a[t][s] = beta[t * r->n_heads] * k3_dot(r->c, k, w->decayed_k[s], dim);
        for (size_t s = 0; s <= t; s++) w->p[t][s] = k3_dot(r->c, q, w->decayed_k[s], dim);
    }
}

static void do_chunk(const struct recurrence *r, struct chunk *w, size_t head, size_t first, size_t m)
{
    size_t dim = r->dim, stride = r->n_heads * dim, at = first * stride + head * dim;
    const float *beta = r->beta + first * r->n_heads + head;
    prepare(r, w, at, stride, beta, m);

    for (size_t j = 0; j < dim; j++) { /* value channels are independent of each other */
        float *row = r->state + (head * dim + j) * dim;
        for (size_t t = 0; t < m; t++) {
            float u = beta[t * r->n_heads] * (r->v[at + t * stride + j] - k3_dot(r->c, w->kc[t], row, dim));
            for (size_t s = 0; s < t; s++) u -= w->a[t][s] * w->u[s];
            w->u[t] = u;
            float o = k3_dot(r->c, w->qc[t], row, dim);
            for (size_t s = 0; s <= t; s++) o += w->p[t][s] * w->u[s];
            r->o[at + t * stride + j] = o;
        }
        for (size_t i = 0; i < dim; i++) row[i] *= w->decay[i];
        for (size_t t = 0; t < m; t++)
            for (size_t i = 0; i < dim; i++) row[i] += w->u[t] * w->decayed_k[t][i];
    }
}

static void recur_heads(void *ctx, size_t begin, size_t end, int thread)
{
    const struct recurrence *r = ctx;
    struct chunk work;
    (void)thread;
    for (size_t head = begin; head < end; head++)
        for (size_t first = 0; first < r->n; first += C)
            do_chunk(r, &work, head, first, r->n - first < C ? r->n - first : C);
}

void k3_kda_recur(struct k3_compute *c, const float *q, const float *k, const float *v, const float *alpha,
                  const float *beta, size_t n, size_t n_heads, size_t dim, float *state, float *o)
{
    struct recurrence r = {c, q, k, v, alpha, beta, n, n_heads, dim, state, o};
    k3_pool_run(c->pool, recur_heads, &r, n_heads, 1);
}
