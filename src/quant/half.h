/* half.h - the 16-bit floats. */
#ifndef K3_QUANT_HALF_H
#define K3_QUANT_HALF_H

#include <stdint.h>
#include <string.h>

static inline float k3_f32_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t k3_f32_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float k3_f32_from_bf16(uint16_t h)
{
    return k3_f32_from_bits((uint32_t)h << 16);
}

/* Exact, subnormals, infinities and NaN included. */
static inline float k3_f32_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, mantissa = h & 0x3ffu;
    if (exponent == 31) return k3_f32_from_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent) return k3_f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    /* Subnormal: mantissa * 2^-24, an exact product. */
    float f = (float)mantissa * 0x1p-24f;
    return sign ? -f : f;
}

/* Rounds to nearest even; too large becomes infinity, NaN stays NaN. */
static inline uint16_t k3_f16_from_f32(float f)
{
    uint32_t bits = k3_f32_bits(f), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (rest >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and more round to infinity */
    if (rest < 0x38800000u) { /* below 2^-14: subnormal; adding 0.5 lines the bits up and rounds them */
        uint32_t m = k3_f32_bits(k3_f32_from_bits(rest) + 0.5f) - 0x3f000000u;
        return (uint16_t)(sign | m);
    }
    rest += 0xfffu + (rest >> 13 & 1u);
    return (uint16_t)(sign | (rest - 0x38000000u) >> 13);
}

#endif
