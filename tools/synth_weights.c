/* synth_weights.c - random weights that make a router behave like that of a trained model.
 *
 * The residual stream is divided into runs of 32 dimensions of three classes, in a pattern of eight runs:
 *
 *     anchor  the same constant for every token. The attention's gates and keys read it, so that a KDA head
 *             keeps a moving average of its values over some tokens; nothing else does
 *     slow    written by attention: what changes little from token to token
 *     fast    written by the token's embedding and by FFN: what has little to do with the token before
 *
 * A router reads slow and fast in a proportion that gives its choices their locality, and its bias gives some experts
 * their popularity. docs/synthetic.md has the reasoning and what comes of it.
 *
 * Blocks of quantised types are random bits with a scale that gives the weights the wanted rms; no quantiser is needed.
 * A row is filled from a generator of its own, so rows can be filled in any order. */
#include "synth.h"

#include "quant/quant_internal.h"

#include <math.h>

/* ---- random numbers --------------------------------------------------------------------------------------- */

/* SplitMix64: https://prng.di.unimi.it/splitmix64.c */
static uint64_t scramble(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

#define GOLDEN 0x9e3779b97f4a7c15u

static uint64_t next_u64(uint64_t *state)
{
    return scramble(*state += GOLDEN);
}

/* -1 .. 1 */
static float next_uniform(uint64_t *state)
{
    return (float)(int32_t)(next_u64(state) >> 40) * 0x1p-23f - 1.0f;
}

/* Nearly normal, of mean 0 and variance 1: the sum of four uniform numbers of 16 bits, whose standard deviation is
 * 2^16 sqrt(4/12). */
static float next_normal(uint64_t *state)
{
    uint64_t x = next_u64(state);
    int32_t sum = (int32_t)((x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48));
    return (float)(sum - 2 * 0xffff) * (1.0f / 37837.0f);
}

static void fill_random(uint64_t *state, unsigned char *bytes, size_t n)
{
    size_t i = 0;
    uint64_t x;
    for (; i + sizeof x <= n; i += sizeof x) {
        x = next_u64(state);
        memcpy(bytes + i, &x, sizeof x);
    }
    x = next_u64(state);
    memcpy(bytes + i, &x, n - i);
}

/* ---- what is wanted of a tensor --------------------------------------------------------------------------- */

enum { ANCHOR, SLOW, FAST };
#define RUN 32 /* dimensions; a block of q8_0, which so has one class and one scale */

static int class_of(uint64_t dimension)
{
    static const uint8_t pattern[8] = {ANCHOR, FAST, SLOW, FAST, SLOW, FAST, SLOW, FAST};
    return pattern[dimension / RUN % 8];
}

static uint64_t count_anchors(uint64_t width)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < width; i += RUN) n += class_of(i) == ANCHOR ? RUN : 0;
    return n;
}

/* Gains are the rms of an output for inputs of rms 1. */
struct recipe {
    enum k3_type type;
    float slow, fast;       /* gains for inputs of these classes, if it reads the stream */
    float gain;             /* else */
    float anchor[2];        /* what the anchors, being 1, add to the first and to the last output */
    bool absolute;          /* gains and anchors are those of single weights */
    float to_slow, to_fast; /* gains for outputs that are added to these classes of the stream */
};

/* What attention and FFN add to a stream whose embeddings have rms 1. */
#define ATTENTION_GAIN 0.7f
#define FFN_GAIN       0.3f

#define READS(gain) K3_TYPE_Q8_0, .slow = (gain), .fast = (gain)
#define INNER(x)    K3_TYPE_Q8_0, .gain = (x)

