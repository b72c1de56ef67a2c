/* grammar/unique_few.c - uniqueItems where items are of a finite set, as an enum is.
 *
 * While an item is read, its entry on the stack has the text so far. Behind the item the text
 * becomes part of the array's expression of items, and the next item is intersected with the
 * complement of this expression. So an item that the array has cannot even be begun.
 */
#include "base/buf.h"
#include "grammar/grammar_int.h"

enum { ITEM_BYTES_MAX = 1 << 20 };

/* Writes the entries of the path again, from the last one, which lies on `below`, to the top. */
static uint32_t rewrite(struct grammar *g, uint32_t count, uint32_t below) {
    struct tables *t = &g->tables;
    while (count-- > 0) {
        struct stack_entry e = t->stacks[t->path[count]];
        e.below = below;
        below = stack_push(g, e);
    }
    return below;
}

static bool put_path(struct grammar *g, uint32_t count, uint32_t stack) {
    struct tables *t = &g->tables;
    if (!budget_grow(&g->budget, (void **)&t->path, &t->path_cap, count + 1, sizeof(*t->path)))
        return false;
    t->path[count] = stack;
    return true;
}

uint32_t unique_record(struct grammar *g, uint32_t stack, uint8_t byte) {
    struct tables *t = &g->tables;
    uint32_t count = 0, at = stack;
    for (; t->stacks[at].tracks; at = t->stacks[at].below)
        if (!put_path(g, count++, at)) return 0;
    while (count-- > 0) {
        struct stack_entry e = t->stacks[t->path[count]];
        e.below = at;
        if (e.kind == STACK_ITEM_FEW)
            e.value = stack_push(
                g, (struct stack_entry){.rule = byte, .below = e.value, .kind = STACK_TEXT});
        at = stack_push(g, e);
    }
    return at;
}

static uint32_t array_of(const struct tables *t, uint32_t stack) {
    while (t->stacks[stack].kind != STACK_ARRAY_FEW) stack = t->stacks[stack].below;
    return stack;
}

expr_id unique_rest(struct grammar *g, expr_id e, uint32_t stack) {
    const struct tables *t = &g->tables;
    return expr_and(g->exprs, e, expr_not(g->exprs, t->stacks[array_of(t, stack)].value));
}

/* The text that an entry of STACK_TEXT ends, in the right order. */
static void put_text(const struct tables *t, uint32_t text, struct buf *out) {
    for (uint32_t at = text; at; at = t->stacks[at].below)
        buf_put_char(out, (char)t->stacks[at].rule);
    for (size_t i = 0; i < out->len / 2; i++) {
        char c = out->ptr[i];
        out->ptr[i] = out->ptr[out->len - 1 - i];
        out->ptr[out->len - 1 - i] = c;
    }
}

/* The item as an expression. An item of a finite set has one spelling. */
static expr_id spelling(struct grammar *g, uint32_t text) {
    struct buf raw;
    expr_id e = EXPR_NONE;
    buf_init(&raw, ITEM_BYTES_MAX);
    put_text(&g->tables, text, &raw);
    if (buf_status(&raw) != ST_OK) budget_spend_out(&g->budget, "bytes");
    if (g->budget.status == ST_OK) e = expr_literal(g->exprs, buf_str(&raw));
    buf_deinit(&raw);
    return e;
}

bool unique_end(struct grammar *g, uint32_t stack, uint32_t *below) {
    struct tables *t = &g->tables;
    uint32_t count = 0, at = t->stacks[stack].below;
    const expr_id item = spelling(g, t->stacks[stack].value);
    for (; t->stacks[at].kind != STACK_ARRAY_FEW; at = t->stacks[at].below)
        if (!put_path(g, count++, at)) return false;
    struct stack_entry array = t->stacks[at];
    array.value = expr_or(g->exprs, array.value, item);
    *below = rewrite(g, count, stack_push(g, array));
    return g->budget.status == ST_OK;
}
