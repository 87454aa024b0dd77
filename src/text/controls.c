/* controls.c - the names of control tokens, and where they stand in a text.
 *
 * The names are kept sorted, so those that agree with the text so far are neighbours: a search narrows that
 * range byte by byte and costs no more than the length of the name, whatever the number of names. */
#include "text/text_internal.h"

#include <stdlib.h>
#include <string.h>

static int compare(const char *a, size_t n_a, const char *b, size_t n_b)
{
    int order = memcmp(a, b, n_a < n_b ? n_a : n_b);
    return order ? order : (n_a > n_b) - (n_a < n_b);
}

struct named {
    const struct k3_token *token;
    int32_t id;
};

static int compare_named(const void *a, const void *b)
{
    const struct k3_token *x = ((const struct named *)a)->token, *y = ((const struct named *)b)->token;
    return compare(x->text, x->n, y->text, y->n);
}

/* The sorted names become ids, and an index by first byte. */
static k3_status keep_sorted(struct k3_tokenizer *t, const struct named *list, const char *name,
                             struct k3_error *err)
{
    for (uint32_t i = 0; i < t->n_controls; i++) {
        if (i && compare_named(&list[i - 1], &list[i]) == 0)
            return k3_fail(err, K3_ERR_FORMAT, "%s: tokens %d and %d both have the name %s", name,
                           list[i - 1].id, list[i].id, list[i].token->text);
        t->controls[i] = list[i].id;
        t->control_first[(unsigned char)list[i].token->text[0] + 1] = i + 1;
    }
    for (unsigned byte = 0; byte < 256; byte++)
        if (t->control_first[byte + 1] < t->control_first[byte])
            t->control_first[byte + 1] = t->control_first[byte];
    return K3_OK;
}

k3_status k3_controls_build(struct k3_tokenizer *t, const char *name, struct k3_error *err)
{
    for (uint32_t id = 0; id < t->n_tokens; id++) t->n_controls += t->tokens[id].kind == K3_TOKEN_CONTROL;
    size_t bytes = t->n_controls * sizeof(struct named);
    t->controls = k3_arena_alloc(&t->arena, t->n_controls * sizeof *t->controls);
    struct named *list = malloc(bytes + 1);
    if (!t->controls || !list) {
        free(list);
        return k3_fail_memory(err, "the names of control tokens", bytes);
    }
    uint32_t n = 0;
    for (uint32_t id = 0; id < t->n_tokens; id++)
        if (t->tokens[id].kind == K3_TOKEN_CONTROL)
            list[n++] = (struct named){.token = &t->tokens[id], .id = (int32_t)id};
    qsort(list, n, sizeof *list, compare_named);
    k3_status status = keep_sorted(t, list, name, err);
    free(list);
    return status;
}

static const struct k3_token *control(const struct k3_tokenizer *t, uint32_t i)
{
    return &t->tokens[t->controls[i]];
}

int32_t k3_controls_find(const struct k3_tokenizer *t, const char *name, size_t n)
{
    uint32_t low = 0, high = t->n_controls;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = compare(control(t, middle)->text, control(t, middle)->n, name, n);
        if (order == 0) return t->controls[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

/* The first of names [low, high), all longer than `depth`, whose byte there is at least `byte`. */
static uint32_t first_with(const struct k3_tokenizer *t, uint32_t low, uint32_t high, size_t depth,
                           unsigned byte)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((unsigned char)control(t, middle)->text[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest name that the text begins with, or -1. */
static int32_t match_here(const struct k3_tokenizer *t, const char *text, size_t n)
{
    unsigned byte = (unsigned char)text[0];
    uint32_t low = t->control_first[byte], high = t->control_first[byte + 1];
    int32_t best = -1;
    /* Names [low, high) begin with the first `depth` bytes of the text. */
    for (size_t depth = 1; low < high; depth++) {
        if (control(t, low)->n == depth) best = t->controls[low++];
        if (depth == n) break;
        byte = (unsigned char)text[depth];
        high = first_with(t, low, high, depth, byte + 1);
        low = first_with(t, low, high, depth, byte);
    }
    return best;
}

size_t k3_controls_search(const struct k3_tokenizer *t, const char *text, size_t n, int32_t *id)
{
    for (size_t at = 0; at < n; at++) {
        unsigned byte = (unsigned char)text[at];
        if (t->control_first[byte] == t->control_first[byte + 1]) continue;
        *id = match_here(t, text + at, n - at);
        if (*id >= 0) return at;
    }
    return n;
}
