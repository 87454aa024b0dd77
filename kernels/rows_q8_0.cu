/* rows_q8_0.cu - rows of the token table.
 *
 * FORMULA. y[t][i] = d * q of element i of row ids[t] (architecture.md section 2).
 * MAPPING. One block of threads for each token; a thread takes elements 256 apart.
 * COST. 1.06 bytes read and 4 written for each element: 36 KB for a token of K3. Bound: latency. */
#include "kernels.h"
#include "simt.h"

#define THREADS 256u

K3_KERNEL rows(K3_CONSTANT(int8_t) q, K3_CONSTANT(uint16_t) d, K3_CONSTANT(int32_t) ids, size_t cols,
               K3_GLOBAL(float) y)
{
    size_t from = (size_t)ids[blockIdx.x] * cols, to = blockIdx.x * cols;
    for (size_t i = threadIdx.x; i < cols; i += THREADS)
        y[to + i] = k3_widen(d[(from + i) / 32]) * (float)q[from + i];
}

extern "C" void k3_gpu_rows_q8_0(const struct k3_gpu_q8_0 *table, const int32_t *ids, size_t n, float *y,
                                 k3_stream stream)
{
    K3_LAUNCH(rows, (unsigned)n, THREADS, stream, table->q, table->d, ids, table->cols, y);
}
