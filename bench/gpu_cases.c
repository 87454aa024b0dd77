/* gpu_cases.c - see gpu_cases.h. Sizes: architecture.md section 1. */
#include "gpu_cases.h"

#include <stdlib.h>
#include <string.h>

/* What a device gets of K3, or of a small one. */
struct sizes {
    size_t width, heads, dim, rank, pe, vocab, experts, top_k, bank, shared;
};

static const struct sizes real = {7168, 96, 128, 512, 64, 163840, 400, 16, 8, 6144};
static const struct sizes tiny = {64, 2, 32, 32, 16, 96, 16, 4, 2, 64};

#define TAPS 4

static const struct sizes *of(const struct k3_gpu_lab *lab)
{
    return lab->tiny ? &tiny : &real;
}

/* ---- memory ---- */

/* Bytes that are ordinary numbers as f32, f16 and int8. */
static void fill(unsigned char *device, size_t bytes, k3_stream stream)
{
    static unsigned char pattern[1 << 16];
    for (size_t i = 0; i < sizeof pattern; i++) pattern[i] = (unsigned char)(0x20 + i * 2654435761u % 0x1d);
    for (size_t at = 0; at < bytes; at += sizeof pattern)
        k3_gpu_put(device + at, pattern, bytes - at < sizeof pattern ? bytes - at : sizeof pattern, stream);
}

k3_status k3_gpu_lab_open(int number, size_t pool_bytes, struct k3_gpu_lab *lab, struct k3_gpu *gpu,
                          struct k3_error *err)
{
    const struct k3_gpu_backend *backend = k3_gpu_backend();
    k3_status status = backend->find(number, gpu, err);
    if (status != K3_OK) return status;
    k3_gpu_select(gpu->index);
    *lab = (struct k3_gpu_lab){.tiny = k3_gpu_is_emulated(), .pool_bytes = pool_bytes};
    if (lab->tiny) lab->pool_bytes = 8 << 20;
    lab->array_bytes = lab->pool_bytes / 32;
    lab->stream = k3_gpu_stream_create();
    lab->pool = k3_gpu_alloc("pool", lab->pool_bytes);
    lab->activations = k3_gpu_alloc("activations", K3_GPU_LAB_ARRAYS * lab->array_bytes);
    if (!lab->stream || !lab->pool || !lab->activations)
        return k3_fail_memory(err, "what kernels of the GPU work on", lab->pool_bytes);
    fill(lab->pool, lab->pool_bytes, lab->stream);
    fill(lab->activations, K3_GPU_LAB_ARRAYS * lab->array_bytes, lab->stream);
    const char *problem = k3_gpu_lab_wait(lab);
    return problem ? k3_fail(err, K3_ERR_IO, "the GPU: %s", problem) : K3_OK;
}

void k3_gpu_lab_close(struct k3_gpu_lab *lab)
{
    k3_gpu_free(lab->pool);
    k3_gpu_free(lab->activations);
    k3_gpu_stream_free(lab->stream);
}

const char *k3_gpu_lab_wait(const struct k3_gpu_lab *lab)
{
    return k3_gpu_wait(lab->stream);
}

static void *from_pool(struct k3_gpu_lab *lab, size_t bytes)
{
    if (lab->at + bytes > lab->pool_bytes) lab->at = 0;
    void *array = lab->pool + lab->at;
    lab->at += (bytes + 255) / 256 * 256;
    return array;
}

static void *array(const struct k3_gpu_lab *lab, size_t i)
{
    return lab->activations + i * lab->array_bytes;
}

static struct k3_gpu_acts acts(const struct k3_gpu_lab *lab)
{
    return (struct k3_gpu_acts){array(lab, 8), array(lab, 9)};
}

/* Bytes of q8_0 weights or activations on the device; scales of activations are f32. */
static double q8_0_bytes(double weights)
{
    return weights * 34 / 32;
}

static double acts_bytes(double values)
{
    return values * 36 / 32;
}

static struct k3_gpu_q8_0 matrix(struct k3_gpu_lab *lab, size_t rows, size_t cols)
{
    int8_t *q = from_pool(lab, rows * cols + rows * (cols / 32) * 2);
    return (struct k3_gpu_q8_0){q, (uint16_t *)(q + rows * cols), rows, cols};
}

/* ---- limits ---- */

