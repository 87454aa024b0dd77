/* Whole rows on the device: RMS norm, the AttnRes mix, f32 products. Everything has the CPU's bits. */
#include "on_device.h"

#include "ops/norm.h"

#include <string.h>

/* ---- RMS norm ---- */

static void check_norm(struct test_random *r, size_t n, size_t width, size_t stride, bool in_place)
{
    float *x = host_floats(r, n * stride, 3), *w = host_floats(r, width, 1);
    float *want = host_bytes(n * stride * sizeof *want);
    memcpy(want, x, n * stride * sizeof *want);
    for (size_t t = 0; t < n; t++) k3_rms_norm_row(&cpu, x + t * stride, w, 1e-5f, width, want + t * stride);

    float *dx = on_device("x", x, n * stride * sizeof *x);
    float *y = in_place ? dx : on_device("y", x, n * stride * sizeof *x);
    k3_gpu_rms_norm(dx, on_device("w", w, width * sizeof *w), 1e-5f, n, width, stride, y, NULL);
    same_floats("y", y, want, n * stride);
}

static void rms_norm_has_the_bits_of_the_cpu(void **state)
{
    (void)state;
    struct test_random r = {1};
    check_norm(&r, 1, 1, 1, false);
    check_norm(&r, 3, 15, 15, false);
    check_norm(&r, 2, 33, 33, false);
    check_norm(&r, 2, 7168, 7168, false);
    check_norm(&r, 1, 4096 + 16 + 5, 4096 + 16 + 5, false);
}

static void rms_norm_of_parts_of_rows_leaves_the_rest(void **state)
{
    (void)state;
    struct test_random r = {2};
    check_norm(&r, 3, 512, 576, true);
    check_norm(&r, 2, 7, 9, true);
    check_norm(&r, 2, 1536, 1536, true);
}

/* ---- AttnRes ---- */

enum { BATCH = 3 };

/* Banks one stream after another, with a mix of all n tokens at each step, as a model does. */
static void check_mixes(struct test_random *r, size_t n_bank, size_t width)
{
    size_t one = BATCH * width;
    float *streams = host_floats(r, (n_bank + 1) * one, 1), *score = host_floats(r, width, 0.3f);
    float *want = host_bytes(one * sizeof *want), *probs = host_bytes(BATCH * (n_bank + 1) * sizeof *probs);
    float *roots = unwritten("roots", (n_bank + 1) * BATCH * sizeof *roots),
          *y = unwritten("y", one * sizeof *y);
    float *dprobs = unwritten("probs", BATCH * (n_bank + 1) * sizeof *probs);
    const float *dscore = on_device("score", score, width * sizeof *score);
    const float *dstreams = on_device("streams", streams, (n_bank + 1) * one * sizeof *streams);

    struct k3_streams s = {.n_bank = 0};
    for (; s.n_bank <= n_bank; s.n_bank++) {
        s.p = streams + s.n_bank * one;
        k3_mix(&cpu, &s, score, 1e-5f, NULL, BATCH, width, want, probs);
        k3_gpu_mix(dstreams, roots, s.n_bank, BATCH, dscore, 1e-5f, NULL, BATCH, width, y, dprobs, NULL);
        same_floats("y", y, want, one);
        same_floats("probs", dprobs, probs, BATCH * (s.n_bank + 1));
        s.bank[s.n_bank] = s.p;
    }

    static const uint32_t rows[] = {2, 0};
    s.n_bank = n_bank;
    k3_mix(&cpu, &s, score, 1e-5f, rows, 2, width, want, NULL);
    k3_gpu_mix(dstreams, roots, n_bank, BATCH, dscore, 1e-5f, on_device("rows", rows, sizeof rows), 2, width,
               y, NULL, NULL);
    same_floats("y", y, want, 2 * width);
}

static void mixes_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    struct test_random r = {3};
    check_mixes(&r, 0, 1);
    check_mixes(&r, 2, 17);
    free_arrays(NULL);
    check_mixes(&r, 12, 96); /* more dots than are done together */
    free_arrays(NULL);
    check_mixes(&r, 1, 1024 + 40); /* more than a tile */
}

static void mixes_at_the_dimensions_of_k3(void **state)
{
    (void)state;
    struct test_random r = {4};
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
    struct test_random r = {5};
    check_product(&r, 1, 1, 1);
    check_product(&r, 3, 31, 2);
    check_product(&r, 9, 7168, 1);
    check_product(&r, 16, 100, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KERNEL_TEST(rms_norm_has_the_bits_of_the_cpu),
        KERNEL_TEST(rms_norm_of_parts_of_rows_leaves_the_rest),
        KERNEL_TEST(mixes_have_the_bits_of_the_cpu),
        KERNEL_TEST(mixes_at_the_dimensions_of_k3),
        KERNEL_TEST(f32_products_have_the_bits_of_the_cpu),
    };
    return cmocka_run_group_tests_name("rows on the device", tests, start_cpu, stop_cpu);
}
