/* The loops over floats: every set that this processor can run gives the bits of the plain one, for every length, wherever
 * arrays lie, and writes nothing else. What they calculate: test_attention.c and test_ffn.c. */
#include "ops/kda.h"
#include "ops/vectors.h"
#include "quant/half.h"

#include "random.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#define MAX_N     600
#define UNTOUCHED (-77.0f) /* what nobody may write over */

/* Values of all sizes, and now and then one at the edge. */
static float any_value(struct test_random *r)
{
    const float edges[] = {0.0f,     -0.0f,       INFINITY,  -INFINITY, NAN,    0x1p-149f, -0x1p-130f,
                           0x1p-60f, 0x1.8p+127f, -87.0001f, 88.0001f,  -88.5f, 30.0f,     1000.0f};
    if (test_random_below(r, 12) == 0) return edges[test_random_below(r, sizeof edges / sizeof *edges)];
    return ldexpf(test_random_normal(r), (int)test_random_below(r, 12) - 6);
}

static void fill(struct test_random *r, float *x, size_t n, bool edges)
{
    for (size_t i = 0; i < n; i++) x[i] = edges ? any_value(r) : test_random_normal(r);
}

/* Any NaN is a NaN: which of two operands it comes from is the compiler's choice. */
static void same(const char *set, const char *what, size_t n, const float *got, const float *want,
                 size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (k3_f32_bits(got[i]) != k3_f32_bits(want[i]) && !(isnan(got[i]) && isnan(want[i])))
            fail_msg("%s: %s of %zu: value %zu is %a, not %a", set, what, n, i, (double)got[i],
                     (double)want[i]);
}

/* ---- loops over elements ---- */

enum { DOT, EXP, SIGMOID, GATE, SITU, SITU_LINEAR, ADD, ADD_SCALED, NORM, SCALE, DECAY, N_LOOPS };

static const char *const names[N_LOOPS] = {"dot", "exp",        "sigmoid", "gate",  "situ", "situ without b2",
                                           "add", "add_scaled", "norm",    "scale", "decay"};

static void run_loop(const struct k3_vectors *v, int loop, float *x, const float *y, const float *w, size_t n)
{
    switch (loop) {
    case DOT:
        x[0] = v->dot(y, w, n);
        v->square_and_dot(y, w, n, &x[1], &x[2]);
        break;
    case EXP:
        v->exp(x, n);
        break;
    case SIGMOID:
        v->sigmoid(x, n);
        break;
    case GATE:
        v->gate(x, y, n);
        break;
    case SITU:
    case SITU_LINEAR:
        v->situ(x, y, 4, loop == SITU ? 25 : 0, n);
        break;
    case ADD:
        v->add(x, y, n);
        break;
    case ADD_SCALED:
        v->add_scaled(x, -0.37f, y, n);
        break;
    case NORM:
        v->norm(x, w, 1.7f, x, n);
        break;
    case SCALE:
        v->scale(x, 0.3f, n);
        break;
    case DECAY:
        v->decay(x, y, -0.7f, -5, n);
        break;
    }
}

static void check_loop(int loop, size_t n, size_t shift, bool edges)
{
    struct test_random r = {n * 100 + (size_t)loop};
    float x[MAX_N + 8], y[MAX_N + 8], w[MAX_N + 8], want[MAX_N + 8], got[MAX_N + 8];
    fill(&r, x, MAX_N + 8, edges);
    fill(&r, y, MAX_N + 8, edges);
    fill(&r, w, MAX_N + 8, edges);
    for (size_t i = shift + (n < 3 ? 3 : n); i < MAX_N + 8; i++) x[i] = UNTOUCHED;
    const struct k3_vectors *v;
    for (size_t k = 0; (v = k3_vectors_at(k)); k++) {
        memcpy(got, x, sizeof x);
        memcpy(want, x, sizeof x);
        run_loop(&k3_vectors_plain, loop, want + shift, y + 1, w + 2, n);
        run_loop(v, loop, got + shift, y + 1, w + 2, n);
        same(v->name, names[loop], n, got, want, MAX_N + 8);
    }
}

