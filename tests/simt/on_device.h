/* on_device.h - what the tests of kernels share: arrays on the device, data, and comparisons that show both values. */
#ifndef K3_SIMT_ON_DEVICE_H
#define K3_SIMT_ON_DEVICE_H

#include "kernels.h"
#include "ops/compute.h"
#include "emulator/host.h"

#include "random.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

/* Arrays on the device: with a copy of `host`, or unwritten. They are freed after each test, and so is what
 * `host_floats` returns. */
void *on_device(const char *name, const void *host, size_t bytes);
void *unwritten(const char *name, size_t bytes);

/* Random data, other for each number and, with K3_TEST_SEED in the environment, for each seed: without it always the same. */
struct test_random fresh(uint64_t number);

/* Memory of the host: normal random numbers times scale. */
float *host_floats(struct test_random *r, size_t n, float scale);
void *host_bytes(size_t bytes);

/* Random q8_0 blocks, as in a file: scales of both signs, weights of all values. */
unsigned char *host_q8_0(struct test_random *r, size_t n_blocks);

/* The copy of q8_0 blocks as the device keeps them, made by the kernel that does it. */
struct k3_gpu_q8_0 q8_0_on_device(const char *name, const unsigned char *blocks, size_t rows, size_t cols);

/* Takes an array back; a report of the emulator fails the test. */
void *taken_back(const void *device, size_t bytes);

/* The same bits, NaN included. */
void same_bits(const char *what, const void *got, const void *want, size_t n, size_t bytes_each);
void same_floats(const char *what, const float *device_got, const float *want, size_t n);

/* The CPU, with the portable kernels. */
extern struct k3_compute cpu;

/* For cmocka: setup and teardown of a group, teardown of a test. */
int start_cpu(void **state);
int stop_cpu(void **state);
int free_arrays(void **state);

#define KERNEL_TEST(f) cmocka_unit_test_teardown(f, free_arrays)

/* Room for n rows of `cols` rounded values, cols rounded up to blocks. */
struct k3_gpu_acts unwritten_acts(size_t n, size_t cols);

/* The rounded values are what the CPU makes of n values, whole blocks. */
void same_rounded(const struct k3_gpu_acts *acts, const float *values, size_t n);

/* Whether there is a device; says so if there is none, and then the tests are skipped: exit status 77. */
bool have_device(void);

#define RUN_KERNEL_TESTS(name, tests)                                                                        \
    (have_device() ? cmocka_run_group_tests_name(name, tests, start_cpu, stop_cpu) : 77)

#endif
