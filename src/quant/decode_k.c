/* decode_k.c - rows to f32: the K-quants, 256 weights with a scale (and in q2, q4, q5 a minimum) for every 16
 * or 32 of them, the scales being small integers too. Layouts: quants.md section 2. */
#include "quant/quant_internal.h"

void k3_decode_q2_K(const void *row, float *y, size_t n)
{
    const struct k3_block_q2_K *b = row;
    for (size_t i = 0; i < n; i += 256, b++) {
        float d = k3_load_f16(b->d), dmin = k3_load_f16(b->dmin);
        for (unsigned k = 0; k < 16; k++) { /* 16 weights each: half k/8, bit pair k/2%4, bytes 16*(k%2) on */
            float dl = d * (float)(b->s[k] & 15), ml = dmin * (float)(b->s[k] >> 4);
            const uint8_t *q = b->q + 32 * (k / 8) + 16 * (k % 2);
            unsigned shift = 2 * (k / 2 % 4);
            for (unsigned j = 0; j < 16; j++) *y++ = dl * (float)(q[j] >> shift & 3) - ml;
        }
    }
}

/* Scale k of 16: four low bits in one place, two high bits in another. */
static int q3_K_scale(const uint8_t s[12], unsigned k)
{
    unsigned low = k3_nibble(s[k % 8], k / 8), high = s[8 + k % 4] >> 2 * (k / 4) & 3u;
    return (int)(low | high << 4) - 32;
}

void k3_decode_q3_K(const void *row, float *y, size_t n)
{
    const struct k3_block_q3_K *b = row;
    for (size_t i = 0; i < n; i += 256, b++) {
        float d = k3_load_f16(b->d);
        for (unsigned k = 0; k < 16; k++) { /* as in q2_K */
            float dl = d * (float)q3_K_scale(b->s, k);
            const uint8_t *q = b->q + 32 * (k / 8) + 16 * (k % 2), *hm = b->hm + 16 * (k % 2);
            unsigned shift = 2 * (k / 2 % 4), bit = k / 2;
            for (unsigned j = 0; j < 16; j++) {
                int code = (q[j] >> shift & 3) - (hm[j] >> bit & 1 ? 0 : 4);
                *y++ = dl * (float)code;
            }
        }
    }
}

/* Scale and minimum k of 8, six bits each. */
static void q4_K_scale(const uint8_t s[12], unsigned k, unsigned *scale, unsigned *min)
{
    if (k < 4) {
        *scale = s[k] & 63;
        *min = s[k + 4] & 63;
    } else {
        *scale = (s[k + 4] & 15u) | (unsigned)(s[k - 4] >> 6) << 4;
        *min = s[k + 4] >> 4 | (unsigned)(s[k] >> 6) << 4;
    }
}

void k3_decode_q4_K(const void *row, float *y, size_t n)
{
    const struct k3_block_q4_K *b = row;
    for (size_t i = 0; i < n; i += 256, b++) {
        float d = k3_load_f16(b->d), dmin = k3_load_f16(b->dmin);
        for (unsigned k = 0; k < 8; k++) {
            unsigned scale, min;
            q4_K_scale(b->s, k, &scale, &min);
            float dl = d * (float)scale, ml = dmin * (float)min;
            const uint8_t *q = b->q + 32 * (k / 2);
            for (unsigned j = 0; j < 32; j++) *y++ = dl * (float)k3_nibble(q[j], k % 2) - ml;
        }
    }
}

void k3_decode_q5_K(const void *row, float *y, size_t n)
{
    const struct k3_block_q5_K *b = row;
    for (size_t i = 0; i < n; i += 256, b++) {
        float d = k3_load_f16(b->d), dmin = k3_load_f16(b->dmin);
        for (unsigned k = 0; k < 8; k++) {
            unsigned scale, min;
            q4_K_scale(b->s, k, &scale, &min);
            float dl = d * (float)scale, ml = dmin * (float)min;
            const uint8_t *q = b->q + 32 * (k / 2);
            for (unsigned j = 0; j < 32; j++) {
                unsigned code = k3_nibble(q[j], k % 2) + 16 * (b->qh[j] >> k & 1u);
                *y++ = dl * (float)code - ml;
            }
        }
    }
}

void k3_decode_q6_K(const void *row, float *y, size_t n)
{
    const struct k3_block_q6_K *b = row;
    for (size_t i = 0; i < n; i += 256, b++) {
        float d = k3_load_f16(b->d);
        for (unsigned k = 0; k < 8; k++) { /* 32 weights each: half k/4, quarter k%4 of it */
            const uint8_t *ql = b->ql + 64 * (k / 4) + 32 * (k % 2), *qh = b->qh + 32 * (k / 4);
            for (unsigned j = 0; j < 32; j++) {
                unsigned code = k3_nibble(ql[j], k % 4 / 2) | (qh[j] >> 2 * (k % 4) & 3u) << 4;
                *y++ = d * (float)b->s[2 * k + j / 16] * (float)((int)code - 32);
            }
        }
    }
}
