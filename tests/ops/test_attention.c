/* KDA, MLA and the AttnRes mix against the formulas of the specification in f64. */
#include "ops/kda.h"
#include "ops/mla.h"
#include "ops/norm.h"
#include "quant/half.h"

#include "random.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

static struct k3_pool *pools[3];
static const int n_threads[3] = {1, 2, 5};

static struct k3_compute computer(int i)
{
    struct k3_compute c;
    assert_int_equal(k3_compute_create(&c, pools[i], true, 64, 512, NULL), K3_OK);
    return c;
}

static float *randoms(struct test_random *r, size_t n, float scale)
{
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = scale * test_random_normal(r);
    return x;
}

static void near(const char *what, const float *got, const double *want, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance))
            fail_msg("%s[%zu] is %.9g, expected %.9g", what, i, (double)got[i], want[i]);
}

/* ---- KDA ---- */

struct kda {
    size_t n, heads, dim;
    float *q, *k, *v, *alpha, *beta;
};

static struct kda make_kda(size_t n, size_t heads, size_t dim, float strongest_decay)
{
    struct test_random r = {n * 1000 + dim};
    size_t size = n * heads * dim;
    float unit = 1 / sqrtf((float)dim); /* keys of about unit length, as L2 normalisation makes them */
    struct kda x = {n,
                    heads,
                    dim,
                    randoms(&r, size, unit),
                    randoms(&r, size, unit),
                    randoms(&r, size, 1),
                    randoms(&r, size, 1),
                    randoms(&r, n * heads, 1)};
    for (size_t i = 0; i < size; i++) x.alpha[i] = expf(-strongest_decay * 0.5f * (1 + sinf(x.alpha[i])));
    for (size_t i = 0; i < n * heads; i++) x.beta[i] = 1 / (1 + expf(-x.beta[i]));
    return x;
}

static void free_kda(struct kda *x)
{
    free(x->q);
    free(x->k);
    free(x->v);
    free(x->alpha);
    free(x->beta);
}

/* architecture.md section 5 step 7, to the letter, with S[key][value] and f64. */
static void plain_recurrence(const struct kda *x, double *o, double *final_state)
{
    size_t dim = x->dim;
    double *s = calloc(dim * dim, sizeof *s);
    for (size_t h = 0; h < x->heads; h++) {
        memset(s, 0, dim * dim * sizeof *s);
        for (size_t t = 0; t < x->n; t++) {
            size_t at = (t * x->heads + h) * dim;
            for (size_t i = 0; i < dim; i++)
                for (size_t j = 0; j < dim; j++) s[i * dim + j] *= (double)x->alpha[at + i];
            for (size_t j = 0; j < dim; j++) {
                double u = 0, out = 0;
                for (size_t i = 0; i < dim; i++) u += s[i * dim + j] * (double)x->k[at + i];
                double d = (double)x->beta[t * x->heads + h] * ((double)x->v[at + j] - u);
                for (size_t i = 0; i < dim; i++) s[i * dim + j] += (double)x->k[at + i] * d;
                for (size_t i = 0; i < dim; i++) out += s[i * dim + j] * (double)x->q[at + i];
                o[at + j] = out;
            }
        }
        for (size_t i = 0; i < dim; i++)
            for (size_t j = 0; j < dim; j++) final_state[(h * dim + i) * dim + j] = s[i * dim + j];
    }
    free(s);
}

/* Runs the recurrence in calls of `step` tokens. */
static void run_recurrence(struct k3_compute *c, const struct kda *x, size_t step, float *o, float *state)
{
    size_t wide = x->heads * x->dim;
    memset(state, 0, wide * x->dim * sizeof *state);
    for (size_t t = 0; t < x->n; t += step) {
        size_t n = x->n - t < step ? x->n - t : step, at = t * wide;
        k3_kda_recur(c, x->q + at, x->k + at, x->v + at, x->alpha + at, x->beta + t * x->heads, n, x->heads,
                     x->dim, state, o + at);
    }
}

