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

/* Exact, subnormals, infinities and NaN included. Has no branches, so that loops of it become vector code. */
static inline float k3_f32_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t is_small = 0u - ((rest - (1u << 23)) >> 31);    /* exponent 0: all bits, else none */
    uint32_t is_top = 0u - (((31u << 23) - 1 - rest) >> 31); /* exponent 31 */
    /* The exponent gets the bias of f32; 31 becomes 255. */
    uint32_t normal = rest + (112u << 23) + (is_top & 112u << 23);
    /* Exponent 0 is mantissa * 2^-24: put the mantissa behind the leading 1 of 2^-14 and take that 1 away. */
    uint32_t small = k3_f32_bits(k3_f32_from_bits(rest + (113u << 23)) - 0x1p-14f);
    return k3_f32_from_bits(sign | (small & is_small) | (normal & ~is_small));
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
