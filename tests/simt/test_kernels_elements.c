/* Operations on single elements on the device: the CPU's bits. */
#include "on_device.h"

#include "ops/ffn.h"
#include "ops/vmath.h"

#include <math.h>
#include <string.h>

static const size_t sizes[] = {1, 255, 6144 + 7};

/* Random values of all magnitudes, and the ends of the range. */
static float *values(struct test_random *r, size_t n)
{
    static const float ends[] = {0,  -0.0f, 1e-30f, -1e-30f,   87,       -87,
                                 89, -120,  1e30f,  -INFINITY, INFINITY, NAN};
    float *x = host_floats(r, n, 8);
    for (size_t i = 0; i < n && n > 1 && i < sizeof ends / sizeof *ends; i++) x[i] = ends[i];
    return x;
}

/* One operation on both sides; where acts are not NULL the result is rounded too. */
typedef void (*gpu_operation)(float *x, const float *y, size_t n, const struct k3_gpu_acts *acts);
typedef void (*operation)(float *x, const float *y, size_t n);

static void check_rounding(gpu_operation on_gpu, operation on_cpu)
{
    struct test_random r = fresh(2);
    static const size_t widths[] = {32, 6144 + 96};
    for (size_t i = 0; i < 2; i++) {
        size_t n = widths[i];
        float *x = values(&r, n), *y = host_floats(&r, n, 30);
        float *dx = on_device("x", x, n * sizeof *x);
        struct k3_gpu_acts acts = unwritten_acts(1, n);
        on_gpu(dx, on_device("y", y, n * sizeof *y), n, &acts);
        on_cpu(x, y, n);
        same_floats("x", dx, x, n);
        same_rounded(&acts, x, n);
    }
}

static void check(gpu_operation on_gpu, operation on_cpu)
{
    struct test_random r = fresh(1);
    for (size_t i = 0; i < 3; i++) {
        size_t n = sizes[i];
        float *x = values(&r, n), *y = host_floats(&r, n, 30);
        float *dx = on_device("x", x, n * sizeof *x);
        on_gpu(dx, on_device("y", y, n * sizeof *y), n, NULL);
        on_cpu(x, y, n);
        same_floats("x", dx, x, n);
    }
}

static void gpu_situ(float *x, const float *y, size_t n, const struct k3_gpu_acts *acts)
{
    k3_gpu_situ(x, y, 4, 25, n, acts, NULL);
}
static void cpu_situ(float *x, const float *y, size_t n)
{
    k3_situ(&cpu, x, y, 4, 25, n);
}
static void gpu_situ_linear(float *x, const float *y, size_t n, const struct k3_gpu_acts *acts)
{
    k3_gpu_situ(x, y, 3, 0, n, acts, NULL);
}
static void cpu_situ_linear(float *x, const float *y, size_t n)
{
    k3_situ(&cpu, x, y, 3, 0, n);
}
static void gpu_gate(float *x, const float *y, size_t n, const struct k3_gpu_acts *acts)
{
    k3_gpu_gate(x, y, n, acts, NULL);
}
static void cpu_gate(float *x, const float *y, size_t n)
{
    k3_gate(&cpu, x, y, n);
}
static void gpu_add(float *x, const float *y, size_t n, const struct k3_gpu_acts *acts)
{
    (void)acts;
    k3_gpu_add(x, y, n, NULL);
}
static void cpu_add(float *x, const float *y, size_t n)
{
    k3_add(&cpu, x, y, n);
}
static void situ_has_the_bits_of_the_cpu(void **state)
{
    (void)state;
    check(gpu_situ, cpu_situ);
    check(gpu_situ_linear, cpu_situ_linear);
}

static void gates_and_sums_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    check(gpu_gate, cpu_gate);
    check(gpu_add, cpu_add);
}

static void what_a_product_takes_next_is_rounded(void **state)
{
    (void)state;
    check_rounding(gpu_situ, cpu_situ);
    check_rounding(gpu_gate, cpu_gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KERNEL_TEST(situ_has_the_bits_of_the_cpu),
        KERNEL_TEST(gates_and_sums_have_the_bits_of_the_cpu),
        KERNEL_TEST(what_a_product_takes_next_is_rounded),
    };
    return RUN_KERNEL_TESTS("elements on the device", tests);
}