static void check_recurrence(size_t n, size_t heads, size_t dim, float strongest_decay)
{
    struct kda x = make_kda(n, heads, dim, strongest_decay);
    size_t size = n * heads * dim, state_size = heads * dim * dim;
    double *want_o = malloc(size * sizeof *want_o), *want_state = malloc(state_size * sizeof *want_state);
    float *o = malloc(size * sizeof *o), *state = malloc(state_size * sizeof *state);
    float *other = malloc(size * sizeof *other);
    plain_recurrence(&x, want_o, want_state);

    struct k3_compute c = computer(0);
    const size_t steps[] = {1, 7, 16, 17, n};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        run_recurrence(&c, &x, steps[i], o, state);
        near("o", o, want_o, size, 2e-5);
        near("state", state, want_state, state_size, 2e-5);
    }
    k3_compute_destroy(&c);
    for (int i = 1; i < 3; i++) {
        c = computer(i);
        run_recurrence(&c, &x, n, other, state);
        assert_memory_equal(o, other, size * sizeof *o);
        k3_compute_destroy(&c);
    }
    free(want_o);
    free(want_state);
    free(o);
    free(other);
    free(state);
    free_kda(&x);
}

static void chunks_of_the_recurrence_equal_single_steps(void **state)
{
    (void)state;
    check_recurrence(1, 1, 16, 1);
    check_recurrence(40, 3, 16, 5);
    check_recurrence(33, 2, 64, 5);
    check_recurrence(50, 1, 128, 0.1f);
}

static void the_strongest_decay_does_not_overflow(void **state)
{
    (void)state;
    check_recurrence(64, 2, 32, 60); /* exp(60 * 16) would be needed to undo it */
}

static void convolution_looks_back_and_carries_over(void **state)
{
    (void)state;
    enum { N = 11, WIDTH = 5, TAPS = 4 };
    struct test_random r = {7};
    float *z = randoms(&r, (N + TAPS - 1) * WIDTH, 1), *taps = randoms(&r, WIDTH * TAPS, 1), u[N * WIDTH];
    double want[N * WIDTH];
    for (int t = 0; t < N; t++)
        for (int c = 0; c < WIDTH; c++) {
            double sum = 0; /* tap W-1 multiplies the current token */
            for (int j = 0; j < TAPS; j++) sum += (double)taps[c * TAPS + j] * (double)z[(t + j) * WIDTH + c];
            want[t * WIDTH + c] = sum / (1 + exp(-sum));
        }
    struct k3_compute c = computer(1);
    k3_kda_conv(&c, z, taps, TAPS, N, WIDTH, u);
    near("u", u, want, N * WIDTH, 1e-6);
    k3_compute_destroy(&c);
    free(z);
    free(taps);
}

static void gates_follow_their_formulas(void **state)
{
    (void)state;
    enum { N = 3, HEADS = 2, DIM = 4, SIZE = N * HEADS * DIM };
    struct test_random r = {9};
    float *raw = randoms(&r, SIZE, 2), *dt = randoms(&r, HEADS * DIM, 1), a[HEADS] = {-0.5f, -3}, g[SIZE];
    double bounded[SIZE], open[SIZE];
    for (int i = 0; i < SIZE; i++) {
        double x = (double)raw[i] + (double)dt[i % (HEADS * DIM)], ah = (double)a[i / DIM % HEADS];
        bounded[i] = -5 / (1 + exp(ah * x)); /* -5 * sigmoid(-a x) */
        open[i] = ah * log1p(exp(x));
    }
    struct k3_compute c = computer(0);
    memcpy(g, raw, sizeof g);
    k3_kda_gate(&c, g, a, dt, true, -5, N, HEADS, DIM);
    near("bounded gate", g, bounded, SIZE, 1e-6);
    memcpy(g, raw, sizeof g);
    k3_kda_gate(&c, g, a, dt, false, 0, N, HEADS, DIM);
    near("softplus gate", g, open, SIZE, 1e-5);

    double unit[SIZE];
    for (int h = 0; h < N * HEADS; h++) {
        double sum = 1e-6;
        for (int d = 0; d < DIM; d++) sum += (double)raw[h * DIM + d] * (double)raw[h * DIM + d];
        for (int d = 0; d < DIM; d++) unit[h * DIM + d] = 0.5 * (double)raw[h * DIM + d] / sqrt(sum);
    }
    memcpy(g, raw, sizeof g);
    k3_kda_normalise(&c, g, N, HEADS, DIM, 0.5f);
    near("normalised", g, unit, SIZE, 1e-6);
    k3_compute_destroy(&c);
    free(raw);
    free(dt);
}

