/* threads.c - a pool whose threads sleep between pieces of work and take items from a shared counter.
 *
 * A run is announced by raising `generation` under `lock`. Every worker that sees a new generation takes
 * pieces until none is left and then reports itself done; the caller works too, and waits for the workers
 * last. */
#include "base/threads.h"

#include "base/cpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define MAX_THREADS 1024

struct worker {
    struct k3_pool *pool;
    pthread_t thread;
    int index; /* 1 .. n_threads-1; the caller is 0 */
};

struct k3_pool {
    int n_threads;
    struct worker *workers; /* n_threads - 1 of them */
    int n_started;

    pthread_mutex_t lock;
    pthread_cond_t wake, finished;
    uint64_t generation; /* under lock: counts runs */
    int n_busy;          /* under lock: workers that have not finished this run */
    bool stop;           /* under lock */

    /* The current run; written by the caller before the generation changes. */
    k3_work_fn fn;
    void *ctx;
    size_t n_items, grain;
    atomic_size_t next;
};

static void take_pieces(struct k3_pool *pool, int thread)
{
    for (;;) {
        size_t begin = atomic_fetch_add_explicit(&pool->next, pool->grain, memory_order_relaxed);
        if (begin >= pool->n_items) return;
        size_t left = pool->n_items - begin;
        pool->fn(pool->ctx, begin, begin + (left < pool->grain ? left : pool->grain), thread);
    }
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct k3_pool *pool = worker->pool;
    uint64_t seen = 0;

    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->stop && pool->generation == seen) pthread_cond_wait(&pool->wake, &pool->lock);
        if (pool->stop) break;
        seen = pool->generation;
        pthread_mutex_unlock(&pool->lock);

        take_pieces(pool, worker->index);

        pthread_mutex_lock(&pool->lock);
        if (--pool->n_busy == 0) pthread_cond_signal(&pool->finished);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

k3_status k3_pool_create(int n_threads, struct k3_pool **out, struct k3_error *err)
{
    if (n_threads < 0 || n_threads > MAX_THREADS)
        return k3_fail(err, K3_ERR_ARGUMENT,
                       "%d threads asked for; 1 to %d are possible (0: one per processor)", n_threads,
                       MAX_THREADS);
    if (n_threads == 0) n_threads = k3_cpu_count();

    struct k3_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return k3_fail_memory(err, "the thread pool", sizeof *pool);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->finished, NULL);
    pool->n_threads = n_threads;

    k3_status status = K3_OK;
    pool->workers = calloc((size_t)n_threads, sizeof *pool->workers);
    if (!pool->workers)
        status = k3_fail_memory(err, "the thread pool", (uint64_t)n_threads * sizeof *pool->workers);
    for (int i = 1; status == K3_OK && i < n_threads; i++) {
        struct worker *worker = &pool->workers[i - 1];
        worker->pool = pool;
        worker->index = i;
        int failed = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (failed)
            status = k3_fail_errno(err, failed, "thread %d of %d cannot be started", i + 1, n_threads);
        else
            pool->n_started++;
    }
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
    pool->stop = true;
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

void k3_pool_run(struct k3_pool *pool, k3_work_fn fn, void *ctx, size_t n_items, size_t grain)
{
    if (n_items == 0) return;
    if (grain == 0) grain = 1;
    if (pool->n_threads == 1 || n_items <= grain) {
        fn(ctx, 0, n_items, 0);
        return;
    }

    pthread_mutex_lock(&pool->lock);
    pool->fn = fn;
    pool->ctx = ctx;
    pool->n_items = n_items;
    pool->grain = grain;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    pool->n_busy = pool->n_threads - 1;
    pool->generation++;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);

    take_pieces(pool, 0);

    pthread_mutex_lock(&pool->lock);
    while (pool->n_busy) pthread_cond_wait(&pool->finished, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}