static void loops_of_every_length_give_the_same_bits(void **state)
{
    (void)state;
    for (int loop = 0; loop < N_LOOPS; loop++)
        for (size_t n = 0; n <= 70; n++)
            for (size_t shift = 0; shift < 4; shift++) check_loop(loop, n, shift, shift % 2);
    for (int loop = 0; loop < N_LOOPS; loop++)
        for (size_t n = 512; n < MAX_N; n += 9) check_loop(loop, n, n % 4, n % 2);
}

/* All 65536 of them but signalling NaN, which are never stored. */
static void every_half_is_converted_alike(void **state)
{
    (void)state;
    static uint16_t halves[65536];
    static float want[65536], got[65536];
    size_t n = 0;
    for (uint32_t h = 0; h < 65536; h++)
        if ((h & 0x7c00) != 0x7c00 || !(h & 0x1ff) || (h & 0x200)) halves[n++] = (uint16_t)h;
    for (size_t i = 0; i < n; i++) want[i] = k3_f32_from_f16(halves[i]);
    const struct k3_vectors *v;
    for (size_t k = 0; (v = k3_vectors_at(k)); k++) {
        for (size_t length = 0; length < 40; length++) {
            memset(got, 0, sizeof got);
            v->from_f16(halves + 3, got, length);
            same(v->name, "from_f16", length, got, want + 3, length);
            assert_true(got[length] == 0);
        }
        v->from_f16(halves, got, n);
        assert_memory_equal(got, want, n * sizeof *got);
    }
}

/* ---- convolution ---- */

static void check_conv(size_t n, size_t n_taps, size_t n_channels, bool edges)
{
    size_t stride = n_channels + 3, size = (n + n_taps - 1) * stride;
    struct test_random r = {n * 1000 + n_channels};
    float *z = malloc(size * sizeof *z), *taps = malloc(n_taps * n_channels * sizeof *taps);
    float *want = malloc(n * stride * sizeof *want), *got = malloc(n * stride * sizeof *got);
    fill(&r, z, size, edges);
    fill(&r, taps, n_taps * n_channels, edges);
    struct k3_conv conv = {z, taps, n, n_taps, n_channels, stride, want};
    for (size_t i = 0; i < n * stride; i++) want[i] = UNTOUCHED;
    k3_vectors_plain.conv(&conv);
    const struct k3_vectors *v;
    for (size_t k = 0; (v = k3_vectors_at(k)); k++) {
        for (size_t i = 0; i < n * stride; i++) got[i] = UNTOUCHED;
        conv.u = got;
        v->conv(&conv);
        same(v->name, "conv", n_channels, got, want, n * stride);
    }
    for (size_t t = 0; t < n; t++) assert_true(got[t * stride + n_channels] == UNTOUCHED);
    free(z);
    free(taps);
    free(want);
    free(got);
}

static void convolutions_give_the_same_bits(void **state)
{
    (void)state;
    for (size_t n = 1; n < 40; n += 6)
        for (size_t channels = 1; channels < 140; channels += 13)
            check_conv(n, 1 + channels % 5, channels, channels % 2);
}

/* ---- recurrence ---- */

static void check_kda(size_t n, size_t dim, float decay)
{
    size_t stride = dim + 5, size = n * stride, n_state = dim * dim;
    struct test_random r = {n * 1000 + dim};
    float *x[5], *want = malloc((size + n_state + 16) * sizeof *want),
                 *got = malloc((size + n_state + 16) * sizeof *got);
    for (int i = 0; i < 5; i++) {
        x[i] = malloc(size * sizeof *x[i]);
        fill(&r, x[i], size, false);
    }
    for (size_t i = 0; i < size; i++) {
        x[0][i] /= sqrtf((float)dim);
        x[1][i] /= sqrtf((float)dim);
        x[3][i] = expf(-decay * fabsf(x[3][i]));
    }
    for (size_t i = 0; i < size + n_state + 16; i++) want[i] = UNTOUCHED;
    fill(&r, want, n_state, false);
    memcpy(got, want, (size + n_state + 16) * sizeof *want);
    float *start = malloc(n_state * sizeof *start);
    memcpy(start, want, n_state * sizeof *start);

    struct k3_kda_head h = {x[0], x[1], x[2], x[3], x[4], n, dim, stride, 1, want, want + n_state + 16};
    k3_vectors_plain.kda_head(&h);
    const struct k3_vectors *v;
    for (size_t k = 0; (v = k3_vectors_at(k)); k++) {
        memcpy(got, start, n_state * sizeof *start);
        h.state = got;
        h.o = got + n_state + 16;
        v->kda_head(&h);
        same(v->name, "kda_head", dim, got, want, size + n_state + 16);
    }
    for (int i = 0; i < 5; i++) free(x[i]);
    free(want);
    free(got);
    free(start);
}

