/* provoke.cu - see provoke.h. */
#include "provoke.h"

#include "simt.h"

#define N 64u

K3_KERNEL provoked(int mistake, K3_GLOBAL(const float) x, K3_CONSTANT(float) same_as_y, K3_GLOBAL(float) y)
{
    K3_SHARED(float, line, N);
    unsigned i = threadIdx.x;
    size_t out = blockIdx.x * N + i;

    if (mistake == READS_BEYOND && i == 3) y[out] = x[N];
    if (mistake == READS_BEFORE && i == 3) y[out] = (x + 5)[-6];
    if (mistake == WRITES_BEYOND && i == 3) y[2 * N] = 1;
    if (mistake == READS_UNWRITTEN && i == 3) y[out] = y[out + 1];
    if (mistake == WRITES_CONSTANT) {
        y[out] = 1;
        y[out] = same_as_y[out];
    }
    if (mistake == BLOCKS_SHARE) y[i] = 1;
    if (mistake == WARPS_RACE_IN_DEVICE_MEMORY) {
        y[out] = 1;
        y[out] = y[out ^ 32];
    }
    if (mistake == READS_SHARED_BEYOND && i == 3) y[out] = line[N];
    if (mistake == READS_SHARED_UNWRITTEN && i == 3) y[out] = line[i];
    if (mistake == READS_SHARED_OF_EARLIER_BLOCK && blockIdx.x == 1) y[out] = line[i];
    if (mistake == LEAVES_BEFORE_BARRIER && i == 3) return;
    if (mistake == WRITE_THEN_WRITE) line[i / 64] = 1;

    line[i] = x[i];
    if (mistake == BARRIER_AFTER_LEAVING && i == 0) return;
    if (mistake == TWO_BARRIERS && i == 3)
        k3_sync();
    else if (mistake != WRITE_THEN_READ && mistake != LANES_RACE)
        k3_sync();
    unsigned from = i ^ 1;
    if (mistake == WRITE_THEN_READ) from = i % 32;
    if (mistake == LANES_RACE) from = i & ~1u;
    float value = line[from];
    if (mistake == READ_THEN_WRITE && i == 1) line[i] = 0;
    k3_sync();

    if (mistake == LANE_HAS_LEFT && i == 3) return;
    if (mistake == LANE_DOES_NOT_COME && i % 32 == 3) k3_sync();
    unsigned mask = mistake == LANE_NOT_IN_MASK ? 0xfffffff7u : K3_ALL_LANES;
    if (mistake == SOURCE_NOT_IN_MASK) {
        if (i % 32 < 16) value += k3_shuffle(0xffffu, value, 16);
    } else if (mistake == DIFFERENT_SHUFFLES && i == 3) {
        value += k3_shuffle(K3_ALL_LANES, value, i);
    }
    /* There and back. */
    value = k3_shuffle_xor(mask, k3_shuffle(mask, value, i % 32), 16);
    value = k3_shuffle_xor(mask, value, 16);

    line[i] = value;
    k3_sync_warp(K3_ALL_LANES);
    unsigned positive = 0;
    for (unsigned votes = k3_ballot(K3_ALL_LANES, line[i] > 0); votes; votes &= votes - 1) positive++;
    y[out] = line[i ^ 1] + 2.0f + (float)positive;
}

K3_KERNEL too_much(K3_GLOBAL(float) y)
{
    K3_SHARED(float, large, 12u << 10);
    K3_SHARED(float, more, 1);
    large[threadIdx.x] = more[0] = 1;
    y[threadIdx.x] = 1;
}

extern "C" void provoke(enum mistake mistake, const float *x, float *y)
{
    if (mistake == TOO_MUCH_SHARED)
        K3_LAUNCH(too_much, 1, N, NULL, y);
    else
        K3_LAUNCH(provoked, 2, N, NULL, (int)mistake, x, y, y);
}

K3_KERNEL count_threads(K3_GLOBAL(float) y)
{
    y[threadIdx.x] = (float)threadIdx.x;
}

extern "C" void provoke_threads(unsigned n_threads, float *y)
{
    K3_LAUNCH(count_threads, 1, n_threads, NULL, y);
}

/* ---- copies and matrix products ---- */

K3_KERNEL copied(int mistake, K3_CONSTANT(int4) x, K3_GLOBAL(int) y)
{
    K3_SHARED(int, words, N);
    unsigned i = threadIdx.x, beside = i ^ 1;
    if (mistake == COPY_OVER_WHAT_IS_READ) {
        for (unsigned j = 0; j < 4; j++) words[4 * i + j] = 0;
        k3_sync_warp(0xffffu);
        if (i == 0) y[i] = words[4 * beside];
    }
    k3_copy_16(words + (mistake == COPY_NOT_ALIGNED ? 1 : 4 * i), x + i);
    k3_copy_end_group();
    if (mistake == READS_DURING_COPY) y[i] = words[4 * i];
    k3_copy_wait<0>();
    if (mistake != COPY_WITHOUT_BARRIER) k3_sync();
    for (unsigned j = 0; j < 4; j++) y[4 * beside + j] = words[4 * beside + j];
}

extern "C" void provoke_copy(enum mistake mistake, const float *x, float *y)
{
    K3_LAUNCH(copied, 1, N / 4, NULL, (int)mistake, (const int4 *)x, (int *)y);
}

K3_KERNEL product(K3_CONSTANT(int) a, K3_CONSTANT(int) b, K3_GLOBAL(int) c)
{
    unsigned g = threadIdx.x / 4, i = threadIdx.x % 4;
    int fa[4] = {a[g * 8 + i], a[(g + 8) * 8 + i], a[g * 8 + i + 4], a[(g + 8) * 8 + i + 4]};
    int fb[2] = {b[g * 8 + i], b[g * 8 + i + 4]}, fc[4] = {1, 1, 1, 1};
    k3_mma_s8(fc, fa, fb);
    for (unsigned j = 0; j < 4; j++) c[(g + j / 2 * 8) * 8 + 2 * i + j % 2] = fc[j];
}

extern "C" void multiply_16_8_32(const signed char *a, const signed char *b, int *c)
{
    K3_LAUNCH(product, 1, K3_LANES, NULL, (const int *)a, (const int *)b, c);
}
