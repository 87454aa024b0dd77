/* MLA on the device: products by heads, the cache, and attention over it, with the CPU's bits. */
#include "on_device.h"

#include "ops/mla.h"
#include "quant/quant_internal.h"

#include <math.h>
#include <string.h>

struct shape {
    size_t heads, qk, pe, v, rank;
};

/* What is attended over: the cache of both sides and the queries of n tokens after `position` others. */
struct attention {
    struct shape shape;
    size_t n, position;
    uint16_t *cache; /* on the host */
    const uint16_t *device_cache;
    float *q;
    unsigned char *k_b, *v_b; /* q8_0 */
};

static struct attention make(struct test_random *r, struct shape s, size_t n, size_t position)
{
    size_t width = s.rank + s.pe, n_keys = position + n;
    float *rows = host_floats(r, n_keys * width, 1);
    uint16_t *device = unwritten("cache", n_keys * width * sizeof *device);
    struct attention a = {s,
                          n,
                          position,
                          host_bytes(n_keys * width * 2),
                          device,
                          host_floats(r, n * s.heads * s.qk, 3),
                          host_q8_0(r, s.heads * s.rank * (s.qk - s.pe) / 32),
                          host_q8_0(r, s.heads * s.v * s.rank / 32)};
    k3_mla_store(a.cache, true, 0, rows, n_keys, width);
    if (position)
        k3_gpu_mla_store(on_device("rows", rows, position * width * sizeof *rows), position, width, 0, device,
                         NULL);
    k3_gpu_mla_store(on_device("rows", rows + position * width, n * width * sizeof *rows), n, width, position,
                     device, NULL);
    return a;
}

static struct k3_gpu_acts rounded(const float *x, size_t n, size_t cols, size_t stride)
{
    struct k3_gpu_acts acts = {unwritten("acts.q", n * cols),
                               unwritten("acts.d", n * cols / 32 * sizeof(float))};
    k3_gpu_round_q8_0(x, n, cols, stride, &acts, NULL);
    return acts;
}

/* A stack of identities, in f32. */
static struct k3_matrix identity(size_t n, size_t dim)
{
    float *w = host_bytes(n * dim * dim * sizeof *w);
    for (size_t i = 0; i < n * dim * dim; i++) w[i] = i % dim == i / dim % dim;
    return k3_matrix_make(K3_TYPE_F32, n * dim, dim, w);
}

/* The attention on the CPU: n * heads rows of v_dim. */
static float *on_cpu(struct attention a, size_t v_dim, struct k3_matrix v_b)
{
    struct shape s = a.shape;
    float *o = host_bytes(a.n * s.heads * v_dim * sizeof *o);
    float *scratch = host_bytes(k3_mla_scratch(s.rank, s.pe, s.qk) * sizeof *scratch);
    struct k3_matrix k_b = k3_matrix_make(K3_TYPE_Q8_0, s.heads * s.rank, s.qk - s.pe, a.k_b);
    struct k3_mla mla = {s.heads, s.qk, s.pe, v_dim, s.rank, k_b, v_b, true, a.cache};
    k3_mla_attend(&cpu, &mla, a.q, a.n, a.position, o, scratch);
    return o;
}

