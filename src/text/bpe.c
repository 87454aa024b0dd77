/* bpe.c - byte-pair encoding of one piece.
 *
 * A piece begins as single bytes. Of all neighbours whose bytes together are a token, the pair with the
 * lowest id is joined, the leftmost of equal ones first, until no pair is a token. The rank of a pair is the
 * id of what it joins to.
 *
 * Long pieces keep their pairs in a heap: n log n, and a run of 25,000 equal letters is one piece. Short
 * ones, which are nearly all, are searched from end to end, which is faster there: no heap to build, all in
 * one cache line or two. Cost of pieces of 126 random lower-case letters with the vocabulary of k3-tiny, gcc
 * 12, 2026-11: see the numbers beside K3_BPE_SHORT's use in tokenize.c. */
#include "text/text_internal.h"

#include <stdlib.h>
#include <string.h>

#define NO_RANK UINT32_MAX

static uint32_t rank_of(const struct k3_tokenizer *t, const char *bytes, size_t n)
{
    return (uint32_t)k3_vocab_find(t, bytes, n); /* -1 is NO_RANK */
}

/* ---- short pieces
 * -------------------------------------------------------------------------------------------- */

/* Part i is bytes start[i] .. start[i + 1] - 1; rank[i] is that of parts i and i + 1 together. */
struct parts {
    size_t n;
    uint32_t start[K3_BPE_SHORT + 1], rank[K3_BPE_SHORT];
};

static void rank_part(const struct k3_tokenizer *t, const char *piece, struct parts *parts, size_t i)
{
    uint32_t start = parts->start[i];
    parts->rank[i] = i + 2 <= parts->n ? rank_of(t, piece + start, parts->start[i + 2] - start) : NO_RANK;
}

static size_t lowest(const struct parts *parts)
{
    size_t best = 0;
    for (size_t i = 1; i < parts->n; i++)
        if (parts->rank[i] < parts->rank[best]) best = i;
    return best;
}

size_t k3_bpe_linear(const struct k3_tokenizer *t, const char *piece, size_t n, int32_t *ids)
{
    struct parts parts = {.n = n};
    for (size_t i = 0; i <= n; i++) parts.start[i] = (uint32_t)i;
    for (size_t i = 0; i < n; i++) rank_part(t, piece, &parts, i);

    for (;;) {
        size_t i = lowest(&parts);
        if (parts.rank[i] == NO_RANK) break;
        /* Part i + 1 goes. Its place in start[] ends at the entry for the end of the piece, start[n]. */
        memmove(&parts.start[i + 1], &parts.start[i + 2], (parts.n - i - 1) * sizeof *parts.start);
        memmove(&parts.rank[i + 1], &parts.rank[i + 2], (parts.n - i - 2) * sizeof *parts.rank);
        parts.n--;
        rank_part(t, piece, &parts, i);
        if (i > 0) rank_part(t, piece, &parts, i - 1);
    }
    for (size_t i = 0; i < parts.n; i++)
        ids[i] = k3_vocab_find(t, piece + parts.start[i], parts.start[i + 1] - parts.start[i]);
    return parts.n;
}

/* ---- long pieces
 * --------------------------------------------------------------------------------------------- */

void k3_bpe_scratch_free(struct k3_bpe_scratch *scratch)
{
    free(scratch->next);
    free(scratch->heap);
    *scratch = (struct k3_bpe_scratch){0};
}

static k3_status reserve(struct k3_bpe_scratch *scratch, size_t n, struct k3_error *err)
{
    if (n <= scratch->capacity) return K3_OK;
    k3_bpe_scratch_free(scratch);
    /* A pair enters the heap n - 1 times at the start, and two for each of at most n - 1 joins. */
    scratch->next = malloc(3 * n * sizeof *scratch->next);
    scratch->heap = malloc(3 * n * sizeof *scratch->heap);
    if (!scratch->next || !scratch->heap) {
        k3_bpe_scratch_free(scratch);
        return k3_fail_memory(err, "a long piece of text", 3 * n * (sizeof(uint32_t) + sizeof(uint64_t)));
    }
    scratch->prev = scratch->next + n;
    scratch->rank = scratch->prev + n;
    scratch->capacity = n;
    return K3_OK;
}

/* A binary heap of rank << 32 | position: the order of keys is that in which pairs are joined. A pair that
 * changed is not taken out; its old key is dropped when it comes up and is no longer what rank[] says. */
struct heap {
    uint64_t *keys;
    size_t n;
};

static void heap_push(struct heap *heap, uint64_t key)
{
    size_t i = heap->n++;
    for (; i > 0 && heap->keys[(i - 1) / 2] > key; i = (i - 1) / 2) heap->keys[i] = heap->keys[(i - 1) / 2];
    heap->keys[i] = key;
}

static uint64_t heap_pop(struct heap *heap)
{
    uint64_t top = heap->keys[0], key = heap->keys[--heap->n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= heap->n) break;
        if (child + 1 < heap->n && heap->keys[child + 1] < heap->keys[child]) child++;
        if (heap->keys[child] >= key) break;
        heap->keys[i] = heap->keys[child];
        i = child;
    }
    heap->keys[i] = key;
    return top;
}

/* Parts are named by their first byte: next[] and prev[] chain them, n ends the chain. rank[at] is that of
 * the pair of the part at `at` and its next, NO_RANK where there is no part. */
static void rank_pair(const struct k3_tokenizer *t, const char *piece, size_t n,
                      struct k3_bpe_scratch *scratch, struct heap *heap, uint32_t at)
{
    uint32_t second = scratch->next[at];
    scratch->rank[at] = second < n ? rank_of(t, piece + at, scratch->next[second] - at) : NO_RANK;
    if (scratch->rank[at] != NO_RANK) heap_push(heap, (uint64_t)scratch->rank[at] << 32 | at);
}

k3_status k3_bpe_heap(const struct k3_tokenizer *t, const char *piece, size_t n,
                      struct k3_bpe_scratch *scratch, int32_t *ids, size_t *n_ids, struct k3_error *err)
{
    if (n >= UINT32_MAX) return k3_fail(err, K3_ERR_ARGUMENT, "a piece of text of %zu bytes is too long", n);
    k3_status status = reserve(scratch, n, err);
    if (status) return status;

    uint32_t *next = scratch->next, *prev = scratch->prev, *rank = scratch->rank;
    struct heap heap = {.keys = scratch->heap};
    for (uint32_t i = 0; i < n; i++) {
        next[i] = i + 1;
        prev[i] = i - 1;
    }
    for (uint32_t i = 0; i < n; i++) rank_pair(t, piece, n, scratch, &heap, i);

    while (heap.n) {
        uint64_t key = heap_pop(&heap);
        uint32_t at = (uint32_t)key, gone = next[at];
        if (rank[at] != key >> 32) continue;
        next[at] = next[gone];
        if (next[at] < n) prev[next[at]] = at;
        rank[gone] = NO_RANK;
        rank_pair(t, piece, n, scratch, &heap, at);
        if (at > 0) rank_pair(t, piece, n, scratch, &heap, prev[at]);
    }
    size_t count = 0;
    for (uint32_t at = 0; at < n; at = next[at]) ids[count++] = k3_vocab_find(t, piece + at, next[at] - at);
    *n_ids = count;
    return K3_OK;
}
