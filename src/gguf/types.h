/* types.h - the tensor types of GGUF: their ids, names and block sizes (quants.md section 0). */
#ifndef K3_GGUF_TYPES_H
#define K3_GGUF_TYPES_H

#include <stdint.h>

/* Values are the ids in the file. */
enum k3_type {
    K3_TYPE_F32 = 0,
    K3_TYPE_F16 = 1,
    K3_TYPE_Q4_0 = 2,
    K3_TYPE_Q4_1 = 3,
    K3_TYPE_Q5_0 = 6,
    K3_TYPE_Q5_1 = 7,
    K3_TYPE_Q8_0 = 8,
    K3_TYPE_Q8_1 = 9,
    K3_TYPE_Q2_K = 10,
    K3_TYPE_Q3_K = 11,
    K3_TYPE_Q4_K = 12,
    K3_TYPE_Q5_K = 13,
    K3_TYPE_Q6_K = 14,
    K3_TYPE_Q8_K = 15,
    K3_TYPE_IQ2_XXS = 16,
    K3_TYPE_IQ2_XS = 17,
    K3_TYPE_IQ3_XXS = 18,
    K3_TYPE_IQ1_S = 19,
    K3_TYPE_IQ4_NL = 20,
    K3_TYPE_IQ3_S = 21,
    K3_TYPE_IQ2_S = 22,
    K3_TYPE_IQ4_XS = 23,
    K3_TYPE_I8 = 24,
    K3_TYPE_I16 = 25,
    K3_TYPE_I32 = 26,
    K3_TYPE_I64 = 27,
    K3_TYPE_F64 = 28,
    K3_TYPE_IQ1_M = 29,
    K3_TYPE_BF16 = 30,
    K3_TYPE_TQ1_0 = 34,
    K3_TYPE_TQ2_0 = 35,
    K3_TYPE_MXFP4 = 39,
    K3_TYPE_NVFP4 = 40,
    K3_TYPE_Q1_0 = 41,
    K3_TYPE_Q2_0 = 42,
    K3_TYPE_COUNT = 43,
};

struct k3_type_info {
    const char *name;     /* "q8_0" */
    uint32_t block;       /* weights in a block */
    uint32_t block_bytes; /* bytes of a block */
};

/* NULL for an id that is unknown or withdrawn. */
const struct k3_type_info *k3_type_info(uint32_t id);

#endif