static void check(struct attention a)
{
    struct shape s = a.shape;
    size_t nope = s.qk - s.pe, n_keys = a.position + a.n, n_heads = a.n * s.heads, width = s.rank + s.pe;
    same_bits("cache", taken_back(a.device_cache, n_keys * width * 2), a.cache, n_keys * width, 2);

    const float *q = on_device("q", a.q, n_heads * s.qk * sizeof *q);
    float *absorbed = unwritten("absorbed", n_heads * s.rank * sizeof *absorbed);
    float *scores = unwritten("scores", n_heads * n_keys * sizeof *scores);
    float *groups = unwritten("groups", n_heads * k3_gpu_mla_group_floats(n_keys) * sizeof *groups);
    float *z = unwritten("z", n_heads * s.rank * sizeof *z), *o = unwritten("o", n_heads * s.v * sizeof *o);
    struct k3_gpu_q8_0 k_b = q8_0_on_device("k_b", a.k_b, s.heads * s.rank, nope);
    struct k3_gpu_q8_0 v_b = q8_0_on_device("v_b", a.v_b, s.heads * s.v, s.rank);
    struct k3_gpu_mla mla = {s.heads, s.qk, s.pe, s.rank, a.device_cache, a.position, a.n};

    struct k3_gpu_acts acts = rounded(q, n_heads, nope, s.qk);
    k3_gpu_multiply_heads_q8_0(&k_b, &acts, s.heads, a.n, absorbed, NULL);
    k3_gpu_mla_scores(&mla, absorbed, q, scores, groups, NULL);
    acts = unwritten_acts(n_heads, s.rank);
    k3_gpu_mla_values(&mla, scores, groups, z, &acts, NULL);
    k3_gpu_multiply_heads_q8_0(&v_b, &acts, s.heads, a.n, o, NULL);

    struct k3_matrix matrix = k3_matrix_make(K3_TYPE_Q8_0, s.heads * s.v, s.rank, a.v_b);
    same_floats("o", o, on_cpu(a, s.v, matrix), n_heads * s.v);
    /* Rounding z to 8 bits hides small differences: once more with a matrix that shows z as it is. */
    same_floats("z", z, on_cpu(a, s.rank, identity(s.heads, s.rank)), n_heads * s.rank);
}

static const struct shape tiny = {3, 40, 8, 16, 32}, odd = {5, 37, 5, 24, 96}, k3 = {5, 192, 64, 128, 512},
                          many = {9, 36, 4, 32, 64};

static void one_token_attends_with_the_bits_of_the_cpu(void **state)
{
    (void)state;
    struct test_random r = fresh(1);
    check(make(&r, tiny, 1, 0));
    free_arrays(NULL);
    check(make(&r, odd, 1, 63)); /* exactly a block of keys */
    free_arrays(NULL);
    check(make(&r, odd, 1, 64));
    free_arrays(NULL);
    check(make(&r, k3, 1, 200));
    free_arrays(NULL);
    check(make(&r, many, 1, 17 * 64 + 5)); /* more groups of keys, and more heads, than are done together */
}

static void tokens_of_a_batch_see_what_came_before_them(void **state)
{
    (void)state;
    struct test_random r = fresh(2);
    check(make(&r, tiny, 5, 0));
    free_arrays(NULL);
    check(make(&r, odd, 20, 60));
    free_arrays(NULL);
    check(make(&r, k3, 2, 63));
}

/* As where attn_kv_b was divided on the host. */
static void products_by_heads_are_those_of_each_head(void **state)
{
    (void)state;
    struct test_random r = fresh(3);
    const size_t heads = 3, rows = 11, cols = 21, stride = 40, n = 5;
    const float *w = host_floats(&r, heads * rows * cols, 1), *x = host_floats(&r, n * heads * stride, 1);
    float *want = host_bytes(n * heads * rows * sizeof *want);
    for (size_t t = 0; t < n; t++)
        for (size_t h = 0; h < heads; h++) {
            struct k3_matrix head = k3_matrix_make(K3_TYPE_F32, rows, cols, w + h * rows * cols);
            k3_matmul(&cpu, &head, x + (t * heads + h) * stride, 1, want + (t * heads + h) * rows);
        }
    float *y = unwritten("y", n * heads * rows * sizeof *y);
    k3_gpu_multiply_heads_f32(on_device("w", w, heads * rows * cols * sizeof *w), heads, rows, cols,
                              on_device("x", x, n * heads * stride * sizeof *x), stride, n, y, NULL);
    same_floats("y", y, want, n * heads * rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KERNEL_TEST(one_token_attends_with_the_bits_of_the_cpu),
        KERNEL_TEST(tokens_of_a_batch_see_what_came_before_them),
        KERNEL_TEST(products_by_heads_are_those_of_each_head),
    };
    return RUN_KERNEL_TESTS("MLA on the device", tests);
}
