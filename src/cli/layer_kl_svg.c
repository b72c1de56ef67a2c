/* cli/layer_kl_svg.c - the KL of each layer as a bar chart: layers from left to right, embedding
 * and output at the ends. */
#include <math.h>

#include "base/buf.h"
#include "base/str.h"
#include "base/utf8.h"
#include "cli/layer_kl.h"

enum {
    LEFT = 90,
    RIGHT = 20,
    TOP = 70,
    PLOT_HEIGHT = 260,
    BOTTOM = 70,
    PLOT_WIDTH_MIN = 480,
    BAR_MIN = 6, /* with its gap */
    LABELS_MAX = 16,
    TICKS = 4
};

struct chart {
    const struct layer_kl *k;
    uint32_t bars;
    double width, step; /* of the plot; of a bar with its gap */
    double most;        /* KL at the top */
};

/* XML has no control characters, not even escaped. */
static bool is_allowed(uint32_t code) {
    return !utf8_is_bad(code) && code >= 0x20 && !(code >= 0x7f && code < 0xa0) && code != 0xfffe &&
           code != 0xffff;
}

static void put_escaped(const char *name, struct buf *out) {
    struct str s = str_of(name);
    while (s.len > 0) {
        uint32_t code;
        size_t len = utf8_decode(s, &code);
        if (code == '<')
            buf_put_text(out, "&lt;");
        else if (code == '>')
            buf_put_text(out, "&gt;");
        else if (code == '&')
            buf_put_text(out, "&amp;");
        else if (code == '"')
            buf_put_text(out, "&quot;");
        else if (is_allowed(code))
            buf_put(out, s.ptr, len);
        else
            buf_put_char(out, '?');
        s = (struct str){s.ptr + len, s.len - len};
    }
}

/* 1, 2 or 5 times a power of ten, at least x. */
static double round_up(double x) {
    double power = 1e-9;
    while (power < 1e9) {
        if (x <= power) return power;
        if (x <= 2 * power) return 2 * power;
        if (x <= 5 * power) return 5 * power;
        power *= 10;
    }
    return x;
}

static double kl_of(const struct chart *c, uint32_t bar) {
    const struct layer_kl *k = c->k;
    if (bar + 1 == c->bars) return k->output_kl;
    if (!k->is_tied && bar == 0) return k->embedding_kl;
    return k->layers[k->is_tied ? bar : bar - 1];
}

static const char *end_name(const struct chart *c, uint32_t bar) {
    if (bar + 1 == c->bars) return c->k->is_tied ? "embedding and output" : "output";
    return !c->k->is_tied && bar == 0 ? "embedding" : NULL;
}

static void put_head(const struct chart *c, const char *a, const char *b, struct buf *out) {
    double width = LEFT + c->width + RIGHT;
    buf_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%d\" "
               "viewBox=\"0 0 %.0f %d\" role=\"img\" aria-labelledby=\"title about\" "
               "font-family=\"sans-serif\" font-size=\"12\">\n",
               width, TOP + PLOT_HEIGHT + BOTTOM, width, TOP + PLOT_HEIGHT + BOTTOM);
    buf_put_text(out, "<title id=\"title\">KL by layer</title>\n<desc id=\"about\">Mean KL of the "
                      "predictions when one layer is taken from ");
    put_escaped(b, out);
    buf_put_text(out, " and all others from ");
    put_escaped(a, out);
    buf_put_text(out, ".</desc>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    buf_printf(out, "<text x=\"%d\" y=\"24\" font-size=\"16\">KL by layer</text>\n", LEFT);
    buf_printf(out, "<text x=\"%d\" y=\"46\">one layer of ", LEFT);
    put_escaped(b, out);
    buf_put_text(out, " in ");
    put_escaped(a, out);
    buf_put_text(out, "</text>\n");
}

static void put_axes(const struct chart *c, struct buf *out) {
    for (int i = 0; i <= TICKS; i++) {
        double y = TOP + PLOT_HEIGHT * (1 - (double)i / TICKS);
        buf_printf(out,
                   "<line x1=\"%d\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#cccccc\"/>\n"
                   "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                   LEFT, y, LEFT + c->width, y, LEFT - 8, y + 4, c->most * i / TICKS);
    }
    buf_printf(
        out,
        "<text x=\"18\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 18 %d)\">mean "
        "KL in nats</text>\n",
        TOP + PLOT_HEIGHT / 2, TOP + PLOT_HEIGHT / 2);
    buf_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">layer</text>\n",
               LEFT + c->width / 2, TOP + PLOT_HEIGHT + 44);
}

/* Layers have a number below them where there is room; the ends have their name. */
static void put_label(const struct chart *c, uint32_t bar, struct buf *out) {
    const char *end = end_name(c, bar);
    uint32_t layer = c->k->is_tied ? bar : bar - 1, every = c->k->layer_count / LABELS_MAX + 1;
    double x = LEFT + c->step * (bar + 0.5);
    if (end)
        buf_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%s</text>\n",
                   bar == 0 ? LEFT : LEFT + c->width, TOP + PLOT_HEIGHT + 34,
                   bar == 0 ? "start" : "end", end);
    else if (layer % every == 0)
        buf_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%u</text>\n", x,
                   TOP + PLOT_HEIGHT + 18, layer);
}

static void put_bar(const struct chart *c, uint32_t bar, struct buf *out) {
    double kl = kl_of(c, bar), height = isfinite(kl) ? PLOT_HEIGHT * kl / c->most : PLOT_HEIGHT;
    const char *end = end_name(c, bar);
    buf_printf(out,
               "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"><title>",
               LEFT + c->step * (bar + 0.1), TOP + PLOT_HEIGHT - height, c->step * 0.8, height,
               end ? "#b05f00" : "#2a6db0");
    if (end)
        buf_put_text(out, end);
    else
        buf_printf(out, "layer %u", c->k->is_tied ? bar : bar - 1);
    buf_printf(out, ": %.6f</title></rect>\n", kl);
    put_label(c, bar, out);
}

void layer_kl_put_svg(const struct layer_kl *k, const char *name_a, const char *name_b,
                      struct buf *out) {
    struct chart c = {.k = k, .bars = k->layer_count + (k->is_tied ? 1 : 2)};
    double most = 0;
    for (uint32_t i = 0; i < c.bars; i++)
        if (kl_of(&c, i) > most && isfinite(kl_of(&c, i))) most = kl_of(&c, i);
    c.most = round_up(most);
    c.width = c.bars * BAR_MIN > PLOT_WIDTH_MIN ? c.bars * BAR_MIN : PLOT_WIDTH_MIN;
    c.step = c.width / c.bars;
    put_head(&c, name_a, name_b, out);
    put_axes(&c, out);
    for (uint32_t i = 0; i < c.bars; i++) put_bar(&c, i, out);
    buf_put_text(out, "</svg>\n");
}
