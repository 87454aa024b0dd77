/* tune.c - measures how many threads are best.
 *
 * A token reads every weight it uses once, from memory, so threads beyond those that read as fast as the memory gives,
 * or that share a core, help nothing, and may cost. What is timed is what decoding does: one column, and the two formats
 * that lie at the ends, iq1_m, which computes the most for each byte, and q8_0, which computes the least. */
#include "ops/tune.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/host.h"
#include "base/memory.h"
#include "ops/compute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIB         ((size_t)1 << 20)
#define MEMORY      (256 * MIB) /* more than most caches hold */
#define PER_THREAD  (8 * MIB)   /* that a thread reads in a measurement, of each format: some 3 ms */
#define WARM_UP     (MIB / 4)   /* that it reads before: it has started then */
#define MAX_TIME    250000000u  /* nanoseconds in all */
#define MAX_TURNS   20          /* and at least one */
#define COLS        3584        /* K3's latent width */
#define MAX_ROWS    (MEMORY / (COLS / 8))
#define MAX_NUMBERS 32 /* of threads, that are compared */

/* Scales of a small normal size in both formats: no infinities, no NaN, nothing that computes slower than others. */
#define WEIGHT_BYTE 0x2c

struct memory {
    unsigned char *bytes; /* [MEMORY]: weights */
    size_t at;            /* where to read next: what was read lately may be in a cache */
    float *x, *y;         /* [COLS] activations and as many results as there can be rows */
};

/* Nanoseconds of multiplying `bytes` of weights of a type. */
static double time_type(struct k3_compute *c, struct memory *memory, enum k3_type type, size_t bytes)
{
    struct k3_matrix w = k3_matrix_make(type, 0, COLS, NULL);
    if (memory->at + bytes > MEMORY) memory->at = 0;
    w.rows = bytes / w.row_bytes;
    w.data = memory->bytes + memory->at;
    memory->at += bytes;
    uint64_t start = k3_now_ns();
    k3_matmul(c, &w, memory->x, 1, memory->y);
    return (double)(k3_now_ns() - start);
}

/* Nanoseconds for a byte with n threads; less than nothing when it cannot be known. */
static double measure(struct memory *memory, int n)
{
    struct k3_pool *pool;
    struct k3_compute c;
    double time = -1;
    size_t bytes = (size_t)n * PER_THREAD < MEMORY / 2 ? (size_t)n * PER_THREAD : MEMORY / 2;
    if (k3_pool_create(n, &pool, NULL) != K3_OK) return time;
    if (k3_compute_create(&c, pool, false, 1, COLS, NULL) == K3_OK) {
        time_type(&c, memory, K3_TYPE_Q8_0, (size_t)n * WARM_UP);
        time = time_type(&c, memory, K3_TYPE_IQ1_M, bytes) + time_type(&c, memory, K3_TYPE_Q8_0, bytes);
        time /= (double)bytes;
        k3_compute_destroy(&c);
    }
    k3_pool_free(pool);
    return time;
}

static void touch(void *ctx, size_t begin, size_t end, int thread)
{
    struct memory *memory = ctx;
    (void)thread;
    memset(memory->bytes + begin, WEIGHT_BYTE, end - begin);
}

/* Writes the memory by all threads, as weights are. */
static bool fill(struct memory *memory, int n)
{
    struct k3_pool *pool;
    if (k3_pool_create(n, &pool, NULL) != K3_OK) return false;
    k3_pool_run(pool, touch, memory, MEMORY, 2 * MIB);
    for (size_t i = 0; i < COLS; i++) memory->x[i] = (float)(i % 7) - 3;
    k3_pool_free(pool);
    return true;
}

/* 4, 6, 8, 12, 16, 24 .. and at last all; then 0. */
static int next_number(int n, int all)
{
    if (n == all) return 0;
    int next = n & (n - 1) ? n / 3 * 4 : n / 2 * 3;
    return next < all ? next : all;
}

/* The fewest of the numbers 4 .. all that come within 3 % of the fastest. Each is timed as often as there is time, in turns,
 * so that what else the machine does for a moment is not held against one of them. */
static int compare(struct memory *memory, int all)
{
    double times[MAX_NUMBERS], fastest = 0;
    int numbers[MAX_NUMBERS], n_numbers = 0, best = all;
    for (int n = K3_FEW_PROCESSORS; n && n_numbers < MAX_NUMBERS; n = next_number(n, all)) {
        numbers[n_numbers] = n;
        times[n_numbers++] = INFINITY;
    }
    uint64_t start = k3_now_ns();
    for (int turn = 0; turn == 0 || (turn < MAX_TURNS && k3_now_ns() - start < MAX_TIME); turn++)
        for (int i = 0; i < n_numbers; i++) {
            double time = measure(memory, numbers[i]);
            if (time > 0 && time < times[i]) times[i] = time;
        }
    for (int i = 0; i < n_numbers; i++)
        if (fastest == 0 || times[i] < fastest) fastest = times[i];
    for (int i = n_numbers - 1; i >= 0; i--)
        if (times[i] <= 1.03 * fastest) best = numbers[i];
    return isinf(fastest) ? all : best; /* nothing could be measured */
}

int k3_best_threads(void)
{
    int all = k3_cpu_count(), best = all;
    if (all <= K3_FEW_PROCESSORS || k3_host_memory().available < 4 * MEMORY) return all;
    struct memory memory = {.bytes = k3_buffer_alloc(MEMORY, 1),
                            .x = k3_buffer_alloc(COLS, sizeof(float)),
                            .y = k3_buffer_alloc(MAX_ROWS, sizeof(float))};
    if (memory.bytes && memory.x && memory.y && fill(&memory, all)) best = compare(&memory, all);
    free(memory.y);
    free(memory.x);
    free(memory.bytes);
    return best;
}
