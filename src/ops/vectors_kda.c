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
    for (size_t i = 0; i < dim; i++) UNROLL for (size_t r = 0; r < n_rows; r++)
        {
            vec x = all(w->by_c[row + r][i]);
            UNROLL for (size_t l = 0; l < strip; l++) sums[r][l] += x * load(s + i * stride + l * LANES);
        }
    UNROLL for (size_t r = 0; r < n_rows; r++) UNROLL for (size_t l = 0; l < strip; l++)
        store(w->seen[row + r] + l * LANES, sums[r][l]);
}

/* U and o of one token. */
INLINE void answer(struct chunk *w, size_t t, float beta, const float *v, float *o, size_t strip)
{
    UNROLL for (size_t l = 0; l < strip; l++)
    {
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
    UNROLL for (size_t i = 0; i < n_keys; i++) UNROLL for (size_t l = 0; l < strip; l++) rows[i][l] =
        load(s + (key + i) * stride + l * LANES) * all(w->c[key + i]);
    for (size_t t = 0; t < m; t++) UNROLL for (size_t l = 0; l < strip; l++)
        {
            vec u = load(w->u[t] + l * LANES);
            UNROLL for (size_t i = 0; i < n_keys; i++) rows[i][l] += u * all(w->decayed[t][key + i]);
        }
    UNROLL for (size_t i = 0; i < n_keys; i++) UNROLL for (size_t l = 0; l < strip; l++)
        store(s + (key + i) * stride + l * LANES, rows[i][l]);
}

/* All three steps for `strip` registers of values. s, v and o begin at the strip; v and o have rows `stride` apart. */
INLINE void do_strip(struct chunk *w, size_t m, size_t dim, float *s, size_t s_stride, const float *v,
                     float *o, size_t stride, const float *beta, size_t beta_stride, size_t strip)
{
    size_t row = 0, key = 0;
    for (; strip <= 2 && row + 4 <= 2 * m; row += 4) look(w, s, s_stride, row, 4, strip, dim);
    for (; row < 2 * m; row += 2) look(w, s, s_stride, row, 2, strip, dim);
    for (size_t t = 0; t < m; t++) answer(w, t, beta[t * beta_stride], v + t * stride, o + t * stride, strip);
    for (; strip <= 2 && key + 4 <= dim; key += 4) learn(w, s, s_stride, key, 4, m, strip);
    for (; key < dim; key++) learn(w, s, s_stride, key, 1, m, strip);
}

/* The last values, when they do not fill a register: in a copy that has whole ones. */
static void do_rest(struct chunk *w, size_t m, size_t dim, float *s, const float *v, float *o, size_t stride,
                    const float *beta, size_t beta_stride, size_t n)
{
    float copy[MAX_DIM][LANES] = {0}, values[C][LANES] = {0}, out[C][LANES];
    for (size_t i = 0; i < dim; i++) memcpy(copy[i], s + i * dim, n * sizeof *s);
    for (size_t t = 0; t < m; t++) memcpy(values[t], v + t * stride, n * sizeof *v);
    do_strip(w, m, dim, copy[0], LANES, values[0], out[0], LANES, beta, beta_stride, 1);
    for (size_t i = 0; i < dim; i++) memcpy(s + i * dim, copy[i], n * sizeof *s);
    for (size_t t = 0; t < m; t++) memcpy(o + t * stride, out[t], n * sizeof *o);
}

static void do_chunk(const struct k3_kda_head *h, struct chunk *w, size_t first, size_t m)
{
    size_t dim = h->dim, at = first * h->stride, j = 0, beta_stride = h->beta_stride;
    const float *v = h->v + at, *beta = h->beta + first * beta_stride;
    float *o = h->o + at, *s = h->state;
    prepare(h, w, first, m);
    for (; m == 1 && j + STRIP_ALONE * LANES <= dim; j += STRIP_ALONE * LANES)
        do_strip(w, 1, dim, s + j, dim, v + j, o + j, h->stride, beta, beta_stride, STRIP_ALONE);
    for (; j + STRIP * LANES <= dim; j += STRIP * LANES)
        do_strip(w, m, dim, s + j, dim, v + j, o + j, h->stride, beta, beta_stride, STRIP);
    for (; j + LANES <= dim; j += LANES)
        do_strip(w, m, dim, s + j, dim, v + j, o + j, h->stride, beta, beta_stride, 1);
    if (j < dim) do_rest(w, m, dim, s + j, v + j, o + j, h->stride, beta, beta_stride, dim - j);
}

void K3_OF_SET(k3_kda_head)(const struct k3_kda_head *head)
{
    struct chunk work;
    for (size_t first = 0; first < head->n; first += C)
        do_chunk(head, &work, first, head->n - first < C ? head->n - first : C);
}
