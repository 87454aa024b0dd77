/* simt.h - the words in which kernels are written, and the one place where compilers and instruction sets differ.
 *
 * nvcc takes the second half of this file. Compiled as C++ with K3_SIMT_EMULATED, the same kernels run on the
 * emulator of tests/simt/, which checks what a device does not: bounds, order between threads, memory that nothing
 * wrote. Therefore kernels
 *   - take pointers to device memory as K3_GLOBAL(T), or K3_CONSTANT(T) if nothing writes them during the launch;
 *     for lists of them K3_GLOBALS(T, n) and K3_CONSTANTS(T, n);
 *   - declare shared memory by K3_SHARED(T, name, n), in one dimension, and pass it on as K3_SHARED_OF(T);
 *   - meet at k3_sync() and in shuffles that say which lanes take part;
 *   - are launched by K3_LAUNCH(kernel, blocks, threads, stream, arguments...).
 * Everything else is CUDA as it is: threadIdx, blockIdx, blockDim, gridDim, dim3, int4.
 *
 * Kernels are compiled without fused multiply-add and with divisions and roots that round correctly (nvcc's
 * default), and keep the order of additions of the CPU (src/quant/portable.c) unless their head says otherwise: then a
 * result has the same bits on both, wherever a layer is computed. */
#ifndef K3_KERNELS_SIMT_H
#define K3_KERNELS_SIMT_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef K3_SIMT_EMULATED

#include "emulator/device.h"
#include "ops/vmath.h"

#define K3_UNROLL
#define K3_UNROLL_BY(n)

static inline float k3_widen(uint16_t f16)
{
    return k3_f32_from_f16(f16);
}

#else

/* The CPU's functions for exp, sigmoid and tanh, made into functions of the device too: it is their bits that are
 * wanted. All that they include is included above. */
#define inline inline __host__ __device__
#include "ops/vmath.h"
#undef inline

#define K3_UNROLL       _Pragma("unroll")          /* before a loop: all of it, for arrays in registers */
#define K3_UNROLL_BY(n) _Pragma(K3_TEXT(unroll n)) /* n times, for loads in flight */
#define K3_TEXT(x)      #x

/* Up to n arrays as one argument: `at` of K3_GLOBALS(T, n) and K3_CONSTANTS(T, n). Select them by conditions, not by an
 * index that is computed: a device would have to copy them to memory for that. */
template <typename T, unsigned n> struct k3_pointers {
    T *at[n];
};

#define K3_KERNEL static __global__ void
#define K3_DEVICE static __device__ __forceinline__

#define K3_GLOBAL(T)          T *
#define K3_CONSTANT(T)        const T *__restrict__
#define K3_GLOBALS(T, n)      k3_pointers<T, n>
#define K3_CONSTANTS(T, n)    k3_pointers<const T, n>
#define K3_SHARED_OF(T)       T *
#define K3_SHARED(T, name, n) __shared__ __align__(16) T name[n]

#define K3_LAUNCH(kernel, blocks, threads, stream, ...)                                                      \
    kernel<<<(blocks), (threads), 0, (cudaStream_t)(stream)>>>(__VA_ARGS__)

K3_DEVICE void k3_sync(void)
{
    __syncthreads();
}

/* Orders the memory accesses of the lanes of `mask`, as k3_sync does those of the block. */
K3_DEVICE void k3_sync_warp(unsigned mask)
{
    __syncwarp(mask);
}

/* The value of another lane: a given one, or the one whose number differs by `step` in xor. */
template <typename T> K3_DEVICE T k3_shuffle(unsigned mask, T value, unsigned lane)
{
    return __shfl_sync(mask, value, lane);
}

template <typename T> K3_DEVICE T k3_shuffle_xor(unsigned mask, T value, unsigned step)
{
    return __shfl_xor_sync(mask, value, step);
}

/* One bit for each lane of `mask` whose predicate holds. */
K3_DEVICE unsigned k3_ballot(unsigned mask, bool predicate)
{
    return __ballot_sync(mask, predicate);
}

/* f16 to f32, as k3_f32_from_f16 but in one instruction. */
K3_DEVICE float k3_widen(uint16_t f16)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(f16));
    return x;
}

/* sum + the products of the four signed bytes of a and b */
K3_DEVICE int k3_dp4a(int a, int b, int sum)
{
    return __dp4a(a, b, sum);
}

/* c += A B of all lanes of the warp together: A 16 rows of 32 signed bytes, B 8 columns of 32, C 16 x 8. With g =
 * lane / 4 and i = lane % 4, a lane holds
 *     a: bytes 4 i .. 4 i + 3 of rows g and g + 8, then the same 16 bytes further on
 *     b: bytes 4 i .. 4 i + 3 of column g, then the same 16 bytes further on
 *     c: columns 2 i and 2 i + 1 of row g, then of row g + 8 */
K3_DEVICE void k3_mma_s8(int (&c)[4], const int (&a)[4], const int (&b)[2])
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Starts a copy of 16 bytes to shared memory, both at multiples of 16. Copies since the last group are the next one; a
 * thread that waits until `n_left` groups are left knows that its own earlier ones are done, and shows them to others
 * by k3_sync. */
K3_DEVICE void k3_copy_16(int *to, const int4 *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
                 "l"(from)
                 : "memory");
}

K3_DEVICE void k3_copy_end_group(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <unsigned n_left> K3_DEVICE void k3_copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(n_left) : "memory");
}

/* To the nearest integer, halves to the even one. */
K3_DEVICE int k3_round_to_int(float x)
{
    return __float2int_rn(x);
}

#endif

#define K3_LANES     32u
#define K3_ALL_LANES 0xffffffffu

#endif
