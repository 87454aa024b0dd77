/* round.c - activations to 8 bits.
 *
 *   q8_0, of 32 each:   d = f32(f16(amax / 127)),  q = rne(x * (127 / amax)),  amax = the largest |x|
 *   q8_K, of 256 each:  d = 1 / i,  q = rne(x * i),  i = -127 / m,  m = the first x with |x| = amax
 *
 * rne rounds to the nearest integer, halves to the even one; its argument exceeds 127 by a rounding error at
 * most. In q8_0 the quotients are taken from amax itself and not from its rounded d, as x86 vector code for
 * this format does.
 *
 * Where these formulas have no answer:
 *   - a block whose amax is so small (0 included) that 127 / amax is infinite becomes d = 0, q = 0;
 *   - a block with an infinity or a NaN becomes d = NaN, q = 0: every product with it is NaN, and the mistake
 *     is seen instead of hidden. */
#include "quant/round_blocks.h"

/* The bits of the largest |x|. Bits of floats that are not negative are ordered as the floats are, with
 * infinity and then NaN above them, so this needs no comparison of floats. */
static uint32_t largest_bits(const float *x, size_t n)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = k3_f32_bits(x[i]) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* |x| < 2^23. Truncation and the remainder are exact, so the rounding mode of the processor has no part in
 * it. */
static int round_to_even(float x)
{
    int whole = (int)x, odd = whole & 1;
    float rest = x - (float)whole;
    int up = (rest > 0.5f) | ((rest == 0.5f) & odd), down = (rest < -0.5f) | ((rest == -0.5f) & odd);
    return whole + up - down;
}

/* Rounds n of a block and sums them, `group` at a time. */
static inline void round_block(const float *x, float factor, size_t n, size_t group, int8_t *q, int16_t *sums)
{
    for (size_t j = 0; j < n; j++) q[j] = (int8_t)round_to_even(x[j] * factor);
    for (size_t k = 0; k < n / group; k++) {
        int sum = 0;
        for (size_t j = 0; j < group; j++) sum += q[group * k + j];
        sums[k] = (int16_t)sum;
    }
}

static void round_32(const float *x, float factor, int8_t *q, int16_t sums[1])
{
    round_block(x, factor, 32, 32, q, sums);
}

static void round_256(const float *x, float factor, int8_t *q, int16_t sums[32])
{
    round_block(x, factor, 256, 8, q, sums);
}

static float first_of_magnitude(const float *x, uint32_t bits)
{
    while ((k3_f32_bits(*x) & 0x7fffffffu) != bits) x++;
    return *x;
}

static const struct k3_rounding portable = {largest_bits, first_of_magnitude, round_32, round_256};

void k3_round_q8_0(const float *x, void *act, size_t n)
{
    k3_round_row_q8_0(&portable, x, act, n);
}

void k3_round_q8_K(const float *x, void *act, size_t n)
{
    k3_round_row_q8_K(&portable, x, act, n);
}
