/* chart.c - draws bars in groups. */
#include "chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LEFT        70.0 /* of the plot, for numbers and unit */
#define RIGHT       20.0
#define PLOT_HEIGHT 240.0
#define HEAD        40.0 /* title */
#define LEGEND_LINE 18.0
#define FOOT        74.0 /* labels of groups in up to two lines, name of the axis, room to the next panel */
#define CHARACTER   6.6  /* its width on average */

static uint32_t find_label(char labels[][K3_CHART_LABEL], uint32_t *n, uint32_t max, const char *label)
{
    char cut[K3_CHART_LABEL];
    snprintf(cut, sizeof cut, "%s", label);
    uint32_t i = 0;
    while (i < *n && strcmp(labels[i], cut) != 0) i++;
    if (i < *n || i == max) return i;
    memcpy(labels[i], cut, sizeof cut);
    return (*n)++;
}

struct k3_bar *k3_chart_bar(struct k3_chart *chart, const char *group, const char *series)
{
    uint32_t g = find_label(chart->groups, &chart->n_groups, K3_CHART_GROUPS, group);
    uint32_t s = find_label(chart->series, &chart->n_series, K3_CHART_SERIES, series);
    return g < K3_CHART_GROUPS && s < K3_CHART_SERIES ? &chart->bars[g][s] : NULL;
}

double k3_chart_step(double max)
{
    double power = pow(10, floor(log10(max > 0 ? max : 1)));
    for (double factor = 0.1;; factor *= 10)
        for (int i = 0; i < 3; i++) {
            static const double steps[] = {1, 2, 5};
            if (max / (power * factor * steps[i]) <= 10) return power * factor * steps[i];
        }
}

/* ---- scale ---- */

static double highest_bar(const struct k3_chart *c)
{
    double highest = 0;
    for (uint32_t g = 0; g < c->n_groups; g++) {
        double stack = 0;
        for (uint32_t s = 0; s < c->n_series; s++) {
            const struct k3_bar *bar = &c->bars[g][s];
            stack += bar->value;
            double top = c->stacked ? stack : fmax(bar->value, bar->high);
            if (top > highest) highest = top;
        }
    }
    return highest;
}

/* A bound far above the bars would make them small for nothing; it is left out of the picture. */
#define FAR 4

static double highest(const struct k3_chart *c)
{
    double bars = highest_bar(c), top = bars;
    for (uint32_t g = 0; g < c->n_groups; g++)
        for (uint32_t s = 0; s < c->n_series; s++) {
            double bound = c->bars[g][s].bound;
            if (bound <= FAR * bars && bound > top) top = bound;
        }
    return top > 0 ? top : 1;
}

struct scale {
    double y0, unit; /* of value 0, and pixels of 1 */
};

static double at(const struct scale *scale, double value)
{
    return scale->y0 - value * scale->unit;
}

/* ---- parts ---- */

/* Whether labels of groups would run into each other on one line. */
static bool is_crowded(const struct k3_chart *c)
{
    for (uint32_t g = 0; g < c->n_groups; g++)
        if (CHARACTER * (double)strlen(c->groups[g]) * c->n_groups > K3_CHART_WIDTH - LEFT - RIGHT)
            return true;
    return false;
}

static bool has_bound(const struct k3_chart *c)
{
    double top = highest(c);
    for (uint32_t g = 0; g < c->n_groups; g++)
        for (uint32_t s = 0; s < c->n_series; s++)
            if (c->bars[g][s].bound > 0 && c->bars[g][s].bound <= top) return true;
    return false;
}

/* Places the labels of series, or only counts their lines if `out` is NULL. */
static double legend(const struct k3_chart *c, struct k3_stream *out, double y)
{
    double x = LEFT, lines = 1;
    for (uint32_t s = 0; s <= c->n_series; s++) {
        const char *label = s < c->n_series ? c->series[s] : has_bound(c) ? c->bound : NULL;
        if (!label) continue;
        double width = 24 + CHARACTER * (double)strlen(label);
        if (x + width > K3_CHART_WIDTH - RIGHT && x > LEFT) {
            x = LEFT;
            lines++;
        }
        double line = y + (lines - 1) * LEGEND_LINE;
        if (out && s < c->n_series) k3_svg_bar(out, x, line - 9, 10, 10, s, label);
        if (out && s == c->n_series) k3_svg_line(out, x, line - 4, x + 10, line - 4, "bound");
        if (out) k3_svg_text(out, x + 14, line, "label", "start", label);
        x += width;
    }
    return lines * LEGEND_LINE;
}

