/* random.h - pseudo-random data for tests: the same on every machine. */
#ifndef TEST_RANDOM_H
#define TEST_RANDOM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Any state is a seed. SplitMix64: https://prng.di.unimi.it/splitmix64.c */
struct test_random {
    uint64_t state;
};

static inline uint64_t test_random_u64(struct test_random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* 0 .. n-1; the bias of the remainder is too small to matter here. */
static inline uint32_t test_random_below(struct test_random *r, uint32_t n)
{
    return (uint32_t)((test_random_u64(r) >> 32) % n);
}

/* Uniform in [-1, 1), a multiple of 2^-23. */
static inline float test_random_float(struct test_random *r)
{
    return (float)(int32_t)(test_random_u64(r) >> 40) * 0x1p-23f - 1.0f;
}

/* Nearly normal, mean 0, variance 1, within -6 .. 6: twelve uniform numbers of variance 1/12. */
static inline float test_random_normal(struct test_random *r)
{
    float sum = 0;
    for (int i = 0; i < 12; i++) sum += test_random_float(r);
    return 0.5f * sum;
}

static inline void test_random_bytes(struct test_random *r, void *bytes, size_t n)
{
    for (unsigned char *p = bytes; n > 0;) {
        uint64_t x = test_random_u64(r);
        size_t part = n < sizeof x ? n : sizeof x;
        memcpy(p, &x, part);
        p += part;
        n -= part;
    }
}

#endif
