/* avx512.c - the implementation for AVX-512: which kernel does what for a type and a number of columns.
 *
 * Needs what k3_cpu.avx512 stands for. */
#include "quant/avx512_internal.h"

/* The fewest columns for which spreading a tile of weights once is faster than the kernels of rows (Sapphire
 * Rapids, one core, 3584 columns). */
#define LEAST_COLUMNS_32      2 /* q8_0, mxfp4 */
#define LEAST_COLUMNS_IQ1_M   3
#define LEAST_COLUMNS_IQ2_XXS 4

static void product_q8_0(const struct k3_product *p)
{
    k3_by_columns(p, LEAST_COLUMNS_32, k3_avx512_q8_0, k3_avx512_batch_q8_0);
}

static void product_mxfp4(const struct k3_product *p)
{
    k3_by_columns(p, LEAST_COLUMNS_32, k3_avx512_mxfp4, k3_avx512_batch_mxfp4);
}

static void product_iq1_m(const struct k3_product *p)
{
    k3_by_columns(p, LEAST_COLUMNS_IQ1_M, k3_avx512_iq1_m, k3_avx512_batch_iq1_m);
}

static void product_iq2_xxs(const struct k3_product *p)
{
    k3_by_columns(p, LEAST_COLUMNS_IQ2_XXS, k3_avx512_iq2_xxs, k3_avx512_batch_iq2_xxs);
}

const struct k3_kernels k3_kernels_avx512 = {
    .name = "avx512",
    .product =
        {
            [K3_TYPE_F32] = k3_avx512_f32,
            [K3_TYPE_F16] = k3_avx512_f16,
            [K3_TYPE_BF16] = k3_avx512_bf16,
            [K3_TYPE_Q8_0] = product_q8_0,
            [K3_TYPE_MXFP4] = product_mxfp4,
            [K3_TYPE_IQ1_M] = product_iq1_m,
            [K3_TYPE_IQ2_XXS] = product_iq2_xxs,
        },
    .round = {[K3_ACT_Q8_0] = k3_avx512_round_q8_0, [K3_ACT_Q8_K] = k3_avx512_round_q8_K},
};