double k3_chart_height(const struct k3_chart *chart)
{
    return HEAD + legend(chart, NULL, 0) + PLOT_HEIGHT + FOOT;
}

static void draw_grid(const struct k3_chart *c, struct k3_stream *out, const struct scale *scale, double top)
{
    double step = k3_chart_step(top);
    char text[32];
    for (int i = 0; i * step <= top * 1.0001; i++) {
        double y = at(scale, i * step);
        snprintf(text, sizeof text, "%.6g", i * step);
        k3_svg_line(out, LEFT, y, K3_CHART_WIDTH - RIGHT, y, i ? "grid" : "axis");
        k3_svg_text(out, LEFT - 6, y + 4, "label", "end", text);
    }
    k3_svg_text(out, LEFT - 6, at(scale, top) - 14, "label", "end", c->unit);
}

static void draw_bar(const struct k3_chart *c, struct k3_stream *out, const struct scale *scale, uint32_t g,
                     uint32_t s, double x, double width, double base, double top)
{
    const struct k3_bar *bar = &c->bars[g][s];
    char text[3 * K3_CHART_LABEL];
    snprintf(text, sizeof text, "%s, %s: %.4g %s", c->groups[g], c->series[s], bar->value, c->unit);
    k3_svg_bar(out, x, at(scale, base + bar->value), width, bar->value * scale->unit, s, text);
    if (bar->high > 0)
        k3_svg_line(out, x + width / 2, at(scale, bar->low), x + width / 2, at(scale, bar->high), "spread");
    if (bar->bound > 0 && bar->bound <= top)
        k3_svg_line(out, x - 1, at(scale, bar->bound), x + width + 1, at(scale, bar->bound), "bound");
    if (c->stacked || width < 24) return;
    snprintf(text, sizeof text, "%.3g", bar->value);
    k3_svg_text(out, x + width / 2, at(scale, fmax(bar->value, bar->high)) - 4, "label", "middle", text);
}

static void draw_group(const struct k3_chart *c, struct k3_stream *out, const struct scale *scale, uint32_t g,
                       double x, double width, double top)
{
    double share = c->stacked ? 1 : (double)c->n_series, base = 0;
    double bar_width = fmin(width * 0.8 / share, 60), from = x + (width - bar_width * share) / 2;
    for (uint32_t s = 0; s < c->n_series; s++) {
        if (c->bars[g][s].value <= 0) continue;
        draw_bar(c, out, scale, g, s, c->stacked ? from : from + s * bar_width,
                 bar_width * (c->stacked ? 1 : 0.9), base, top);
        if (c->stacked) base += c->bars[g][s].value;
    }
    double line = is_crowded(c) && g % 2 ? 30 : 16;
    k3_svg_text(out, x + width / 2, scale->y0 + line, "label", "middle", c->groups[g]);
}

void k3_chart_draw(const struct k3_chart *c, struct k3_stream *out, double y)
{
    double top = highest(c), plot = y + HEAD + legend(c, NULL, 0);
    struct scale scale = {plot + PLOT_HEIGHT, (PLOT_HEIGHT - 24) / top};
    double width = (K3_CHART_WIDTH - LEFT - RIGHT) / (c->n_groups ? c->n_groups : 1);
    k3_svg_text(out, LEFT, y + 22, "title", "start", c->title);
    legend(c, out, y + HEAD);
    draw_grid(c, out, &scale, top);
    for (uint32_t g = 0; g < c->n_groups; g++) draw_group(c, out, &scale, g, LEFT + g * width, width, top);
    k3_svg_text(out, (LEFT + K3_CHART_WIDTH - RIGHT) / 2, scale.y0 + 48, "label", "middle", c->axis);
}
