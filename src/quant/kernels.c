/* kernels.c - which function does what for a type, and which implementation this processor gets. */
#include "base/cpu.h"
#include "quant/quant_internal.h"

#include <pthread.h>

static const k3_decode_fn decoders[K3_TYPE_COUNT] = {
    [K3_TYPE_F32] = k3_decode_f32,         [K3_TYPE_F16] = k3_decode_f16,
    [K3_TYPE_BF16] = k3_decode_bf16,       [K3_TYPE_Q4_0] = k3_decode_q4_0,
    [K3_TYPE_Q4_1] = k3_decode_q4_1,       [K3_TYPE_Q5_0] = k3_decode_q5_0,
    [K3_TYPE_Q5_1] = k3_decode_q5_1,       [K3_TYPE_Q8_0] = k3_decode_q8_0,
    [K3_TYPE_MXFP4] = k3_decode_mxfp4,     [K3_TYPE_Q2_K] = k3_decode_q2_K,
    [K3_TYPE_Q3_K] = k3_decode_q3_K,       [K3_TYPE_Q4_K] = k3_decode_q4_K,
    [K3_TYPE_Q5_K] = k3_decode_q5_K,       [K3_TYPE_Q6_K] = k3_decode_q6_K,
    [K3_TYPE_IQ1_S] = k3_decode_iq1_s,     [K3_TYPE_IQ1_M] = k3_decode_iq1_m,
    [K3_TYPE_IQ2_XXS] = k3_decode_iq2_xxs, [K3_TYPE_IQ2_XS] = k3_decode_iq2_xs,
    [K3_TYPE_IQ2_S] = k3_decode_iq2_s,     [K3_TYPE_IQ3_XXS] = k3_decode_iq3_xxs,
    [K3_TYPE_IQ3_S] = k3_decode_iq3_s,     [K3_TYPE_IQ4_NL] = k3_decode_iq4_nl,
    [K3_TYPE_IQ4_XS] = k3_decode_iq4_xs,
};

k3_decode_fn k3_decoder(enum k3_type type)
{
    return (unsigned)type < K3_TYPE_COUNT ? decoders[type] : NULL;
}

enum k3_act k3_act_for(enum k3_type type)
{
    switch (type) {
    case K3_TYPE_Q8_0:
    case K3_TYPE_MXFP4:
        return K3_ACT_Q8_0;
    case K3_TYPE_IQ1_M:
    case K3_TYPE_IQ2_XXS:
        return K3_ACT_Q8_K;
    default:
        return K3_ACT_F32;
    }
}

size_t k3_act_bytes(enum k3_act act, size_t n)
{
    switch (act) {
    case K3_ACT_Q8_0:
        return n / 32 * sizeof(struct k3_q8_0);
    case K3_ACT_Q8_K:
        return n / 256 * sizeof(struct k3_q8_K);
    default:
        return n * sizeof(float);
    }
}

/* ---- the choice ---- */

static bool runs_anywhere(const struct k3_cpu *cpu)
{
    (void)cpu;
    return true;
}

/* Best first; the last one runs anywhere. */
static const struct candidate {
    const struct k3_kernels *kernels;
    bool (*runs_on)(const struct k3_cpu *cpu);
} candidates[] = {
    {&k3_kernels_portable, runs_anywhere},
};

static const struct k3_kernels *best;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose(void)
{
    const struct candidate *candidate = candidates;
    while (!candidate->runs_on(k3_cpu_features())) candidate++;
    best = candidate->kernels;
}

const struct k3_kernels *k3_kernels_best(void)
{
    pthread_once(&once, choose);
    return best;
}
