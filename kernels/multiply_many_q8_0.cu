/* multiply_many_q8_0.cu - q8_0 weights times q8_0 activations for many tokens, on the matrix units.
 *
 * FORMULA. That of multiply_q8_0.cu, with its order of additions: the sum of a block is one matrix product of depth
 * 32, an exact integer; then y += dw * dx * sum, block after block.
 * LAYOUT. struct k3_gpu_q8_0 and k3_gpu_acts.
 * MAPPING. A block of threads makes ROWS x TOKENS values of y; each of its 8 warps WARP_ROWS x WARP_TOKENS of them,
 * M x N products of 16 x 8, whose values lie in registers: a lane has 2 rows and 2 tokens of each (k3_mma_s8).
 * DEPTH blocks of the rows and the tokens at a time are copied to shared memory, while those before are multiplied.
 * A row there is PITCH words, 4 more than it needs: the 8 rows of a fragment then lie in different banks. Heads are
 * the third dimension of the grid.
 * COST. 1.06 bytes for each weight, read once for each TOKENS of them from the cache or memory. For 8 matrix products
 * of a warp a lane adds 32 values, each with 3 multiplications and additions and a conversion: 4 operations for 32
 * products. Bound, on paper: those operations, once there are tokens enough to hide the weights' reads. */
#include "kernels.h"
#include "simt.h"

#define THREADS      256u
#define ROWS         128u
#define TOKENS       64u
#define WARP_ROWS    32u
#define WARP_TOKENS  32u
#define M            (WARP_ROWS / 16)  /* products of a warp: down the rows */
#define N            (WARP_TOKENS / 8) /* and along the tokens */
#define DEPTH        2u                /* blocks of 32 */
#define PITCH        (DEPTH * 8 + 4)   /* words of a row in shared memory */
#define ROW_WORDS    (2 * ROWS * PITCH)
#define TOKEN_WORDS  (2 * TOKENS * PITCH)
#define ROW_SCALES   (2 * ROWS * DEPTH)
#define TOKEN_SCALES (2 * TOKENS * DEPTH)

/* In shared memory: two of each, one to fill and one to multiply. Scales: [row or token][DEPTH]. */
struct tiles {
    K3_SHARED_OF(int) wq;
    K3_SHARED_OF(int) xq;
    K3_SHARED_OF(float) wd;
    K3_SHARED_OF(float) xd;
};

K3_DEVICE tiles one_of(tiles both, unsigned which)
{
    return {both.wq + which * ROWS * PITCH, both.xq + which * TOKENS * PITCH, both.wd + which * ROWS * DEPTH,
            both.xd + which * TOKENS * DEPTH};
}

struct operands {
    K3_CONSTANT(int4) wq;
    K3_CONSTANT(uint16_t) wd;
    K3_CONSTANT(int4) xq;
    K3_CONSTANT(float) xd;
    size_t n_rows, n_tokens, n_blocks;
    size_t stride; /* blocks from one token to the next */
};

/* Starts to fill the tiles with `depth` blocks from `block` on. What is beyond the last row or token is a copy of it.
 * */
K3_DEVICE void fill(tiles to, operands from, size_t first_row, size_t first_token, size_t block,
                    unsigned depth)
{
    for (unsigned i = threadIdx.x; i < (ROWS + TOKENS) * DEPTH * 2; i += THREADS) {
        unsigned line = i / (DEPTH * 2), part = i % (DEPTH * 2); /* of 16 bytes */
        if (part >= depth * 2) continue;
        if (line < ROWS) {
            size_t row = first_row + line < from.n_rows ? first_row + line : from.n_rows - 1;
            k3_copy_16(to.wq + (line * PITCH + part * 4),
                       from.wq + ((row * from.n_blocks + block) * 2 + part));
        } else {
            size_t t =
                first_token + line - ROWS < from.n_tokens ? first_token + line - ROWS : from.n_tokens - 1;
            k3_copy_16(to.xq + ((line - ROWS) * PITCH + part * 4),
                       from.xq + ((t * from.stride + block) * 2 + part));
        }
    }
    k3_copy_end_group();
    for (unsigned i = threadIdx.x; i < (ROWS + TOKENS) * DEPTH; i += THREADS) {
        unsigned line = i / DEPTH, b = i % DEPTH;
        if (b >= depth) continue;
        if (line < ROWS) {
            size_t row = first_row + line < from.n_rows ? first_row + line : from.n_rows - 1;
            to.wd[line * DEPTH + b] = k3_widen(from.wd[row * from.n_blocks + block + b]);
        } else {
            size_t t =
                first_token + line - ROWS < from.n_tokens ? first_token + line - ROWS : from.n_tokens - 1;
            to.xd[(line - ROWS) * DEPTH + b] = from.xd[t * from.stride + block + b];
        }
    }
}

