/* grids.h - the code books: lists of the patterns that 8 (or 4) neighbouring weights may form.
 *
 * An entry is a 16-bit code with one digit a weight, the first weight in the lowest bits:
 *   iq1s                 8 weights, 2 bits each; digits 0, 1, 2 are -1, 0, 1
 *   iq2xxs, iq2xs, iq2s  8 weights, 2 bits each; digits 0, 1, 2 are 8, 25, 43
 *   iq3xxs               4 weights, 3 bits each; digit k is 4 + 8k, but 62 for k = 7
 *   iq3s                 4 weights, 3 bits each; digit k is 1 + 2k
 * Every list is strictly ascending. Codes take a quarter of the cache that a byte for each weight would
 * (iq1s: 4 KiB, not 16), and are spread out to bytes in registers. */
#ifndef K3_QUANT_GRIDS_H
#define K3_QUANT_GRIDS_H

#include <stdint.h>

/* Of iq1_s and iq1_m. One more than there are codes, so that 32 bits can be read where any of them is. */
extern const uint16_t k3_grid_iq1s[2048 + 1];
extern const uint16_t k3_grid_iq2xxs[256 + 1]; /* one more, too */
extern const uint16_t k3_grid_iq2xs[512];
extern const uint16_t k3_grid_iq2s[1024];
extern const uint16_t k3_grid_iq3xxs[256];
extern const uint16_t k3_grid_iq3s[512];

/* Functions that return 64 bits return a weight in each byte, the first in the lowest. No byte carries into
 * the next one. */

#define K3_BYTES(x) (0x0101010101010101u * (uint64_t)(x))

/* The digits of a code of 8. */
static inline uint64_t k3_grid_digits(uint16_t code)
{
    uint64_t x = code;
    x = (x | x << 24) & 0x000000ff000000ffu;
    x = (x | x << 12) & 0x000f000f000f000fu;
    return (x | x << 6) & 0x0303030303030303u;
}

/* 8 times the weight of iq1s, plus `delta`, which is 1 or -1: -9 .. 9. */
static inline uint64_t k3_grid_iq1(uint16_t code, int delta)
{
    /* 8 * digit + (delta - 8), calculated with bit 7 set and then cleared or not, so that no byte borrows. */
    return ((k3_grid_digits(code) << 3) + K3_BYTES(0x80 + delta - 8)) ^ K3_BYTES(0x80);
}

/* The weight of iq2*, made negative where `signs` has a bit. */
static inline uint64_t k3_grid_iq2(uint16_t code, uint8_t signs)
{
    uint64_t digit = k3_grid_digits(code), twos = digit >> 1 & K3_BYTES(1);
    uint64_t weight = (digit << 4) + digit + twos + K3_BYTES(8);
    /* A byte holding just its own bit of `signs` reaches bit 7 when 0x7f is added, unless it is 0. */
    uint64_t own = K3_BYTES(signs) & 0x8040201008040201u;
    uint64_t negative = (own + K3_BYTES(0x7f)) >> 7 & K3_BYTES(1);
    return (weight ^ negative * 0xff) + negative;
}

static inline int k3_grid_iq3xxs_weight(unsigned digit)
{
    return digit == 7 ? 62 : 4 + 8 * (int)digit;
}

static inline int k3_grid_iq3s_weight(unsigned digit)
{
    return 1 + 2 * (int)digit;
}

/* Seven sign bits are stored; the eighth makes their number even. */
static inline uint8_t k3_grid_signs(unsigned seven)
{
    return (uint8_t)(seven | (unsigned)__builtin_parity(seven) << 7);
}

#endif
