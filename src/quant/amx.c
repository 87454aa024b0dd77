/* amx.c - products of many columns with the tile registers of AMX-INT8.
 *
 * FORMULA. portable.c has it; here are the same integers and the same order of roundings, so the same bits.
 *
 * LAYOUT. As in avx512_batch.c: 64 rows x 2048 weights are decoded at a time (avx512_tile.h), activations of
 * up to 32 columns x 256 are copied together, in the order of the tile's weights.
 *
 * MAPPING. A (16 columns x 64 activations) times B (64 weights x 16 rows) is added to C (16 columns x 16 rows
 * of int32): 2 A and 2 B make 4 C, so that each load of a tile serves two products. The two B are 32 rows, or
 * of iq2_xxs, whose integers need more than 8 bits, the low and the high parts of 16 rows. C goes through
 * memory into registers whose lanes are rows, for the roundings of portable.c. Blocks of 32 weights (q8_0,
 * mxfp4) fill half of A and B.
 *
 * COST. The tile unit takes 16 cycles for an A times a B, 1024 multiply-adds a cycle. The roundings are, for
 * 16 rows and one column, 6 (iq1_m) or 4 instructions for two ports. For each C of 16 x 16, in cycles:
 *              weights    products    roundings
 *   iq1_m      256        4 x 16      16 x 3
 *   iq2_xxs    256        8 x 16      16 x 3
 *   q8_0       32         16          16 x 2
 * They do not go on at once: while an instruction for tiles is under way, a Sapphire Rapids core closes one of its two ports
 * for 512-bit floats. Measured, it takes about three times the longer of the two, copying of activations included (a
 * fifth). Doing a job's roundings between the products of the next one made iq1_m slower, and q8_0 5 % faster. Decoding
 * comes on top. */
#include "quant/avx512_tile.h"

#define MAX_COLUMNS 32
#define UNIT        256 /* weights for which activations are prepared at once */

/* Activations of some columns for a unit, in the order of the tile's weights. */
struct prepared {
    _Alignas(64) int8_t q[MAX_COLUMNS][UNIT];
    float d[MAX_COLUMNS][8];  /* for each 32 (q8_0, mxfp4) or only the first */
    int32_t sum[MAX_COLUMNS]; /* of iq1_m: of all 256 */
};

/* C[a][b], as it is in memory. */
struct results {
    _Alignas(64) int32_t v[2][2][16][16];
};

/* ---- tile registers ---- */

/* Numbers must be constants: C[a][b] is 2 * a + b, A[a] is 4 + a, B[b] is 6 + b. */
static void configure(int weights)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes_per_row[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.rows[i] = i < 6 ? 16 : (uint8_t)(weights / 4);
        config.bytes_per_row[i] = (uint16_t)(i == 4 || i == 5 ? weights : 64);
    }
    _tile_loadconfig(&config);
}

/* For the compiler, loads of tiles read no memory: everything must be stored before. */
K3_INLINE void finish_stores(void)
{
    __asm__ volatile("" ::: "memory");
}

