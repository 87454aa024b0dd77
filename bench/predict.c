/* predict.c - the formulas of docs/performance-model.md. */
#include "predict.h"

#include <math.h>
#include <string.h>

/* ---- curves ---- */

struct point {
    double x, y;
};

static double interpolate(const struct point *points, int n, double x)
{
    if (x <= points[0].x) return points[0].y;
    for (int i = 1; i < n; i++)
        if (x <= points[i].x) {
            const struct point *a = &points[i - 1], *b = &points[i];
            return a->y + (b->y - a->y) * (x - a->x) / (b->x - a->x);
        }
    return points[n - 1].y;
}

#define N_POINTS(points) ((int)(sizeof(points) / sizeof *(points)))

/* The engine's policy, lfru, on tests/data/traces/kimi-linear-48b-decode-300.jsonl: k3bench policy. */
double k3_predict_hits(double cached)
{
    static const struct point points[] = {{0, 0},        {0.04, 0.400}, {0.07, 0.508},
                                          {0.15, 0.653}, {0.30, 0.799}, {0.42, 0.872},
                                          {0.54, 0.921}, {0.60, 0.939}, {1, 1}};
    return interpolate(points, N_POINTS(points), cached);
}

/* Different experts of n tokens in multiples of those of one, of the same trace: k3tool routing. Beyond its 32 tokens the
 * shares that a model of K3's routing gives. */
double k3_predict_touched(double n, double least)
{
    static const struct point multiples[] = {{0, 1}, {1, 1.66}, {2, 2.75}, {3, 4.50}, {4, 7.27}, {5, 10.98}};
    static const struct point shares[] = {{6, 0.48}, {9, 0.90}, {11, 1}};
    double x = log2(n < 1 ? 1 : n), at_32 = least * multiples[5].y, share;
    if (x <= 5)
        share = least * interpolate(multiples, N_POINTS(multiples), x);
    else if (x < 6)
        share = at_32 + (shares[0].y - at_32) * (x - 5);
    else
        share = interpolate(shares, N_POINTS(shares), x);
    return share < least ? least : share < 1 ? share : 1;
}

/* ---- parts ---- */

static void add(struct k3_prediction *p, const char *name, double seconds, const char *what)
{
    p->terms[p->n_terms++] = (struct k3_term){name, what, seconds};
}

static double sum(const double weights[K3_TYPE_COUNT])
{
    double total = 0;
    for (int t = 0; t < K3_TYPE_COUNT; t++) total += weights[t];
    return total;
}

