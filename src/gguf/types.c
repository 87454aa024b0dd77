/* types.c - the type table: quants.md section 0.
 *
 * Being listed means that the size of a tensor is known, not that its weights can be computed with: that is
 * k3_decoder's to say (quant/quant.h). Ids 4, 5, 31-33 and 36-38 belonged to formats that were withdrawn. */
#include "gguf/types.h"

#include <stddef.h>

static const struct k3_type_info types[K3_TYPE_COUNT] = {
    [K3_TYPE_F32] = {"f32", 1, 4},
    [K3_TYPE_F16] = {"f16", 1, 2},
    [K3_TYPE_Q4_0] = {"q4_0", 32, 18},
    [K3_TYPE_Q4_1] = {"q4_1", 32, 20},
    [K3_TYPE_Q5_0] = {"q5_0", 32, 22},
    [K3_TYPE_Q5_1] = {"q5_1", 32, 24},
    [K3_TYPE_Q8_0] = {"q8_0", 32, 34},
    [K3_TYPE_Q8_1] = {"q8_1", 32, 36},
    [K3_TYPE_Q2_K] = {"q2_K", 256, 84},
    [K3_TYPE_Q3_K] = {"q3_K", 256, 110},
    [K3_TYPE_Q4_K] = {"q4_K", 256, 144},
    [K3_TYPE_Q5_K] = {"q5_K", 256, 176},
    [K3_TYPE_Q6_K] = {"q6_K", 256, 210},
    [K3_TYPE_Q8_K] = {"q8_K", 256, 292},
    [K3_TYPE_IQ2_XXS] = {"iq2_xxs", 256, 66},
    [K3_TYPE_IQ2_XS] = {"iq2_xs", 256, 74},
    [K3_TYPE_IQ3_XXS] = {"iq3_xxs", 256, 98},
    [K3_TYPE_IQ1_S] = {"iq1_s", 256, 50},
    [K3_TYPE_IQ4_NL] = {"iq4_nl", 32, 18},
    [K3_TYPE_IQ3_S] = {"iq3_s", 256, 110},
    [K3_TYPE_IQ2_S] = {"iq2_s", 256, 82},
    [K3_TYPE_IQ4_XS] = {"iq4_xs", 256, 136},
    [K3_TYPE_I8] = {"i8", 1, 1},
    [K3_TYPE_I16] = {"i16", 1, 2},
    [K3_TYPE_I32] = {"i32", 1, 4},
    [K3_TYPE_I64] = {"i64", 1, 8},
    [K3_TYPE_F64] = {"f64", 1, 8},
    [K3_TYPE_IQ1_M] = {"iq1_m", 256, 56},
    [K3_TYPE_BF16] = {"bf16", 1, 2},
    [K3_TYPE_TQ1_0] = {"tq1_0", 256, 54},
    [K3_TYPE_TQ2_0] = {"tq2_0", 256, 66},
    [K3_TYPE_MXFP4] = {"mxfp4", 32, 17},
    [K3_TYPE_NVFP4] = {"nvfp4", 64, 36},
    [K3_TYPE_Q1_0] = {"q1_0", 128, 18},
    [K3_TYPE_Q2_0] = {"q2_0", 64, 18},
};

const struct k3_type_info *k3_type_info(uint32_t id)
{
    return id < K3_TYPE_COUNT && types[id].name ? &types[id] : NULL;
}
