/* depth.c - a short test, when a store is opened, of how many reads the drive wants under way.
 *
 * One drive reaches its rate with few, arrays of drives want more, and more than needed only make each wait longer. So
 * the same number of experts is read with each of a few depths, and the smallest is kept that comes within NOISE of the
 * best. The experts stay in their slots; nothing but the bytes is counted. Models so small that the test would read
 * much of them do without: their experts are in memory soon anyway. */
#include "store/store_internal.h"

#include "base/clock.h"

#define MOST_EXPERTS 32 /* read with each depth: 234 MiB of K3 */
#define NOISE        0.05

static const uint32_t depths[] = {32, 64, 128};
enum { N_DEPTHS = sizeof depths / sizeof *depths };

/* Bytes a second of reading n experts of a layer, every step-th from `first` on; 0 when it did not work. */
static double rate_of(struct k3_store *store, uint32_t layer, uint32_t first, uint32_t step, uint32_t n)
{
    uint32_t ids[MOST_EXPERTS];
    struct k3_ticket *ticket;
    struct k3_expert expert;
    for (uint32_t i = 0; i < n; i++) ids[i] = first + i * step;
    uint64_t start = k3_now_ns();
    if (k3_store_acquire(store, layer, ids, n, true, &ticket, NULL) != K3_OK) return 0;
    k3_status status = K3_OK;
    for (uint32_t i = 0; i < n && status == K3_OK; i++) {
        status = k3_store_next(ticket, &expert, NULL);
        if (status == K3_OK) k3_store_give_back(ticket, &expert);
    }
    k3_store_release(ticket);
    if (status != K3_OK) return 0;
    return (double)n * (double)k3_store_expert_bytes(store->plan, layer) * 1e9 /
           (double)(k3_now_ns() - start);
}

void k3_store_find_depth(struct k3_store *store, uint64_t least_bytes)
{
    const struct k3_hparams *hp = &store->plan->hp;
    uint32_t layer = hp->n_dense_layers, n = hp->n_experts / N_DEPTHS, best = N_DEPTHS - 1;
    if (n > MOST_EXPERTS) n = MOST_EXPERTS;
    if (n * N_DEPTHS > store->slots.n || n * k3_store_expert_bytes(store->plan, layer) < least_bytes) return;

    double rates[N_DEPTHS], most = 0;
    for (uint32_t i = 0; i < N_DEPTHS; i++) {
        k3_reader_set_depth(store->reader, depths[i]);
        rates[i] = rate_of(store, layer, i, hp->n_experts / n, n);
        if (rates[i] > most) most = rates[i];
    }
    while (best > 0 && rates[best - 1] >= (1 - NOISE) * most) best--;
    k3_reader_set_depth(store->reader, depths[best]);
    store->stats[layer] = (struct k3_store_stats){.bytes_read = store->stats[layer].bytes_read};
}
