/* store.c - tickets: what was asked for, what of it is ready, and what still waits for a slot. */
#include "store/store_internal.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_TEST_BYTES ((uint64_t)128 << 20) /* 70 ms of a drive of 2 GB/s, for each of three depths */

/* ---- open and close ---- */

static k3_status create_ticket(struct k3_store *store, struct k3_error *err)
{
    struct k3_ticket *t = &store->ticket;
    size_t n = store->plan->hp.n_experts;
    t->store = store;
    t->slots = calloc(n, sizeof(struct k3_slot *));
    t->ready.items = calloc(n, sizeof *t->ready.items);
    t->waiting.items = calloc(n, sizeof *t->waiting.items);
    store->stats = calloc(store->plan->hp.n_layers, sizeof *store->stats);
    store->last_arrival = calloc(store->plan->hp.n_layers, sizeof *store->last_arrival);
    if (t->slots && t->ready.items && t->waiting.items && store->stats && store->last_arrival) return K3_OK;
    return k3_fail_memory(err, "the expert store", n * (sizeof *t->slots + 2 * sizeof *t->ready.items));
}

static k3_status create_slots(struct k3_store *store, const struct k3_store_options *options,
                              struct k3_error *err)
{
    const struct k3_plan *plan = store->plan;
    uint64_t all = k3_store_experts(plan);
    uint32_t n = options->n_slots < all ? options->n_slots : (uint32_t)all;
    k3_status status = k3_store_check_slots(plan, options->n_slots, err);
    if (status != K3_OK) return status;
    uint32_t n_spare = k3_store_spare_slots(plan, n);
    status = k3_slots_create(&store->slots, plan, n, n_spare, &k3_policy_lfru, err);
    if (status != K3_OK) return status;
    store->guesses = calloc(n_spare + 1, sizeof(struct k3_slot *));
    if (!store->guesses) return k3_fail_memory(err, "the expert store", n_spare * sizeof(struct k3_slot *));
    struct k3_reader_options reader = {.files = plan->gguf->shards,
                                       .n_files = plan->gguf->n_shards,
                                       .memory = store->slots.memory,
                                       .memory_bytes = n * store->slots.slot_bytes,
                                       .unit = store->slots.slot_bytes,
                                       .io = options->io,
                                       .direct = options->direct,
                                       .depth = options->depth};
    return k3_reader_open(&reader, &store->reader, err);
}

k3_status k3_store_open(const struct k3_plan *plan, const struct k3_store_options *options,
                        struct k3_store **out, struct k3_error *err)
{
    struct k3_store *store = calloc(1, sizeof *store);
    if (!store) return k3_fail_memory(err, "the expert store", sizeof *store);
    store->plan = plan;
    k3_status status = create_ticket(store, err);
    if (status == K3_OK && options->io == K3_IO_MMAP)
        status = k3_mapped_open(plan, &store->mapped, err);
    else if (status == K3_OK)
        status = create_slots(store, options, err);
    if (status != K3_OK) {
        k3_store_close(store);
        return status;
    }
    if (store->reader && !options->depth) k3_store_find_depth(store, DEPTH_TEST_BYTES);
    *out = store;
    return K3_OK;
}

void k3_store_close(struct k3_store *store)
{
    if (!store) return;
    k3_reader_close(store->reader); /* first: it writes into the slots */
    k3_slots_destroy(&store->slots);
    k3_mapped_close(store->mapped);
    free(store->guesses);
    free(store->last_arrival);
    free(store->stats);
    free(store->ticket.slots);
    free(store->ticket.ready.items);
    free(store->ticket.waiting.items);
    free(store);
}

uint32_t k3_store_slots(const struct k3_store *store)
{
    return store->slots.n;
}

/* ---- loads that have arrived ---- */

static void push(struct k3_item_queue *queue, uint32_t item)
{
    queue->items[queue->end++] = item;
}

static bool is_empty(const struct k3_item_queue *queue)
{
    return queue->first == queue->end;
}

/* Loads arrive in this order, so what they overlap with others of their layer is counted once. */
static void add_read_time(struct k3_store *store, const struct k3_slot *slot)
{
    const struct k3_load *load = &slot->load;
    uint64_t *last = &store->last_arrival[slot->layer];
    uint64_t begin = load->asked_ns > *last ? load->asked_ns : *last;
    if (load->arrived_ns <= begin) return;
    store->stats[slot->layer].read_ns += load->arrived_ns - begin;
    *last = load->arrived_ns;
}