static const struct recipe recipes[K3_ROLE_COUNT] = {
    [K3_TOKEN_EMBD] = {K3_TYPE_Q8_0, .fast = 1, .anchor = {1, 1}, .absolute = true},
    [K3_OUTPUT] = {READS(2.5f)},
    [K3_ATTN_OUTPUT] = {INNER(1), .to_slow = ATTENTION_GAIN, .to_fast = 0.03f},

    /* Constants of 2, which SiLU keeps: keys and queries of all tokens point in nearly the same direction, so what
     * is read back is the average of values and not the value of one token. */
    [K3_KDA_Q] = {READS(0.4f), .anchor = {2, 2}},
    [K3_KDA_K] = {READS(0.4f), .anchor = {2, 2}},
    [K3_KDA_V] = {READS(1)},
    [K3_KDA_GATE] = {READS(0.3f)},
    [K3_KDA_F_A] = {READS(0.3f)},
    [K3_KDA_F_B] = {INNER(1)},
    /* The logit of beta, by head: averages over some 3 to 7 tokens. */
    [K3_KDA_BETA] = {READS(0.2f), .anchor = {-1.8f, -0.8f}},

    [K3_MLA_Q_A] = {READS(1)},
    [K3_MLA_Q_B] = {INNER(2)}, /* scores of standard deviation 2: attention with a preference */
    [K3_MLA_KV_A] = {READS(1)},
    [K3_MLA_K_B] = {INNER(1)},
    [K3_MLA_V_B] = {INNER(1)},
    [K3_MLA_GATE] = {READS(0.3f)},

    [K3_FFN_GATE] = {READS(1)},
    [K3_FFN_UP] = {READS(1)},
    [K3_FFN_DOWN] = {INNER(2), .to_slow = 0.03f, .to_fast = FFN_GAIN}, /* SiTU halves what goes through it */

    [K3_ROUTER] = {K3_TYPE_F32, .slow = 1.5f, .fast = 0.11f},
    [K3_LATENT_DOWN] = {READS(1)},
    [K3_LATENT_UP] = {INNER(1), .to_slow = 0.03f, .to_fast = FFN_GAIN},
    [K3_SHARED_GATE] = {READS(1)},
    [K3_SHARED_UP] = {READS(1)},
    [K3_SHARED_DOWN] = {INNER(2), .to_slow = 0.03f, .to_fast = FFN_GAIN},
    [K3_EXPERTS_GATE] = {K3_TYPE_IQ1_M, .gain = 1},
    [K3_EXPERTS_UP] = {K3_TYPE_IQ1_M, .gain = 1},
    [K3_EXPERTS_DOWN] = {K3_TYPE_IQ2_XXS, .gain = 1},
};

/* Roles without a recipe are vectors and convolutions. */
bool k3_synth_is_vector(enum k3_role role)
{
    return recipes[role].type == K3_TYPE_F32 && role != K3_ROUTER;
}

enum k3_type k3_synth_type(enum k3_role role)
{
    return recipes[role].type;
}

static bool reads_stream(const struct recipe *r)
{
    return r->slow != 0 || r->fast != 0;
}

/* The rms of weights at column `column` of a row. */
static float wanted_rms(const struct k3_synth_tensor *t, uint64_t row, uint64_t column)
{
    const struct recipe *r = &recipes[t->role];
    float gain = r->gain;
    if (reads_stream(r)) gain = class_of(column) == SLOW ? r->slow : class_of(column) == FAST ? r->fast : 0;
    if (t->role == K3_ROUTER && class_of(column) == SLOW) gain *= t->skew;
    if (t->role == K3_OUTPUT && row >= t->n_text) gain = 0; /* only text is ever predicted */
    if (r->to_fast != 0) gain *= class_of(row) == SLOW ? r->to_slow : class_of(row) == FAST ? r->to_fast : 0;
    return r->absolute ? gain : gain / sqrtf((float)t->inputs);
}

/* The constant at the columns of anchors. */
static float wanted_anchor(const struct k3_synth_tensor *t, uint64_t row)
{
    const struct recipe *r = &recipes[t->role];
    float place = t->rows > 1 ? (float)row / (float)(t->rows - 1) : 0;
    float value = r->anchor[0] + place * (r->anchor[1] - r->anchor[0]);
    return r->absolute ? value : value / (float)count_anchors(t->columns);
}

/* ---- rows of matrices ------------------------------------------------------------------------------------- */

static void put_f16(uint8_t *to, float value)
{
    uint16_t half = k3_f16_from_f32(value);
    memcpy(to, &half, sizeof half);
}

/* A KDA head's values have passed SiLU, whose mean is not 0; an average keeps the mean and loses the rest. Opposite
 * weights for neighbours take it away. */
static void cancel_means(struct k3_block_q8_0 *b)
{
    for (int i = 0; i < 32; i += 2) b->q[i + 1] = (int8_t)-b->q[i];
}

/* -128 never comes out of a quantiser. */
static void finish_q8_0(struct k3_block_q8_0 *b, float rms, double unit)
{
    put_f16(b->d, rms / (float)unit);
    for (int i = 0; i < 32; i++) b->q[i] = b->q[i] == -128 ? 0 : b->q[i];
}

static void set_q8_0(struct k3_block_q8_0 *b, float value)
{
    put_f16(b->d, value / 64);
    memset(b->q, 64, sizeof b->q);
}

