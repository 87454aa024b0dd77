/* vectors_kda.c - the delta-rule recurrence of one head, in chunks.
 *
 * FORMULA. Tokens t = 0 .. m-1 of a chunk, state S[key][value] from before it (architecture.md section 5):
 *
 *   D[s](t) = k[s] * alpha[s+1] * .. * alpha[t]      key s as it has decayed at token t, key channel by key channel
 *   c[t]    = alpha[0] * .. * alpha[t]
 *   A[t][s] = beta[t] * k[t] . D[s](t)               s < t
 *   P[t][s] = q[t] . D[s](t)                         s <= t
 *   U[t]    = beta[t] * (v[t] - S^T (k[t] c[t])) - sum_{s<t} A[t][s] U[s]
 *   o[t]    = S^T (q[t] c[t]) + sum_{s<=t} P[t][s] U[s]
 *   S       = diag(c[m-1]) S + sum_s D[s](m-1) U[s]^T
 *
 * The published form writes D with quotients of exponentials, which overflow in f32 after 17 tokens of strong decay.
 * Here D is carried along and multiplied by alpha <= 1 at every token: nothing can overflow, whatever the gate, and no
 * exponential is needed. With m = 1 this is the plain recurrence, so decode runs the same code.
 *
 * MAPPING. Value channels are lanes: they are independent of each other, so nothing is summed across a register. A strip
 * of a few registers of them goes through three steps, during which its part of S stays in the nearest cache:
 * products of S^T with two vectors a token, four vectors at a time in registers; U and o, token by token; S itself, four
 * keys at a time in registers. Sums over keys run from the first key to the last.
 *
 * COST. With d = 128: 3 d^2 multiply-adds a token with S, and 3 m d inside the chunk; as multiplication and addition
 * are two instructions, 7 thousand registers of 16 in all, 3.5 thousand cycles where two a cycle can start. S (64 KiB)
 * is read and written once a chunk: at one token a call 128 KiB a head, which is what bounds it. */
#include "ops/kda.h"
#include "ops/vectors_internal.h"

#define C       K3_KDA_CHUNK
#define MAX_DIM K3_MAX_KDA_DIM

/* Registers in a strip: when a token comes alone the state is read from far away, and long rows are better. */
#define STRIP       2
#define STRIP_ALONE (LANES == 16 ? 8 : 4)
#define MAX_STRIP   (8 * LANES)

/* The arrays of the head comment. */
struct chunk {
    float decayed[C][MAX_DIM];    /* D */
    float by_c[2 * C][MAX_DIM];   /* k[t] c[t], then q[t] c[t], for each t */
    float c[MAX_DIM];             /* of the last token */
    float products[C][2][C];      /* A[t], then P[t] */
    float kq[2][MAX_DIM];         /* k and q of the token that is being prepared */
    float u[C][MAX_STRIP];        /* of a strip */
    float seen[2 * C][MAX_STRIP]; /* S^T by_c, of a strip */
};

/* ---- what does not need the state ---- */

/* Rows of a head lie far apart (48 KiB at K3's size), where the processor does not guess them: those of the next chunk
 * are asked for while this one is computed. */
static void ask_for(const struct k3_kda_head *h, size_t t)
{
    size_t at = t * h->stride;
    if (t >= h->n) return;
    for (size_t i = 0; i < h->dim; i += 16) {
        __builtin_prefetch(h->q + at + i);
        __builtin_prefetch(h->k + at + i);
        __builtin_prefetch(h->v + at + i);
        __builtin_prefetch(h->alpha + at + i);
        __builtin_prefetch(h->o + at + i, 1);
    }
}

static void decay_keys(struct chunk *w, const float *alpha, size_t t, size_t dim)
{
    for (size_t s = 0; s < t; s++)
        for (size_t i = 0; i < dim; i++) w->decayed[s][i] *= alpha[i];
}

static void prepare(const struct k3_kda_head *h, struct chunk *w, size_t first, size_t m)
{
    size_t dim = h->dim;
    for (size_t t = 0; t < m; t++) {
        size_t at = (first + t) * h->stride;
        const float *q = h->q + at, *k = h->k + at, *alpha = h->alpha + at;
        float beta = h->beta[(first + t) * h->beta_stride];
        ask_for(h, first + t + C);
        decay_keys(w, alpha, t, dim);
        memcpy(w->decayed[t], k, dim * sizeof *k);
        for (size_t i = 0; i < dim; i++) w->c[i] = t ? w->c[i] * alpha[i] : alpha[i];
        for (size_t i = 0; i < dim; i++) w->by_c[2 * t][i] = k[i] * w->c[i];
        for (size_t i = 0; i < dim; i++) w->by_c[2 * t + 1][i] = q[i] * w->c[i];

        memcpy(w->kq[0], k, dim * sizeof *k);
        memcpy(w->kq[1], q, dim * sizeof *q);
        size_t s = 0;
        for (; s + 2 <= t + 1; s += 2)
            dots(w->kq[0], MAX_DIM, 2, w->decayed[s], MAX_DIM, 2, dim, &w->products[t][0][s], C);
        if (s <= t) dots(w->kq[0], MAX_DIM, 2, w->decayed[s], 0, 1, dim, &w->products[t][0][s], C);
        for (s = 0; s < t; s++) w->products[t][0][s] *= beta;
    }
}

/* ---- a strip ---- */