void k3_store_take_load(struct k3_store *store, struct k3_load *load)
{
    struct k3_slot *slot = (struct k3_slot *)((char *)load - offsetof(struct k3_slot, load));
    struct k3_store_stats *stats = &store->stats[slot->layer];
    stats->bytes_read += load->bytes_read;
    stats->n_pieces += load->n_pieces;
    stats->depth_sum += load->depth_sum;
    add_read_time(store, slot);
    if (slot->item != K3_NO_ITEM) {
        slot->state = K3_SLOT_PINNED;
        push(&store->ticket.ready, slot->item); /* also when it failed: next says so */
    } else if (load->errnum || !(slot->kept || slot->guess)) {
        k3_guess_end(store, slot);
        k3_slots_free(&store->slots, slot);
    } else {
        slot->state = K3_SLOT_READY;
    }
}

void k3_store_take_arrived(struct k3_store *store)
{
    for (struct k3_load *load; (load = k3_reader_collect(store->reader, false));)
        k3_store_take_load(store, load);
}

static bool wait_for_one(struct k3_store *store, uint32_t layer)
{
    uint64_t begin = k3_now_ns();
    struct k3_load *load = k3_reader_collect(store->reader, true);
    store->stats[layer].wait_ns += k3_now_ns() - begin;
    if (load) k3_store_take_load(store, load);
    return load != NULL;
}

/* ---- tickets ---- */

/* Takes an expert that has a slot for the ticket; true if it is there already. */
static bool claim(struct k3_store *store, struct k3_slot *slot, uint32_t item)
{
    struct k3_ticket *t = &store->ticket;
    bool is_hit = slot->state == K3_SLOT_READY;
    store->stats[t->layer].useful_hints += slot->guess;
    k3_guess_end(store, slot);
    slot->item = item;
    t->slots[item] = slot;
    if (is_hit) {
        slot->state = K3_SLOT_PINNED;
        push(&t->ready, item);
    } else {
        k3_reader_hurry(store->reader, &slot->load);
    }
    return is_hit;
}

/* Starts reading what waits for a slot, as far as there are slots. */
static void start_waiting(struct k3_store *store)
{
    struct k3_ticket *t = &store->ticket;
    while (!is_empty(&t->waiting)) {
        uint32_t item = t->waiting.items[t->waiting.first];
        struct k3_slot *slot = k3_slots_find(&store->slots, t->layer, t->ids[item]);
        if (slot) { /* a guess that was made meanwhile */
            claim(store, slot, item);
        } else {
            do slot = k3_slots_take(&store->slots, t->layer, t->ids[item], t->use);
            while (!slot && k3_guesses_yield(store));
            if (!slot) return;
            slot->item = item;
            t->slots[item] = slot;
            k3_reader_start(store->reader, &slot->load);
        }
        t->waiting.first++;
    }
}

static k3_status check_request(const struct k3_store *store, uint32_t layer, const uint32_t *ids, size_t n,
                               struct k3_error *err)
{
    const struct k3_hparams *hp = &store->plan->hp;
    if (store->ticket.ids)
        return k3_fail(err, K3_ERR_ARGUMENT, "the last request for experts is not released");
    if (layer < hp->n_dense_layers || layer >= hp->n_layers || n > hp->n_experts)
        return k3_fail(err, K3_ERR_ARGUMENT,
                       "%zu experts of layer %u were asked for; there are %u in layers %u to %u", n, layer,
                       hp->n_experts, hp->n_dense_layers, hp->n_layers - 1);
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= hp->n_experts)
            return k3_fail(err, K3_ERR_ARGUMENT, "expert %u was asked for; there are %u", ids[i],
                           hp->n_experts);
    return K3_OK;
}

k3_status k3_store_acquire(struct k3_store *store, uint32_t layer, const uint32_t *ids, size_t n, bool sweep,
                           struct k3_ticket **ticket, struct k3_error *err)
{
    struct k3_ticket *t = &store->ticket;
    k3_status status = check_request(store, layer, ids, n, err);
    if (status != K3_OK) return status;
    t->layer = layer;
    t->ids = ids;
    t->n = (uint32_t)n;
    t->n_given = 0;
    t->use = sweep ? K3_USE_SWEEP : K3_USE_STEP;
    t->ready.first = t->ready.end = t->waiting.first = t->waiting.end = 0;
    *ticket = t;
    store->stats[layer].requests += n;
    store->n_acquires++;
    if (store->mapped) return K3_OK;

    k3_store_take_arrived(store);
    size_t hits = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct k3_slot *slot = k3_slots_find(&store->slots, layer, ids[i]);
        if (slot)
            hits += claim(store, slot, i);
        else
            push(&t->waiting, i);
    }
    store->stats[layer].hits += hits;
    store->stats[layer].misses += n - hits;
    /* Only now that all of them are in use: making room for one must not evict another. */
    if (!sweep) k3_slots_visit(&store->slots, layer);
    for (uint32_t i = 0; i < n && !sweep; i++)
        if (t->slots[i]) k3_slots_touch(&store->slots, t->slots[i]);
    start_waiting(store);
    return K3_OK;
}

