/* KDA on the device: convolution, normalisation, decay and the recurrence, with the CPU's bits. */
#include "on_device.h"

#include "ops/kda.h"
#include "ops/vmath.h"

#include <math.h>
#include <string.h>

static void convolutions_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    struct test_random r = {1};
    static const size_t shapes[][3] = {
        {4, 1, 1}, {4, 5, 130}, {1, 2, 7}, {2, 3, 128}, {4, 2, 12288}}; /* taps, n, width */
    for (size_t i = 0; i < 5; i++) {
        size_t taps = shapes[i][0], n = shapes[i][1], width = shapes[i][2], rows = taps - 1 + n;
        float *z = host_floats(&r, rows * width, 1), *w = host_floats(&r, taps * width, 1);
        float *want = host_bytes(n * width * sizeof *want), *u = unwritten("u", n * width * sizeof *u);
        k3_kda_conv(&cpu, z, w, taps, n, width, want);
        k3_gpu_kda_conv(on_device("z", z, rows * width * sizeof *z),
                        on_device("taps", w, taps * width * sizeof *w), taps, n, width, u, NULL);
        same_floats("u", u, want, n * width);
    }
}

static void lengths_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    struct test_random r = {2};
    static const size_t shapes[][2] = {{1, 1}, {3, 15}, {9, 33}, {96, 128}};
    for (size_t i = 0; i < 4; i++) {
        size_t n = shapes[i][0], dim = shapes[i][1];
        float *x = host_floats(&r, n * dim, i ? 2 : 1e-4f), *dx = on_device("x", x, n * dim * sizeof *x);
        k3_gpu_kda_normalise(dx, n, dim, 0.25f, NULL);
        k3_kda_normalise(&cpu, x, n, 1, dim, 0.25f);
        same_floats("x", dx, x, n * dim);
    }
}

static void check_decay(struct test_random *r, size_t n, size_t heads, size_t dim, bool bounded)
{
    size_t width = heads * dim;
    float *x = host_floats(r, n * width, 4), *a = host_floats(r, heads, 1), *dt = host_floats(r, width, 1);
    for (size_t h = 0; h < heads; h++) a[h] = -fabsf(a[h]);
    float *dx = on_device("r", x, n * width * sizeof *x);
    k3_gpu_kda_decay(dx, on_device("a", a, heads * sizeof *a), on_device("dt", dt, width * sizeof *dt),
                     bounded, -5, n, heads, dim, NULL);
    k3_kda_gate(&cpu, x, a, dt, bounded, -5, n, heads, dim);
    for (size_t i = 0; i < n * width; i++) x[i] = k3_expf(x[i]);
    same_floats("decay", dx, x, n * width);
}

static void decays_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    struct test_random r = {3};
    check_decay(&r, 1, 1, 1, true);
    check_decay(&r, 3, 5, 33, true);
    check_decay(&r, 1, 96, 128, true);
    check_decay(&r, 2, 3, 16, false);
}

/* ---- the recurrence ---- */

struct sequence {
    size_t n, heads, dim;
    float *q, *k, *v, *alpha, *beta, *state;
};

/* Keys of about unit length; decays from none to e^-strongest. */
static struct sequence make_sequence(struct test_random *r, size_t n, size_t heads, size_t dim,
                                     float strongest)
{
    size_t size = n * heads * dim;
    float unit = 1 / sqrtf((float)dim);
    struct sequence s = {n,
                         heads,
                         dim,
                         host_floats(r, size, unit),
                         host_floats(r, size, unit),
                         host_floats(r, size, 1),
                         host_floats(r, size, 1),
                         host_floats(r, n * heads, 1),
                         host_floats(r, heads * dim * dim, 1)};
    for (size_t i = 0; i < size; i++) s.alpha[i] = expf(-strongest * 0.5f * (1 + sinf(s.alpha[i])));
    for (size_t i = 0; i < n * heads; i++) s.beta[i] = k3_sigmoid(s.beta[i]);
    return s;
}

/* Runs the tokens in calls of at most `together`, on both sides. */
static void check_recurrence(struct sequence s, size_t together)
{
    size_t row = s.heads * s.dim, size = s.n * row;
    float *want = host_bytes(size * sizeof *want), *o = unwritten("o", size * sizeof *o);
    const float *q = on_device("q", s.q, size * sizeof *q), *k = on_device("k", s.k, size * sizeof *k);
    const float *v = on_device("v", s.v, size * sizeof *v),
                *alpha = on_device("alpha", s.alpha, size * sizeof *alpha);
    const float *beta = on_device("beta", s.beta, s.n * s.heads * sizeof *beta);
    float *state = on_device("state", s.state, row * s.dim * sizeof *state);
    for (size_t t = 0; t < s.n; t += together) {
        size_t n = s.n - t < together ? s.n - t : together;
        k3_gpu_kda_recur(q + t * row, k + t * row, v + t * row, alpha + t * row, beta + t * s.heads, n,
                         s.heads, s.dim, state, o + t * row, NULL);
        k3_kda_recur(&cpu, s.q + t * row, s.k + t * row, s.v + t * row, s.alpha + t * row,
                     s.beta + t * s.heads, n, s.heads, s.dim, s.state, want + t * row);
    }
    same_floats("o", o, want, size);
    same_floats("state", state, s.state, row * s.dim);
}

static void one_token_at_a_time_has_the_bits_of_the_cpu(void **state)
{
    (void)state;
    struct test_random r = {4};
    check_recurrence(make_sequence(&r, 3, 2, 1, 1), 1);
    check_recurrence(make_sequence(&r, 3, 3, 33, 2), 1);
    free_arrays(NULL);
    check_recurrence(make_sequence(&r, 2, 2, 128, 5), 1);
}

static void chunks_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    struct test_random r = {5};
    check_recurrence(make_sequence(&r, 16, 1, 16, 2), 16);
    check_recurrence(make_sequence(&r, 37, 2, 40, 5), 37);
    free_arrays(NULL);
    check_recurrence(make_sequence(&r, 18, 1, 128, 5), 18);
}

static void the_strongest_decay_does_not_overflow(void **state)
{
    (void)state;
    struct test_random r = {6};
    check_recurrence(make_sequence(&r, 33, 1, 16, 80), 33);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KERNEL_TEST(convolutions_have_the_bits_of_the_cpu),
        KERNEL_TEST(lengths_have_the_bits_of_the_cpu),
        KERNEL_TEST(decays_have_the_bits_of_the_cpu),
        KERNEL_TEST(one_token_at_a_time_has_the_bits_of_the_cpu),
        KERNEL_TEST(chunks_have_the_bits_of_the_cpu),
        KERNEL_TEST(the_strongest_decay_does_not_overflow),
    };
    return cmocka_run_group_tests_name("KDA on the device", tests, start_cpu, stop_cpu);
}
