/* threads.c - a pool whose threads take pieces of the work from one shared word, and sleep when there is none for long.
 *
 * START. `ticket` holds the number of the run (upper half), whether it is open, and the first item that nobody has
 * taken. The caller closes the ticket, writes what the run is, opens it as the next run, and takes pieces like everybody
 * else. A thread reads the ticket, then what the run is, then takes a piece by compare-and-exchange of the whole word:
 * that fails if the run has changed since, so what was read belongs to the piece. Nobody has to take part: a thread that
 * sleeps, or that the system has put aside, holds nothing up.
 *
 * PIECES. Guided: a share of what is left, in whole grains and never less than one. Pieces are large at first, so that
 * rows are read one after the other and the word is seldom fought over, and small at the end, so that all threads end
 * together.
 *
 * END. Items that are done are counted; the run is over when all are.
 *
 * WAITING. Who waits, for a run or for its end, first watches the word: runs follow each other within microseconds while
 * a token is computed, and to wake a thread takes tens of them. After SPIN_NS it sleeps, so that a wait for the drive
 * does not burn the processor.
 *
 * PLACES. Threads that do not sleep are seldom moved, and two of them that are on one processor can stay there for long,
 * although another one has nothing but a compiler in the background. So a worker that finds itself where the caller is
 * goes elsewhere. Nobody is tied to a processor. */
#include "base/threads.h"

#include "base/clock.h"
#include "base/cpu.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define MAX_THREADS 1024

/* Between two runs of a token lie 1 to 40 us of one thread's work. */
#define SPIN_NS 60000

#define OPEN      (1ull << 40) /* the run can be taken from */
#define ITEM_MASK (OPEN - 1)   /* the first item not taken */
#define RUN_UNIT  (OPEN << 1)  /* the number of the run lies above */

#define WORKER_STACK ((size_t)2 << 20) /* kernels keep tiles of weights there, some 330 KiB */

struct worker {
    struct k3_pool *pool;
    pthread_t thread;
    int index; /* 1 .. n_threads-1; the caller is 0 */
};

struct k3_pool {
    int n_threads;
    struct worker *workers; /* n_threads - 1 of them */
    int n_started;

    /* The current run. Written while the ticket is closed; a thread that reads them then does not get a piece. */
    _Atomic(k3_work_fn) fn;
    void *_Atomic ctx;
    atomic_size_t n_items, grain;

    bool spread;           /* there are enough processors for every thread to have its own */
    atomic_int caller_cpu; /* where the caller was when the run began */

    _Alignas(64) atomic_ullong ticket;
    _Alignas(64) atomic_size_t n_done; /* items of the run */

    _Alignas(64) pthread_mutex_t lock;
    pthread_cond_t wake, finished;
    atomic_int n_asleep;       /* workers; changed under lock */
    atomic_bool caller_asleep; /* likewise */
    atomic_bool stop;          /* likewise */
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- pieces ---- */

/* How much of `left` items one of n threads takes next. */
static size_t piece(size_t left, size_t grain, int n_threads)
{
    size_t share = left / (4 * (size_t)n_threads) / grain * grain;
    if (share < grain) share = grain;
    return share < left ? share : left;
}

static void finish(struct k3_pool *pool, size_t n, size_t n_items)
{
    if (atomic_fetch_add(&pool->n_done, n) + n != n_items || !atomic_load(&pool->caller_asleep)) return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_signal(&pool->finished);
    pthread_mutex_unlock(&pool->lock);
}

/* Takes pieces until none is left. */
static void take_pieces(struct k3_pool *pool, int thread)
{
    for (;;) {
        unsigned long long ticket = atomic_load(&pool->ticket);
        k3_work_fn fn = atomic_load_explicit(&pool->fn, memory_order_relaxed);
        void *ctx = atomic_load_explicit(&pool->ctx, memory_order_relaxed);
        size_t n_items = atomic_load_explicit(&pool->n_items, memory_order_relaxed);
        size_t grain = atomic_load_explicit(&pool->grain, memory_order_relaxed);
        size_t begin = ticket & ITEM_MASK;
        atomic_thread_fence(
            memory_order_acquire); /* who read what the next run is sees the closed ticket below */
        if (!(ticket & OPEN) || begin >= n_items) return;
        size_t n = piece(n_items - begin, grain, pool->n_threads);
        if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket + n)) continue;
        fn(ctx, begin, begin + n, thread);
        finish(pool, n, n_items);
    }
}

/* ---- workers ---- */

/* Whether there is a run after `seen`, or the pool ends. */
static bool has_news(const struct k3_pool *pool, unsigned long long seen)
{
    unsigned long long ticket = atomic_load(&pool->ticket);
    return ((ticket & OPEN) && ticket / RUN_UNIT != seen) || atomic_load(&pool->stop);
}

static void wait_for_news(struct k3_pool *pool, unsigned long long seen)
{
    uint64_t end = k3_now_ns() + SPIN_NS;
    while (k3_now_ns() < end)
        for (int i = 0; i < 16; i++) {
            if (has_news(pool, seen)) return;
            relax();
        }
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->n_asleep, 1);
    while (!has_news(pool, seen)) pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_sub(&pool->n_asleep, 1);
    pthread_mutex_unlock(&pool->lock);
}

