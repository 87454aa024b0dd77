/* sampling.c - chooses the next token from logits.
 *
 * Probabilities are computed in f64 with our own exponential and random numbers come from a generator of our
 * own, so the same seed and logits give the same token on any machine. */
#include "base/error.h"

#include "ops/vmath.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_WINDOW 64

struct candidate {
    int32_t token;
    float logit;
    double p;
};

struct k3_sampler {
    struct k3_sampling options;
    uint32_t n_vocab;
    uint64_t random;              /* state of the generator */
    int32_t *window;              /* the last accepted tokens, a ring of options.penalty_window; owned */
    uint64_t n_accepted;          /* in all */
    struct candidate *candidates; /* [n_vocab], owned */
    float *logits;                /* [n_vocab] after the penalty; owned */
};

/* splitmix64 (Steele, Lea, Flood 2014): passes through all 2^64 states. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

k3_status k3_sampler_create(const struct k3_sampling *options, uint32_t n_vocab, struct k3_sampler **out,
                            struct k3_error *err)
{
    /* Written so that NaN fails too. */
    if (!(options->temperature >= 0 && options->temperature <= 100))
        return k3_fail(err, K3_ERR_ARGUMENT, "temperature is %g; 0 to 100 is possible",
                       (double)options->temperature);
    if (!(options->top_p >= 0 && options->top_p <= 1))
        return k3_fail(err, K3_ERR_ARGUMENT, "top-p is %g; 0 to 1 is possible", (double)options->top_p);
    if (!(options->min_p >= 0 && options->min_p <= 1))
        return k3_fail(err, K3_ERR_ARGUMENT, "min-p is %g; 0 to 1 is possible", (double)options->min_p);
    if (!(options->repetition_penalty >= 0 && options->repetition_penalty <= 100))
        return k3_fail(err, K3_ERR_ARGUMENT, "repetition penalty is %g; 0 to 100 is possible",
                       (double)options->repetition_penalty);
    if (n_vocab == 0) return k3_fail(err, K3_ERR_ARGUMENT, "a vocabulary of 0 tokens cannot be sampled");

    struct k3_sampler *s = calloc(1, sizeof *s);
    if (!s) return k3_fail_memory(err, "a sampler", sizeof *s);
    s->options = *options;
    s->n_vocab = n_vocab;
    s->random = options->seed;
    if (!s->options.penalty_window) s->options.penalty_window = DEFAULT_WINDOW;
    s->window = calloc(s->options.penalty_window, sizeof *s->window);
    s->candidates = calloc(n_vocab, sizeof *s->candidates);
    s->logits = calloc(n_vocab, sizeof *s->logits);
    if (!s->window || !s->candidates || !s->logits) {
        k3_sampler_free(s);
        return k3_fail_memory(err, "a sampler", n_vocab * (sizeof *s->candidates + sizeof *s->logits));
    }
    *out = s;
    return K3_OK;
}

void k3_sampler_free(struct k3_sampler *s)
{
    if (!s) return;
    free(s->window);
    free(s->candidates);
    free(s->logits);
    free(s);
}

void k3_sampler_accept(struct k3_sampler *s, int32_t token)
{
    s->window[s->n_accepted++ % s->options.penalty_window] = token;
}

/* Each token of the window is penalised once, however often it is there. */
static void penalise(struct k3_sampler *s, const float *logits)
{
    float penalty = s->options.repetition_penalty;
    uint64_t n = s->n_accepted < s->options.penalty_window ? s->n_accepted : s->options.penalty_window;
    memcpy(s->logits, logits, s->n_vocab * sizeof *logits);
    if (penalty == 0 || penalty == 1) return;
    for (uint64_t i = 0; i < n; i++) {
        int32_t token = s->window[i];
        if (token < 0 || (uint32_t)token >= s->n_vocab) continue;
        s->logits[token] = logits[token] > 0 ? logits[token] / penalty : logits[token] * penalty;
    }
}

/* Best first; the lower id where two are equal, so that the order is one and the same everywhere. */
static int compare(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}

/* Probabilities of the first n candidates, best first, at a temperature; sums to 1. */
static void softmax(struct candidate *c, size_t n, float temperature)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += c[i].p = (double)k3_expf((c[i].logit - c[0].logit) / temperature);
    for (size_t i = 0; i < n; i++) c[i].p /= sum;
}

/* How many of the n candidates top-p and min-p leave; at least 1. */
static size_t keep(const struct candidate *c, size_t n, const struct k3_sampling *o)
{
    if (o->top_p > 0 && o->top_p < 1) {
        double sum = 0;
        size_t kept = 0;
        while (kept < n && sum < (double)o->top_p) sum += c[kept++].p;
        n = kept;
    }
    while (n > 1 && c[n - 1].p < (double)o->min_p * c[0].p) n--;
    return n;
}

int32_t k3_sampler_pick(struct k3_sampler *s, const float *logits)
{
    const struct k3_sampling *o = &s->options;
    penalise(s, logits);

    /* A number wins over NaN, which compares false. */
    int32_t best = 0;
    for (uint32_t i = 1; i < s->n_vocab; i++)
        if (s->logits[i] > s->logits[best] || s->logits[best] != s->logits[best]) best = (int32_t)i;
    float top = s->logits[best];
    if (o->temperature == 0 || !(top - top == 0)) return best; /* greedy, or nothing finite to weigh */

    struct candidate *c = s->candidates;
    size_t n = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++) /* the others have probability 0 by k3_expf, or are NaN */
        if ((s->logits[i] - top) / o->temperature >= -87)
            c[n++] = (struct candidate){(int32_t)i, s->logits[i], 0};
    qsort(c, n, sizeof *c, compare);
    if (o->top_k && o->top_k < n) n = o->top_k;
    softmax(c, n, o->temperature);
    n = keep(c, n, o);

    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += c[i].p;
    double at = (double)(next_random(&s->random) >> 11) * 0x1p-53 * sum;
    for (size_t i = 0; i + 1 < n; i++) {
        if (at < c[i].p) return c[i].token;
        at -= c[i].p;
    }
    return c[n - 1].token;
}
