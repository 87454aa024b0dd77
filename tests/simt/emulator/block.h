/* block.h - launches: blocks one after the other, the threads of a block as fibers. */
#ifndef K3_SIMT_BLOCK_H
#define K3_SIMT_BLOCK_H

#include "fail.h"
#include "memory.h"

namespace k3_simt
{

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

/* What CUDA's variables of these names are, for the thread that runs. */
struct position {
    dim3 thread, block, threads, blocks;
};
extern position here;

/* ---- launch, in this order ---- */

/* `arguments` as the launch writes them. False: nothing may run. */
bool launch_begin(const char *kernel, const char *arguments, dim3 blocks, dim3 threads);

/* Argument i is a pointer to elements of that size. NULL may be bound, but not used. */
const binding *launch_bind(unsigned i, const void *pointer, size_t element, size_t alignment, bool writes,
                           bool constant);

/* Runs body(context) as every thread. */
void launch_run(void (*body)(void *context), void *context);

/* ---- what threads do together ---- */

/* __syncthreads */
void block_barrier(place at);

/* The lanes of `mask` meet: when all have come, the last one calls compute(payloads by lane, mask), and all go on.
 * `what` names the operation. */
void warp_meet(const char *what, unsigned mask, void *payload,
               void (*compute)(void *const *payloads, unsigned mask), place at);

/* __syncwarp */
void warp_barrier(unsigned mask, place at);

/* That all lanes of the warp come to an operation of all of them. */
static const unsigned all_lanes = 0xffffffffu;

/* ---- shared memory ---- */

struct shared_memory {
    const void *key; /* the declaration */
    const char *name;
    size_t n, element; /* elements, bytes of one */
    unsigned char *data;
    shadow *shadows;          /* [n] */
    unsigned char *in_flight; /* [n] whether a copy to it is under way */
};

/* The array that a declaration stands for in this block. */
shared_memory *shared_array(const void *key, const char *name, size_t n, size_t element);

/* ---- copies from device to shared memory that go on by themselves (copy.cc) ---- */

/* Element `index` of m will have the bytes at `from`. Until its thread has waited, nobody may touch it. */
void copy_start(shared_memory *m, size_t index, const void *from);

/* Ends the group of copies that this thread started since the last one. */
void copy_end_group();

/* Finishes all groups of this thread but the last `n_left`. */
void copy_wait(unsigned n_left);

/* For a new block: nothing is under way. */
void copy_forget();

/* ---- checks of one access ---- */

[[noreturn]] void out_of_bounds(const char *space, const char *name, ptrdiff_t index, ptrdiff_t first,
                                ptrdiff_t end);
void check_shared_read(const shared_memory *m, size_t index);
void check_shared_write(const shared_memory *m, size_t index);
void check_global_read(const binding *b, const void *address, size_t bytes);
void check_global_write(const binding *b, const void *address, size_t bytes);

} // namespace k3_simt

#endif