/* Adds block b of the tiles to this lane's values; row and token: the first of its warp in the tiles. */
K3_DEVICE void add_block(tiles in, unsigned b, unsigned row, unsigned token, float (&y)[M][N][4])
{
    unsigned g = threadIdx.x % K3_LANES / 4, i = threadIdx.x % 4;
    int a[M][4];
    float wd[M][2];
    K3_UNROLL
    for (unsigned m = 0; m < M; m++) K3_UNROLL
    for (unsigned j = 0; j < 4; j++) {
        unsigned line = row + 16 * m + g + j % 2 * 8;
        a[m][j] = in.wq[line * PITCH + b * 8 + j / 2 * 4 + i];
        if (j < 2) wd[m][j] = in.wd[line * DEPTH + b];
    }
    K3_UNROLL
    for (unsigned n = 0; n < N; n++) {
        unsigned line = token + 8 * n;
        int words = (int)((line + g) * PITCH + b * 8 + i), x[2] = {in.xq[words], in.xq[words + 4]};
        float xd[2] = {in.xd[(line + 2 * i) * DEPTH + b], in.xd[(line + 2 * i + 1) * DEPTH + b]};
        K3_UNROLL
        for (unsigned m = 0; m < M; m++) {
            int sums[4] = {0, 0, 0, 0};
            k3_mma_s8(sums, a[m], x);
            K3_UNROLL
            for (unsigned j = 0; j < 4; j++) y[m][n][j] += wd[m][j / 2] * xd[j % 2] * (float)sums[j];
        }
    }
}

K3_KERNEL multiply_many(K3_CONSTANT(int4) wq, K3_CONSTANT(uint16_t) wd, size_t n_rows, size_t n_blocks,
                        K3_CONSTANT(int4) xq, K3_CONSTANT(float) xd, size_t n_tokens, int add,
                        K3_CONSTANT(float) plus, K3_GLOBAL(float) y)
{
    K3_SHARED(int, row_words, ROW_WORDS);
    K3_SHARED(int, token_words, TOKEN_WORDS);
    K3_SHARED(float, row_scales, ROW_SCALES);
    K3_SHARED(float, token_scales, TOKEN_SCALES);
    size_t head = blockIdx.z, from_row = head * n_rows * n_blocks;
    operands from = {wq + from_row * 2, wd + from_row, xq + head * n_blocks * 2, xd + head * n_blocks, n_rows,
                     n_tokens,          n_blocks,      gridDim.z * n_blocks};
    tiles both = {row_words, token_words, row_scales, token_scales};
    size_t first_row = (size_t)blockIdx.x * ROWS, first_token = (size_t)blockIdx.y * TOKENS;
    unsigned warp = threadIdx.x / K3_LANES, lane = threadIdx.x % K3_LANES;
    unsigned row = warp % (ROWS / WARP_ROWS) * WARP_ROWS, token = warp / (ROWS / WARP_ROWS) * WARP_TOKENS;
    float sums[M][N][4] = {};

    fill(one_of(both, 0), from, first_row, first_token, 0, n_blocks < DEPTH ? (unsigned)n_blocks : DEPTH);
    unsigned which = 0;
    for (size_t block = 0; block < n_blocks; block += DEPTH, which = 1 - which) {
        size_t next = block + DEPTH;
        if (next < n_blocks) {
            fill(one_of(both, 1 - which), from, first_row, first_token, next,
                 n_blocks - next < DEPTH ? (unsigned)(n_blocks - next) : DEPTH);
            k3_copy_wait<1>();
        } else {
            k3_copy_wait<0>();
        }
        k3_sync();
        unsigned depth = n_blocks - block < DEPTH ? (unsigned)(n_blocks - block) : DEPTH;
        for (unsigned b = 0; b < depth; b++) add_block(one_of(both, which), b, row, token, sums);
        k3_sync();
    }

    K3_UNROLL
    for (unsigned m = 0; m < M; m++) K3_UNROLL
    for (unsigned n = 0; n < N; n++) K3_UNROLL
    for (unsigned j = 0; j < 4; j++) {
        size_t r = first_row + row + 16 * m + lane / 4 + j / 2 * 8;
        size_t t = first_token + token + 8 * n + lane % 4 * 2 + j % 2;
        if (r >= n_rows || t >= n_tokens) continue;
        size_t at = (t * gridDim.z + head) * n_rows + r;
        float sum = sums[m][n][j];
        if (plus) sum = plus[at] + sum;
        if (add) sum = y[at] + sum;
        y[at] = sum;
    }
}

extern "C" void k3_gpu_multiply_many_q8_0(const struct k3_gpu_q8_0 *w, const struct k3_gpu_acts *acts,
                                          size_t n_heads, size_t n, int add, const float *plus, float *y,
                                          k3_stream stream)
{
    size_t n_rows = w->rows / n_heads;
    dim3 blocks((unsigned)((n_rows + ROWS - 1) / ROWS), (unsigned)((n + TOKENS - 1) / TOKENS),
                (unsigned)n_heads);
    K3_LAUNCH(multiply_many, blocks, THREADS, stream, (const int4 *)w->q, w->d, n_rows, w->cols / 32,
              (const int4 *)acts->q, acts->d, n, add, plus, y);
}
