/* vmath.h - exp, sigmoid and tanh in f32, without branches so that loops over them vectorise.
 *
 * They are our own because the C library's differ in the last bit from one machine to the next, and the same
 * model must give the same text everywhere. Error: at most 2 units in the last place
 * (tests/ops/test_vmath.c). */
#ifndef K3_OPS_VMATH_H
#define K3_OPS_VMATH_H

#include "quant/half.h"

#include <math.h>

/* x = n ln 2 + r with |r| <= ln 2 / 2: returns r and 2^n. n is in -126 .. 127. */
static inline float k3_exp_reduce(float x, float *power)
{
    const float to_integer = 0x1.8p23f; /* adding it leaves the integer part in the low bits */
    float shifted = x * 0x1.715476p0f + to_integer;
    float n = shifted - to_integer;
    *power = k3_f32_from_bits((k3_f32_bits(shifted) + 127u) << 23);
    /* ln 2 in two parts: n * the first is exact. */
    return (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
}

/* exp(r) - 1 for |r| <= ln 2 / 2: the Taylor series to r^7; the rest is below 2^-27 of it. */
static inline float k3_expm1_small(float r)
{
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    return r + r * r * p;
}

/* exp(x). Below -87 it is 0 (never subnormal), above 88 it stays at exp(88). NaN stays NaN. */
static inline float k3_expf(float x)
{
    float clamped = x > 88.0f ? 88.0f : x;
    clamped = clamped < -87.0f ? -87.0f : clamped;
    float power, r = k3_exp_reduce(clamped, &power);
    float y = power + power * k3_expm1_small(r);
    uint32_t all = 0u - !(x < -87.0f); /* a mask, as compilers make branches of a second comparison with -87 */
    return k3_f32_from_bits(k3_f32_bits(y) & all);
}

/* 1 / (1 + exp(-x)) */
static inline float k3_sigmoid(float x)
{
    return 1.0f / (1.0f + k3_expf(-x));
}

/* x * sigmoid(x) */
static inline float k3_silu(float x)
{
    return x * k3_sigmoid(x);
}

/* tanh(x) = e / (e + 2) with e = exp(2|x|) - 1, and the sign of x. */
static inline float k3_tanh(float x)
{
    float twice = 2.0f * fabsf(x);
    twice = twice > 20.0f ? 20.0f : twice; /* tanh(10) is 1 in f32 */
    float power, r = k3_exp_reduce(twice, &power);
    float e = power * k3_expm1_small(r) + (power - 1.0f);
    return copysignf(e / (e + 2.0f), x);
}

/* ln(1 + exp(x)). Only the variant without a bounded gate needs it: not made for speed. */
static inline float k3_softplus(float x)
{
    return x > 30.0f ? x : (float)log1p(exp((double)x));
}

#endif