static void recurrences_of_every_width_give_the_same_bits(void **state)
{
    (void)state;
    for (size_t dim = 1; dim <= 40; dim++) {
        check_kda(1, dim, 0.1f);
        check_kda(19, dim, 5);
    }
    const size_t wide[] = {48, 64, 100, 127, 128, 129, 160, 255, 256};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        for (size_t n = 1; n <= 35; n += n < 17 ? 1 : 9) check_kda(n, wide[i], 1);
}

/* ---- attention ---- */

/* Three blocks of keys for queries that see more and more of them. */
static void check_mla(size_t n, size_t rank, size_t pe, bool edges)
{
    enum { BLOCKS = 3 };
    size_t width = rank + pe, n_keys = BLOCKS * K3_MLA_KEYS, n_sums = n * (rank + 2);
    struct test_random r = {n * 1000 + rank};
    float *q = malloc(n * width * sizeof *q), *keys = malloc(n_keys * width * sizeof *keys);
    float *scores = malloc(n * K3_MLA_KEYS * sizeof *scores), *want = NULL;
    fill(&r, q, n * width, edges);
    fill(&r, keys, n_keys * width, false);
    const struct k3_vectors *v, *sets[4] = {&k3_vectors_plain};
    for (size_t k = 0; (v = k3_vectors_at(k)); k++) sets[k + 1] = v;
    for (size_t k = 0; k < 4 && sets[k]; k++) {
        float *sums = malloc(n_sums * sizeof *sums);
        memset(sums, 0, n_sums * sizeof *sums);
        struct k3_mla_queries x = {n,     rank, width, 0.3f, q, sums, sums + n * rank, sums + n * (rank + 1),
                                   scores};
        for (size_t i = 0; i < n; i++) x.top[i] = -INFINITY;
        for (size_t b = 0; b < BLOCKS; b++) {
            size_t seen[32];
            for (size_t i = 0; i < n; i++) {
                size_t all = 1 + i * 7 % n_keys;
                seen[i] = all <= b * K3_MLA_KEYS ? 0 : all - b * K3_MLA_KEYS;
                if (seen[i] > K3_MLA_KEYS) seen[i] = K3_MLA_KEYS;
            }
            sets[k]->mla_keys(&x, keys + b * K3_MLA_KEYS * width, seen);
        }
        if (k == 0) {
            want = sums;
            continue;
        }
        same(sets[k]->name, "mla_keys", n, sums, want, n_sums);
        free(sums);
    }
    free(q);
    free(keys);
    free(scores);
    free(want);
}

static void attention_of_any_number_of_queries_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 32; n++) check_mla(n, 32 + n, n % 9, n % 3 == 0);
    check_mla(32, 512, 64, false);
}

/* ---- choice ---- */

static void loops_go_with_kernels(void **state)
{
    (void)state;
    const char *const pairs[][2] = {
        {"portable", "plain"},
        {"neon", "plain"},
#if defined(__x86_64__)
        {"avx2", "avx2"},
        {"avxvnni", "avx2"},
        {"avx512", "avx512"},
        {"amx", "avx512"}
#endif
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct k3_kernels kernels = {.name = pairs[i][0]};
        assert_string_equal(k3_vectors_for(&kernels)->name, pairs[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_of_every_length_give_the_same_bits),
        cmocka_unit_test(every_half_is_converted_alike),
        cmocka_unit_test(convolutions_give_the_same_bits),
        cmocka_unit_test(recurrences_of_every_width_give_the_same_bits),
        cmocka_unit_test(attention_of_any_number_of_queries_gives_the_same_bits),
        cmocka_unit_test(loops_go_with_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
