/* device.h - what kernels/simt.h means where it is emulated.
 *
 * Pointers to device memory and shared arrays are classes that look like what they are in CUDA and check each
 * access. They are copied and dropped like pointers: a launch that fails leaves threads in the middle. */
#ifndef K3_SIMT_DEVICE_H
#define K3_SIMT_DEVICE_H

#include "block.h"

#include <climits>
#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

/* Up to n arrays as one argument of a launch. */
template <typename T, unsigned n> struct k3_pointers {
    T *at[n];
};

namespace k3_simt
{

/* ---- arrays ---- */

/* array[i] on the left of an assignment, or to be read. */
template <typename Array, typename T> struct element {
    Array array;
    ptrdiff_t i;

    operator T() const { return array.load(i); }
    T operator=(T value) const { return array.store(i, value); }
    T operator=(const element &other) const { return array.store(i, static_cast<T>(other)); }
    T operator+=(T value) const { return array.store(i, array.load(i) + value); }
    T operator-=(T value) const { return array.store(i, array.load(i) - value); }
    T operator*=(T value) const { return array.store(i, array.load(i) * value); }
};

/* T * in device memory. Its elements are `first` to `end` - 1, counted from where it points. */
template <typename T, bool constant = false> struct global {
    using value = std::remove_const_t<T>;
    T *at;
    ptrdiff_t first, end;
    const binding *bound;

    /* Argument i of the launch that begins. */
    static global bind(unsigned i, T *pointer)
    {
        const binding *b = launch_bind(i, pointer, sizeof(T), alignof(T), !std::is_const_v<T>, constant);
        if (!b->memory) return {pointer, 0, 0, b};
        const unsigned char *p = reinterpret_cast<const unsigned char *>(pointer), *base = b->memory->base;
        return {pointer, -static_cast<ptrdiff_t>((p - base) / sizeof(T)),
                static_cast<ptrdiff_t>((base + b->memory->bytes - p) / sizeof(T)), b};
    }

    value load(ptrdiff_t i) const
    {
        if (i < first || i >= end) out_of_bounds("device", bound->name, i, first, end);
        if (bound->memory->written || watched(bound->memory) || counting) check_global_read(bound, at + i, sizeof(T));
        return at[i];
    }
    value store(ptrdiff_t i, value v) const
    {
        if (i < first || i >= end) out_of_bounds("device", bound->name, i, first, end);
        check_global_write(bound, at + i, sizeof(T));
        return at[i] = v;
    }
    auto operator[](ptrdiff_t i) const
    {
        if constexpr (std::is_const_v<T>)
            return load(i);
        else
            return element<global, value>{*this, i};
    }
    auto operator[](size_t i) const { return (*this)[static_cast<ptrdiff_t>(i)]; }
    auto operator[](unsigned i) const { return (*this)[static_cast<ptrdiff_t>(i)]; }
    auto operator[](int i) const { return (*this)[static_cast<ptrdiff_t>(i)]; }

    global operator+(ptrdiff_t n) const { return {at + n, first - n, end - n, bound}; }
    operator global<const T>() const { return {at, first, end, bound}; }
    explicit operator bool() const { return at; }
};

/* Up to n of them: what k3_pointers of the host become. */
template <typename T, bool constant, unsigned n> struct globals {
    global<T, constant> at[n];
};

/* T array[n] in shared memory, or the part of it from some element on. */
template <typename T> struct shared {
    shared_memory *memory;
    ptrdiff_t from;

    size_t index(ptrdiff_t i) const
    {
        ptrdiff_t n = static_cast<ptrdiff_t>(memory->n);
        if (from + i < 0 || from + i >= n) out_of_bounds("shared", memory->name, i, -from, n - from);
        return static_cast<size_t>(from + i);
    }
    T load(ptrdiff_t i) const
    {
        size_t k = index(i);
        check_shared_read(memory, k);
        return reinterpret_cast<const T *>(memory->data)[k];
    }
    T store(ptrdiff_t i, T v) const
    {
        size_t k = index(i);
        check_shared_write(memory, k);
        return reinterpret_cast<T *>(memory->data)[k] = v;
    }
    element<shared, T> operator[](ptrdiff_t i) const { return {*this, i}; }
    element<shared, T> operator[](size_t i) const { return (*this)[static_cast<ptrdiff_t>(i)]; }
    element<shared, T> operator[](unsigned i) const { return (*this)[static_cast<ptrdiff_t>(i)]; }
    element<shared, T> operator[](int i) const { return (*this)[static_cast<ptrdiff_t>(i)]; }

    shared operator+(ptrdiff_t n) const { return {memory, from + n}; }
};

/* ---- launch ---- */

template <typename P> struct argument {
    template <typename A> static P bind(unsigned, A a) { return static_cast<P>(a); }
};
template <typename T, bool constant> struct argument<global<T, constant>> {
    static global<T, constant> bind(unsigned i, T *pointer) { return global<T, constant>::bind(i, pointer); }
};

template <typename T, bool constant, unsigned n> struct argument<globals<T, constant, n>> {
    static globals<T, constant, n> bind(unsigned i, k3_pointers<T, n> pointers)
    {
        globals<T, constant, n> bound;
        for (unsigned k = 0; k < n; k++) bound.at[k] = global<T, constant>::bind(i, pointers.at[k]);
        return bound;
    }
};

template <typename... P, typename... A, size_t... I>
void launch(std::index_sequence<I...>, void (*kernel)(P...), A... arguments)
{
    struct call {
        void (*kernel)(P...);
        std::tuple<P...> arguments;
    } c{kernel, {argument<P>::bind(I, arguments)...}};
    launch_run(
        [](void *context) {
            call *self = static_cast<call *>(context);
            std::apply(self->kernel, self->arguments);
        },
        &c);
}

template <typename... P, typename... A>
void launch(const char *name, const char *names, void (*kernel)(P...), dim3 blocks, dim3 threads,
            A... arguments)
{
    static_assert(sizeof...(P) == sizeof...(A), "as many arguments as the kernel has parameters");
    if (launch_begin(name, names, blocks, threads))
        launch(std::index_sequence_for<A...>(), kernel, arguments...);
}

/* ---- exchange between lanes ---- */

struct shuffle_payload {
    unsigned char value[8], result[8];
    unsigned source; /* lane */
    bool inactive;   /* there is nothing to have from that lane */
};

void shuffle(const char *what, unsigned mask, shuffle_payload *p, place at);

template <typename T> T shuffle_from(const char *what, unsigned mask, T value, unsigned source, place at)
{
    static_assert(sizeof(T) <= 8, "lanes exchange up to 8 bytes");
    shuffle_payload p{};
    memcpy(p.value, &value, sizeof value);
    p.source = source;
    shuffle(what, mask, &p, at);
    memcpy(&value, p.result, sizeof value);
    return value;
}

unsigned ballot(unsigned mask, bool predicate, place at);

/* One lane's fragments of k3_mma_s8. */
struct mma_payload {
    const int *a, *b;
    int *c;
};

void mma_s8(mma_payload *p, place at);

} // namespace k3_simt

