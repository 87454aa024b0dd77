/* vectors.c - loops over elements. The compiler makes vector code of them; what keeps it from that (a call, a branch)
 * must not be in them. */
#include "ops/vectors_internal.h"
#include "ops/vmath.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

static float dot(const float *a, const float *b, size_t n)
{
    float sum;
    dots(a, 0, 1, b, 0, 1, n, &sum, 0);
    return sum;
}

/* Reads x once. */
static void square_and_dot(const float *x, const float *w, size_t n, float *square, float *product)
{
    vec squares[PARTS] = {0}, products[PARTS] = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        EACH(l, PARTS) {
            vec y = load(x + i + l * LANES);
            squares[l] += y * y;
            products[l] += load(w + i + l * LANES) * y;
        }
    *square = total(squares);
    *product = total(products);
    for (; i < n; i++) {
        *square += x[i] * x[i];
        *product += w[i] * x[i];
    }
}

static void exp_all(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = k3_expf(x[i]);
}

static void sigmoid_all(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = k3_sigmoid(x[i]);
}

static void gate(float *restrict x, const float *restrict gates, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] *= k3_sigmoid(gates[i]);
}

static void situ(float *restrict g, const float *restrict u, float b1, float b2, size_t n)
{
    if (b2 > 0)
        for (size_t i = 0; i < n; i++)
            g[i] = b1 * k3_tanh(g[i] / b1) * k3_sigmoid(g[i]) * (b2 * k3_tanh(u[i] / b2));
    else
        for (size_t i = 0; i < n; i++) g[i] = b1 * k3_tanh(g[i] / b1) * k3_sigmoid(g[i]) * u[i];
}

static void add(float *restrict x, const float *restrict y, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] += y[i];
}

static void add_scaled(float *restrict x, float factor, const float *restrict y, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] += factor * y[i];
}

/* y may be x. */
static void norm(const float *x, const float *restrict w, float factor, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = w[i] * (x[i] * factor);
}

static void scale(float *x, float factor, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] *= factor;
}

static void decay(float *restrict g, const float *restrict dt, float a, float floor, size_t n)
{
    for (size_t i = 0; i < n; i++) g[i] = floor * k3_sigmoid(-a * (g[i] + dt[i]));
}

/* The processor's conversion is exact, too. It differs for signalling NaN alone, and those are never stored. */
static void from_f16(const uint16_t *restrict h, float *restrict x, size_t n)
{
    size_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(x + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(h + i))));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(x + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(h + i))));
#endif
    for (; i < n; i++) x[i] = k3_f32_from_f16(h[i]);
}

/* ---- convolution ---- */

#define CHANNELS 64
#define TOKENS   16

/* The file has a channel's taps side by side; here channels are. They are turned round once for several tokens. */
static void conv_block(const struct k3_conv *v, size_t token, size_t n_tokens, size_t channel,
                       size_t n_channels)
{
    float sums[TOKENS][CHANNELS], tap[CHANNELS];
    memset(sums, 0, sizeof sums);
    for (size_t j = 0; j < v->n_taps; j++) {
        for (size_t c = 0; c < n_channels; c++) tap[c] = v->taps[(channel + c) * v->n_taps + j];
        for (size_t t = 0; t < n_tokens; t++) {
            const float *z = v->z + (token + t + j) * v->stride + channel;
            for (size_t c = 0; c < n_channels; c++) sums[t][c] += tap[c] * z[c];
        }
    }
    for (size_t t = 0; t < n_tokens; t++) {
        float *u = v->u + (token + t) * v->stride + channel;
        for (size_t c = 0; c < n_channels; c++) u[c] = k3_silu(sums[t][c]);
    }
}

static void conv(const struct k3_conv *v)
{
    for (size_t c = 0; c < v->n_channels; c += CHANNELS)
        for (size_t t = 0; t < v->n; t += TOKENS)
            conv_block(v, t, v->n - t < TOKENS ? v->n - t : TOKENS, c,
                       v->n_channels - c < CHANNELS ? v->n_channels - c : CHANNELS);
}

/* ---- the set ---- */

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

const struct k3_vectors K3_OF_SET(k3_vectors) = {
    .name = TEXT(K3_SET),
    .dot = dot,
    .square_and_dot = square_and_dot,
    .exp = exp_all,
    .sigmoid = sigmoid_all,
    .gate = gate,
    .situ = situ,
    .add = add,
    .add_scaled = add_scaled,
    .norm = norm,
    .scale = scale,
    .decay = decay,
    .from_f16 = from_f16,
    .conv = conv,
    .kda_head = K3_OF_SET(k3_kda_head),
    .mla_keys = K3_OF_SET(k3_mla_keys),
};
