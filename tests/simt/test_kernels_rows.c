/* Whole rows on the device: RMS norm, the AttnRes mix, f32 products. Everything has the CPU's bits. */
#include "on_device.h"

#include "ops/ffn.h"
#include "ops/norm.h"

#include <string.h>

/* ---- RMS norm ---- */

struct norm {
    size_t n, width, stride;
    bool in_place, gated, rounded;
};

static void check_norm(struct test_random *r, struct norm c)
{
    size_t n = c.n, width = c.width, stride = c.stride, size = n * stride;
    float *x = host_floats(r, size, 3), *w = host_floats(r, width, 1), *gate = host_floats(r, n * width, 3);
    float *want = host_bytes(size * sizeof *want);
    memcpy(want, x, size * sizeof *want);
    for (size_t t = 0; t < n; t++) {
        k3_rms_norm_row(&cpu, x + t * stride, w, 1e-5f, width, want + t * stride);
        if (c.gated) k3_gate(&cpu, want + t * stride, gate + t * width, width);
    }
    float *dx = on_device("x", x, size * sizeof *x);
    float *y = c.in_place ? dx : on_device("y", x, size * sizeof *x);
    struct k3_gpu_acts acts = unwritten_acts(n, width);
    k3_gpu_rms_norm(dx, on_device("w", w, width * sizeof *w), 1e-5f, n, width, stride,
                    c.gated ? on_device("gate", gate, n * width * sizeof *gate) : NULL, y,
                    c.rounded ? &acts : NULL, NULL);
    same_floats("y", y, want, size);
    if (c.rounded) same_rounded(&acts, want, size); /* the rows stand side by side */
}

static void rms_norm_has_the_bits_of_the_cpu(void **state)
{
    (void)state;
    struct test_random r = fresh(1);
    check_norm(&r, (struct norm){1, 1, 1, false, false, false});
    check_norm(&r, (struct norm){3, 15, 15, false, false, false});
    check_norm(&r, (struct norm){2, 33, 33, false, false, false});
    check_norm(&r, (struct norm){2, 7168, 7168, false, false, true});
    free_arrays(NULL);
    check_norm(&r, (struct norm){1, 4096 + 16 + 5, 4096 + 16 + 5, false, false, false});
}

static void rms_norm_of_parts_of_rows_leaves_the_rest(void **state)
{
    (void)state;
    struct test_random r = fresh(2);
    check_norm(&r, (struct norm){3, 512, 576, true, false, false});
    check_norm(&r, (struct norm){2, 7, 9, true, false, false});
    check_norm(&r, (struct norm){2, 1536, 1536, true, false, true});
}

/* As at the end of KDA: a row for each head. */
static void a_norm_is_gated_and_rounded_in_one_launch(void **state)
{
    (void)state;
    struct test_random r = fresh(6);
    check_norm(&r, (struct norm){5, 1, 1, true, true, false});
    check_norm(&r, (struct norm){3, 32, 32, false, true, true});
    check_norm(&r, (struct norm){2, 37, 40, false, true, false});
    check_norm(&r, (struct norm){96, 128, 128, true, true, true});
}

/* ---- AttnRes ---- */

enum { BATCH = 3 };

/* Banks one stream after another, with a mix of all n tokens at each step, as a model does: each takes the dots of the
 * bank with the next one's score. Then a mix of some tokens with a norm. */
