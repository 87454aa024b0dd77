/* avxvnni.c - the implementation for AVX2, FMA, F16C, BMI2 and the 256-bit AVX-VNNI.
 *
 * What that changes is the multiply-add in avx2_internal.h, with which the kernels of quantised weights are
 * compiled once more. */
#include "quant/avx2_blocks.h"
#include "quant/avx2_grid.h"

const struct k3_kernels k3_kernels_avxvnni = {
    .name = "avxvnni",
    .product =
        {
            [K3_TYPE_F32] = k3_avx2_f32,
            [K3_TYPE_F16] = k3_avx2_f16,
            [K3_TYPE_BF16] = k3_avx2_bf16,
            [K3_TYPE_Q8_0] = product_q8_0,
            [K3_TYPE_MXFP4] = product_mxfp4,
            [K3_TYPE_IQ1_M] = product_iq1_m,
            [K3_TYPE_IQ2_XXS] = product_iq2_xxs,
        },
    .round = {[K3_ACT_Q8_0] = k3_avx2_round_q8_0, [K3_ACT_Q8_K] = k3_avx2_round_q8_K},
};
