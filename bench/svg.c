/* svg.c - writes SVG. */
#include "svg.h"

#include <stdio.h>
#include <string.h>

#define TEXT_MAX 512 /* escaped; longer texts are cut */

const char *k3_svg_escape(const char *text, char *out, size_t size)
{
    static const struct {
        char c;
        const char *entity;
    } entities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
    char clean[TEXT_MAX];
    size_t n = 0;
    snprintf(clean, sizeof clean, "%s", text);
    k3_clean_text(clean);
    for (const char *p = clean; *p;) {
        const char *from = p;
        size_t length = 1;
        while ((p[length] & 0xc0) == 0x80) length++; /* a whole character */
        p += length;
        for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
            if (entities[i].c == *from) {
                length = strlen(entities[i].entity);
                from = entities[i].entity;
                break;
            }
        if (n + length >= size) break;
        memcpy(out + n, from, length);
        n += length;
    }
    out[n] = 0;
    return out;
}

void k3_svg_begin(struct k3_stream *out, double width, double height, const char *title)
{
    char text[TEXT_MAX];
    k3_stream_print(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
        "role=\"img\" font-family=\"system-ui,sans-serif\" font-size=\"12\">\n<title>%s</title>\n",
        width, height, width, height, k3_svg_escape(title, text, sizeof text));
    k3_stream_print(out, "<style>\n"
                         ".page{fill:#ffffff}text{fill:#1f2328}.label{font-size:11px;fill:#59636e}\n"
                         ".title{font-size:15px;font-weight:600}.bold{font-weight:600}\n"
                         ".grid{stroke:#d1d9e0;stroke-width:1}.axis{stroke:#59636e;stroke-width:1}\n"
                         ".bound{stroke:#d1242f;stroke-width:2}.spread{stroke:#1f2328;stroke-width:1}\n"
                         "@media (prefers-color-scheme:dark){\n"
                         ".page{fill:#0d1117}text{fill:#f0f6fc}.label{fill:#9198a1}.grid{stroke:#3d444d}\n"
                         ".axis{stroke:#9198a1}.bound{stroke:#ff7b72}.spread{stroke:#f0f6fc}}\n");
    /* Tableau's ten and two more: told apart in pairs, on white and on black. */
    static const char *const colours[K3_SVG_COLOURS] = {"4e79a7", "f28e2b", "59a14f", "e15759",
                                                        "b07aa1", "76b7b2", "edc948", "9c755f",
                                                        "ff9da7", "8a8f98", "5b3a8e", "8cd17d"};
    for (int i = 0; i < K3_SVG_COLOURS; i++) k3_stream_print(out, ".c%d{fill:#%s}", i, colours[i]);
    k3_stream_print(out, "\n</style>\n<rect class=\"page\" width=\"%.0f\" height=\"%.0f\"/>\n", width,
                    height);
}

void k3_svg_end(struct k3_stream *out)
{
    k3_stream_print(out, "</svg>\n");
}

void k3_svg_text(struct k3_stream *out, double x, double y, const char *class, const char *anchor,
                 const char *text)
{
    char escaped[TEXT_MAX];
    k3_stream_print(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", class, x,
                    y, anchor, k3_svg_escape(text, escaped, sizeof escaped));
}

void k3_svg_bar(struct k3_stream *out, double x, double y, double width, double height, uint32_t colour,
                const char *text)
{
    char escaped[TEXT_MAX];
    k3_stream_print(
        out,
        "<rect class=\"c%u\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>%s</title></rect>\n",
        colour % K3_SVG_COLOURS, x, y, width, height, k3_svg_escape(text, escaped, sizeof escaped));
}

void k3_svg_line(struct k3_stream *out, double x1, double y1, double x2, double y2, const char *class)
{
    k3_stream_print(out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1,
                    y1, x2, y2);
}
