/* q8_0 on the device: rows of the token table, rounded activations, products. Everything has the CPU's bits. */
#include "on_device.h"

#include "quant/quant_internal.h"

#include <math.h>
#include <string.h>

static void rows_are_those_of_the_table(void **state)
{
    (void)state;
    static const size_t widths[] = {32, 96, 7168};
    enum { ROWS = 5, N = 4 };
    const int32_t ids[N] = {4, 0, 4, 2};
    struct test_random r = fresh(1);
    for (size_t i = 0; i < 3; i++) {
        size_t cols = widths[i];
        unsigned char *blocks = host_q8_0(&r, ROWS * cols / 32);
        blocks[0] = 0x01, blocks[1] = 0x80; /* the smallest scale, negative */
        struct k3_gpu_q8_0 table = q8_0_on_device("table", blocks, ROWS, cols);
        float *y = unwritten("y", N * cols * sizeof *y), *want = host_bytes(N * cols * sizeof *want);
        k3_gpu_rows_q8_0(&table, on_device("ids", ids, sizeof ids), N, y, NULL);
        for (size_t t = 0; t < N; t++)
            k3_decode_q8_0(blocks + (size_t)ids[t] * cols / 32 * 34, want + t * cols, cols);
        same_floats("y", y, want, N * cols);
    }
}

/* Rounds on both sides. `rounded`: k3_act_bytes for each row, filled. */
static struct k3_gpu_acts round_both(const float *x, size_t n, size_t cols, unsigned char *rounded)
{
    struct k3_gpu_acts acts = {unwritten("acts.q", n * cols),
                               unwritten("acts.d", n * cols / 32 * sizeof(float))};
    size_t stride = k3_act_bytes(K3_ACT_Q8_0, cols);
    k3_gpu_round_q8_0(on_device("x", x, n * cols * sizeof *x), n, cols, cols, &acts, NULL);
    for (size_t t = 0; t < n; t++) k3_round_q8_0(x + t * cols, rounded + t * stride, cols);
    return acts;
}

static void check_rounding(const float *x, size_t n, size_t cols)
{
    size_t stride = k3_act_bytes(K3_ACT_Q8_0, cols), n_blocks = cols / 32;
    unsigned char *rounded = host_bytes(n * stride);
    struct k3_gpu_acts acts = round_both(x, n, cols, rounded);
    const int8_t *q = taken_back(acts.q, n * cols);
    for (size_t t = 0; t < n; t++) {
        struct k3_rounded want = k3_rounded_row(K3_ACT_Q8_0, rounded + t * stride, cols);
        same_bits("acts.q", q + t * cols, want.q, cols, 1);
        same_floats("acts.d", acts.d + t * n_blocks, want.d, n_blocks);
    }
}

static void activations_are_rounded_as_on_the_cpu(void **state)
{
    (void)state;
    struct test_random r = fresh(2);
    check_rounding(host_floats(&r, 32, 1), 1, 32);
    check_rounding(host_floats(&r, 3 * 96, 100), 3, 96);
    check_rounding(host_floats(&r, 2 * 7168, 1e-3f), 2, 7168);
}

static void what_cannot_be_rounded_is_what_it_is_on_the_cpu(void **state)
{
    (void)state;
    enum { CASES = 10 };
    static const float special[CASES][2] = {
        {INFINITY, 0},  {-INFINITY, 0},          {NAN, 0},    {NAN, INFINITY}, {0, 0},
        {0x1p-149f, 0}, {0x1p-126f, -0x1p-127f}, {127, 0.5f}, {127, -1.5f},    {3e38f, 1}};
    float *x = host_bytes(CASES * 32 * sizeof *x);
    for (size_t i = 0; i < CASES; i++)
        for (size_t j = 0; j < 32; j++) x[32 * i + j] = j == 30 ? special[i][0] : special[i][1];
    check_rounding(x, CASES, 32);
}

static void check_product(struct test_random *r, size_t rows, size_t cols, size_t n)
{
    unsigned char *blocks = host_q8_0(r, rows * cols / 32);
    size_t stride = k3_act_bytes(K3_ACT_Q8_0, cols);
    unsigned char *rounded = host_bytes(n * stride);
    float *want = host_bytes(n * rows * sizeof *want), *y = unwritten("y", n * rows * sizeof *y);
    struct k3_gpu_acts acts = round_both(host_floats(r, n * cols, 1), n, cols, rounded);
    struct k3_gpu_q8_0 w = q8_0_on_device("w", blocks, rows, cols);
    k3_gpu_multiply_q8_0(&w, &acts, n, y, NULL);
    struct k3_job job = {.w = k3_matrix_make(K3_TYPE_Q8_0, rows, cols, blocks),
                         .acts = {rounded, stride},
                         .n = n,
                         .y = want,
                         .y_stride = rows};
    k3_multiply(&cpu, &job, 1);
    same_floats("y", y, want, n * rows);
}

