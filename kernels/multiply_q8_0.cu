/* multiply_q8_0.cu - q8_0 weights times q8_0 activations for few tokens.
 *
 * FORMULA. y[t][r] = sum over blocks b, in order, of dw[r][b] * dx[t][b] * (sum of the 32 products of q): the
 * definition of src/quant/portable.c, with its order of additions.
 * LAYOUT. struct k3_gpu_q8_0 and k3_gpu_acts: 16 aligned bytes are half a block.
 * MAPPING. ROWS rows for each block of threads, two for each of its four warps. For a TILE of blocks of these rows,
 *   1. two lanes take a block, 16 weights each, for every column: 4 dp4a, one shuffle to add the halves; the term
 *      dw * dx * sum goes to shared memory;
 *   2. one thread for each row and column adds the tile's terms in their order.
 * The second step is a chain of TILE additions, but only a few lanes of one warp do it while other blocks of threads
 * read. Heads are the second dimension of the grid. The rows of several matrices of the same x follow each other along the
 * first, so that a small matrix has no launch of its own and only the last of all wait for the end.
 * COST. 1.06 bytes for each weight, read once for all COLUMNS; the activations come from the cache. For a weight and a
 * column 1/4 dp4a and 1/32 of 3 multiplications and additions. Bound: memory, for up to 8 columns. */
#include "dots.h"
#include "kernels.h"

#define THREADS 128u
#define WARPS   (THREADS / K3_LANES)
#define ROWS    8u
#define TERMS   256u /* of a row in shared memory, over all columns */
#define STRIP                                                                                                \
    (K3_LANES /                                                                                              \
     2) /* blocks that a warp takes at a time; those of a few are loaded before the first is used */
#define STRIDE      (TERMS + 1) /* odd: the rows begin in different banks */
#define ALL_TERMS   (ROWS * STRIDE)
#define MAX_COLUMNS 8
#define PRODUCTS    K3_GPU_MAX_PRODUCTS

/* Where each matrix begins among the blocks of threads; past all blocks if there is none. */
struct shapes {
    unsigned first_block[PRODUCTS], n_rows[PRODUCTS];
};

/* n <= COLUMNS tokens. q and xq: 16 weights or activations each. The result is stored, or, if `add`, added to y together
 * with `plus`, which may be NULL. */
template <int COLUMNS>
K3_KERNEL multiply(K3_CONSTANTS(int4, PRODUCTS) qs, K3_CONSTANTS(uint16_t, PRODUCTS) ds, shapes all,
                   size_t n_blocks, K3_CONSTANT(int4) xq, K3_CONSTANT(float) xd, unsigned n, int add,
                   K3_CONSTANT(float) plus, K3_GLOBALS(float, PRODUCTS) ys)
{
    K3_CONSTANT(int4) q = qs.at[0];
    K3_CONSTANT(uint16_t) d = ds.at[0];
    K3_GLOBAL(float) y = ys.at[0];
    unsigned first_block = 0;
    size_t n_rows = all.n_rows[0];
    K3_UNROLL
    for (unsigned p = 1; p < PRODUCTS; p++)
        if (blockIdx.x >= all.first_block[p]) {
            q = qs.at[p];
            d = ds.at[p];
            y = ys.at[p];
            first_block = all.first_block[p];
            n_rows = all.n_rows[p];
        }
    size_t head = blockIdx.y, x_stride = gridDim.y * n_blocks, y_stride = gridDim.y * n_rows;
    const unsigned tile_blocks = TERMS / COLUMNS, strips = tile_blocks < 4 * STRIP ? tile_blocks / STRIP : 4;
    K3_SHARED(float, terms, ALL_TERMS);
    size_t first_row = (size_t)(blockIdx.x - first_block) * ROWS;
    unsigned lane = threadIdx.x % K3_LANES, warp = threadIdx.x / K3_LANES, half = lane % 2;
    unsigned my_row = threadIdx.x / COLUMNS, my_column = threadIdx.x % COLUMNS; /* of step 2 */
    float sum = 0;

    for (size_t tile = 0; tile < n_blocks; tile += tile_blocks) {
        unsigned count = (unsigned)(n_blocks - tile < tile_blocks ? n_blocks - tile : tile_blocks);
        for (unsigned r = warp; r < ROWS && first_row + r < n_rows; r += WARPS)
            for (unsigned first = 0; first < count; first += strips * STRIP) {
                int4 weights[strips];
                float dw[strips];
                K3_UNROLL
                for (unsigned j = 0; j < strips; j++) {
                    unsigned b =
                        first + j * STRIP + lane / 2; /* after the last one: a term that nothing adds */
                    size_t at =
                        (head * n_rows + first_row + r) * n_blocks + tile + (b < count ? b : count - 1);
                    weights[j] = q[2 * at + half];
                    dw[j] = k3_widen(d[at]);
                }
                K3_UNROLL
                for (unsigned j = 0; j < strips; j++) {
                    unsigned b = first + j * STRIP + lane / 2;
                    size_t block = head * n_blocks + tile + (b < count ? b : count - 1);
                    for (unsigned c = 0; c < n; c++) {
                        size_t x_at = c * x_stride + block;
                        int dot = k3_dot_16(weights[j], xq[2 * x_at + half]);
                        dot += k3_shuffle_xor(K3_ALL_LANES, dot, 1);
                        if (half == 0) terms[r * STRIDE + b * COLUMNS + c] = dw[j] * xd[x_at] * (float)dot;
                    }
                }
            }
        k3_sync();
        if (my_row < ROWS && first_row + my_row < n_rows && my_column < n)
            for (unsigned b = 0; b < count; b++) sum += terms[my_row * STRIDE + b * COLUMNS + my_column];
        k3_sync();
    }
    if (my_row >= ROWS || first_row + my_row >= n_rows || my_column >= n) return;
    size_t at = my_column * y_stride + head * n_rows + first_row + my_row;
    if (plus) sum = plus[at] + sum;
    if (add) sum = y[at] + sum;
    y[at] = sum;
}