/* Seconds of all cores for n columns. Types without a rate of their own are decoded to f32. */
static double compute_s(const struct k3_machine *m, const double weights[K3_TYPE_COUNT],
                        const double rates[K3_TYPE_COUNT], double n)
{
    double seconds = 0;
    for (int t = 0; t < K3_TYPE_COUNT; t++)
        seconds += n * weights[t] / ((rates[t] > 0 ? rates[t] : rates[K3_TYPE_F32]) * m->cores);
    return seconds;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* The GPU has the dense weights, or nothing. */
static bool dense_on_gpu(const struct k3_machine *m, const struct k3_cost *cost)
{
    return m->vram_bytes >= cost->dense_bytes + cost->embedding_bytes && m->vram_bytes > 0;
}

static double cached_share(const struct k3_machine *m, const struct k3_cost *cost)
{
    double dense = dense_on_gpu(m, cost) ? 0 : cost->dense_bytes + cost->embedding_bytes;
    double room = m->ram_bytes - m->reserve_bytes - dense, pool = cost->expert_bytes * cost->n_experts;
    return room <= 0 ? 0 : room < pool ? room / pool : 1;
}

/* The longest of the terms begin .. end-1. */
static const struct k3_term *longest(const struct k3_prediction *p, uint32_t begin, uint32_t end)
{
    const struct k3_term *term = &p->terms[begin];
    for (uint32_t i = begin; i < end; i++)
        if (p->terms[i].seconds > term->seconds) term = &p->terms[i];
    return term;
}

/* The first `n_steps` terms follow each other and the others go on beside something: which of all to shorten first. */
static const char *bound_of(const struct k3_prediction *p, uint32_t n_steps, double beside_s)
{
    double steps = 0;
    for (uint32_t i = 0; i < n_steps; i++) steps += p->terms[i].seconds;
    return (steps > beside_s ? longest(p, 0, n_steps) : longest(p, n_steps, p->n_terms))->name;
}

/* ---- decode ---- */

double k3_predict_gpu_work(const struct k3_machine *m, const struct k3_gpu_work *work, double keys)
{
    double bytes = work->bytes + keys * work->key_bytes, ops = work->ops + keys * work->key_ops;
    switch (work->kind) {
    case K3_GPU_TRANSFER:
        return work->calls * m->transfer_s + bytes / m->pcie_rate;
    case K3_GPU_WAIT:
        return work->calls * m->wait_s;
    default:
        break;
    }
    double work_s = larger(larger(bytes / m->vram_rate, ops / m->op_rate), keys * work->key_s);
    return work->calls * m->launch_s + work->chain_s + work_s;
}

static double sum_of_works(const struct k3_machine *m, const struct k3_cost *cost, double keys, bool kernels)
{
    double seconds = 0;
    for (uint32_t i = 0; i < cost->gpu.n_works; i++)
        if ((cost->gpu.works[i].kind == K3_GPU_KERNEL) == kernels)
            seconds += k3_predict_gpu_work(m, &cost->gpu.works[i], keys);
    return seconds;
}

double k3_predict_gpu_kernels(const struct k3_machine *m, const struct k3_cost *cost, double keys)
{
    return sum_of_works(m, cost, keys, true);
}

double k3_predict_gpu_host(const struct k3_machine *m, const struct k3_cost *cost, double keys)
{
    return sum_of_works(m, cost, keys, false);
}

double k3_predict_gpu_floor(const struct k3_machine *m, const struct k3_cost *cost, double keys)
{
    return (cost->dense_bytes + 2 * cost->state_bytes + keys * cost->cache_bytes) / m->vram_rate;
}

/* The term that a kernel belongs to. */
static uint32_t part_of(const struct k3_gpu_work *work)
{
    static const char *const attention[] = {"scores", "weigh", "values"};
    if (work->kind != K3_GPU_KERNEL) return 3;
    if (strcmp(work->name, "recur") == 0) return 1;
    for (size_t i = 0; i < sizeof attention / sizeof *attention; i++)
        if (strcmp(work->name, attention[i]) == 0) return 2;
    return 0;
}

static void add_gpu_steps(const struct k3_machine *m, const struct k3_cost *cost, double context,
                          struct k3_prediction *p)
{
    add(p, "dense", 0, "dense weights, what lies between them, and launches");
    add(p, "state", 0, "KDA state, read and written");
    add(p, "attention", 0, "MLA cache of the context");
    add(p, "host", 0, "copies over PCIe, and the host's waiting");
    for (uint32_t i = 0; i < cost->gpu.n_works; i++)
        p->terms[part_of(&cost->gpu.works[i])].seconds +=
            k3_predict_gpu_work(m, &cost->gpu.works[i], context + 1);
}

/* What comes one after the other in every layer: nothing of the next step is known before. */
static void add_steps(const struct k3_machine *m, const struct k3_cost *cost, double context,
                      struct k3_prediction *p)
{
    double madds = context * cost->attention_madds, cache = context * cost->cache_bytes;
    if (dense_on_gpu(m, cost)) {
        add_gpu_steps(m, cost, context, p);
        return;
    }
    add(p, "dense", larger(cost->dense_bytes / m->ram_rate, compute_s(m, cost->dense_weights, m->one, 1)),
        "dense weights / RAM rate, or / rate of one column");
    add(p, "state", 2 * cost->state_bytes / m->ram_rate, "KDA state, read and written");
    add(p, "attention", larger(cache / m->ram_rate, madds / (m->one[K3_TYPE_F32] * m->cores)),
        "MLA cache of the context, read or computed with");
    add(p, "layers", cost->n_layers * m->layer_s, "threads");
}

void k3_predict_decode(const struct k3_machine *m, const struct k3_cost *cost, double context,
                       struct k3_prediction *p)
{
    *p = (struct k3_prediction){.cached = cached_share(m, cost)};
    p->hits = m->hits >= 0 ? m->hits : k3_predict_hits(p->cached);
    double touched = cost->top_k * cost->expert_bytes, missed = (1 - p->hits) * touched;
    add_steps(m, cost, context, p);
    double steps = 0;
    for (uint32_t i = 0; i < p->n_terms; i++) steps += p->terms[i].seconds;

    uint32_t n_steps = p->n_terms;
    double drive = missed / m->drive_rate, ram = (touched + missed) / m->ram_rate;
    double experts = compute_s(m, cost->expert_weights, m->one, cost->top_k);
    add(p, "drive", drive, "missing experts / drive rate");
    add(p, "ram", ram, "experts and what the drive writes / RAM rate");
    add(p, "experts", experts, "multiply-adds of experts / rate of one column");
    p->sequential_s = steps + drive + larger(ram, experts);
    p->overlapped_s = steps + larger(drive, larger(ram, experts));
    p->bound = bound_of(p, n_steps, p->overlapped_s - steps);
}

/* ---- prefill ---- */

#define PREFILL_STEPS 4 /* terms that compute, one after the other; reading ahead goes on beside them */

/* Adds one batch of n tokens after `context` others to the terms. */
static void add_batch(const struct k3_machine *m, const struct k3_cost *cost, double context, double n,
                      struct k3_prediction *p)
{
    bool gpu = dense_on_gpu(m, cost);
    double pool = cost->expert_bytes * cost->n_experts;
    double touched = k3_predict_touched(n, (double)cost->top_k / cost->n_experts);
    double missed = touched * pool * (1 - p->hits);
    double pairs = n * context + n * (n + 1) / 2, madds = pairs * cost->attention_madds;
    double experts = compute_s(m, cost->expert_weights, m->many, n * cost->top_k);
    double dense =
        gpu ? larger(cost->dense_bytes / m->vram_rate, n * sum(cost->dense_weights) / m->gpu_rate)
            : larger(cost->dense_bytes / m->ram_rate, compute_s(m, cost->dense_weights, m->many, n));
    double on_gpu = n * cost->top_k * sum(cost->expert_weights) / m->gpu_rate,
           pcie = touched * pool / m->pcie_rate;
    bool sweep = gpu && larger(on_gpu, pcie) < experts;
    double terms[] = {dense,
                      gpu ? madds / m->gpu_rate : madds / (m->many[K3_TYPE_F32] * m->cores),
                      cost->n_layers * m->layer_s,
                      sweep ? on_gpu : experts,
                      missed / m->drive_rate,
                      (touched * pool + missed) / m->ram_rate,
                      sweep ? pcie : 0};
    double steps = terms[0] + terms[1] + terms[2];
    for (uint32_t i = 0; i < p->n_terms; i++) p->terms[i].seconds += terms[i];
    p->overlapped_s += larger(larger(steps + terms[3], terms[4]), larger(terms[5], terms[6]));
    p->sequential_s += steps + larger(terms[3], terms[5]) + terms[4] + terms[6];
}

void k3_predict_prefill(const struct k3_machine *m, const struct k3_cost *cost, double context, double n,
                        double batch, struct k3_prediction *p)
{
    *p = (struct k3_prediction){.cached = cached_share(m, cost)};
    p->hits = m->hits >= 0 ? m->hits : p->cached; /* a sweep leaves what is in memory there */
    add(p, "dense", 0, "dense multiply-adds / rate of many columns");
    add(p, "attention", 0, "MLA over the tokens before");
    add(p, "layers", 0, "threads and launches");
    add(p, "experts", 0, "multiply-adds of experts / rate of many columns, or of the GPU");
    add(p, "drive", 0, "experts touched and not in memory / drive rate");
    add(p, "ram", 0, "experts touched and what the drive writes / RAM rate");
    add(p, "pcie", 0, "experts touched / PCIe rate, when the GPU computes them");
    for (double done = 0; done < n; done += batch)
        add_batch(m, cost, context + done, n - done < batch ? n - done : batch, p);
    p->bound = bound_of(p, PREFILL_STEPS, longest(p, PREFILL_STEPS, p->n_terms)->seconds);
}
