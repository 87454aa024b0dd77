/* decode_iq.c - rows to f32: the grid types, where an index into a code book (grids.h) stands for 8 or 4
 * weights. Layouts: quants.md sections 1 and 2.
 *
 * Everything but the scale is first put together as integers. Where quants.md multiplies by a sign or adds a
 * delta of 1/8 in floats, both are exact there, so the results are the same bits. */
#include "quant/grids.h"
#include "quant/quant_internal.h"

static void scale_8(float *y, float scale, uint64_t bytes)
{
    int8_t q[8];
    memcpy(q, &bytes, sizeof q);
    for (int j = 0; j < 8; j++) y[j] = scale * (float)q[j];
}

/* ---- iq1: weight = scale * (grid + delta), delta = 1/8 or -1/8; kept as scale / 8 * (8 * grid +- 1) ---- */

void k3_decode_iq1_s(const void *row, float *y, size_t n)
{
    const struct k3_block_iq1_s *b = row;
    for (size_t i = 0; i < n; i += 256, b++) {
        float d = k3_load_f16(b->d);
        for (unsigned k = 0; k < 8; k++) {
            unsigned qh = k3_load_u16(b->qh + 2 * k);
            float dl = 0.125f * d * (float)(2 * (qh >> 12 & 7) + 1);
            int delta = qh & 0x8000 ? -1 : 1;
            for (unsigned l = 0; l < 4; l++, y += 8) {
                unsigned index = b->qs[4 * k + l] | (qh >> 3 * l & 7) << 8;
                scale_8(y, dl, k3_grid_iq1(k3_grid_iq1s[index], delta));
            }
        }
    }
}

void k3_iq1_m_integers(const struct k3_block_iq1_m *b, struct k3_integers *out)
{
    unsigned d = 0;
    for (unsigned k = 0; k < 4;
         k++) { /* each word: three bits for four factors, and four of the 16 bits of d */
        unsigned sc = k3_load_u16(b->sc + 2 * k);
        d |= (sc >> 12) << 4 * k;
        for (unsigned l = 0; l < 4; l++) out->factor[4 * k + l] = (int16_t)(2 * (sc >> 3 * l & 7) + 1);
    }
    out->scale = 0.125f * k3_f32_from_f16((uint16_t)d);

    for (unsigned g = 0; g < 32; g++) {
        unsigned high = k3_nibble(b->qh[g / 2], g % 2);
        uint64_t q = k3_grid_iq1(k3_grid_iq1s[b->qs[g] | (high & 7) << 8], high & 8 ? -1 : 1);
        memcpy(out->q + 8 * g, &q, sizeof q);
    }
}

/* ---- iq2: weight = scale * (+-grid) ---- */

/* Scale indices of iq2_xs and iq2_s: a nibble for 16 weights, that is two groups. */
static float iq2_scale(float d, const uint8_t s[8], unsigned group)
{
    return d * (0.5f + (float)k3_nibble(s[group / 4], group / 2 % 2)) * 0.25f;
}

void k3_iq2_xxs_integers(const struct k3_block_iq2_xxs *b, struct k3_integers *out)
{
    /* d * (0.5 + s) / 4 = d / 8 * (2s + 1) */
    out->scale = 0.125f * k3_load_f16(b->d);
    for (unsigned k = 0; k < 8; k++) {
        const uint8_t *record = b->body + 8 * k; /* four indices; then four times seven signs, and s */
        uint32_t a = k3_load_u32(record + 4);
        out->factor[2 * k] = out->factor[2 * k + 1] = (int16_t)(2 * (a >> 28) + 1);
        for (unsigned l = 0; l < 4; l++) {
            uint64_t q = k3_grid_iq2(k3_grid_iq2xxs[record[l]], k3_grid_signs(a >> 7 * l & 127));
            memcpy(out->q + 32 * k + 8 * l, &q, sizeof q);
        }
    }
}

