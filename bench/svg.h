/* svg.h - writing an SVG picture that is readable on light and on dark pages. */
#ifndef K3_BENCH_SVG_H
#define K3_BENCH_SVG_H

#include "common/stream.h"

#define K3_SVG_COLOURS 12

/* Writes `text` as XML has it: markup escaped, control characters and what is no UTF-8 as '?'; cut to fit. Returns
 * `out`. */
const char *k3_svg_escape(const char *text, char *out, size_t size);

/* The first and last part of a picture of that size; `title` is for those who cannot see it. */
void k3_svg_begin(struct k3_stream *out, double width, double height, const char *title);
void k3_svg_end(struct k3_stream *out);

/* Classes: "title", "label" (small), "bold". Anchors: "start", "middle", "end". */
void k3_svg_text(struct k3_stream *out, double x, double y, const char *class, const char *anchor,
                 const char *text);

/* A bar of colour 0 .. K3_SVG_COLOURS-1, with a text that shows when it is pointed at. */
void k3_svg_bar(struct k3_stream *out, double x, double y, double width, double height, uint32_t colour,
                const char *text);

/* Classes: "grid", "axis", "bound", "spread". */
void k3_svg_line(struct k3_stream *out, double x1, double y1, double x2, double y2, const char *class);

#endif