static void fill_q8_0(const struct k3_synth_tensor *t, uint64_t row, struct k3_block_q8_0 *b)
{
    bool stream = reads_stream(&recipes[t->role]);
    bool cancel = t->role == K3_ATTN_OUTPUT && !t->mla;
    for (uint64_t i = 0; i < t->columns; i += 32, b++) {
        if (stream && class_of(i) == ANCHOR)
            set_q8_0(b, wanted_anchor(t, row));
        else
            finish_q8_0(b, wanted_rms(t, row, i), t->unit);
        if (cancel) cancel_means(b);
    }
}

/* The scale of iq1_m is spread over the high nibbles of four words. */
static void scale_iq1_m(struct k3_block_iq1_m *b, float scale)
{
    uint16_t half = k3_f16_from_f32(scale);
    for (int k = 0; k < 4; k++)
        b->sc[2 * k + 1] = (uint8_t)((b->sc[2 * k + 1] & 0x0f) | (half >> 4 * k & 0xf) << 4);
}

static void scale_blocks(enum k3_type type, void *row, uint64_t n_blocks, float scale)
{
    struct k3_block_q8_0 *q8_0 = row;
    struct k3_block_iq1_m *iq1_m = row;
    struct k3_block_iq2_xxs *iq2_xxs = row;
    for (uint64_t i = 0; i < n_blocks; i++) {
        if (type == K3_TYPE_Q8_0) finish_q8_0(&q8_0[i], scale, 1);
        if (type == K3_TYPE_IQ1_M) scale_iq1_m(&iq1_m[i], scale);
        if (type == K3_TYPE_IQ2_XXS) put_f16(iq2_xxs[i].d, scale);
    }
}

double k3_synth_unit(enum k3_type type)
{
    enum { N_BLOCKS = 128 };
    unsigned char blocks[N_BLOCKS * 72 + 64]; /* and what decoders may read beyond */
    float weights[N_BLOCKS * 256];
    const struct k3_type_info *info = k3_type_info(type);
    if (type == K3_TYPE_F32) return 1;
    size_t n = (size_t)N_BLOCKS * info->block;
    uint64_t state = 1;
    fill_random(&state, blocks, N_BLOCKS * (size_t)info->block_bytes);
    scale_blocks(type, blocks, N_BLOCKS, 1);
    k3_decoder(type)(blocks, weights, n);
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)weights[i] * (double)weights[i];
    return sqrt(sum / (double)n);
}

/* ---- vectors ---------------------------------------------------------------------------------------------- */

static float vector_value(const struct k3_synth_tensor *t, uint64_t i, uint64_t *state)
{
    float u = next_uniform(state);
    switch (t->role) {
    case K3_OUTPUT_RES_SCORE:
    case K3_ATTN_RES_SCORE:
    case K3_FFN_RES_SCORE: /* the anchors keep the embedding in the mix, however deep the layer */
        if (class_of(i) == ANCHOR) return 0.5f / (float)count_anchors(t->columns);
        return 0.5f * u / sqrtf((float)t->columns);
    case K3_KDA_CONV_Q:
    case K3_KDA_CONV_K:
    case K3_KDA_CONV_V: /* oldest tap first */
        return i % t->conv_taps == t->conv_taps - 1 ? 1.0f + 0.1f * u : 0.15f * u;
    case K3_KDA_A:
        return -1.0f + 0.2f * u;
    case K3_KDA_DT: /* slow decay: beta decides how long a head remembers */
        return -5.5f + 1.5f * u;
    case K3_ROUTER_BIAS:
        return 0.03f * t->skew * next_normal(state);
    default: /* norms */
        return 1.0f + 0.1f * u;
    }
}

/* ---- all of them ------------------------------------------------------------------------------------------ */

void k3_synth_fill(const struct k3_synth_tensor *t, uint64_t row, void *bytes)
{
    uint64_t state = scramble(t->stream + (row + 1) * GOLDEN);
    float *f32 = bytes;
    if (k3_synth_is_vector(t->role)) {
        for (uint64_t i = 0; i < t->columns; i++) f32[i] = vector_value(t, i, &state);
        return;
    }
    if (t->type == K3_TYPE_F32) {
        for (uint64_t i = 0; i < t->columns; i++) f32[i] = wanted_rms(t, row, i) * next_normal(&state);
        return;
    }
    fill_random(&state, bytes, t->row_bytes);
    if (t->type == K3_TYPE_Q8_0)
        fill_q8_0(t, row, bytes);
    else
        scale_blocks(t->type, bytes, t->columns / k3_type_info(t->type)->block,
                     wanted_rms(t, row, 0) / (float)t->unit);
}
