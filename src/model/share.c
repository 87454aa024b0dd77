/* share.c - see share.h. */
#include "model/share.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool is_of_ffn(enum k3_role role)
{
    return role == K3_FFN_NORM || role == K3_FFN_RES_SCORE || role >= K3_FFN_GATE;
}

static uint32_t group_of(const struct k3_plan *plan, uint32_t layer, enum k3_role role)
{
    if (role == K3_TOKEN_EMBD) return K3_EMBEDDING_GROUP;
    if (role < K3_FIRST_LAYER_ROLE) return k3_head_group(plan->hp.n_layers);
    return is_of_ffn(role) ? k3_ffn_group(layer) : k3_attention_group(layer);
}

uint32_t k3_share_count(const struct k3_share *share, uint32_t n_layers)
{
    uint32_t n = 0;
    for (uint32_t group = 0; group < k3_n_groups(n_layers); group++) n += k3_share_has(share, group);
    return n;
}

struct k3_share k3_share_rest(const struct k3_share *share, uint32_t n_layers)
{
    struct k3_share rest = {0};
    for (uint32_t group = 0; group < k3_n_groups(n_layers); group++)
        rest.has[group] = !k3_share_has(share, group);
    return rest;
}

const struct k3_gguf_tensor *k3_share_tensor(const struct k3_plan *plan, const struct k3_share *share,
                                             uint32_t layer, enum k3_role role)
{
    if (role < K3_FIRST_LAYER_ROLE && layer) return NULL;
    return k3_share_has(share, group_of(plan, layer, role)) ? k3_plan_tensor(plan, layer, role) : NULL;
}

/* ---- words ---- */

enum part {
    NONE = 0,
    ATTENTION = 1,
    FFN = 2,
    BOTH = 3,
};

static const char *const suffixes[] = {[NONE] = "", [ATTENTION] = ".attention", [FFN] = ".ffn", [BOTH] = ""};

static void add_layers(struct k3_share *share, uint32_t first, uint32_t last, enum part part)
{
    for (uint32_t layer = first; layer <= last; layer++) {
        share->has[k3_attention_group(layer)] |= part & ATTENTION;
        share->has[k3_ffn_group(layer)] |= (part & FFN) != 0;
    }
}

/* Decimal digits, as a number; UINT32_MAX if it is larger than any number of layers. */
static uint32_t number_of(const char *digits, size_t n)
{
    uint32_t value = 0;
    for (size_t i = 0; i < n; i++) {
        value = 10 * value + (uint32_t)(digits[i] - '0');
        if (value > K3_MAX_LAYERS) return UINT32_MAX;
    }
    return value;
}

static size_t count_digits(const char *text)
{
    return strspn(text, "0123456789");
}

static k3_status parse_item(const char *item, uint32_t n_layers, struct k3_share *share, struct k3_error *err)
{
    size_t digits = count_digits(item), more = 0;
    const char *end = item + digits;
    uint32_t first = number_of(item, digits), last = first;
    if (*end == '-') {
        more = count_digits(end + 1);
        last = number_of(end + 1, more);
        end = more ? end + 1 + more : item; /* which is no suffix */
    }
    enum part part = NONE;
    for (enum part p = ATTENTION; p <= BOTH; p++)
        if (!strcmp(end, suffixes[p])) part = p;

    if (!strcmp(item, "embedding"))
        share->has[K3_EMBEDDING_GROUP] = true;
    else if (!strcmp(item, "head"))
        share->has[k3_head_group(n_layers)] = true;
    else if (!digits || part == NONE)
        return k3_fail(
            err, K3_ERR_ARGUMENT,
            "layers for the GPU: '%.40s' is none of all, N, A-B, A-B.attention, A-B.ffn, embedding, "
            "head, or some of these with commas between",
            item);
    else if (first >= n_layers || last >= n_layers)
        return k3_fail(err, K3_ERR_ARGUMENT,
                       "layers for the GPU: %.40s is not there, the model's layers are 0-%u", item,
                       n_layers - 1);
    else if (first > last)
        return k3_fail(err, K3_ERR_ARGUMENT, "layers for the GPU: %.40s ends before it begins", item);
    else
        add_layers(share, first, last, part);
    return K3_OK;
}

/* The last `n` layers and the head. */
static k3_status take_last(uint32_t n, const char *text, uint32_t n_layers, struct k3_share *share,
                           struct k3_error *err)
{
    if (n > n_layers)
        return k3_fail(err, K3_ERR_ARGUMENT,
                       "layers for the GPU: the model has %u, not %.40s; 'all' is everything", n_layers,
                       text);
    if (n) add_layers(share, n_layers - n, n_layers - 1, BOTH);
    share->has[k3_head_group(n_layers)] = n > 0;
    return K3_OK;
}

static k3_status parse_list(const char *text, uint32_t n_layers, struct k3_share *share, struct k3_error *err)
{
    for (const char *at = text;; at++) {
        char item[64];
        size_t n = strcspn(at, ",");
        snprintf(item, sizeof item, "%.*s", (int)(n < sizeof item ? n : sizeof item), at);
        k3_status status = parse_item(item, n_layers, share, err);
        at += n;
        if (status != K3_OK || !*at) return status;
    }
}

k3_status k3_share_parse(const char *text, uint32_t n_layers, struct k3_share *share, struct k3_error *err)
{
    struct k3_share parsed = {0};
    size_t digits = count_digits(text);
    k3_status status = K3_OK;
    if (!strcmp(text, "all"))
        parsed = k3_share_rest(&parsed, n_layers);
    else if (digits && !text[digits])
        status = take_last(number_of(text, digits), text, n_layers, &parsed, err);
    else
        status = parse_list(text, n_layers, &parsed, err);
    if (status == K3_OK) *share = parsed;
    return status;
}

static enum part part_of(const struct k3_share *share, uint32_t layer)
{
    return (enum part)((k3_share_has(share, k3_attention_group(layer)) ? ATTENTION : 0) |
                       (k3_share_has(share, k3_ffn_group(layer)) ? FFN : 0));
}

static void add_item(char *out, size_t size, const char *item)
{
    static const char more[] = ",...";
    size_t n = strlen(out), length = strlen(item);
    bool is_cut = n >= sizeof more - 1 && !strcmp(out + n + 1 - sizeof more, more);
    if (is_cut) return;
    bool fits = n + 1 + length + sizeof more <= size;
    snprintf(out + n, size - n, "%s%s", n ? "," : "", fits ? item : more + 1);
}

void k3_share_format(const struct k3_share *share, uint32_t n_layers, char *out, size_t size)
{
    snprintf(out, size, "%s", k3_share_count(share, n_layers) == k3_n_groups(n_layers) ? "all" : "");
    if (*out) return;
    if (k3_share_has(share, K3_EMBEDDING_GROUP)) add_item(out, size, "embedding");
    for (uint32_t first = 0, last; first < n_layers; first = last + 1) {
        enum part part = part_of(share, first);
        for (last = first; last + 1 < n_layers && part_of(share, last + 1) == part;) last++;
        char item[64];
        if (first == last && part != BOTH)
            snprintf(item, sizeof item, "%" PRIu32 "%s", first, suffixes[part]);
        else
            snprintf(item, sizeof item, "%" PRIu32 "-%" PRIu32 "%s", first, last, suffixes[part]);
        if (part != NONE) add_item(out, size, item);
    }
    if (k3_share_has(share, k3_head_group(n_layers))) add_item(out, size, "head");
}
