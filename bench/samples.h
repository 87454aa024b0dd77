/* samples.h - repetitions of one measurement: their median and how far they lie apart. */
#ifndef K3_BENCH_SAMPLES_H
#define K3_BENCH_SAMPLES_H

#include <stdint.h>

#define K3_MAX_SAMPLES 100

/* Zero-initialise. */
struct k3_samples {
    double values[K3_MAX_SAMPLES]; /* ascending */
    uint32_t n;
};

/* One more; those above K3_MAX_SAMPLES are dropped. */
void k3_samples_add(struct k3_samples *s, double value);

/* Of no values all of these are 0; the median of an even number is the mean of the middle two. */
double k3_samples_median(const struct k3_samples *s);
double k3_samples_min(const struct k3_samples *s);
double k3_samples_max(const struct k3_samples *s);

/* (max - min) / median; 0 if the median is. */
double k3_samples_spread(const struct k3_samples *s);

#endif