static void check_mixes(struct test_random *r, size_t n_bank, size_t width)
{
    size_t one = BATCH * width;
    float *streams = host_floats(r, (n_bank + 1) * one, 1), *scores = host_floats(r, 3 * width, 0.3f);
    float *want = host_bytes(one * sizeof *want), *probs = host_bytes(BATCH * (n_bank + 1) * sizeof *probs);
    float *y = unwritten("y", one * sizeof *y), *dots[2];
    float *dprobs = unwritten("probs", BATCH * (n_bank + 1) * sizeof *probs);
    const float *dscores = on_device("scores", scores, 3 * width * sizeof *scores);
    for (int i = 0; i < 2; i++) dots[i] = unwritten("dots", (n_bank + 1) * BATCH * sizeof **dots);
    struct k3_gpu_mixing m = {
        .streams = on_device("streams", streams, (n_bank + 1) * one * sizeof *streams),
        .roots = unwritten("roots", (n_bank + 1) * BATCH * sizeof *streams),
        .batch = BATCH,
        .width = width,
        .eps = 1e-5f,
        .n = BATCH,
        .y = y,
        .probs = dprobs,
    };
    struct k3_streams s = {.n_bank = 0};
    for (; s.n_bank <= n_bank; s.n_bank++) {
        size_t which = s.n_bank % 2;
        s.p = streams + s.n_bank * one;
        k3_mix(&cpu, &s, scores + which * width, 1e-5f, NULL, BATCH, width, want, probs);
        m.n_bank = s.n_bank;
        m.score = dscores + which * width;
        m.next = dscores + (1 - which) * width;
        m.known = s.n_bank == 0 || s.n_bank == 9 ? NULL : dots[which]; /* NULL: as where the chain begins */
        m.next_dots = dots[1 - which];
        k3_gpu_mix(&m, NULL);
        same_floats("y", y, want, one);
        same_floats("probs", dprobs, probs, BATCH * (s.n_bank + 1));
        s.bank[s.n_bank] = s.p;
    }

    static const uint32_t rows[] = {2, 0};
    const float *norm = scores + 2 * width;
    s.n_bank = n_bank;
    k3_mix(&cpu, &s, scores, 1e-5f, rows, 2, width, want, NULL);
    for (size_t i = 0; i < 2; i++)
        k3_rms_norm_row(&cpu, want + i * width, norm, 1e-5f, width, want + i * width);
    struct k3_gpu_acts acts = unwritten_acts(2, width);
    m.n_bank = n_bank;
    m.score = dscores;
    m.known = m.next = NULL;
    m.rows = on_device("rows", rows, sizeof rows);
    m.n = 2;
    m.norm = dscores + 2 * width;
    m.probs = NULL;
    m.acts = width % 32 == 0 ? &acts : NULL;
    k3_gpu_mix(&m, NULL);
    same_floats("y", y, want, 2 * width);
    if (m.acts) same_rounded(&acts, want, 2 * width);
}

static void mixes_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    struct test_random r = fresh(3);
    check_mixes(&r, 0, 1);
    check_mixes(&r, 2, 17);
    free_arrays(NULL);
    check_mixes(&r, 12, 96); /* more dots than are done together */
    free_arrays(NULL);
    check_mixes(&r, 1, 1024 + 40); /* more than a tile */
    free_arrays(NULL);
    check_mixes(&r, 1, 10400 + 48); /* a row that shared memory does not hold */
}

static void mixes_at_the_dimensions_of_k3(void **state)
{
    (void)state;
    struct test_random r = fresh(4);
    check_mixes(&r, 8, 7168);
}

/* ---- f32 products ---- */

static void check_product(struct test_random *r, size_t rows, size_t cols, size_t n)
{
    float *w = host_floats(r, rows * cols, 1), *x = host_floats(r, n * cols, 1);
    float *want = host_bytes(n * rows * sizeof *want), *y = unwritten("y", n * rows * sizeof *y);
    struct k3_matrix matrix = k3_matrix_make(K3_TYPE_F32, rows, cols, w);
    k3_matmul_f32(&cpu, &matrix, x, n, want);
    k3_gpu_multiply_f32(on_device("w", w, rows * cols * sizeof *w), rows, cols,
                        on_device("x", x, n * cols * sizeof *x), n, y, NULL);
    same_floats("y", y, want, n * rows);
}

static void f32_products_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    struct test_random r = fresh(5);
    check_product(&r, 1, 1, 1);
    check_product(&r, 3, 31, 2);
    check_product(&r, 9, 7168, 1);
    check_product(&r, 16, 100, 3);
    check_product(&r, 2, 2 * 2048 + 19, 1); /* more than a tile */
    check_product(&r, 2100, 19, 2);         /* more rows than blocks of threads are for */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KERNEL_TEST(rms_norm_has_the_bits_of_the_cpu),
        KERNEL_TEST(rms_norm_of_parts_of_rows_leaves_the_rest),
        KERNEL_TEST(a_norm_is_gated_and_rounded_in_one_launch),
        KERNEL_TEST(mixes_have_the_bits_of_the_cpu),
        KERNEL_TEST(mixes_at_the_dimensions_of_k3),
        KERNEL_TEST(f32_products_have_the_bits_of_the_cpu),
    };
    return RUN_KERNEL_TESTS("rows on the device", tests);
}
