/* avx512_blocks.c - q8_0 and mxfp4 times one column.
 *
 * These are bound by memory, and the 256-bit kernels of avx2_blocks.h read it faster than others with 512 bits did:
 * they go through 8 rows at a time, block by block, and ask for the next 8. Here they are compiled with the VNNI of
 * AVX-512. For more columns: avx512_batch.c. */
#include "quant/avx2_blocks.h"
#include "quant/avx512_internal.h"

void k3_avx512_q8_0(const struct k3_product *p)
{
    product_q8_0(p);
}

void k3_avx512_mxfp4(const struct k3_product *p)
{
    product_mxfp4(p);
}