/* ---- MLA ---- */

enum { MLA_HEADS = 3, QK = 24, PE = 8, NOPE = QK - PE, VD = 12, RANK = 32, MLA_WIDTH = RANK + PE };

/* The expanded form: keys and values of every head made from the cache, then plain attention. */
static void expanded_attention(const float *q, const float *cache, const float *k_b, const float *v_b,
                               size_t n, size_t position, double *o)
{
    for (size_t t = 0; t < n; t++)
        for (size_t h = 0; h < MLA_HEADS; h++) {
            size_t seen = position + t + 1;
            double *score = malloc(seen * sizeof *score), sum = 0, out[VD] = {0};
            const float *qh = q + (t * MLA_HEADS + h) * QK;
            for (size_t s = 0; s < seen; s++) {
                const float *row = cache + s * MLA_WIDTH;
                double dot = 0;
                for (size_t i = 0; i < NOPE; i++) {
                    double key = 0;
                    for (size_t x = 0; x < RANK; x++)
                        key += (double)k_b[(h * RANK + x) * NOPE + i] * (double)row[x];
                    dot += (double)qh[i] * key;
                }
                for (size_t i = 0; i < PE; i++) dot += (double)qh[NOPE + i] * (double)row[RANK + i];
                sum += score[s] = exp(dot / sqrt(QK));
            }
            for (size_t s = 0; s < seen; s++)
                for (size_t d = 0; d < VD; d++)
                    for (size_t x = 0; x < RANK; x++)
                        out[d] += score[s] / sum * (double)v_b[(h * VD + d) * RANK + x] *
                                  (double)cache[s * MLA_WIDTH + x];
            memcpy(o + (t * MLA_HEADS + h) * VD, out, sizeof out);
            free(score);
        }
}

static void absorbed_attention_equals_expanded(void **state)
{
    (void)state;
    const size_t total = 150;
    struct test_random r = {11};
    float *rows = randoms(&r, total * MLA_WIDTH, 1), *q = randoms(&r, total * MLA_HEADS * QK, 1);
    float *k_b = randoms(&r, MLA_HEADS * RANK * NOPE, 0.3f), *v_b = randoms(&r, MLA_HEADS * VD * RANK, 0.3f);
    size_t size = total * MLA_HEADS * VD;
    double *want = malloc(size * sizeof *want);
    float *o = malloc(size * sizeof *o), *first = malloc(size * sizeof *o);
    float *scratch = aligned_alloc(64, 5 * k3_mla_scratch(RANK, PE, QK) * sizeof *scratch);

    for (int f16 = 0; f16 < 2; f16++) {
        void *cache = malloc(total * k3_mla_row_bytes(RANK, PE, f16));
        k3_mla_store(cache, f16, 0, rows, 100, MLA_WIDTH);
        k3_mla_store(cache, f16, 100, rows + 100 * MLA_WIDTH, total - 100, MLA_WIDTH);
        float *kept = malloc(total * MLA_WIDTH * sizeof *kept);
        for (size_t i = 0; i < total * MLA_WIDTH; i++)
            kept[i] = f16 ? k3_f32_from_f16(k3_f16_from_f32(rows[i])) : rows[i];
        expanded_attention(q, kept, k_b, v_b, total, 0, want);

        struct k3_mla mla = {MLA_HEADS,
                             QK,
                             PE,
                             VD,
                             RANK,
                             k3_matrix_make(K3_TYPE_F32, MLA_HEADS * RANK, NOPE, k_b),
                             k3_matrix_make(K3_TYPE_F32, MLA_HEADS * VD, RANK, v_b),
                             f16,
                             cache};
        const size_t steps[] = {150, 64, 7, 1};
        for (size_t i = 0; i < 4; i++) {
            for (int t = 0; t < 3; t++) {
                struct k3_compute c = computer(t);
                for (size_t at = 0; at < total; at += steps[i])
                    k3_mla_attend(&c, &mla, q + at * MLA_HEADS * QK,
                                  total - at < steps[i] ? total - at : steps[i], at, o + at * MLA_HEADS * VD,
                                  scratch);
                k3_compute_destroy(&c);
                near("o", o, want, size, 1e-5);
                /* The order of sums does not depend on batches or threads: all bits are equal. */
                if (i == 0 && t == 0) memcpy(first, o, size * sizeof *o);
                assert_memory_equal(o, first, size * sizeof *o);
            }
        }
        free(cache);
        free(kept);
    }
    free(rows);
    free(q);
    free(k_b);
    free(v_b);
    free(want);
    free(o);
    free(first);
    free(scratch);
}

