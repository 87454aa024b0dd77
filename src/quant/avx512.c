/* avx512.c - the implementation for AVX-512: which kernel does what for a type and a number of columns.
 *
 * Needs what k3_cpu.avx512 stands for. The products are those of rows (avx512_internal.h) for any number of
 * columns. */
#include "quant/avx512_internal.h"

const struct k3_kernels k3_kernels_avx512 = {
    .name = "avx512",
    .product =
        {
            [K3_TYPE_F32] = k3_avx512_f32,
            [K3_TYPE_F16] = k3_avx512_f16,
            [K3_TYPE_BF16] = k3_avx512_bf16,
            [K3_TYPE_Q8_0] = k3_avx512_q8_0,
            [K3_TYPE_MXFP4] = k3_avx512_mxfp4,
            [K3_TYPE_IQ1_M] = k3_avx512_iq1_m,
            [K3_TYPE_IQ2_XXS] = k3_avx512_iq2_xxs,
        },
    .round = {[K3_ACT_Q8_0] = k3_avx512_round_q8_0, [K3_ACT_Q8_K] = k3_avx512_round_q8_K},
    .dot = k3_avx512_dot,
};
