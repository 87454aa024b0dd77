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

/* One operation on both sides. */
typedef void (*operation)(float *x, const float *y, size_t n);

static void check(operation on_gpu, operation on_cpu)
{
    struct test_random r = {1};
    for (size_t i = 0; i < 3; i++) {
        size_t n = sizes[i];
        float *x = values(&r, n), *y = host_floats(&r, n, 30);
        float *dx = on_device("x", x, n * sizeof *x);
        on_gpu(dx, on_device("y", y, n * sizeof *y), n);
        on_cpu(x, y, n);
        same_floats("x", dx, x, n);
    }
}

static void gpu_situ(float *x, const float *y, size_t n)
{
    k3_gpu_situ(x, y, 4, 25, n, NULL);
}
static void cpu_situ(float *x, const float *y, size_t n)
{
    k3_situ(&cpu, x, y, 4, 25, n);
}
static void gpu_situ_linear(float *x, const float *y, size_t n)
{
    k3_gpu_situ(x, y, 3, 0, n, NULL);
}
static void cpu_situ_linear(float *x, const float *y, size_t n)
{
    k3_situ(&cpu, x, y, 3, 0, n);
}
static void gpu_gate(float *x, const float *y, size_t n)
{
    k3_gpu_gate(x, y, n, NULL);
}
static void cpu_gate(float *x, const float *y, size_t n)
{
    k3_gate(&cpu, x, y, n);
}
static void gpu_add(float *x, const float *y, size_t n)
{
    k3_gpu_add(x, y, n, NULL);
}
static void cpu_add(float *x, const float *y, size_t n)
{
    k3_add(&cpu, x, y, n);
}
static void gpu_sigmoid(float *x, const float *y, size_t n)
{
    (void)y;
    k3_gpu_sigmoid(x, n, NULL);
}
static void cpu_sigmoid(float *x, const float *y, size_t n)
{
    (void)y;
    for (size_t i = 0; i < n; i++) x[i] = k3_sigmoid(x[i]);
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
    check(gpu_sigmoid, cpu_sigmoid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KERNEL_TEST(situ_has_the_bits_of_the_cpu),
        KERNEL_TEST(gates_and_sums_have_the_bits_of_the_cpu),
    };
    return cmocka_run_group_tests_name("elements on the device", tests, start_cpu, stop_cpu);
}
