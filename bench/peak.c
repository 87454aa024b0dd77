/* peak.c - clock, instructions and memory reads. */
#include "peak.h"

#include "base/clock.h"

#include <stdbool.h>
#include <string.h>

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

/* ---- memory ---- */

typedef uint64_t wide __attribute__((vector_size(64)));

/* Four pages at a time: what is read ahead of a single one does not hide the memory's latency from one core. */
#define STREAM 4096

uint64_t k3_peak_read(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    wide a = {0}, b = {0}, c = {0}, d = {0};
    size_t i = 0;
    for (; i + 4 * STREAM <= n; i += 4 * STREAM)
        for (size_t j = 0; j < STREAM; j += sizeof(wide)) {
            a += *(const wide *)(p + i + j);
            b += *(const wide *)(p + i + STREAM + j);
            c += *(const wide *)(p + i + 2 * STREAM + j);
            d += *(const wide *)(p + i + 3 * STREAM + j);
        }
    for (; i + sizeof(wide) <= n; i += sizeof(wide)) a += *(const wide *)(p + i);
    a += b + c + d;
    uint64_t sum = 0;
    for (int k = 0; k < 8; k++) sum += a[k];
    return sum;
}