/* seen[r] = S^T by_c[r] for rows r = row .. row + n_rows - 1 and `strip` registers of values; both are constants. */
INLINE void look(struct chunk *w, const float *s, size_t stride, size_t row, size_t n_rows, size_t strip,
                 size_t dim)
{
    vec sums[4][8] = {0};
    for (size_t i = 0; i < dim; i++)
        EACH(r, n_rows) {
            vec x = all(w->by_c[row + r][i]);
            EACH(l, strip) sums[r][l] += x * load(s + i * stride + l * LANES);
        }
    EACH(r, n_rows)
        EACH(l, strip) store(w->seen[row + r] + l * LANES, sums[r][l]);
}

/* U and o of one token. */
INLINE void answer(struct chunk *w, size_t t, float beta, const float *v, float *o, size_t strip)
{
    EACH(l, strip) {
        vec u = all(beta) * (load(v + l * LANES) - load(w->seen[2 * t] + l * LANES));
        vec out = load(w->seen[2 * t + 1] + l * LANES);
        for (size_t s = 0; s < t; s++) {
            vec earlier = load(w->u[s] + l * LANES);
            u -= all(w->products[t][0][s]) * earlier;
            out += all(w->products[t][1][s]) * earlier;
        }
        store(w->u[t] + l * LANES, u);
        store(o + l * LANES, out + all(w->products[t][1][t]) * u);
    }
}

/* Rows key .. key + n_keys - 1 of the state after the chunk. */
INLINE void learn(const struct chunk *w, float *s, size_t stride, size_t key, size_t n_keys, size_t m,
                  size_t strip)
{
    vec rows[4][8];
    EACH(i, n_keys)
        EACH(l, strip) rows[i][l] = load(s + (key + i) * stride + l * LANES) * all(w->c[key + i]);
    for (size_t t = 0; t < m; t++)
        EACH(l, strip) {
            vec u = load(w->u[t] + l * LANES);
            EACH(i, n_keys) rows[i][l] += u * all(w->decayed[t][key + i]);
        }
    EACH(i, n_keys)
        EACH(l, strip) store(s + (key + i) * stride + l * LANES, rows[i][l]);
}

/* Where a strip is: its part of the state, and of a chunk's rows. */
struct strip {
    float *s;
    size_t s_stride;
    const float *v;
    float *o;
    size_t stride; /* of v and o */
    const float *beta;
    size_t beta_stride;
};

/* All three steps for a strip of `width` registers, which is a constant. */
INLINE void do_strip(struct chunk *w, const struct strip *x, size_t m, size_t dim, size_t width)
{
    size_t row = 0, key = 0;
    for (; width <= 2 && row + 4 <= 2 * m; row += 4) look(w, x->s, x->s_stride, row, 4, width, dim);
    for (; row < 2 * m; row += 2) look(w, x->s, x->s_stride, row, 2, width, dim);
    for (size_t t = 0; t < m; t++)
        answer(w, t, x->beta[t * x->beta_stride], x->v + t * x->stride, x->o + t * x->stride, width);
    for (; width <= 2 && key + 4 <= dim; key += 4) learn(w, x->s, x->s_stride, key, 4, m, width);
    for (; key < dim; key++) learn(w, x->s, x->s_stride, key, 1, m, width);
}

/* The last n values, when they do not fill a register: in a copy that has whole ones. */
static void do_rest(struct chunk *w, const struct strip *x, size_t m, size_t dim, size_t n)
{
    float s[MAX_DIM][LANES] = {0}, v[C][LANES] = {0}, o[C][LANES];
    for (size_t i = 0; i < dim; i++) memcpy(s[i], x->s + i * x->s_stride, n * sizeof **s);
    for (size_t t = 0; t < m; t++) memcpy(v[t], x->v + t * x->stride, n * sizeof **v);
    struct strip copy = {s[0], LANES, v[0], o[0], LANES, x->beta, x->beta_stride};
    do_strip(w, &copy, m, dim, 1);
    for (size_t i = 0; i < dim; i++) memcpy(x->s + i * x->s_stride, s[i], n * sizeof **s);
    for (size_t t = 0; t < m; t++) memcpy(x->o + t * x->stride, o[t], n * sizeof **o);
}

static void advance(struct strip *x, size_t n)
{
    x->s += n;
    x->v += n;
    x->o += n;
}

static void do_chunk(const struct k3_kda_head *h, struct chunk *w, size_t first, size_t m)
{
    size_t dim = h->dim, at = first * h->stride, left = dim;
    struct strip x = {h->state,      dim, h->v + at, h->o + at, h->stride, h->beta + first * h->beta_stride,
                      h->beta_stride};
    prepare(h, w, first, m);
    for (; m == 1 && left >= STRIP_ALONE * LANES;
         left -= STRIP_ALONE * LANES, advance(&x, STRIP_ALONE * LANES))
        do_strip(w, &x, 1, dim, STRIP_ALONE);
    for (; left >= STRIP * LANES; left -= STRIP * LANES, advance(&x, STRIP * LANES))
        do_strip(w, &x, m, dim, STRIP);
    for (; left >= LANES; left -= LANES, advance(&x, LANES)) do_strip(w, &x, m, dim, 1);
    if (left) do_rest(w, &x, m, dim, left);
}

void K3_OF_SET(k3_kda_head)(const struct k3_kda_head *head)
{
    struct chunk work;
    for (size_t first = 0; first < head->n; first += C)
        do_chunk(head, &work, first, head->n - first < C ? head->n - first : C);
}
