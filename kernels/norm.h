/* norm.h - RMS norm of a row by a block of threads, for the kernels that end with one.
 *
 * FORMULA. y[i] = w[i] * (x[i] * (1 / sqrt(dot(x, x) / width + eps))) (architecture.md section 3), dot in the order of
 * dots.h; then y[i] *= sigmoid(gate[i]), if there is a gate; then y rounded to 8 bits, if there is room for that.
 * MAPPING. All threads square a K3_NORM_TILE of the row into shared memory, then 16 lanes add the squares to the 16 sums
 * of dots.h: the chain of width / 16 additions is fed from shared memory and not from device memory, which is twenty
 * times as far away. A warp has 32 elements side by side of y at a time: a block of q8_0. */
#ifndef K3_KERNELS_NORM_H
#define K3_KERNELS_NORM_H

#include "dots.h"
#include "round.h"

#define K3_NORM_TILE 4096u

/* The sum of this lane of the first half warp, and what `count` squares in shared memory add to it. */
K3_DEVICE float k3_add_squares(float s, K3_SHARED_OF(float) squares, unsigned count)
{
    k3_sync();
    if (threadIdx.x < K3_SUMS) {
        K3_UNROLL_BY(8)
        for (unsigned i = threadIdx.x; i < count; i += K3_SUMS) s += squares[i];
    }
    k3_sync();
    return s;
}

/* The dot product of a row with itself, to the threads of the first warp. If `squared`, the row is not longer than the
 * squares, which stand there already. */
K3_DEVICE float k3_sum_of_squares(K3_GLOBAL(const float) x, size_t width, bool squared,
                                  K3_SHARED_OF(float) squares)
{
    size_t whole = width - width % K3_SUMS;
    float s = 0;
    if (squared)
        s = k3_add_squares(s, squares, (unsigned)whole);
    else
        for (size_t tile = 0; tile < whole; tile += K3_NORM_TILE) {
            unsigned count = (unsigned)(whole - tile < K3_NORM_TILE ? whole - tile : K3_NORM_TILE);
            for (unsigned i = threadIdx.x; i < count; i += blockDim.x) squares[i] = x[tile + i] * x[tile + i];
            s = k3_add_squares(s, squares, count);
        }
    if (threadIdx.x >= K3_LANES) return 0;
    s = k3_add_sums(s);
    for (size_t i = whole; i < width; i++) s += x[i] * x[i];
    return s;
}

/* One row. y may be x. gate, q and d may be NULL; with q and d the width is a multiple of 32. In shared memory: squares
 * [K3_NORM_TILE], or `squared` as above; scale [1]. */
K3_DEVICE void k3_norm_row(K3_GLOBAL(const float) x, K3_CONSTANT(float) w, float eps, size_t width,
                           K3_CONSTANT(float) gate, K3_GLOBAL(float) y, K3_GLOBAL(int8_t) q,
                           K3_GLOBAL(float) d, bool squared, K3_SHARED_OF(float) squares,
                           K3_SHARED_OF(float) scale)
{
    float sum = k3_sum_of_squares(x, width, squared, squares);
    if (threadIdx.x == 0) scale[0] = 1.0f / sqrtf(sum / (float)width + eps);
    k3_sync();
    for (size_t i = threadIdx.x; i < width; i += blockDim.x) {
        float value = w[i] * (x[i] * scale[0]);
        if (gate) value *= k3_sigmoid(gate[i]);
        y[i] = value;
        if (q) k3_round_block(value, i, q, d);
    }
}

#endif
