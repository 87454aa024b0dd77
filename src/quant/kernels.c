/* kernels.c - which function does what for a type, and which implementation this processor gets. */
#include "base/cpu.h"
#include "quant/quant_internal.h"

#include <stdio.h>

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
    size_t bytes = n;
    if (act == K3_ACT_F32) return n * sizeof(float);
    bytes += act == K3_ACT_Q8_0 ? n / 32 * (sizeof(float) + sizeof(int16_t))
                                : n / 256 * sizeof(float) + n / 8 * sizeof(int16_t);
    return (bytes + 63) / 64 * 64;
}

struct k3_rounded k3_rounded_row(enum k3_act act, const void *row, size_t n)
{
    int8_t *q = (int8_t *)row;
    float *d = (float *)(q + n);
    return (struct k3_rounded){q, d, (int16_t *)(d + n / (act == K3_ACT_Q8_0 ? 32 : 256))};
}

/* ---- the choice ---- */

static bool runs_anywhere(const struct k3_cpu *cpu)
{
    (void)cpu;
    return true;
}

#if defined(__x86_64__)
static bool runs_with_amx(const struct k3_cpu *cpu)
{
    return cpu->amx;
}

static bool runs_with_avx512(const struct k3_cpu *cpu)
{
    return cpu->avx512;
}

static bool runs_with_avxvnni(const struct k3_cpu *cpu)
{
    return cpu->avxvnni;
}

static bool runs_with_avx2(const struct k3_cpu *cpu)
{
    return cpu->avx2;
}
#endif

/* Best first; the last one runs anywhere. */
static const struct candidate {
    const struct k3_kernels *kernels;
    bool (*runs_on)(const struct k3_cpu *cpu);
} candidates[] = {
#if defined(__x86_64__)
    {&k3_kernels_amx, runs_with_amx},
    {&k3_kernels_avx512, runs_with_avx512},
    {&k3_kernels_avxvnni, runs_with_avxvnni},
    {&k3_kernels_avx2, runs_with_avx2},
#endif
    {&k3_kernels_portable, runs_anywhere},
};

#define N_CANDIDATES (sizeof candidates / sizeof *candidates)

const struct k3_kernels *k3_kernels_at(size_t i)
{
    for (size_t k = 0; k < N_CANDIDATES; k++)
        if (candidates[k].runs_on(k3_cpu_features()) && i-- == 0) return candidates[k].kernels;
    return NULL;
}

static const struct k3_kernels *chosen; /* by k3_kernels_use */

const struct k3_kernels *k3_kernels_best(void)
{
    return chosen ? chosen : k3_kernels_at(0);
}

k3_status k3_kernels_use(const char *name, struct k3_error *err)
{
    if (!name || !*name) return K3_OK;
    for (size_t k = 0; k < N_CANDIDATES; k++) {
        if (strcmp(candidates[k].kernels->name, name) != 0) continue;
        if (!candidates[k].runs_on(k3_cpu_features()))
            return k3_fail(err, K3_ERR_ARGUMENT, "this processor cannot run the kernels for %s", name);
        chosen = candidates[k].kernels;
        return K3_OK;
    }
    char known[128] = "";
    for (size_t k = 0; k < N_CANDIDATES; k++) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", k ? ", " : "", candidates[k].kernels->name);
    }
    return k3_fail(err, K3_ERR_ARGUMENT, "there are no kernels called \"%s\", only: %s", name, known);
}
