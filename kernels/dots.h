/* dots.h - dot products in the order of the CPU.
 *
 * src/quant/portable.c adds the products of elements i to the partial sum i % 16, then the 16 sums in pairs, then the
 * products of the last n % 16 elements. Here 16 lanes hold the 16 sums, a half warp: lane l of it adds elements l,
 * l + 16 .., which are 64 bytes side by side for the 16 together, and the pairs are four shuffles. Both halves of a
 * warp shuffle together, so all its lanes must come. */
#ifndef K3_KERNELS_DOTS_H
#define K3_KERNELS_DOTS_H

#include "simt.h"

#define K3_SUMS 16u

/* The sum of what the 16 lanes of this half warp hold, to all of them. */
K3_DEVICE float k3_add_sums(float s)
{
    for (unsigned step = K3_SUMS / 2; step > 0; step /= 2) s += k3_shuffle_xor(K3_ALL_LANES, s, step);
    return s;
}

/* The dot product of n elements of a and b, to all lanes of the half warp. A and B are pointers to device memory or
 * shared arrays. */
template <typename A, typename B> K3_DEVICE float k3_half_warp_dot(A a, B b, size_t n)
{
    size_t whole = n - n % K3_SUMS;
    float s = 0;
    K3_UNROLL_BY(8)
    for (size_t i = threadIdx.x % K3_SUMS; i < whole; i += K3_SUMS) s += a[i] * b[i];
    s = k3_add_sums(s);
    for (size_t i = whole; i < n; i++) s += a[i] * b[i];
    return s;
}

/* The products of 16 weights and 16 activations of q8_0, added. */
K3_DEVICE int k3_dot_16(int4 a, int4 b)
{
    return k3_dp4a(a.x, b.x, k3_dp4a(a.y, b.y, k3_dp4a(a.z, b.z, k3_dp4a(a.w, b.w, 0))));
}

/* A row of up to 16 * N elements in the registers of a half warp: elements l, l + 16 .. in lane l. */
template <unsigned N> struct k3_lanes_row {
    float at[N];
};

/* The dot products of n elements of x and each of M rows, to all lanes of the half warp: x, which may be in shared memory, is
 * loaded once for all of them. */
template <unsigned N, unsigned M, typename X>
K3_DEVICE void k3_dots_with_rows(X x, const k3_lanes_row<N> (&rows)[M], unsigned n, float (&dots)[M])
{
    unsigned lane = threadIdx.x % K3_SUMS, whole = n / K3_SUMS, rest = n % K3_SUMS;
    float last[M] = {};
    K3_UNROLL
    for (unsigned m = 0; m < M; m++) dots[m] = 0;
    K3_UNROLL
    for (unsigned j = 0; j < N; j++) {
        if (j > whole || (j == whole && lane >= rest)) continue;
        float value = x[j * K3_SUMS + lane];
        K3_UNROLL
        for (unsigned m = 0; m < M; m++)
            if (j < whole)
                dots[m] += value * rows[m].at[j];
            else
                last[m] = value * rows[m].at[j];
    }
    K3_UNROLL
    for (unsigned m = 0; m < M; m++) {
        dots[m] = k3_add_sums(dots[m]);
        for (unsigned l = 0; l < rest; l++)
            dots[m] += k3_shuffle(K3_ALL_LANES, last[m], threadIdx.x % K3_LANES / K3_SUMS * K3_SUMS + l);
    }
}

#endif
