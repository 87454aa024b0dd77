/* Products, SiTU, the router and routed experts. */
#include "ops/experts.h"
#include "ops/ffn.h"

#include "random.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

static struct k3_pool *pools[2];

static struct k3_compute computer(int i, bool exact)
{
    struct k3_compute c;
    assert_int_equal(k3_compute_create(&c, pools[i], exact, 16, 512, NULL), K3_OK);
    return c;
}

static void fill(struct test_random *r, float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) x[i] = scale * test_random_normal(r);
}

/* ---- products ---- */

/* Random blocks whose f16 scales are small normal numbers. */
static unsigned char *random_rows(struct test_random *r, enum k3_type type, size_t n_blocks)
{
    const struct k3_type_info *info = k3_type_info(type);
    unsigned char *rows = malloc(n_blocks * info->block_bytes + 64);
    assert_non_null(rows);
    test_random_bytes(r, rows, n_blocks * info->block_bytes);
    for (size_t i = 0; i < n_blocks; i++) {
        unsigned char *block = rows + i * info->block_bytes;
        if (type == K3_TYPE_Q8_0 || type == K3_TYPE_IQ2_XXS || type == K3_TYPE_Q4_0) block[1] = 0x20;
        if (type == K3_TYPE_MXFP4) block[0] = 120;
        if (type == K3_TYPE_IQ1_M) {
            for (int k = 0; k < 3; k++) block[49 + 2 * k] &= 0x0f; /* super-scale nibbles 0, 1, 2 */
            block[55] = (unsigned char)((block[55] & 0x0f) | 0x20);
        }
    }
    return rows;
}

static void check_product(enum k3_type type, bool exact, double tolerance)
{
    enum { ROWS = 37, COLS = 512, N = 5 };
    struct test_random r = {(uint64_t)type + 100};
    unsigned char *rows = random_rows(&r, type, ROWS * COLS / k3_type_info(type)->block);
    struct k3_matrix w = k3_matrix_make(type, ROWS, COLS, rows);
    float x[N * COLS], y[2][N * ROWS], serial[2 * ROWS], weights[COLS];
    _Alignas(64) unsigned char buffer[2 * COLS * sizeof(float)];
    fill(&r, x, N * COLS, 1);

    for (int i = 0; i < 2; i++) {
        struct k3_compute c = computer(i, exact);
        k3_matmul(&c, &w, x, N, y[i]);
        k3_matmul_serial(&c, &w, x + 2 * COLS, COLS, 2, serial, ROWS, buffer, 0);
        assert_memory_equal(serial, y[i] + 2 * ROWS, sizeof serial);
        k3_compute_destroy(&c);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);

    double difference = 0, size = 0;
    for (size_t j = 0; j < ROWS; j++) {
        k3_decoder(type)(rows + j * w.row_bytes, weights, COLS);
        for (size_t t = 0; t < N; t++) {
            double want = 0;
            for (size_t i = 0; i < COLS; i++) want += (double)weights[i] * (double)x[t * COLS + i];
            difference += (want - (double)y[0][t * ROWS + j]) * (want - (double)y[0][t * ROWS + j]);
            size += want * want;
        }
    }
    if (!(sqrt(difference / size) <= tolerance))
        fail_msg("%s: relative rms %g, more than %g", k3_type_info(type)->name, sqrt(difference / size),
                 tolerance);
    free(rows);
}

static void products_agree_with_decoded_weights(void **state)
{
    (void)state;
    const enum k3_type types[] = {K3_TYPE_Q8_0, K3_TYPE_MXFP4, K3_TYPE_IQ1_M, K3_TYPE_IQ2_XXS, K3_TYPE_Q4_0};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        check_product(types[i], true, 1e-6);
        check_product(types[i], false,
                      types[i] == K3_TYPE_Q4_0 ? 1e-6 : 0.01); /* q4_0 runs through row decode */
    }
}

/* ---- SiTU and router ---- */

static void situ_caps_both_branches_but_not_the_sigmoid(void **state)
{
    (void)state;
    enum { N = 6 };
    const float g0[N] = {0.5f, -3, 10, 100, -100, 0}, u[N] = {1, -40, 3, 200, -5, 7};
    for (int linear = 0; linear < 2; linear++) {
        float g[N];
        memcpy(g, g0, sizeof g);
        struct k3_compute c = computer(0, true);
        k3_situ(&c, g, u, 4, linear ? 25 : 0, N);
        for (int i = 0; i < N; i++) {
            double up = linear ? 25 * tanh((double)u[i] / 25) : (double)u[i];
            double want = 4 * tanh((double)g0[i] / 4) / (1 + exp(-(double)g0[i])) * up;
            assert_true(fabs((double)g[i] - want) <= 1e-5 * (1 + fabs(want)));
        }
        k3_compute_destroy(&c);
    }
}

static void the_bias_chooses_but_does_not_weigh(void **state)
{
    (void)state;
    struct k3_hparams hp = {.n_experts = 6, .top_k = 3, .normalise_weights = true, .weight_scale = 2};
    float logits[6] = {0, 0, 1, -2, 0, -50}, weights[3];
    const float bias[6] = {0, 0, 0, 0.9f, 0, 0};
    uint32_t ids[3];
    struct k3_compute c = computer(0, true);
    k3_route(&c, &hp, bias, logits, 1, 0, ids, weights);
    /* 3: sigmoid(-2) + 0.9 = 1.019; 2: sigmoid(1) = 0.731; then 0, 1 and 4 are equal and the lowest index
     * wins. */
    assert_int_equal(ids[0], 3);
    assert_int_equal(ids[1], 2);
    assert_int_equal(ids[2], 0);
    double p[3] = {1 / (1 + exp(2)), 1 / (1 + exp(-1)), 0.5}, sum = p[0] + p[1] + p[2];
    for (int i = 0; i < 3; i++) assert_true(fabs((double)weights[i] - 2 * p[i] / sum) < 1e-6);

    hp.normalise_weights = false;
    float again[6] = {0, 0, 1, -2, 0, -50};
    k3_route(&c, &hp, bias, again, 1, 0, ids, weights);
    for (int i = 0; i < 3; i++) assert_true(fabs((double)weights[i] - 2 * p[i]) < 1e-6);
    k3_compute_destroy(&c);
}

