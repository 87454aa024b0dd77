/* fiber.h - threads of a block as coroutines: a stack each, switched by hand. */
#ifndef K3_SIMT_FIBER_H
#define K3_SIMT_FIBER_H

#include <cstddef>

namespace k3_simt
{

/* What runs, and where it stands while something else does. The host's own stack is a fiber without memory. */
struct fiber {
    unsigned char *stack = nullptr; /* lowest byte; a guard page lies below */
    size_t bytes = 0;
    void *context = nullptr;    /* how to go on: a stack pointer, or a ucontext_t */
    void *fake_stack = nullptr; /* AddressSanitizer's */
};

/* Makes `f` a fiber that begins with entry(), which never returns. Its stack is allocated at the first time; what
 * stood on it is dropped. */
void fiber_start(fiber *f, void (*entry)());

/* Leaves `from`, which is what runs, and continues `to`. */
void fiber_switch(fiber *from, fiber *to);

/* To be called first in entry(). */
void fiber_entered();

} // namespace k3_simt

#endif
