/* peak.c - clock, instructions and memory reads. */
#include "peak.h"

#include "base/clock.h"
#include "base/cpu.h"

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- instructions ---- */

static const struct {
    const char *variant;
    struct k3_peak integer, real;
} peaks[] = {
    {"portable",
     {0, "none: what a compiler makes of plain C"},
     {0, "none: what a compiler makes of plain C"}},
    {"avx2", {64, "vpmaddubsw: 2 x 32 a cycle"}, {8, "mul and add: 2 instructions x 8 lanes a cycle"}},
    {"avxvnni", {64, "vpdpbusd: 2 x 32 a cycle"}, {8, "mul and add: 2 instructions x 8 lanes a cycle"}},
    {"avx512", {128, "vpdpbusd: 2 x 64 a cycle"}, {16, "mul and add: 2 instructions x 16 lanes a cycle"}},
    {"amx",
     {1024, "tdpb**d: 16 x 16 x 64 in 16 cycles"},
     {16, "mul and add: 2 instructions x 16 lanes a cycle"}},
};

struct k3_peak k3_peak_of(const char *variant, enum k3_type type)
{
    bool real = type == K3_TYPE_F32 || type == K3_TYPE_F16 || type == K3_TYPE_BF16;
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++)
        if (strcmp(peaks[i].variant, variant) == 0) return real ? peaks[i].real : peaks[i].integer;
    return (struct k3_peak){0, "none"};
}

/* ---- clock ---- */

#define ADDITIONS 10
#define ROUNDS    500000

/* Registers only: additions of constants can be folded into others before they are executed. */
static inline uint64_t ten_additions(uint64_t x, uint64_t y)
{
#if defined(__x86_64__)
    __asm__ volatile("add %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\t"
                     "add %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\tadd %1, %0"
                     : "+r"(x)
                     : "r"(y)
                     : "cc");
#elif defined(__aarch64__)
    __asm__ volatile(
        "add %0, %0, %1\n\tadd %0, %0, %1\n\tadd %0, %0, %1\n\tadd %0, %0, %1\n\tadd %0, %0, %1\n\t"
        "add %0, %0, %1\n\tadd %0, %0, %1\n\tadd %0, %0, %1\n\tadd %0, %0, %1\n\tadd %0, %0, %1"
        : "+r"(x)
        : "r"(y));
#else
    for (int i = 0; i < ADDITIONS; i++) {
        x += y;
        __asm__ volatile("" : "+r"(x));
    }
#endif
    return x;
}

double k3_peak_clock(void)
{
    uint64_t x = 0, start = k3_now_ns();
    for (int i = 0; i < ROUNDS; i++) x = ten_additions(x, 3);
    uint64_t ns = k3_now_ns() - start;
    __asm__ volatile("" : : "r"(x));
    return (double)ADDITIONS * ROUNDS / ((double)ns / 1e9);
}

/* ---- memory ----
 *
 * How wide the loads are decides what one core can have under way: on one Xeon 8.7 GB/s by 16 bytes at a time and 16.5
 * by 64. So the sum is made with the widest registers there are. */

typedef uint64_t wide16 __attribute__((vector_size(16)));

static uint64_t read_16(const unsigned char *p, size_t n)
{
    wide16 a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i < n; i += 64) {
        a += *(const wide16 *)(p + i);
        b += *(const wide16 *)(p + i + 16);
        c += *(const wide16 *)(p + i + 32);
        d += *(const wide16 *)(p + i + 48);
    }
    a += b + c + d;
    return a[0] + a[1];
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static uint64_t read_32(const unsigned char *p, size_t n)
{
    __m256i a = _mm256_setzero_si256(), b = a;
    for (size_t i = 0; i < n; i += 64) {
        a = _mm256_add_epi64(a, _mm256_load_si256((const __m256i *)(p + i)));
        b = _mm256_add_epi64(b, _mm256_load_si256((const __m256i *)(p + i + 32)));
    }
    a = _mm256_add_epi64(a, b);
    return (uint64_t)_mm256_extract_epi64(a, 0) + (uint64_t)_mm256_extract_epi64(a, 1) +
           (uint64_t)_mm256_extract_epi64(a, 2) + (uint64_t)_mm256_extract_epi64(a, 3);
}

__attribute__((target("avx512f"))) static uint64_t read_64(const unsigned char *p, size_t n)
{
    __m512i a = _mm512_setzero_si512();
    for (size_t i = 0; i < n; i += 64) a = _mm512_add_epi64(a, _mm512_load_si512(p + i));
    return (uint64_t)_mm512_reduce_or_epi64(a);
}
#endif

uint64_t k3_peak_read(const void *bytes, size_t n)
{
    n = n / 64 * 64;
#if defined(__x86_64__)
    if (k3_cpu_features()->avx512) return read_64(bytes, n);
    if (k3_cpu_features()->avx2) return read_32(bytes, n);
#endif
    return read_16(bytes, n);
}
