/* samples.c - repetitions of one measurement. */
#include "samples.h"

void k3_samples_add(struct k3_samples *s, double value)
{
    if (s->n == K3_MAX_SAMPLES) return;
    uint32_t i = s->n++;
    for (; i > 0 && s->values[i - 1] > value; i--) s->values[i] = s->values[i - 1];
    s->values[i] = value;
}

double k3_samples_median(const struct k3_samples *s)
{
    return s->n ? (s->values[(s->n - 1) / 2] + s->values[s->n / 2]) / 2 : 0;
}

double k3_samples_min(const struct k3_samples *s)
{
    return s->n ? s->values[0] : 0;
}

double k3_samples_max(const struct k3_samples *s)
{
    return s->n ? s->values[s->n - 1] : 0;
}

double k3_samples_spread(const struct k3_samples *s)
{
    double median = k3_samples_median(s);
    return median != 0 ? (k3_samples_max(s) - k3_samples_min(s)) / median : 0;
}
