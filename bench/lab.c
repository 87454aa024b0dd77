/* lab.c - timing products of one type of weights.
 *
 * Weights are random bits with scales that are ordinary numbers; their values do not matter for the time. Streamed rows
 * come from a ring that is larger than the caches and is read in order, so that each is cold when its turn comes. */
#include "lab.h"

#include "base/clock.h"
#include "base/memory.h"
#include "peak.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROW_WEIGHTS 3584      /* a row of an expert's gate or up in K3 */
#define PIECE_BYTES (1 << 18) /* a quarter of 1 MiB, the smallest second caches of today that we know */
#define PIECE_ROWS  64

/* ---- memory ---- */

k3_status k3_ring_create(size_t bytes, struct k3_ring *ring, struct k3_error *err)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return k3_fail_memory(err, "weights to stream", bytes);
    madvise(memory, bytes, MADV_HUGEPAGE);
    *ring = (struct k3_ring){memory, bytes};
    return K3_OK;
}

void k3_ring_free(struct k3_ring *ring)
{
    if (ring->bytes) munmap(ring->bytes, ring->n);
    *ring = (struct k3_ring){0};
}

/* ---- contents ---- */

/* xorshift64* (Vigna 2016). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545f4914f6cdd1du;
}

/* Makes the numbers in a block of random bits ordinary ones: scales near 1/8, floats below 1. */
static void tame_block(enum k3_type type, unsigned char *block, size_t block_bytes)
{
    switch (type) {
    case K3_TYPE_F32:
        block[3] = (unsigned char)((block[3] & 0x80) | 0x3e);
        break;
    case K3_TYPE_BF16:
        block[1] = (unsigned char)((block[1] & 0x80) | 0x3e);
        break;
    case K3_TYPE_MXFP4:
        block[0] = 124;
        break;
    case K3_TYPE_IQ1_M: /* the top bits of the scale are in the last byte */
        block[block_bytes - 1] = (unsigned char)((block[block_bytes - 1] & 15) | 0x30);
        break;
    default: /* begins with an f16 */
        block[1] = 0x30;
    }
}

static void fill_rows(struct k3_lab *lab, const struct k3_type_info *info)
{
    uint64_t random = 88172645463325252u;
    size_t bytes = lab->piece_rows * lab->row_bytes;
    for (size_t i = 0; i < lab->piece_bytes; i++) lab->ring[i] = (unsigned char)(next_random(&random) >> 40);
    for (size_t at = 0; at < bytes; at += info->block_bytes)
        tame_block(lab->type, lab->ring + at, info->block_bytes);
    for (size_t i = 1; i < lab->n_pieces; i++)
        memcpy(lab->ring + i * lab->piece_bytes, lab->ring, lab->piece_bytes);
    for (int i = 0; i < lab->max_threads; i++)
        memcpy(lab->resident + (size_t)i * lab->piece_bytes, lab->ring, lab->piece_bytes);
}

static void fill_acts(struct k3_lab *lab)
{
    uint64_t random = 1;
    enum k3_act act = k3_act_for(lab->type);
    float x[ROW_WEIGHTS];
    for (size_t c = 0; c < lab->max_columns; c++) {
        for (size_t i = 0; i < ROW_WEIGHTS; i++) x[i] = (float)(next_random(&random) >> 40) / 0x1p24f - 0.5f;
        unsigned char *to = lab->acts + c * lab->act_stride;
        if (act == K3_ACT_F32)
            memcpy(to, x, sizeof x);
        else
            k3_kernels_best()->round[act](x, to, ROW_WEIGHTS);
    }
}