/* All with n <= MAX_COLUMNS. */
static void multiply_few(const struct k3_gpu_product *products, size_t n_products,
                         const struct k3_gpu_acts *acts, size_t n_heads, size_t n, int add, const float *plus,
                         k3_stream stream)
{
    k3_pointers<const int4, PRODUCTS> q = {};
    k3_pointers<const uint16_t, PRODUCTS> d = {};
    k3_pointers<float, PRODUCTS> y = {};
    shapes all = {};
    size_t n_blocks = products[0].w.cols / 32, rows = 0;
    for (size_t i = 0; i < PRODUCTS; i++) {
        all.first_block[i] = i < n_products ? (unsigned)(rows / ROWS) : UINT32_MAX;
        if (i >= n_products) continue;
        q.at[i] = (const int4 *)products[i].w.q;
        d.at[i] = products[i].w.d;
        y.at[i] = products[i].y;
        all.n_rows[i] = (unsigned)(products[i].w.rows / n_heads);
        rows += (all.n_rows[i] + ROWS - 1) / ROWS * ROWS;
    }
    dim3 blocks((unsigned)(rows / ROWS), (unsigned)n_heads);
    const int4 *xq = (const int4 *)acts->q;
    unsigned columns = (unsigned)n;
    if (n == 1)
        K3_LAUNCH(multiply<1>, blocks, THREADS, stream, q, d, all, n_blocks, xq, acts->d, columns, add, plus,
                  y);
    else if (n == 2)
        K3_LAUNCH(multiply<2>, blocks, THREADS, stream, q, d, all, n_blocks, xq, acts->d, columns, add, plus,
                  y);
    else if (n <= 4)
        K3_LAUNCH(multiply<4>, blocks, THREADS, stream, q, d, all, n_blocks, xq, acts->d, columns, add, plus,
                  y);
    else
        K3_LAUNCH(multiply<8>, blocks, THREADS, stream, q, d, all, n_blocks, xq, acts->d, columns, add, plus,
                  y);
}

extern "C" void k3_gpu_multiply_all_q8_0(const struct k3_gpu_product *products, size_t n_products,
                                         const struct k3_gpu_acts *acts, size_t n, k3_stream stream)
{
    if (n <= MAX_COLUMNS)
        multiply_few(products, n_products, acts, 1, n, 0, NULL, stream);
    else
        for (size_t i = 0; i < n_products; i++)
            k3_gpu_multiply_many_q8_0(&products[i].w, acts, 1, n, 0, NULL, products[i].y, stream);
}

extern "C" void k3_gpu_multiply_q8_0(const struct k3_gpu_q8_0 *w, const struct k3_gpu_acts *acts, size_t n,
                                     float *y, k3_stream stream)
{
    struct k3_gpu_product product = {*w, y};
    k3_gpu_multiply_all_q8_0(&product, 1, acts, n, stream);
}

extern "C" void k3_gpu_multiply_add_q8_0(const struct k3_gpu_q8_0 *w, const struct k3_gpu_acts *acts,
                                         size_t n, const float *plus, float *y, k3_stream stream)
{
    struct k3_gpu_product product = {*w, y};
    if (n <= MAX_COLUMNS)
        multiply_few(&product, 1, acts, 1, n, 1, plus, stream);
    else
        k3_gpu_multiply_many_q8_0(w, acts, 1, n, 1, plus, y, stream);
}

extern "C" void k3_gpu_multiply_heads_q8_0(const struct k3_gpu_q8_0 *w, const struct k3_gpu_acts *acts,
                                           size_t n_heads, size_t n, float *y, k3_stream stream)
{
    struct k3_gpu_product product = {*w, y};
    if (n <= MAX_COLUMNS)
        multiply_few(&product, 1, acts, n_heads, n, 0, NULL, stream);
    else
        k3_gpu_multiply_many_q8_0(w, acts, n_heads, n, 0, NULL, y, stream);
}
