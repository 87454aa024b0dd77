/* chart.h - bars in groups: one panel of a picture. */
#ifndef K3_BENCH_CHART_H
#define K3_BENCH_CHART_H

#include "svg.h"

#define K3_CHART_GROUPS 16
#define K3_CHART_SERIES 16
#define K3_CHART_LABEL  64
#define K3_CHART_WIDTH  900.0

struct k3_bar {
    double value;     /* 0: none */
    double low, high; /* of repetitions; both 0: not known */
    double bound;     /* what cannot be exceeded; 0: not known */
};

/* Zero-initialise. Labels are made by k3_chart_bar. */
struct k3_chart {
    char title[160];
    const char *unit;  /* of values */
    const char *axis;  /* what groups are */
    const char *bound; /* what the lines are, for the legend; NULL: there are none */
    bool stacked;      /* series stand on each other */
    uint32_t n_groups, n_series;
    char groups[K3_CHART_GROUPS][K3_CHART_LABEL], series[K3_CHART_SERIES][K3_CHART_LABEL];
    struct k3_bar bars[K3_CHART_GROUPS][K3_CHART_SERIES];
};

/* The bar of these two labels, which become the last ones if they are new; NULL if there is no room for more. */
struct k3_bar *k3_chart_bar(struct k3_chart *chart, const char *group, const char *series);

double k3_chart_height(const struct k3_chart *chart);

/* Draws it from y on down. */
void k3_chart_draw(const struct k3_chart *chart, struct k3_stream *out, double y);

/* The distance of grid lines: 1, 2 or 5 times a power of ten, 4 to 10 of them up to `max`. */
double k3_chart_step(double max);

#endif
