/* on_device.c - see on_device.h. */
#include "on_device.h"

#include "quant/quant_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct k3_compute cpu;

static void *device_arrays[64], *host_arrays[64];
static size_t n_device, n_host;

static unsigned long long seed(void)
{
    const char *text = getenv("K3_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 0;
}

struct test_random fresh(uint64_t number)
{
    return (struct test_random){number ^ seed() * 0xd1342543de82ef95u};
}

int start_cpu(void **state)
{
    (void)state;
    if (seed()) printf("The data are those of K3_TEST_SEED=%llu\n", seed());
    struct k3_pool *pool;
    if (k3_pool_create(1, &pool, NULL) != K3_OK) return 1;
    if (k3_compute_create(&cpu, pool, false, 64, 8192, NULL) != K3_OK) return 1;
    cpu.kernels = &k3_kernels_portable;
    cpu.vectors = &k3_vectors_plain;
    return 0;
}

int stop_cpu(void **state)
{
    (void)state;
    k3_compute_destroy(&cpu);
    k3_pool_free(cpu.pool);
    return 0;
}

int free_arrays(void **state)
{
    (void)state;
    while (n_device) k3_simt_free(device_arrays[--n_device]);
    while (n_host) free(host_arrays[--n_host]);
    return k3_simt_report() != NULL;
}

bool have_device(void)
{
    const char *missing = k3_simt_missing();
    if (missing) printf("There is no GPU: %s\n", missing);
    return !missing;
}

/* ---- arrays ---- */

void *unwritten(const char *name, size_t bytes)
{
    assert_true(n_device < sizeof device_arrays / sizeof *device_arrays);
    return device_arrays[n_device++] = k3_simt_alloc(name, bytes);
}

void *on_device(const char *name, const void *host, size_t bytes)
{
    void *device = unwritten(name, bytes);
    k3_simt_put(device, host, bytes);
    return device;
}

void *host_bytes(size_t bytes)
{
    assert_true(n_host < sizeof host_arrays / sizeof *host_arrays);
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(p);
    return host_arrays[n_host++] = p;
}

float *host_floats(struct test_random *r, size_t n, float scale)
{
    float *x = host_bytes(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = scale * test_random_normal(r);
    return x;
}

unsigned char *host_q8_0(struct test_random *r, size_t n_blocks)
{
    unsigned char *blocks = host_bytes(n_blocks * 34);
    test_random_bytes(r, blocks, n_blocks * 34);
    for (size_t b = 0; b < n_blocks; b++)
        blocks[34 * b + 1] = (unsigned char)(0x20 | (blocks[34 * b + 1] & 0x87));
    return blocks;
}

struct k3_gpu_q8_0 q8_0_on_device(const char *name, const unsigned char *blocks, size_t rows, size_t cols)
{
    size_t n_blocks = rows * cols / 32;
    int8_t *q = unwritten(name, rows * cols);
    uint16_t *d = unwritten(name, n_blocks * sizeof *d);
    k3_gpu_split_q8_0(on_device(name, blocks, n_blocks * 34), n_blocks, q, d, NULL);
    return (struct k3_gpu_q8_0){q, d, rows, cols};
}

void *taken_back(const void *device, size_t bytes)
{
    void *host = host_bytes(bytes);
    k3_simt_get(host, device, bytes);
    const char *report = k3_simt_report();
    if (report) fail_msg("%s", report);
    return host;
}

/* ---- comparisons ---- */

void same_bits(const char *what, const void *got, const void *want, size_t n, size_t bytes_each)
{
    const unsigned char *g = got, *w = want;
    for (size_t i = 0; i < n * bytes_each; i++)
        if (g[i] != w[i])
            fail_msg("byte %zu of element %zu of %s is %02x, expected %02x", i % bytes_each, i / bytes_each,
                     what, g[i], w[i]);
}

void same_floats(const char *what, const float *device_got, const float *want, size_t n)
{
    const float *got = taken_back(device_got, n * sizeof *got);
    for (size_t i = 0; i < n; i++)
        if (k3_f32_bits(got[i]) != k3_f32_bits(want[i]) && !(isnan(got[i]) && isnan(want[i])))
            fail_msg("%s[%zu] is %.9g, expected %.9g", what, i, (double)got[i], (double)want[i]);
}

struct k3_gpu_acts unwritten_acts(size_t n, size_t cols)
{
    size_t blocks = n * ((cols + 31) / 32);
    return (struct k3_gpu_acts){unwritten("acts.q", blocks * 32),
                                unwritten("acts.d", blocks * sizeof(float))};
}

void same_rounded(const struct k3_gpu_acts *acts, const float *values, size_t n)
{
    unsigned char *rounded = host_bytes(k3_act_bytes(K3_ACT_Q8_0, n));
    k3_round_q8_0(values, rounded, n);
    struct k3_rounded want = k3_rounded_row(K3_ACT_Q8_0, rounded, n);
    same_bits("acts.q", taken_back(acts->q, n), want.q, n, 1);
    same_floats("acts.d", acts->d, want.d, n / 32);
}
