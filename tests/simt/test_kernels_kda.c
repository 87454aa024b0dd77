/* KDA on the device: convolution, normalisation, decay and the recurrence, with the CPU's bits. */
#include "on_device.h"

#include "ops/kda.h"
#include "ops/vmath.h"
#include "quant/quant_internal.h"

#include <math.h>
#include <string.h>

/* ---- what comes before the recurrence ---- */

struct inputs {
    size_t taps, n, heads, dim;
    bool bounded, low; /* low: alpha is a product, in q8_0 */
};

/* Gives the kernel low and F_B; alpha becomes their product. */
static void add_low(struct test_random *r, struct inputs c, struct k3_gpu_kda *kda, float *alpha)
{
    size_t width = c.heads * c.dim, stride = k3_act_bytes(K3_ACT_Q8_0, c.dim);
    float *low = host_floats(r, c.n * c.dim, 1);
    unsigned char *blocks = host_q8_0(r, width * c.dim / 32), *rounded = host_bytes(c.n * stride);
    kda->alpha = unwritten("alpha", c.n * width * sizeof *alpha);
    kda->low = on_device("low", low, c.n * c.dim * sizeof *low);
    kda->f_b = q8_0_on_device("f_b", blocks, width, c.dim);
    for (size_t t = 0; t < c.n; t++) k3_round_q8_0(low + t * c.dim, rounded + t * stride, c.dim);
    struct k3_job job = {.w = k3_matrix_make(K3_TYPE_Q8_0, width, c.dim, blocks),
                         .acts = {rounded, stride},
                         .n = c.n,
                         .y = alpha,
                         .y_stride = width};
    k3_multiply(&cpu, &job, 1);
}

/* On the CPU each of q, k and v has the rows kept from before in front of it. */
static void check_inputs(struct test_random *r, struct inputs c)
{
    size_t kept = c.taps - 1, width = c.heads * c.dim, row = width * sizeof(float), n = c.n;
    float *alpha = host_floats(r, n * width, 4), *beta = host_floats(r, n * c.heads, 2);
    float *a = host_floats(r, c.heads, 1), *dt = host_floats(r, width, 1), scale = 1.0f / sqrtf((float)c.dim);
    float *history = host_bytes(3 * kept * row + 4), *want[3], *last[3];
    for (size_t h = 0; h < c.heads; h++) a[h] = -fabsf(a[h]);
    struct k3_gpu_kda kda = {.n = n,
                             .n_heads = c.heads,
                             .dim = c.dim,
                             .n_taps = c.taps,
                             .alpha = on_device("alpha", alpha, n * row),
                             .beta = on_device("beta", beta, n * c.heads * sizeof *beta),
                             .a = on_device("a", a, c.heads * sizeof *a),
                             .dt = on_device("dt", dt, row),
                             .bounded = c.bounded,
                             .floor = -5};
    for (size_t i = 0; i < 3; i++) {
        float *z = host_floats(r, (kept + n) * width, 1), *w = host_floats(r, c.taps * width, 1);
        memcpy(history + i * kept * width, z, kept * row);
        want[i] = host_bytes(n * row);
        k3_kda_conv(&cpu, z, w, c.taps, n, width, want[i]);
        if (i < 2) k3_kda_normalise(&cpu, want[i], n, c.heads, c.dim, i == 0 ? scale : 1);
        kda.z[i] = on_device("z", z + kept * width, n * row);
        kda.taps[i] = on_device("taps", w, c.taps * row);
        kda.u[i] = unwritten("u", n * row);
        memmove(z, z + n * width, kept * row);
        last[i] = z;
    }
    kda.history = on_device("history", history, 3 * kept * row + 4);
    if (c.low) add_low(r, c, &kda, alpha);
    k3_gpu_kda_prepare(&kda, NULL);
    k3_kda_gate(&cpu, alpha, a, dt, c.bounded, -5, n, c.heads, c.dim);
    for (size_t i = 0; i < n * width; i++) alpha[i] = k3_expf(alpha[i]);
    for (size_t i = 0; i < n * c.heads; i++) beta[i] = k3_sigmoid(beta[i]);
    for (size_t i = 0; i < 3; i++) {
        same_floats("u", kda.u[i], want[i], n * width);
        same_floats("history", kda.history + i * kept * width, last[i], kept * width);
    }
    same_floats("alpha", kda.alpha, alpha, n * width);
    same_floats("beta", kda.beta, beta, n * c.heads);
}

static void inputs_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    struct test_random r = fresh(1);
    check_inputs(&r, (struct inputs){4, 1, 1, 1, true, false});
    check_inputs(&r, (struct inputs){4, 5, 3, 33, false, false});
    free_arrays(NULL);
    check_inputs(&r, (struct inputs){1, 2, 2, 7, true, false});  /* nothing is kept */
    check_inputs(&r, (struct inputs){9, 3, 2, 16, true, false}); /* more is kept than comes */
    free_arrays(NULL);
    check_inputs(&r, (struct inputs){4, 19, 2, 40, true, false}); /* more tokens than are done together */
    free_arrays(NULL);
    check_inputs(&r, (struct inputs){4, 1, 96, 128, true, true});
    free_arrays(NULL);
    check_inputs(&r, (struct inputs){2, 10, 3, 64, true, true});
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
    struct test_random r = fresh(4);
    check_recurrence(make_sequence(&r, 3, 2, 1, 1), 1);
    check_recurrence(make_sequence(&r, 3, 3, 33, 2), 1);
    free_arrays(NULL);
    check_recurrence(make_sequence(&r, 2, 2, 128, 5), 1);
}

static void chunks_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    struct test_random r = fresh(5);
    check_recurrence(make_sequence(&r, 16, 1, 16, 2), 16);
    check_recurrence(make_sequence(&r, 37, 2, 40, 5), 37);
    free_arrays(NULL);
    check_recurrence(make_sequence(&r, 18, 1, 128, 5), 18);
}

static void the_strongest_decay_does_not_overflow(void **state)
{
    (void)state;
    struct test_random r = fresh(6);
    check_recurrence(make_sequence(&r, 33, 1, 16, 80), 33);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KERNEL_TEST(inputs_have_the_bits_of_the_cpu),
        KERNEL_TEST(one_token_at_a_time_has_the_bits_of_the_cpu),
        KERNEL_TEST(chunks_have_the_bits_of_the_cpu),
        KERNEL_TEST(the_strongest_decay_does_not_overflow),
    };
    return RUN_KERNEL_TESTS("KDA on the device", tests);
}