static struct k3_gpu_moved copy(struct k3_gpu_lab *lab, size_t tokens)
{
    (void)tokens;
    size_t half = lab->pool_bytes / 2;
    k3_gpu_copy(lab->pool + half, lab->pool, half, lab->stream);
    return (struct k3_gpu_moved){2 * (double)half, 0};
}

static struct k3_gpu_moved matrix_units(struct k3_gpu_lab *lab, size_t tokens)
{
    (void)tokens;
    size_t blocks = lab->tiny ? 1 : 2048;
    return (struct k3_gpu_moved){
        0, k3_gpu_matrix_rate(blocks, lab->tiny ? 2 : 4096, from_pool(lab, blocks * 1024), lab->stream)};
}

/* ---- products ---- */

static struct k3_gpu_moved multiply_as(struct k3_gpu_lab *lab, size_t rows, size_t cols, size_t n)
{
    struct k3_gpu_q8_0 w = matrix(lab, rows, cols);
    struct k3_gpu_acts x = acts(lab);
    k3_gpu_multiply_q8_0(&w, &x, n, array(lab, 0), lab->stream);
    double weights = (double)rows * (double)cols, values = (double)n * (double)(cols + rows);
    return (struct k3_gpu_moved){q8_0_bytes(weights) + acts_bytes((double)(n * cols)) +
                                     4 * (values - (double)(n * cols)),
                                 weights * (double)n};
}

static struct k3_gpu_moved multiply(struct k3_gpu_lab *lab, size_t n)
{
    const struct sizes *s = of(lab);
    return multiply_as(lab, s->heads * s->dim, s->width, n);
}

static struct k3_gpu_moved head(struct k3_gpu_lab *lab, size_t n)
{
    return multiply_as(lab, of(lab)->vocab / 2, of(lab)->width, n);
}

static struct k3_gpu_moved multiply_heads(struct k3_gpu_lab *lab, size_t n)
{
    const struct sizes *s = of(lab);
    struct k3_gpu_q8_0 w = matrix(lab, s->heads * s->dim, s->rank);
    struct k3_gpu_acts x = acts(lab);
    k3_gpu_multiply_heads_q8_0(&w, &x, s->heads, n, array(lab, 0), lab->stream);
    double weights = (double)(s->heads * s->dim * s->rank), outer = (double)(n * s->heads);
    return (struct k3_gpu_moved){q8_0_bytes(weights) + acts_bytes(outer * (double)s->rank) +
                                     4 * outer * (double)s->dim,
                                 weights * (double)n};
}

static struct k3_gpu_moved router(struct k3_gpu_lab *lab, size_t n)
{
    const struct sizes *s = of(lab);
    const float *w = from_pool(lab, s->experts * s->width * sizeof *w);
    k3_gpu_multiply_f32(w, s->experts, s->width, array(lab, 0), n, array(lab, 1), lab->stream);
    double weights = (double)(s->experts * s->width);
    return (struct k3_gpu_moved){4 * (weights + (double)(n * (s->width + s->experts))), weights * (double)n};
}

static struct k3_gpu_moved rows(struct k3_gpu_lab *lab, size_t n)
{
    const struct sizes *s = of(lab);
    struct k3_gpu_q8_0 table = matrix(lab, 16, s->width);
    int32_t ids[64];
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(i % 16);
    k3_gpu_put(array(lab, 1), ids, n * sizeof *ids, lab->stream);
    k3_gpu_rows_q8_0(&table, array(lab, 1), n, array(lab, 0), lab->stream);
    double values = (double)(n * s->width);
    return (struct k3_gpu_moved){q8_0_bytes(values) + 4 * values, 0};
}

static struct k3_gpu_moved round_q8_0(struct k3_gpu_lab *lab, size_t n)
{
    const struct sizes *s = of(lab);
    struct k3_gpu_acts to = acts(lab);
    k3_gpu_round_q8_0(array(lab, 0), n, s->width, s->width, &to, lab->stream);
    double values = (double)(n * s->width);
    return (struct k3_gpu_moved){4 * values + acts_bytes(values), 0};
}

/* ---- rows ---- */