K3_INLINE void multiply_signed(int n_a)
{
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    if (n_a == 2) {
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
}

/* Weights are not signed. */
K3_INLINE void multiply_unsigned(int n_a)
{
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
    if (n_a == 2) {
        _tile_dpbsud(2, 5, 6);
        _tile_dpbsud(3, 5, 7);
    }
}

/* The products of n_steps times as many weights as tiles are configured for. */
K3_INLINE void multiply(const int8_t *q, const void *b0, const void *b1, int n_steps, int n_a, bool is_signed,
                        struct results *out)
{
    const char *w0 = b0, *w1 = b1;
    finish_stores();
    _tile_zero(0);
    _tile_zero(1);
    if (n_a == 2) {
        _tile_zero(2);
        _tile_zero(3);
    }
#pragma GCC unroll 4
    for (int s = 0; s < n_steps; s++) {
        _tile_loadd(6, w0 + 1024 * s, 64);
        _tile_loadd(4, q + 64 * s, UNIT);
        _tile_loadd(7, w1 + 1024 * s, 64);
        if (n_a == 2) _tile_loadd(5, q + 16 * UNIT + 64 * s, UNIT);
        if (is_signed)
            multiply_signed(n_a);
        else
            multiply_unsigned(n_a);
    }
    _tile_stored(0, out->v[0][0], 64);
    _tile_stored(1, out->v[0][1], 64);
    if (n_a == 2) {
        _tile_stored(2, out->v[1][0], 64);
        _tile_stored(3, out->v[1][1], 64);
    }
}

/* ---- activations ---- */

static void prepare(const struct k3_tiles *t, enum k3_type type, size_t c0, size_t n_columns, size_t at,
                    size_t n, __m512i order, struct prepared *out, size_t to)
{
    const enum k3_act act = k3_act_for(type);
    for (size_t c = to; c < to + n_columns; c++) {
        const struct k3_rounded x =
            k3_rounded_row(act, k3_product_acts(t->product, c0 + c - to), t->product->n);
        k3_tile_activations(x.q + at, n, order, out->q[c]);
        if (act == K3_ACT_Q8_0) {
            for (size_t k = 0; k < n / 32; k++) out->d[c][k] = x.d[at / 32 + k];
            continue;
        }
        out->d[c][0] = x.d[at / UNIT];
        if (type == K3_TYPE_IQ1_M)
            out->sum[c] = _mm512_reduce_add_epi32(
                _mm512_madd_epi16(_mm512_loadu_si512(x.sums + at / 8), _mm512_set1_epi16(1)));
    }
}

/* ---- a unit of two tiles ---- */

K3_INLINE __m512i result(const struct results *r, size_t c, size_t b)
{
    return _mm512_load_si512(r->v[c / 16][b][c % 16]);
}

K3_INLINE void block_of_iq1_m(const struct k3_tile *const pair[2], size_t at, const struct prepared *x,
                              int n_a, size_t n_columns, __m512 (*sums)[2])
{
    struct results r;
    const __m512 d0 = _mm512_load_ps(pair[0]->scale[at / UNIT]),
                 d1 = _mm512_load_ps(pair[1]->scale[at / UNIT]);
    multiply(x->q[0], pair[0]->w[at / 4], pair[1]->w[at / 4], 4, n_a, false, &r);
    for (size_t c = 0; c < n_columns; c++) { /* w = (v + 135) / 2 */
        const __m512i bias = _mm512_set1_epi32(K3_BIAS_IQ1_M * x->sum[c]);
        const __m512i v0 = _mm512_sub_epi32(_mm512_slli_epi32(result(&r, c, 0), 1), bias);
        const __m512i v1 = _mm512_sub_epi32(_mm512_slli_epi32(result(&r, c, 1), 1), bias);
        sums[c][0] = k3_tile_add_block(sums[c][0], d0, x->d[c][0], v0);
        sums[c][1] = k3_tile_add_block(sums[c][1], d1, x->d[c][0], v1);
    }
}

K3_INLINE void block_of_iq2_xxs(const struct k3_tile *const pair[2], size_t at, const struct prepared *x,
                                int n_a, size_t n_columns, __m512 (*sums)[2])
{
    for (size_t i = 0; i < 2; i++) {
        struct results r;
        const __m512 d = _mm512_load_ps(pair[i]->scale[at / UNIT]);
        multiply(x->q[0], pair[i]->w[at / 4], pair[i]->high[at / 4], 4, n_a, true, &r);
        for (size_t c = 0; c < n_columns; c++) { /* v = 16 * high + w */
            const __m512i v = _mm512_add_epi32(_mm512_slli_epi32(result(&r, c, 1), 4), result(&r, c, 0));
            sums[c][i] = k3_tile_add_block(sums[c][i], d, x->d[c][0], v);
        }
    }
}

/* ---- a unit of blocks of 32: q8_0 and mxfp4 ---- */

/* Here a result is only good for 32 weights, so there are 8 times as many roundings. A job is 16 columns times one
 * tile; its sums stay in registers for all 8 blocks of a unit, and the tile unit works on the next job meanwhile. */
struct job_of_32 {
    /* Activations: as they were prepared, or where they are, for their order is that of the weights. */
    const int8_t *q;
    const float *d;            /* of each block */
    size_t q_stride, d_stride; /* from one column to the next */
    const uint8_t (*w)[16][4];
    const float (*scale)[16];
    __m512 (*sums)[2]; /* [16] */
    int half;          /* of the pair of tiles that sums are for */
};

struct results_of_32 {
    _Alignas(64) int32_t v[UNIT / 32][16][16];
};

/* Block k. The numbers of tile registers must be constants. */
#define MULTIPLY_32(c, a, b, job, k, out)                                                                    \
    do {                                                                                                     \
        _tile_zero(c);                                                                                       \
        _tile_loadd(a, (job)->q + 32 * (k), (job)->q_stride);                                                \
        _tile_loadd(b, (job)->w[8 * (k)], 64);                                                               \
        _tile_dpbssd(c, a, b);                                                                               \
        _tile_stored(c, (out)->v[k], 64);                                                                    \
    } while (0)

K3_INLINE void multiply_block(const struct job_of_32 *job, size_t k, struct results_of_32 *out)
{
    if (k % 2 == 0)
        MULTIPLY_32(0, 4, 6, job, k, out);
    else
        MULTIPLY_32(1, 5, 7, job, k, out);
}

/* The products of one job, and the roundings of the one before; either may be NULL. n blocks. */
K3_INLINE void do_jobs(const struct job_of_32 *now, struct results_of_32 *out, const struct job_of_32 *before,
                       const struct results_of_32 *in, size_t n)
{
    __m512 acc[16];
#pragma GCC unroll 16
    for (int c = 0; before && c < 16; c++) acc[c] = before->sums[c][before->half];
    for (size_t k = 0; k < n; k++) {
        if (now) multiply_block(now, k, out);
        if (!before) continue;
        const __m512 dw = _mm512_load_ps(before->scale[k]);
        const float *d = before->d + k;
#pragma GCC unroll 16
        for (int c = 0; c < 16; c++, d += before->d_stride)
            acc[c] = k3_tile_add_block(acc[c], dw, *d, _mm512_load_si512(in->v[k][c]));
    }
#pragma GCC unroll 16
    for (int c = 0; before && c < 16; c++) before->sums[c][before->half] = acc[c];
}

static void do_all_jobs(const struct job_of_32 *jobs, size_t n_jobs, size_t n)
{
    struct results_of_32 r[2];
    finish_stores();
    do_jobs(&jobs[0], &r[0], NULL, NULL, n);
    for (size_t i = 1; i < n_jobs; i++) do_jobs(&jobs[i], &r[i % 2], &jobs[i - 1], &r[(i + 1) % 2], n);
    do_jobs(NULL, NULL, &jobs[n_jobs - 1], &r[(n_jobs + 1) % 2], n);
}

/* Whether the 16 columns from c0 on follow each other in memory. */
static bool are_in_place(const struct k3_product *p, size_t c0)
{
    return !p->columns && c0 + 16 <= p->n_columns;
}

/* Of the columns from c0 on, up to MAX_COLUMNS, for n weights at `at` of tiles: the jobs of all their tiles. */
static size_t make_jobs(const struct k3_tiles *t, size_t c0, size_t n_columns, size_t at, size_t n,
                        __m512i order, enum k3_type type, struct prepared *x, __m512 (*sums)[2],
                        struct job_of_32 *jobs)
{
    const struct k3_product *p = t->product;
    size_t n_jobs = 0;
    struct job_of_32 activations[MAX_COLUMNS / 16];
    for (size_t a = 0; 16 * a < n_columns; a++) {
        const struct k3_rounded in_place = k3_rounded_row(K3_ACT_Q8_0, k3_product_acts(p, c0 + 16 * a), p->n);
        activations[a] = (struct job_of_32){.q = in_place.q + t->first + at,
                                            .d = in_place.d + (t->first + at) / 32,
                                            .q_stride = p->act_stride,
                                            .d_stride = p->act_stride / sizeof *in_place.d};
        if (are_in_place(p, c0 + 16 * a)) continue;
        const size_t columns = n_columns - 16 * a < 16 ? n_columns - 16 * a : 16;
        prepare(t, type, c0 + 16 * a, columns, t->first + at, n, order, x, 16 * a);
        activations[a] =
            (struct job_of_32){.q = x->q[16 * a], .d = x->d[16 * a], .q_stride = UNIT, .d_stride = 8};
    }
    for (size_t i = 0; i < 2 * k3_tiles_pairs(t); i++) {
        const struct k3_tile *tile = t->pairs[i / 2][i % 2];
        for (size_t a = 0; 16 * a < n_columns; a++) {
            struct job_of_32 *job = &jobs[n_jobs++];
            *job = activations[a];
            job->w = tile->w + at / 4;
            job->scale = tile->scale + at / 32;
            job->sums = sums + i / 2 * MAX_COLUMNS + 16 * a;
            job->half = (int)(i % 2);
        }
    }
    return n_jobs;
}

/* ---- tiles times all columns ---- */

K3_INLINE void multiply_columns(const struct k3_tiles *t, enum k3_type type, __m512i order, size_t c0,
                                size_t n_columns, int n_a, struct prepared *x)
{
    __m512 sums[K3_TILE_PAIRS][MAX_COLUMNS][2];
    k3_tiles_load(t, c0, n_columns, MAX_COLUMNS, sums[0]);
    for (size_t at = 0; at < t->n; at += UNIT) {
        const size_t n = t->n - at < UNIT ? t->n - at : UNIT;
        prepare(t, type, c0, n_columns, t->first + at, n, order, x, 0);
        for (size_t i = 0; i < k3_tiles_pairs(t); i++) {
            if (type == K3_TYPE_IQ1_M)
                block_of_iq1_m(t->pairs[i], at, x, n_a, n_columns, sums[i]);
            else
                block_of_iq2_xxs(t->pairs[i], at, x, n_a, n_columns, sums[i]);
        }
    }
    k3_tiles_store(t, c0, n_columns, MAX_COLUMNS, (const __m512(*)[2])sums[0]);
}

K3_INLINE void multiply_tiles(const struct k3_tiles *t, enum k3_type type)
{
    const __m512i order = k3_tile_order(type);
    const size_t all = t->product->n_columns;
    struct prepared x;
    memset(&x, 0, sizeof x); /* what stands for columns that are not there is multiplied as well */
    for (size_t c0 = 0; c0 < all; c0 += MAX_COLUMNS) {
        if (all - c0 <= 16)
            multiply_columns(t, type, order, c0, all - c0, 1, &x);
        else
            multiply_columns(t, type, order, c0, all - c0 < MAX_COLUMNS ? all - c0 : MAX_COLUMNS, 2, &x);
    }
}

static void multiply_tiles_of_32(const struct k3_tiles *t, enum k3_type type)
{
    const __m512i order = k3_tile_order(type);
    const size_t all = t->product->n_columns;
    struct prepared prepared;
    struct job_of_32 jobs[2 * K3_TILE_PAIRS * MAX_COLUMNS / 16];
    __m512 sums[K3_TILE_PAIRS][MAX_COLUMNS][2];
    memset(&prepared, 0, sizeof prepared);
    for (size_t c0 = 0; c0 < all; c0 += MAX_COLUMNS) {
        const size_t n_columns = all - c0 < MAX_COLUMNS ? all - c0 : MAX_COLUMNS;
        k3_tiles_load(t, c0, n_columns, MAX_COLUMNS, sums[0]);
        for (size_t at = 0; at < t->n; at += UNIT) {
            const size_t n = t->n - at < UNIT ? t->n - at : UNIT;
            size_t n_jobs = make_jobs(t, c0, n_columns, at, n, order, type, &prepared, sums[0], jobs);
            do_all_jobs(jobs, n_jobs, n / 32);
        }
        k3_tiles_store(t, c0, n_columns, MAX_COLUMNS, (const __m512(*)[2])sums[0]);
    }
}

/* ---- products ---- */

static void multiply_q8_0(const struct k3_tiles *t)
{
    multiply_tiles_of_32(t, K3_TYPE_Q8_0);
}
static void multiply_mxfp4(const struct k3_tiles *t)
{
    multiply_tiles_of_32(t, K3_TYPE_MXFP4);
}
static void multiply_iq1_m(const struct k3_tiles *t)
{
    multiply_tiles(t, K3_TYPE_IQ1_M);
}
static void multiply_iq2_xxs(const struct k3_tiles *t)
{
    multiply_tiles(t, K3_TYPE_IQ2_XXS);
}

/* Tiles are left as they were found, so that switches of threads do not save them. */
static void product(const struct k3_product *p, enum k3_type type, int weights, k3_tiles_fn multiply_all)
{
    configure(weights);
    k3_tile_product(p, type, K3_TILE_SIGNED, multiply_all);
    _tile_release();
}

static void batch_q8_0(const struct k3_product *p)
{
    product(p, K3_TYPE_Q8_0, 32, multiply_q8_0);
}

static void batch_mxfp4(const struct k3_product *p)
{
    product(p, K3_TYPE_MXFP4, 32, multiply_mxfp4);
}

static void batch_iq1_m(const struct k3_product *p)
{
    product(p, K3_TYPE_IQ1_M, 64, multiply_iq1_m);
}

static void batch_iq2_xxs(const struct k3_product *p)
{
    product(p, K3_TYPE_IQ2_XXS, 64, multiply_iq2_xxs);
}

/* ---- the table: AVX-512 does what tiles are no use for ---- */

/* The fewest columns for which tiles were faster (Sapphire Rapids, one core). */
#define LEAST_COLUMNS_32  24 /* q8_0, mxfp4 */
#define LEAST_COLUMNS_256 12 /* iq1_m, iq2_xxs */

static void product_q8_0(const struct k3_product *p)
{
    k3_by_columns(p, LEAST_COLUMNS_32, k3_kernels_avx512.product[K3_TYPE_Q8_0], batch_q8_0);
}

static void product_mxfp4(const struct k3_product *p)
{
    k3_by_columns(p, LEAST_COLUMNS_32, k3_kernels_avx512.product[K3_TYPE_MXFP4], batch_mxfp4);
}

static void product_iq1_m(const struct k3_product *p)
{
    k3_by_columns(p, LEAST_COLUMNS_256, k3_kernels_avx512.product[K3_TYPE_IQ1_M], batch_iq1_m);
}

static void product_iq2_xxs(const struct k3_product *p)
{
    k3_by_columns(p, LEAST_COLUMNS_256, k3_kernels_avx512.product[K3_TYPE_IQ2_XXS], batch_iq2_xxs);
}

const struct k3_kernels k3_kernels_amx = {
    .name = "amx",
    .product =
        {
            [K3_TYPE_F32] = k3_avx512_f32,
            [K3_TYPE_F16] = k3_avx512_f16,
            [K3_TYPE_BF16] = k3_avx512_bf16,
            [K3_TYPE_Q8_0] = product_q8_0,
            [K3_TYPE_MXFP4] = product_mxfp4,
            [K3_TYPE_IQ1_M] = product_iq1_m,
            [K3_TYPE_IQ2_XXS] = product_iq2_xxs,
        },
    .round = {[K3_ACT_Q8_0] = k3_avx512_round_q8_0, [K3_ACT_Q8_K] = k3_avx512_round_q8_K},
};