/* ---- AttnRes and norm ---- */

static void mix_weighs_raw_vectors_by_normed_scores(void **state)
{
    (void)state;
    enum { N = 4, WIDTH = 20, BANK = 3 };
    struct test_random r = {13};
    float *sources[BANK + 1], *score = randoms(&r, WIDTH, 0.5f), y[N * WIDTH], probs[N * (BANK + 1)];
    for (int i = 0; i <= BANK; i++) sources[i] = randoms(&r, N * WIDTH, (float)(i + 1));
    struct k3_streams streams = {{sources[0], sources[1], sources[2]}, BANK, sources[BANK]};

    double want[N * WIDTH] = {0}, want_probs[N * (BANK + 1)];
    for (int t = 0; t < N; t++) {
        double p[BANK + 1], sum = 0;
        for (int i = 0; i <= BANK; i++) {
            double dot = 0, square = 0;
            for (int d = 0; d < WIDTH; d++) {
                double v = (double)sources[i][t * WIDTH + d];
                dot += (double)score[d] * v;
                square += v * v;
            }
            sum += p[i] = exp(dot / sqrt(square / WIDTH + 1e-5));
        }
        for (int i = 0; i <= BANK; i++) {
            want_probs[t * (BANK + 1) + i] = p[i] / sum;
            for (int d = 0; d < WIDTH; d++)
                want[t * WIDTH + d] += p[i] / sum * (double)sources[i][t * WIDTH + d];
        }
    }
    struct k3_compute c = computer(1);
    k3_mix(&c, &streams, score, 1e-5f, NULL, N, WIDTH, y, probs);
    near("mix", y, want, N * WIDTH, 1e-5);
    near("probs", probs, want_probs, N * (BANK + 1), 1e-6);
    const uint32_t rows[] = {1, 3};
    k3_mix(&c, &streams, score, 1e-5f, rows, 2, WIDTH, y, NULL);
    near("row 1", y, want + WIDTH, WIDTH, 1e-5);
    near("row 3", y + WIDTH, want + 3 * WIDTH, WIDTH, 1e-5);
    k3_compute_destroy(&c);
    for (int i = 0; i <= BANK; i++) free(sources[i]);
    free(score);
}

static void rms_norm_takes_the_mean(void **state)
{
    (void)state;
    float x[] = {3, -4, 0, 0}, w[] = {1, 2, 3, 4}, y[4];
    double root = sqrt(25.0 / 4 + 0.25), want[] = {3 / root, -8 / root, 0, 0};
    struct k3_compute c = computer(0);
    k3_rms_norm(&c, x, w, 0.25f, 1, 4, y);
    near("y", y, want, 4, 1e-6);
    k3_compute_destroy(&c);
}

int main(void)
{
    for (int i = 0; i < 3; i++) assert_int_equal(k3_pool_create(n_threads[i], &pools[i], NULL), K3_OK);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_of_the_recurrence_equal_single_steps),
        cmocka_unit_test(the_strongest_decay_does_not_overflow),
        cmocka_unit_test(convolution_looks_back_and_carries_over),
        cmocka_unit_test(gates_follow_their_formulas),
        cmocka_unit_test(absorbed_attention_equals_expanded),
        cmocka_unit_test(mix_weighs_raw_vectors_by_normed_scores),
        cmocka_unit_test(rms_norm_takes_the_mean),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < 3; i++) k3_pool_free(pools[i]);
    return failed;
}