static struct k3_gpu_moved rms_norm(struct k3_gpu_lab *lab, size_t n)
{
    const struct sizes *s = of(lab);
    struct k3_gpu_acts to = acts(lab);
    k3_gpu_rms_norm(array(lab, 0), array(lab, 1), 1e-5f, n, s->width, s->width, NULL, array(lab, 2), &to,
                    lab->stream);
    double values = (double)(n * s->width);
    return (struct k3_gpu_moved){8 * values + 4 * (double)s->width + acts_bytes(values), 0};
}

/* The norm of each head, and the output gate. */
static struct k3_gpu_moved head_norm(struct k3_gpu_lab *lab, size_t n)
{
    const struct sizes *s = of(lab);
    struct k3_gpu_acts to = acts(lab);
    k3_gpu_rms_norm(array(lab, 0), array(lab, 1), 1e-5f, n * s->heads, s->dim, s->dim, array(lab, 2),
                    array(lab, 0), &to, lab->stream);
    double values = (double)(n * s->heads * s->dim);
    return (struct k3_gpu_moved){12 * values + acts_bytes(values), 0};
}

static struct k3_gpu_moved mix(struct k3_gpu_lab *lab, size_t n)
{
    const struct sizes *s = of(lab);
    struct k3_gpu_acts to = acts(lab);
    struct k3_gpu_mixing m = {.streams = array(lab, 0),
                              .roots = array(lab, 1),
                              .n_bank = s->bank,
                              .batch = n,
                              .width = s->width,
                              .score = array(lab, 2),
                              .eps = 1e-5f,
                              .n = n,
                              .norm = array(lab, 3),
                              .y = array(lab, 4),
                              .acts = &to};
    k3_gpu_mix(&m, lab->stream);
    double values = (double)(n * s->width);
    return (struct k3_gpu_moved){
        4 * values * (double)(s->bank + 2) + 8 * (double)s->width + acts_bytes(values), 0};
}

static struct k3_gpu_moved situ(struct k3_gpu_lab *lab, size_t n)
{
    size_t values = n * of(lab)->shared;
    struct k3_gpu_acts to = acts(lab);
    k3_gpu_situ(array(lab, 0), array(lab, 1), 4, 25, values, &to, lab->stream);
    return (struct k3_gpu_moved){12 * (double)values + acts_bytes((double)values), 0};
}

static struct k3_gpu_moved gate(struct k3_gpu_lab *lab, size_t n)
{
    const struct sizes *s = of(lab);
    size_t values = n * s->heads * s->dim;
    struct k3_gpu_acts to = acts(lab);
    k3_gpu_gate(array(lab, 0), array(lab, 1), values, &to, lab->stream);
    return (struct k3_gpu_moved){12 * (double)values + acts_bytes((double)values), 0};
}

static struct k3_gpu_moved add(struct k3_gpu_lab *lab, size_t n)
{
    size_t values = n * of(lab)->width;
    k3_gpu_add(array(lab, 0), array(lab, 1), values, lab->stream);
    return (struct k3_gpu_moved){12 * (double)values, 0};
}

static struct k3_gpu_moved route(struct k3_gpu_lab *lab, size_t n)
{
    const struct sizes *s = of(lab);
    k3_gpu_route(array(lab, 0), array(lab, 1), n, s->experts, s->top_k, 1, 1, array(lab, 2), array(lab, 3),
                 lab->stream);
    return (struct k3_gpu_moved){8 * (double)(n * s->experts) + 8 * (double)(n * s->top_k), 0};
}

/* ---- KDA ---- */

static struct k3_gpu_moved kda_prepare(struct k3_gpu_lab *lab, size_t n)
{
    const struct sizes *s = of(lab);
    size_t width = s->heads * s->dim;
    struct k3_gpu_kda kda = {.n = n,
                             .n_heads = s->heads,
                             .dim = s->dim,
                             .n_taps = TAPS,
                             .history = from_pool(lab, 3 * (TAPS - 1) * width * sizeof(float)),
                             .alpha = array(lab, 6),
                             .low = array(lab, 10),
                             .f_b = matrix(lab, width, s->dim),
                             .beta = array(lab, 7),
                             .a = array(lab, 8),
                             .dt = array(lab, 9),
                             .bounded = 1,
                             .floor = -5};
    for (size_t i = 0; i < 3; i++) {
        kda.z[i] = array(lab, i);
        kda.u[i] = array(lab, 3 + i);
        kda.taps[i] = from_pool(lab, TAPS * width * sizeof(float));
    }
    k3_gpu_kda_prepare(&kda, lab->stream);
    double values = (double)(n * width);
    /* q, k, v in and out, the decay out; taps, and history in and out. */
    double floats = 7 * values + (double)width * (3 * TAPS + 6 * (TAPS - 1));
    return (struct k3_gpu_moved){4 * floats + q8_0_bytes((double)(width * s->dim)),
                                 (double)(n * width * s->dim)};
}