/* Forbids this thread the processor it is on, which moves it, and allows it again. */
static void leave_caller(const struct k3_pool *pool)
{
    cpu_set_t allowed, others;
    int here = sched_getcpu();
    if (!pool->spread || here < 0 || here != atomic_load_explicit(&pool->caller_cpu, memory_order_relaxed))
        return;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    others = allowed;
    CPU_CLR(here, &others);
    if (CPU_COUNT(&others) && sched_setaffinity(0, sizeof others, &others) == 0)
        sched_setaffinity(0, sizeof allowed, &allowed);
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct k3_pool *pool = worker->pool;
    unsigned long long seen = 0;
    for (;;) {
        wait_for_news(pool, seen);
        if (atomic_load(&pool->stop)) return NULL;
        leave_caller(pool);
        unsigned long long ticket = atomic_load(&pool->ticket);
        if (ticket & OPEN) seen = ticket / RUN_UNIT; /* a closed one is of a run that is yet to come */
        take_pieces(pool, worker->index);
    }
}

/* ---- the pool ---- */

k3_status k3_pool_create(int n_threads, struct k3_pool **out, struct k3_error *err)
{
    if (n_threads < 0 || n_threads > MAX_THREADS)
        return k3_fail(err, K3_ERR_ARGUMENT,
                       "%d threads asked for; 1 to %d are possible (0: one per processor)", n_threads,
                       MAX_THREADS);
    if (n_threads == 0) n_threads = k3_cpu_count();

    struct k3_pool *pool = aligned_alloc(_Alignof(struct k3_pool), sizeof *pool);
    if (!pool) return k3_fail_memory(err, "the thread pool", sizeof *pool);
    *pool = (struct k3_pool){.n_threads = n_threads, .spread = n_threads <= k3_cpu_count()};
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->finished, NULL);

    k3_status status = K3_OK;
    pool->workers = calloc((size_t)n_threads, sizeof *pool->workers);
    if (!pool->workers)
        status = k3_fail_memory(err, "the thread pool", (uint64_t)n_threads * sizeof *pool->workers);
    pthread_attr_t attr; /* of a system's own choice, stacks may be too small for kernels */
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, WORKER_STACK);
    for (int i = 1; status == K3_OK && i < n_threads; i++) {
        struct worker *worker = &pool->workers[i - 1];
        worker->pool = pool;
        worker->index = i;
        int failed = pthread_create(&worker->thread, &attr, worker_main, worker);
        if (failed)
            status = k3_fail_errno(err, failed, "thread %d of %d cannot be started", i + 1, n_threads);
        else
            pool->n_started++;
    }
    pthread_attr_destroy(&attr);
    if (status != K3_OK) {
        k3_pool_free(pool);
        return status;
    }
    *out = pool;
    return K3_OK;
}

void k3_pool_free(struct k3_pool *pool)
{
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->stop, true);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->n_started; i++) pthread_join(pool->workers[i].thread, NULL);
    free(pool->workers);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

int k3_pool_threads(const struct k3_pool *pool)
{
    return pool->n_threads;
}

/* Opens a new run. Whoever sees it also sees what it is. */
static void announce(struct k3_pool *pool, k3_work_fn fn, void *ctx, size_t n_items, size_t grain)
{
    unsigned long long run = atomic_load(&pool->ticket) / RUN_UNIT + 1;
    atomic_store(&pool->ticket, run * RUN_UNIT);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&pool->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&pool->ctx, ctx, memory_order_relaxed);
    atomic_store_explicit(&pool->n_items, n_items, memory_order_relaxed);
    atomic_store_explicit(&pool->grain, grain, memory_order_relaxed);
    atomic_store_explicit(&pool->n_done, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->caller_cpu, sched_getcpu(), memory_order_relaxed);
    atomic_store(&pool->ticket, run * RUN_UNIT | OPEN);

    /* Who goes to sleep counts itself and then looks at the ticket once more; here it is the other way round, so that
     * one of the two sees the other. */
    if (!atomic_load(&pool->n_asleep)) return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

static void wait_for_end(struct k3_pool *pool, size_t n_items)
{
    uint64_t end = k3_now_ns() + SPIN_NS;
    while (k3_now_ns() < end)
        for (int i = 0; i < 16; i++) {
            if (atomic_load(&pool->n_done) == n_items) return;
            relax();
        }
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->caller_asleep, true);
    while (atomic_load(&pool->n_done) != n_items) pthread_cond_wait(&pool->finished, &pool->lock);
    atomic_store(&pool->caller_asleep, false);
    pthread_mutex_unlock(&pool->lock);
}

void k3_pool_run(struct k3_pool *pool, k3_work_fn fn, void *ctx, size_t n_items, size_t grain)
{
    if (n_items == 0) return;
    if (grain == 0) grain = 1;
    if (pool->n_threads == 1 || n_items <= grain) {
        fn(ctx, 0, n_items, 0);
        return;
    }
    announce(pool, fn, ctx, n_items, grain);
    take_pieces(pool, 0);
    wait_for_end(pool, n_items);
}