static k3_status fail_read(const struct k3_store *store, const struct k3_slot *slot, struct k3_error *err)
{
    const struct k3_load *load = &slot->load;
    const struct k3_file *file = &store->plan->gguf->shards[load->ranges[load->bad_range].file];
    const char *name = k3_file_name(file->path);
    if (load->errnum == K3_READ_ENDED)
        return k3_fail(err, K3_ERR_IO,
                       "%s: expert %u of layer %u cannot be read: the file has become shorter than the %llu "
                       "bytes it had when it was opened",
                       name, slot->expert, slot->layer, (unsigned long long)file->size);
    return k3_fail_errno(err, load->errnum, "%s: expert %u of layer %u cannot be read", name, slot->expert,
                         slot->layer);
}

static void end_item(struct k3_ticket *t, uint32_t item)
{
    struct k3_slot *slot = t->slots[item];
    t->slots[item] = NULL;
    slot->item = K3_NO_ITEM;
    if (slot->state == K3_SLOT_LOADING) return; /* k3_store_take_load does the rest */
    if (slot->kept && !slot->load.errnum)
        slot->state = K3_SLOT_READY;
    else
        k3_slots_free(&t->store->slots, slot);
}

static k3_status next_mapped(struct k3_ticket *t, struct k3_expert *expert)
{
    const struct k3_mapped *m = t->store->mapped;
    uint32_t id = t->ids[t->n_given];
    *expert = (struct k3_expert){t->n_given++,
                                 k3_mapped_matrix(m, t->layer, K3_EXPERTS_GATE, id),
                                 k3_mapped_matrix(m, t->layer, K3_EXPERTS_UP, id),
                                 k3_mapped_matrix(m, t->layer, K3_EXPERTS_DOWN, id),
                                 0,
                                 0};
    return K3_OK;
}

k3_status k3_store_next(struct k3_ticket *t, struct k3_expert *expert, struct k3_error *err)
{
    struct k3_store *store = t->store;
    if (t->n_given == t->n)
        return k3_fail(err, K3_ERR_ARGUMENT, "all %u experts that were asked for have been handed out", t->n);
    if (store->mapped) return next_mapped(t, expert);

    k3_store_take_arrived(store);
    start_waiting(store);
    while (is_empty(&t->ready)) {
        if (!wait_for_one(store, t->layer))
            return k3_fail(err, K3_ERR_ARGUMENT, "no slot is free for the next expert: give back some of %u",
                           t->n_given);
        start_waiting(store);
    }
    uint32_t item = t->ready.items[t->ready.first++];
    struct k3_slot *slot = t->slots[item];
    t->n_given++;
    if (slot->load.errnum) {
        k3_status status = fail_read(store, slot, err);
        end_item(t, item);
        return status;
    }
    *expert = (struct k3_expert){item,
                                 k3_slots_matrix(slot, K3_EXPERTS_GATE),
                                 k3_slots_matrix(slot, K3_EXPERTS_UP),
                                 k3_slots_matrix(slot, K3_EXPERTS_DOWN),
                                 slot->load.asked_ns,
                                 slot->load.arrived_ns};
    slot->load.asked_ns = slot->load.arrived_ns = 0; /* told once */
    return K3_OK;
}

bool k3_store_has_next(struct k3_ticket *t)
{
    if (t->n_given == t->n) return false;
    if (t->store->mapped) return true;
    k3_store_take_arrived(t->store);
    return !is_empty(&t->ready);
}

void k3_store_give_back(struct k3_ticket *t, const struct k3_expert *expert)
{
    if (t->store->mapped) return;
    end_item(t, (uint32_t)expert->index);
    start_waiting(t->store);
}

void k3_store_release(struct k3_ticket *t)
{
    struct k3_store *store = t->store;
    for (uint32_t i = 0; i < t->n && !store->mapped; i++)
        if (t->slots[i]) end_item(t, i);
    k3_guesses_expire(store, t->layer);
    t->ids = NULL;
}

/* ---- statistics ---- */

static void add(struct k3_store_stats *sum, const struct k3_store_stats *s)
{
    sum->requests += s->requests;
    sum->hits += s->hits;
    sum->misses += s->misses;
    sum->bytes_read += s->bytes_read;
    sum->wait_ns += s->wait_ns;
    sum->read_ns += s->read_ns;
    sum->hints += s->hints;
    sum->useful_hints += s->useful_hints;
    sum->n_pieces += s->n_pieces;
    sum->depth_sum += s->depth_sum;
}

void k3_store_get_stats(const struct k3_store *store, uint32_t layer, struct k3_store_stats *stats)
{
    *stats = (struct k3_store_stats){0};
    for (uint32_t i = 0; i < store->plan->hp.n_layers; i++)
        if (i == layer || layer == K3_ALL_LAYERS) add(stats, &store->stats[i]);
}
