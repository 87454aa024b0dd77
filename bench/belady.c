/* belady.c - the policy that knows the future: evicts what is asked for again last.
 *
 * With slots for at least one step's experts, all of which must be there at once, no policy has fewer misses:
 * L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5
 * (1966). */
#include "policies.h"

#include "store/key_heap.h"

#include <stdlib.h>

struct belady {
    struct k3_policy base;
    uint32_t n_layers, n_experts;
    uint64_t step;           /* visits so far: the present step is this - 1 */
    const uint16_t *ids;     /* of the trace */
    const size_t *begin;     /* of the trace */
    uint64_t *next_use;      /* [ids of the trace]: the step in which the same key is asked for again */
    struct k3_key_heap heap; /* the later the next use, the lower the score */
};

#define NEVER ((uint64_t)1 << 53) /* steps are far fewer, and a double holds it */

static void belady_free(struct k3_policy *policy)
{
    struct belady *belady = (struct belady *)policy;
    if (!belady) return;
    k3_key_heap_free(&belady->heap);
    free(belady->next_use);
    free(belady);
}

/* Goes through the trace from its end; `seen` is the step in which each key comes next. */
static void find_next_uses(struct belady *belady, const struct k3_trace *trace, uint64_t *seen)
{
    for (uint32_t key = 0; key < trace->n_layers * belady->n_experts; key++) seen[key] = NEVER;
    for (size_t step = (size_t)trace->n_tokens * trace->n_layers; step-- > 0;) {
        uint64_t *of_layer = seen + step % trace->n_layers * belady->n_experts;
        for (size_t i = trace->begin[step]; i < trace->begin[step + 1]; i++) {
            belady->next_use[i] = of_layer[trace->ids[i]];
            of_layer[trace->ids[i]] = step;
        }
    }
}

static const struct k3_policy_kind kind;

struct k3_policy *k3_belady_create(const struct k3_policy_shape *shape, const struct k3_trace *trace)
{
    uint32_t n_keys = k3_policy_keys(shape);
    size_t n_lists = (size_t)trace->n_tokens * trace->n_layers;
    struct belady *belady = calloc(1, sizeof *belady);
    uint64_t *seen = calloc(n_keys, sizeof *seen);
    bool ok = belady && seen;
    if (ok) {
        belady->base.kind = &kind;
        belady->n_layers = shape->n_layers;
        belady->n_experts = shape->n_experts;
        belady->ids = trace->ids;
        belady->begin = trace->begin;
        belady->next_use = calloc(trace->begin[n_lists], sizeof *belady->next_use);
        ok = k3_key_heap_init(&belady->heap, n_keys, shape->n_slots) && belady->next_use;
    }
    if (ok) find_next_uses(belady, trace, seen);
    free(seen);
    if (ok) return &belady->base;
    belady_free(&belady->base);
    return NULL;
}

static void belady_visit(struct k3_policy *policy, uint32_t layer)
{
    struct belady *belady = (struct belady *)policy;
    (void)layer;
    belady->step++;
}

/* Where the present step asks for `key`, the trace says when it comes again. */
static double score_of(const struct belady *belady, uint32_t key)
{
    size_t i = belady->begin[belady->step - 1];
    while (belady->ids[i] != key % belady->n_experts) i++;
    return -(double)belady->next_use[i];
}

static void belady_touch(struct k3_policy *policy, uint32_t key)
{
    struct belady *belady = (struct belady *)policy;
    k3_key_heap_change(&belady->heap, key, score_of(belady, key));
}

static void belady_admit(struct k3_policy *policy, uint32_t key, bool wanted)
{
    struct belady *belady = (struct belady *)policy;
    k3_key_heap_put(&belady->heap, key, wanted ? score_of(belady, key) : -(double)NEVER);
}

static uint32_t belady_victim(struct k3_policy *policy, k3_may_evict_fn may_evict, void *ctx)
{
    struct belady *belady = (struct belady *)policy;
    return k3_key_heap_victim(&belady->heap, may_evict, ctx);
}

static void belady_forget(struct k3_policy *policy, uint32_t key)
{
    struct belady *belady = (struct belady *)policy;
    k3_key_heap_remove(&belady->heap, key);
}

static const struct k3_policy_kind kind = {
    "belady", NULL, belady_free, belady_visit, belady_touch, belady_admit, belady_victim, belady_forget,
};