static void products_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    struct test_random r = fresh(3);
    check_product(&r, 1, 32, 1);
    check_product(&r, 13, 96, 1);  /* odd rows, a tile that is not full */
    check_product(&r, 9, 7168, 1); /* K3's width: 224 blocks */
    free_arrays(NULL);
    check_product(&r, 3, 1 << 13, 1);  /* one whole tile */
    check_product(&r, 3, 288 * 32, 1); /* and a part of the next */
}

static void products_of_several_tokens_are_those_of_each(void **state)
{
    (void)state;
    struct test_random r = fresh(4);
    static const size_t tokens[] = {2, 3, 4, 5, 7, 8};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        check_product(&r, 11, 33 * 32 + 64 * i, tokens[i]);
        free_arrays(NULL);
    }
}

static void products_of_many_tokens_are_those_of_each(void **state)
{
    (void)state;
    struct test_random r = fresh(5);
    check_product(&r, 1, 32, 9);
    check_product(&r, 17, 96, 11);
    check_product(&r, 128, 64, 64); /* exactly the rows and tokens that are done together */
    free_arrays(NULL);
    check_product(&r, 131, 5 * 32, 67); /* and some more */
    check_product(&r, 40, 7168, 10);    /* K3's width */
}

static void several_products_of_one_input_are_those_of_each(void **state)
{
    (void)state;
    struct test_random r = fresh(6);
    enum { PRODUCTS = K3_GPU_MAX_PRODUCTS, COLS = 96 };
    static const size_t rows[PRODUCTS] = {9, 8, 1, 31, 16, 3}, tokens[] = {1, 3, 10};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        size_t n = tokens[i];
        unsigned char *rounded = host_bytes(n * k3_act_bytes(K3_ACT_Q8_0, COLS));
        struct k3_gpu_acts acts = round_both(host_floats(&r, n * COLS, 1), n, COLS, rounded);
        struct k3_gpu_product products[PRODUCTS];
        float *each[PRODUCTS];
        for (size_t p = 0; p < PRODUCTS; p++) {
            unsigned char *blocks = host_q8_0(&r, rows[p] * COLS / 32);
            products[p].w = q8_0_on_device("w", blocks, rows[p], COLS);
            products[p].y = unwritten("y", n * rows[p] * sizeof(float));
            each[p] = unwritten("each", n * rows[p] * sizeof(float));
            k3_gpu_multiply_q8_0(&products[p].w, &acts, n, each[p], NULL);
        }
        k3_gpu_multiply_all_q8_0(products, PRODUCTS, &acts, n, NULL);
        for (size_t p = 0; p < PRODUCTS; p++)
            same_floats("y", products[p].y, taken_back(each[p], n * rows[p] * sizeof(float)), n * rows[p]);
        free_arrays(NULL);
    }
}

static void check_sum(struct test_random *r, size_t rows, size_t cols, size_t n, bool with_plus)
{
    size_t size = n * rows;
    unsigned char *rounded = host_bytes(n * k3_act_bytes(K3_ACT_Q8_0, cols));
    struct k3_gpu_acts acts = round_both(host_floats(r, n * cols, 1), n, cols, rounded);
    struct k3_gpu_q8_0 w = q8_0_on_device("w", host_q8_0(r, rows * cols / 32), rows, cols);
    float *plus = host_floats(r, size, 9), *y = host_floats(r, size, 9),
          *want = host_bytes(size * sizeof *want);
    float *product = unwritten("product", size * sizeof *product), *dy = on_device("y", y, size * sizeof *y);
    k3_gpu_multiply_q8_0(&w, &acts, n, product, NULL);
    memcpy(want, taken_back(product, size * sizeof *want), size * sizeof *want);
    for (size_t i = 0; i < size; i++) want[i] = y[i] + (with_plus ? plus[i] + want[i] : want[i]);
    k3_gpu_multiply_add_q8_0(&w, &acts, n, with_plus ? on_device("plus", plus, size * sizeof *plus) : NULL,
                             dy, NULL);
    same_floats("y", dy, want, size);
}

static void products_are_added_to_what_is_there(void **state)
{
    (void)state;
    struct test_random r = fresh(7);
    check_sum(&r, 13, 64, 1, false);
    check_sum(&r, 13, 64, 1, true);
    free_arrays(NULL);
    check_sum(&r, 9, 96, 3, true);
    check_sum(&r, 33, 64, 11, false);
    free_arrays(NULL);
    check_sum(&r, 33, 64, 11, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KERNEL_TEST(rows_are_those_of_the_table),
        KERNEL_TEST(activations_are_rounded_as_on_the_cpu),
        KERNEL_TEST(what_cannot_be_rounded_is_what_it_is_on_the_cpu),
        KERNEL_TEST(products_have_the_bits_of_the_cpu),
        KERNEL_TEST(products_of_several_tokens_are_those_of_each),
        KERNEL_TEST(products_of_many_tokens_are_those_of_each),
        KERNEL_TEST(several_products_of_one_input_are_those_of_each),
        KERNEL_TEST(products_are_added_to_what_is_there),
    };
    return RUN_KERNEL_TESTS("q8_0 on the device", tests);
}
