/* graph/svg.c - a tape as a drawing: one box an op, top to bottom, coloured by kind and drawn
 * wider the more it costs; equal layers are drawn once, with a count.
 */
#include <string.h>

#include "base/buf.h"
#include "graph/graph_int.h"
#include "graph/op_info.h"
#include "graph/show.h"

enum { BOX_HEIGHT = 26, GAP = 8, LEFT = 170, BOX_WIDTH = 620, PAGE_WIDTH = 1000 };

static const char *const colours[OP_FAMILY_COUNT] = {
    [FAMILY_OTHER] = "#f3f3f3", [FAMILY_PRODUCT] = "#cfe3ff", [FAMILY_ATTENTION] = "#ffe2c4",
    [FAMILY_ROW] = "#dff5d8",   [FAMILY_LOOKUP] = "#eee4ff",
};

static void put_escaped(struct str s, struct buf *out) {
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '<')
            buf_put_text(out, "&lt;");
        else if (s.ptr[i] == '>')
            buf_put_text(out, "&gt;");
        else if (s.ptr[i] == '&')
            buf_put_text(out, "&amp;");
        else if (s.ptr[i] == '"')
            buf_put_text(out, "&quot;");
        else
            buf_put_char(out, s.ptr[i]);
    }
}

/* The ops of a layer as [first, end). */
struct op_range {
    uint32_t first, end;
};

static struct op_range layer_ops(const struct tape *t, uint32_t first) {
    uint32_t end = first;
    while (end < t->op_count && t->ops[end].layer == t->ops[first].layer) end++;
    return (struct op_range){first, end};
}

static bool same_shape(const struct tape *t, struct op_range a, struct op_range b) {
    if (a.end - a.first != b.end - b.first) return false;
    for (uint32_t i = 0; i < a.end - a.first; i++) {
        const struct op *x = &t->ops[a.first + i], *y = &t->ops[b.first + i];
        if (x->kind != y->kind) return false;
        if (x->kind == OP_ATTENTION && x->attention.window != y->attention.window) return false;
    }
    return true;
}

static void put_text(struct buf *out, uint32_t x, uint32_t y, const char *anchor, struct str text) {
    buf_printf(out, "<text x=\"%u\" y=\"%u\" text-anchor=\"%s\">", x, y, anchor);
    put_escaped(text, out);
    buf_put_text(out, "</text>\n");
}

static void put_box(const struct tape *t, uint32_t i, struct op_cost cost, uint32_t y,
                    struct buf *out) {
    struct buf label;
    buf_init(&label, 4096);
    buf_put_text(&label, op_name(t->ops[i].kind));
    op_put_detail(&t->ops[i], &label);
    buf_printf(out,
               "<rect x=\"%d\" y=\"%u\" width=\"%d\" height=\"%d\" rx=\"4\" fill=\"%s\" "
               "stroke=\"#888\"/>\n",
               LEFT, y, BOX_WIDTH, BOX_HEIGHT, colours[op_info(t->ops[i].kind)->family]);
    put_text(out, LEFT + 8, y + 17, "start", str_take(buf_str(&label), 100));
    buf_clear(&label);
    count_put_short(cost.bytes, &label);
    buf_put_text(&label, "B, ");
    count_put_short(cost.flops, &label);
    buf_put_text(&label, " flop");
    put_text(out, PAGE_WIDTH - 10, y + 17, "end", buf_str(&label));
    buf_deinit(&label);
}

/* At the left of the layer's first op. */
static void put_layer_name(const struct tape *t, struct op_range ops, uint32_t repeats, uint32_t y,
                           struct buf *out) {
    struct buf name;
    buf_init(&name, 128);
    int32_t layer = t->ops[ops.first].layer;
    if (layer < 0)
        buf_put_text(&name, ops.first == 0 ? "input" : "output");
    else if (repeats == 1)
        buf_printf(&name, "layer %d", layer);
    else
        buf_printf(&name, "layers %d to %d", layer, layer + (int32_t)repeats - 1);
    put_text(out, 10, y + 17, "start", buf_str(&name));
    buf_deinit(&name);
}

/* Returns the y below the layer. */
static uint32_t put_layer(const struct tape *t, struct op_range ops, uint32_t rows, uint32_t ctx,
                          uint32_t y, struct buf *out) {
    for (uint32_t i = ops.first; i < ops.end; i++) {
        put_box(t, i, tape_op_cost(t, i, rows, ctx), y, out);
        y += BOX_HEIGHT + GAP;
    }
    return y + GAP;
}

void tape_svg(const struct tape *t, const char *title, uint32_t rows, uint32_t ctx,
              struct buf *out) {
    struct buf body;
    buf_init(&body, out->max);
    uint32_t y = 50;
    for (uint32_t i = 0; i < t->op_count;) {
        struct op_range s = layer_ops(t, i), next = s;
        uint32_t repeats = 0;
        while (next.first < t->op_count && same_shape(t, s, next) &&
               (repeats == 0 || t->ops[s.first].layer >= 0)) {
            repeats++;
            i = next.end;
            if (i < t->op_count) next = layer_ops(t, i);
            if (next.end == i) break;
        }
        put_layer_name(t, s, repeats, y, &body);
        y = put_layer(t, s, rows, ctx, y, &body);
    }
    buf_printf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" "
        "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" "
        "fill=\"white\"/>\n",
        PAGE_WIDTH, y + 10);
    put_text(out, 10, 28, "start", str_of(title));
    buf_put_str(out, buf_str(&body));
    buf_put_text(out, "</svg>\n");
    if (buf_status(&body) != ST_OK) out->status = buf_status(&body);
    buf_deinit(&body);
}