/* ---- the words of kernels/simt.h ---- */

#define threadIdx (k3_simt::here.thread)
#define blockIdx  (k3_simt::here.block)
#define blockDim  (k3_simt::here.threads)
#define gridDim   (k3_simt::here.blocks)

using k3_simt::dim3;

struct alignas(16) int4 {
    int x, y, z, w;
};

#define K3_KERNEL static void
#define K3_DEVICE static inline

#define K3_GLOBAL(T)    k3_simt::global<T>
#define K3_CONSTANT(T)  k3_simt::global<const T, true>
#define K3_GLOBALS(T, n)   k3_simt::globals<T, false, n>
#define K3_CONSTANTS(T, n) k3_simt::globals<const T, true, n>
#define K3_SHARED_OF(T) k3_simt::shared<T>
#define K3_SHARED(T, name, n)                                                                                \
    static const char name##_key = 0;                                                                        \
    const k3_simt::shared<T> name                                                                            \
    {                                                                                                        \
        k3_simt::shared_array(&name##_key, #name, n, sizeof(T)), 0                                           \
    }

#define K3_LAUNCH(kernel, blocks, threads, stream, ...)                                                      \
    ((void)(stream), k3_simt::launch(#kernel, #__VA_ARGS__, kernel, blocks, threads, __VA_ARGS__))

/* file and line are those of the caller. */
static inline void k3_sync(const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    k3_simt::block_barrier({file, line});
}

static inline void k3_sync_warp(unsigned mask, const char *file = __builtin_FILE(),
                                int line = __builtin_LINE())
{
    k3_simt::warp_barrier(mask, {file, line});
}

template <typename T>
T k3_shuffle(unsigned mask, T value, unsigned lane, const char *file = __builtin_FILE(),
             int line = __builtin_LINE())
{
    return k3_simt::shuffle_from("a shuffle", mask, value, lane, {file, line});
}

template <typename T>
T k3_shuffle_xor(unsigned mask, T value, unsigned step, const char *file = __builtin_FILE(),
                 int line = __builtin_LINE())
{
    return k3_simt::shuffle_from("a shuffle by xor", mask, value, k3_simt::now.lane ^ step, {file, line});
}

static inline unsigned k3_ballot(unsigned mask, bool predicate, const char *file = __builtin_FILE(),
                                 int line = __builtin_LINE())
{
    return k3_simt::ballot(mask, predicate, {file, line});
}

static inline int k3_dp4a(int a, int b, int sum)
{
    signed char x[4], y[4];
    memcpy(x, &a, 4);
    memcpy(y, &b, 4);
    for (int i = 0; i < 4; i++) sum += x[i] * y[i];
    return sum;
}

static inline void k3_mma_s8(int (&c)[4], const int (&a)[4], const int (&b)[2],
                             const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    k3_simt::mma_payload p{a, b, c};
    k3_simt::mma_s8(&p, {file, line});
}

static inline void k3_copy_16(k3_simt::shared<int> to, k3_simt::global<const int4, true> from)
{
    int words[4];
    int4 value = from[0];
    if (to.from % 4)
        k3_simt::fail("it copies 16 bytes to %s[%td], not a multiple of 4", to.memory->name, to.from);
    memcpy(words, &value, sizeof words);
    for (int i = 0; i < 4; i++) k3_simt::copy_start(to.memory, to.index(i), &words[i]);
}

static inline void k3_copy_end_group(void)
{
    k3_simt::copy_end_group();
}

template <unsigned n_left> void k3_copy_wait(void)
{
    k3_simt::copy_wait(n_left);
}

/* The device's conversion stays at the ends of the range, and makes 0 of NaN. */
static inline int k3_round_to_int(float x)
{
    if (x >= 0x1p31f) return INT_MAX;
    if (x <= -0x1p31f) return INT_MIN;
    return x == x ? static_cast<int>(lrintf(x)) : 0;
}

#endif
