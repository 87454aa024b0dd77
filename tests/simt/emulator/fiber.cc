/* fiber.cc - the switch in a dozen instructions on x86-64, since ucontext's makes two system calls each time;
 * ucontext elsewhere. */
#include "fiber.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>

#if !defined(__x86_64__) || defined(K3_SIMT_UCONTEXT)
#define USE_UCONTEXT 1
#include <ucontext.h>
#endif

#if defined(__has_feature) && !defined(__SANITIZE_ADDRESS__)
#if __has_feature(address_sanitizer) /* clang's name for it */
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define STACK_BYTES (512u << 10) /* its frames are several times as large */
#else
#define STACK_BYTES (64u << 10)
#endif

namespace k3_simt
{

static const size_t guard_bytes = 4096;

static void allocate_stack(fiber *f)
{
    void *p = mmap(nullptr, guard_bytes + STACK_BYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p, guard_bytes, PROT_NONE) != 0) {
        perror("simt: no memory for the stack of a thread");
        abort();
    }
    f->stack = static_cast<unsigned char *>(p) + guard_bytes;
    f->bytes = STACK_BYTES;
}

/* ---- the switch ---- */

#if !defined(USE_UCONTEXT)

/* Pushes what the calling convention keeps, swaps stacks, pops. */
extern "C" void k3_simt_swap_stacks(void **save, void *load);
asm(R"(
.text
.globl k3_simt_swap_stacks
.type k3_simt_swap_stacks, @function
k3_simt_swap_stacks:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size k3_simt_swap_stacks, .-k3_simt_swap_stacks
)");

static void prepare(fiber *f, void (*entry)())
{
    /* Six registers and the address that `ret` takes; at entry the stack is 8 off a multiple of 16, as after a
     * call. */
    void **top = reinterpret_cast<void **>(f->stack + f->bytes);
    *--top = nullptr;
    *--top = reinterpret_cast<void *>(entry);
    for (int i = 0; i < 6; i++) *--top = nullptr;
    f->context = top;
}

static void swap(fiber *from, fiber *to)
{
    k3_simt_swap_stacks(&from->context, to->context);
}

#else

static ucontext_t *context_of(fiber *f)
{
    if (!f->context) f->context = calloc(1, sizeof(ucontext_t));
    if (!f->context) abort();
    return static_cast<ucontext_t *>(f->context);
}

static void prepare(fiber *f, void (*entry)())
{
    ucontext_t *c = context_of(f);
    getcontext(c);
    c->uc_stack.ss_sp = f->stack;
    c->uc_stack.ss_size = f->bytes;
    c->uc_link = nullptr;
    makecontext(c, entry, 0);
}

static void swap(fiber *from, fiber *to)
{
    swapcontext(context_of(from), context_of(to));
}

#endif

/* ---- what AddressSanitizer has to know ---- */

#if defined(__SANITIZE_ADDRESS__)

static fiber
    *leaving; /* the fiber that the last switch left: its bounds, for the way back to the host's stack */

void fiber_entered()
{
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
    if (!leaving->stack) {
        leaving->stack = static_cast<unsigned char *>(const_cast<void *>(bottom));
        leaving->bytes = bytes;
    }
}

void fiber_switch(fiber *from, fiber *to)
{
    leaving = from;
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->bytes);
    swap(from, to);
    __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
}

#else

void fiber_entered() {}

void fiber_switch(fiber *from, fiber *to)
{
    swap(from, to);
}

#endif

void fiber_start(fiber *f, void (*entry)())
{
    if (!f->stack) allocate_stack(f);
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(f->stack, f->bytes); /* frames that were dropped */
#endif
    prepare(f, entry);
}

} // namespace k3_simt