/* ---- experts ---- */

enum { E = 7, K = 3, Z = 32, F = 64, N = 9 };

struct moe {
    float gate[E * F * Z], up[E * F * Z], down[E * Z * F], latent[N * Z], weights[N * K];
    uint32_t ids[N * K];
};

static void plain_moe(const struct moe *m, double *sum)
{
    for (size_t t = 0; t < N; t++)
        for (size_t i = 0; i < K; i++) {
            size_t e = m->ids[t * K + i];
            double hidden[F];
            for (size_t f = 0; f < F; f++) {
                double g = 0, u = 0;
                for (size_t z = 0; z < Z; z++) {
                    g += (double)m->gate[(e * F + f) * Z + z] * (double)m->latent[t * Z + z];
                    u += (double)m->up[(e * F + f) * Z + z] * (double)m->latent[t * Z + z];
                }
                hidden[f] = 4 * tanh(g / 4) / (1 + exp(-g)) * 25 * tanh(u / 25);
            }
            for (size_t z = 0; z < Z; z++) {
                double out = 0;
                for (size_t f = 0; f < F; f++) out += (double)m->down[(e * Z + z) * F + f] * hidden[f];
                sum[t * Z + z] += (double)m->weights[t * K + i] * out;
            }
        }
}

/* Computes all chosen experts, from the first to the last or the other way round, up to `together` at a time. */
static void run_moe(struct k3_compute *c, const struct k3_hparams *hp, const struct moe *m, bool backwards,
                    size_t together, float *out)
{
    struct k3_experts x;
    struct k3_ready_expert list[E];
    size_t n = 0;
    assert_int_equal(k3_experts_create(&x, c, hp, N, NULL), K3_OK);
    k3_experts_group(&x, &(struct k3_routing){m->ids, m->weights, m->latent}, N, 1);
    for (size_t j = 0; j < x.n_chosen; j++) {
        size_t i = backwards ? x.n_chosen - 1 - j : j, e = x.chosen[i];
        assert_true(i == 0 || x.chosen[i] > x.chosen[i - 1]);
        struct k3_expert_matrices w = {k3_matrix_make(K3_TYPE_F32, F, Z, m->gate + e * F * Z),
                                       k3_matrix_make(K3_TYPE_F32, F, Z, m->up + e * F * Z),
                                       k3_matrix_make(K3_TYPE_F32, Z, F, m->down + e * Z * F)};
        assert_true(k3_experts_fit(&x, list, n));
        list[n++] = (struct k3_ready_expert){i, w};
        if (n < together && j + 1 < x.n_chosen) continue;
        k3_experts_compute(&x, list, n);
        n = 0;
    }
    memcpy(out, k3_experts_sum(&x), N * Z * sizeof *out);
    k3_experts_destroy(&x);
}

static void experts_give_the_same_sum_in_any_order(void **state)
{
    (void)state;
    struct moe *m = malloc(sizeof *m);
    struct test_random r = {17};
    fill(&r, m->gate, E * F * Z, 0.2f);
    fill(&r, m->up, E * F * Z, 0.2f);
    fill(&r, m->down, E * Z * F, 0.2f);
    fill(&r, m->latent, N * Z, 1);
    fill(&r, m->weights, N * K, 1);
    for (uint32_t t = 0; t < N; t++) /* expert 6 is never chosen */
        for (uint32_t i = 0; i < K; i++) m->ids[t * K + i] = (t + 2 * i) % (E - 1);
    double want[N * Z] = {0};
    plain_moe(m, want);

    struct k3_hparams hp = {
        .n_experts = E, .top_k = K, .latent = Z, .n_expert_ffn = F, .situ_beta = 4, .situ_linear_beta = 25};
    float first[N * Z], out[N * Z];
    for (int i = 0; i < 16; i++) {
        struct k3_compute c = computer(i & 1, true);
        run_moe(&c, &hp, m, i & 2, 1 + (size_t)i / 4 * 2, i ? out : first);
        k3_compute_destroy(&c);
        if (i) assert_memory_equal(out, first, sizeof first);
    }
    for (size_t i = 0; i < N * Z; i++)
        if (!(fabs((double)first[i] - want[i]) <= 1e-4))
            fail_msg("sum[%zu] is %.9g, expected %.9g", i, (double)first[i], want[i]);
    free(m);
}

int main(void)
{
    assert_int_equal(k3_pool_create(1, &pools[0], NULL), K3_OK);
    assert_int_equal(k3_pool_create(3, &pools[1], NULL), K3_OK);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_agree_with_decoded_weights),
        cmocka_unit_test(situ_caps_both_branches_but_not_the_sigmoid),
        cmocka_unit_test(the_bias_chooses_but_does_not_weigh),
        cmocka_unit_test(experts_give_the_same_sum_in_any_order),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < 2; i++) k3_pool_free(pools[i]);
    return failed;
}
