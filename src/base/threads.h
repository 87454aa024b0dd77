/* threads.h - the one pool of threads that computes.
 *
 * Work is a number of independent items. Which thread does an item is not fixed, so an item must not depend
 * on it: it writes results of its own and sums in an order of its own. Then results are the same for any
 * number of threads. */
#ifndef K3_BASE_THREADS_H
#define K3_BASE_THREADS_H

#include "base/error.h"

struct k3_pool;

/* A pool of n_threads in all, the calling thread included; 0 means one per processor the process may use. */
k3_status k3_pool_create(int n_threads, struct k3_pool **pool, struct k3_error *err);
void k3_pool_free(struct k3_pool *pool);

int k3_pool_threads(const struct k3_pool *pool);

/* Does items [begin, end) of the work `ctx` describes. `thread` is 0 .. n_threads-1, for scratch memory. */
typedef void (*k3_work_fn)(void *ctx, size_t begin, size_t end, int thread);

/* Runs fn over items 0 .. n_items-1 and returns when all are done. Pieces begin at multiples of `grain`; they are large
 * at first and a grain in the end. n_items is below 2^40. One caller at a time; no work within work. When one thread
 * does it all, it gets all items in one piece. */
void k3_pool_run(struct k3_pool *pool, k3_work_fn fn, void *ctx, size_t n_items, size_t grain);

#endif