static struct k3_gpu_moved kda_recur(struct k3_gpu_lab *lab, size_t n)
{
    const struct sizes *s = of(lab);
    size_t state = s->heads * s->dim * s->dim;
    k3_gpu_kda_recur(array(lab, 0), array(lab, 1), array(lab, 2), array(lab, 3), array(lab, 4), n, s->heads,
                     s->dim, from_pool(lab, state * sizeof(float)), array(lab, 5), lab->stream);
    return (struct k3_gpu_moved){8 * (double)state + 20 * (double)(n * s->heads * s->dim),
                                 4 * (double)(n * state)};
}

/* ---- MLA ---- */

static struct k3_gpu_mla mla_after(struct k3_gpu_lab *lab, size_t position)
{
    const struct sizes *s = of(lab);
    if (lab->tiny) position = 100;
    return (struct k3_gpu_mla){.n_heads = s->heads,
                               .qk_dim = s->dim + s->pe,
                               .pe_dim = s->pe,
                               .kv_rank = s->rank,
                               .cache = from_pool(lab, (position + 1) * (s->rank + s->pe) * sizeof(uint16_t)),
                               .position = position,
                               .n = 1};
}

/* `tokens` are those before; they are read by one that follows. Its group sums come behind the scores. */
static struct k3_gpu_moved mla(struct k3_gpu_lab *lab, size_t tokens)
{
    struct k3_gpu_mla m = mla_after(lab, tokens);
    size_t keys = m.position + 1, row = m.kv_rank + m.pe_dim;
    float *scores = from_pool(lab, m.n_heads * (keys + k3_gpu_mla_group_floats(keys)) * sizeof *scores);
    float *groups = scores + m.n_heads * keys;
    k3_gpu_mla_scores(&m, array(lab, 0), array(lab, 1), scores, groups, lab->stream);
    struct k3_gpu_acts to = acts(lab);
    k3_gpu_mla_values(&m, scores, groups, array(lab, 2), &to, lab->stream);
    return (struct k3_gpu_moved){2.0 * 2 * (double)(keys * row) + 16.0 * (double)(m.n_heads * keys),
                                 (double)(m.n_heads * keys * (2 * m.kv_rank + m.pe_dim))};
}

static struct k3_gpu_moved mla_store(struct k3_gpu_lab *lab, size_t n)
{
    const struct sizes *s = of(lab);
    size_t width = s->rank + s->pe;
    k3_gpu_mla_store(array(lab, 0), n, width, 0, from_pool(lab, n * width * sizeof(uint16_t)), lab->stream);
    return (struct k3_gpu_moved){6 * (double)(n * width), 0};
}

const struct k3_gpu_case k3_gpu_cases[] = {
    {"copy", 0, copy, false},
    {"matrix_rate", 0, matrix_units, true},
    {"multiply_q8_0", 1, multiply, false},
    {"multiply_q8_0", 8, multiply, false},
    {"multiply_q8_0, half the head", 1, head, false},
    {"multiply_heads_q8_0", 1, multiply_heads, false},
    {"multiply_many_q8_0", 64, multiply, false},
    {"multiply_many_q8_0", 512, multiply, true},
    {"multiply_f32, router", 1, router, false},
    {"rows_q8_0", 1, rows, false},
    {"round_q8_0", 1, round_q8_0, false},
    {"rms_norm", 1, rms_norm, false},
    {"rms_norm, heads and gate", 1, head_norm, false},
    {"mix of 9, norm", 1, mix, false},
    {"situ", 1, situ, false},
    {"gate", 1, gate, false},
    {"add", 1, add, false},
    {"route", 1, route, false},
    {"kda_prepare", 1, kda_prepare, false},
    {"kda_recur", 1, kda_recur, false},
    {"kda_recur", 64, kda_recur, false},
    {"mla_store", 1, mla_store, false},
    {"mla after tokens", 4096, mla, false},
    {"mla after tokens", 65536, mla, false},
    {0},
};