k3_status k3_lab_open(enum k3_type type, size_t max_columns, int max_threads, const struct k3_ring *ring,
                      struct k3_lab *lab, struct k3_error *err)
{
    const struct k3_type_info *info = k3_type_info(type);
    size_t row_bytes = ROW_WEIGHTS / info->block * info->block_bytes, rows = PIECE_BYTES / row_bytes;
    rows = rows > PIECE_ROWS ? PIECE_ROWS : rows;
    *lab = (struct k3_lab){.type = type,
                           .n = ROW_WEIGHTS,
                           .row_bytes = row_bytes,
                           .piece_rows = rows,
                           .piece_bytes = (rows * row_bytes + K3_BUFFER_PAD + 63) / 64 * 64,
                           .max_columns = max_columns,
                           .max_threads = max_threads,
                           .ring = ring->bytes,
                           .act_stride = k3_act_bytes(k3_act_for(type), ROW_WEIGHTS)};
    lab->n_pieces = ring->n / lab->piece_bytes;
    if (lab->n_pieces == 0)
        return k3_fail(err, K3_ERR_ARGUMENT, "%zu bytes of weights to stream are too few; %zu are needed",
                       ring->n, lab->piece_bytes);
    lab->resident = k3_buffer_alloc((size_t)max_threads, lab->piece_bytes);
    lab->acts = k3_buffer_alloc(max_columns, lab->act_stride);
    lab->y = k3_buffer_alloc((size_t)max_threads * max_columns * rows, sizeof(float));
    if (!lab->resident || !lab->acts || !lab->y) {
        k3_lab_close(lab);
        return k3_fail_memory(err, "rows and columns to multiply", max_columns * lab->act_stride);
    }
    fill_rows(lab, info);
    fill_acts(lab);
    return K3_OK;
}

void k3_lab_close(struct k3_lab *lab)
{
    free(lab->resident);
    free(lab->acts);
    free(lab->y);
    *lab = (struct k3_lab){0};
}

/* ---- timing ---- */

struct work {
    const struct k3_lab *lab;
    const struct k3_case *c;
};

static const unsigned char *piece_at(const struct work *w, size_t i, int thread)
{
    const struct k3_lab *lab = w->lab;
    return w->c->streamed ? lab->ring + (lab->next + i) % lab->n_pieces * lab->piece_bytes
                          : lab->resident + (size_t)thread * lab->piece_bytes;
}

static void multiply_pieces(void *ctx, size_t begin, size_t end, int thread)
{
    const struct work *w = ctx;
    const struct k3_lab *lab = w->lab;
    struct k3_product product = {.row_bytes = lab->row_bytes,
                                 .n_rows = lab->piece_rows,
                                 .n = lab->n,
                                 .acts = lab->acts,
                                 .act_stride = lab->act_stride,
                                 .n_columns = w->c->columns,
                                 .y = lab->y + (size_t)thread * lab->max_columns * lab->piece_rows,
                                 .y_stride = lab->piece_rows};
    for (size_t i = begin; i < end; i++) {
        product.rows = piece_at(w, i, thread);
        w->c->kernels->product[lab->type](&product);
    }
}

static void read_pieces(void *ctx, size_t begin, size_t end, int thread)
{
    const struct work *w = ctx;
    uint64_t sum = 0;
    for (size_t i = begin; i < end; i++) sum += k3_peak_read(piece_at(w, i, thread), w->lab->piece_bytes);
    __asm__ volatile("" : : "r"(sum));
}

static double seconds_of(struct k3_lab *lab, const struct k3_case *c, struct k3_pool *pool, size_t n_pieces)
{
    struct work work = {lab, c};
    uint64_t start = k3_now_ns();
    k3_pool_run(pool, c->kernels ? multiply_pieces : read_pieces, &work, n_pieces, 1);
    double seconds = (double)(k3_now_ns() - start) / 1e9;
    if (c->streamed) lab->next = (lab->next + n_pieces) % lab->n_pieces;
    return seconds > 0 ? seconds : 1e-9;
}

double k3_lab_run(struct k3_lab *lab, struct k3_case *c, struct k3_pool *pool, double seconds)
{
    if (!c->n_pieces) {
        size_t threads = (size_t)k3_pool_threads(pool), n = 2 * threads;
        double taken = seconds_of(lab, c, pool, n);
        if (taken < seconds / 8) taken = seconds_of(lab, c, pool, n *= 8);
        double wanted = (double)n * seconds / taken;
        c->n_pieces = wanted > (double)threads ? (size_t)(wanted / (double)threads) * threads : threads;
    }
    return (double)c->n_pieces / seconds_of(lab, c, pool, c->n_pieces);
}