void k3_decode_iq2_xs(const void *row, float *y, size_t n)
{
    const struct k3_block_iq2_xs *b = row;
    for (size_t i = 0; i < n; i += 256, b++) {
        float d = k3_load_f16(b->d);
        for (unsigned g = 0; g < 32; g++, y += 8) {
            unsigned q = k3_load_u16(b->q + 2 * g);
            uint64_t weights = k3_grid_iq2(k3_grid_iq2xs[q & 511], k3_grid_signs(q >> 9));
            scale_8(y, iq2_scale(d, b->s, g), weights);
        }
    }
}

void k3_decode_iq2_s(const void *row, float *y, size_t n)
{
    const struct k3_block_iq2_s *b = row;
    for (size_t i = 0; i < n; i += 256, b++) {
        float d = k3_load_f16(b->d);
        for (unsigned g = 0; g < 32; g++, y += 8) {
            unsigned index = b->qs[g] | (b->qh[g / 4] >> 2 * (g % 4) & 3u) << 8;
            scale_8(y, iq2_scale(d, b->s, g), k3_grid_iq2(k3_grid_iq2s[index], b->sg[g]));
        }
    }
}

/* ---- the two types that products take as integers ---- */

static void scale_integers(float *y, const struct k3_integers *x)
{
    for (unsigned k = 0; k < 16; k++) {
        float scale = x->scale * (float)x->factor[k];
        for (unsigned j = 0; j < 16; j++) y[16 * k + j] = scale * (float)x->q[16 * k + j];
    }
}

void k3_decode_iq1_m(const void *row, float *y, size_t n)
{
    const struct k3_block_iq1_m *b = row;
    struct k3_integers integers;
    for (size_t i = 0; i < n; i += 256, b++) {
        k3_iq1_m_integers(b, &integers);
        scale_integers(y + i, &integers);
    }
}

void k3_decode_iq2_xxs(const void *row, float *y, size_t n)
{
    const struct k3_block_iq2_xxs *b = row;
    struct k3_integers integers;
    for (size_t i = 0; i < n; i += 256, b++) {
        k3_iq2_xxs_integers(b, &integers);
        scale_integers(y + i, &integers);
    }
}

/* ---- iq3: as iq2, with two entries of four weights in a group ---- */

static void scale_4(float *y, float scale, uint16_t code, int (*weight)(unsigned digit), unsigned signs)
{
    for (unsigned j = 0; j < 4; j++) {
        int w = weight(code >> 3 * j & 7u);
        y[j] = scale * (float)(signs >> j & 1 ? -w : w);
    }
}

void k3_decode_iq3_xxs(const void *row, float *y, size_t n)
{
    const struct k3_block_iq3_xxs *b = row;
    for (size_t i = 0; i < n; i += 256, b++) {
        float d = k3_load_f16(b->d);
        for (unsigned g = 0; g < 32; g++, y += 8) {
            uint32_t a = k3_load_u32(b->a + 4 * (g / 4));
            float scale = d * (0.5f + (float)(a >> 28)) * 0.5f;
            unsigned signs = k3_grid_signs(a >> 7 * (g % 4) & 127);
            scale_4(y, scale, k3_grid_iq3xxs[b->qs[2 * g]], k3_grid_iq3xxs_weight, signs);
            scale_4(y + 4, scale, k3_grid_iq3xxs[b->qs[2 * g + 1]], k3_grid_iq3xxs_weight, signs >> 4);
        }
    }
}

void k3_decode_iq3_s(const void *row, float *y, size_t n)
{
    const struct k3_block_iq3_s *b = row;
    for (size_t i = 0; i < n; i += 256, b++) {
        float d = k3_load_f16(b->d);
        for (unsigned g = 0; g < 32; g++, y += 8) {
            float scale = d * (float)(1 + 2 * k3_nibble(b->s[g / 8], g / 4 % 2));
            unsigned high = b->qh[g / 4] >> 2 * (g % 4); /* bit 8 of the two indices */
            const uint16_t *grid = k3_grid_iq3s;
            scale_4(y, scale, grid[b->qs[2 * g] | (high & 1) << 8], k3_grid_iq3s_weight, b->sg[g]);
            scale_4(y + 4, scale, grid[b->qs[2 * g + 1] | (high & 2) << 7], k3_grid_iq3s_weight,
                    b->sg[g] >> 4u);
        }
    }
}
