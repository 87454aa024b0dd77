/* provoke.h - kernels that make one mistake each, for test_emulator.c. */
#ifndef K3_SIMT_PROVOKE_H
#define K3_SIMT_PROVOKE_H

#ifdef __cplusplus
extern "C" {
#endif

enum mistake {
    NO_MISTAKE,
    READS_BEYOND,
    READS_BEFORE,
    WRITES_BEYOND,
    READS_UNWRITTEN,
    WRITES_CONSTANT,
    BLOCKS_SHARE,
    WARPS_RACE_IN_DEVICE_MEMORY,
    READS_SHARED_BEYOND,
    READS_SHARED_UNWRITTEN,
    READS_SHARED_OF_EARLIER_BLOCK,
    WRITE_THEN_READ,
    READ_THEN_WRITE,
    WRITE_THEN_WRITE,
    LANES_RACE,
    LEAVES_BEFORE_BARRIER,
    BARRIER_AFTER_LEAVING,
    TWO_BARRIERS,
    LANE_DOES_NOT_COME,
    LANE_HAS_LEFT,
    LANE_NOT_IN_MASK,
    SOURCE_NOT_IN_MASK,
    DIFFERENT_SHUFFLES,
    TOO_MUCH_SHARED,
    READS_DURING_COPY,
    COPY_WITHOUT_BARRIER,
    COPY_OVER_WHAT_IS_READ,
    COPY_NOT_ALIGNED,
};

/* Two blocks of 64 threads. x: 64 floats, y: 128. Without a mistake, y[i] = 2 + x[i % 64] + how many
 * x of the warp are positive. */
void provoke(enum mistake mistake, const float *x, float *y);

/* One block of 16 threads, which bring x into shared memory by copies of 16 bytes; y[i] = x[i] for 64 elements. */
void provoke_copy(enum mistake mistake, const float *x, float *y);

/* c[16][8] = 1 + A B, for A 16 rows and B 8 columns of 32 bytes. */
void multiply_16_8_32(const signed char *a, const signed char *b, int *c);

/* One block of n_threads. */
void provoke_threads(unsigned n_threads, float *y);

#ifdef __cplusplus
}
#endif

#endif
