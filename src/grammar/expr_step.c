/* grammar/expr_step.c - derivatives of expressions, and whether anything matches.
 *
 * The derivative of an expression by a byte matches the rests of those texts that begin with the
 * byte. Recursion goes as deep as the expression is high, which expr_intern bounds.
 */
#include "base/check.h"
#include "base/mem.h"
#include "grammar/budget.h"
#include "grammar/expr.h"
#include "grammar/expr_int.h"

enum { SEARCH_MAX = 2000, SEARCH_MULTIPLE_MAX = 200, ROW_BYTES = 256 };
enum {
    STEPS_JOINED = 32,  /* members of a list that are joined at once; on the stack */
    MEMBERS_A_TICK = 8, /* that are stepped with one unit of work */
};

static expr_id step_literal(struct expr_pool *p, struct expr e, uint8_t byte) {
    if ((uint8_t)p->bytes[e.a] != byte) return EXPR_NONE;
    if (e.b == 2) {
        uint8_t last = (uint8_t)p->bytes[e.a + 1];
        return expr_range(p, last, last);
    }
    return expr_intern(
        p, (struct expr){
               .kind = EX_LITERAL, .is_finite = true, .a = e.a + 1, .b = e.b - 1, .height = 1});
}

/* Digits before the point, the point, at most `scale` digits: numbers have no zeros at the end of a
 * fraction (decimal_any), so more digits cannot be those of a multiple. */
static expr_id step_multiple(struct expr_pool *p, struct expr e, uint8_t byte) {
    if (byte == '.' && e.d == 0) {
        e.d = 1;
        return expr_multiple_at(p, e);
    }
    if (byte < '0' || byte > '9') return EXPR_NONE;
    uint32_t digit = byte - '0';
    if (e.d == 1 + e.c) return EXPR_NONE;
    e.b = (uint32_t)(((uint64_t)e.b * 10 + digit) % e.a);
    if (e.d) e.d++;
    return expr_multiple_at(p, e);
}

static expr_id step_list(struct expr_pool *p, struct expr e, uint8_t byte) {
    expr_id all = e.kind == EX_OR ? EXPR_NONE : EXPR_ANY;
    expr_id few[STEPS_JOINED];
    uint32_t count = 0;
    if (!budget_ticks(p->budget, e.b / MEMBERS_A_TICK)) return EXPR_NONE;
    for (uint32_t i = 0; i < e.b; i++) {
        expr_id d = expr_step(p, p->lists[e.a + i], byte);
        if (e.kind == EX_AND) {
            if (d == EXPR_NONE) return EXPR_NONE;
            all = expr_and(p, all, d);
        } else if (d != EXPR_NONE && (count == 0 || few[count - 1] != d)) {
            few[count++] = d;
            if (count < STEPS_JOINED) continue;
            all = expr_or(p, all, expr_or_all(p, few, count));
            count = 0;
        }
    }
    return count ? expr_or(p, all, expr_or_all(p, few, count)) : all;
}

static expr_id derive(struct expr_pool *p, expr_id id, uint8_t byte) {
    const struct expr e = p->exprs[id];
    switch ((enum expr_kind)e.kind) {
    case EX_NONE:
    case EX_EMPTY:
        return EXPR_NONE;
    case EX_SET:
        return byte_set_has(&p->sets[e.a], byte) ? EXPR_EMPTY : EXPR_NONE;
    case EX_LITERAL:
        return step_literal(p, e, byte);
    case EX_CONCAT: {
        expr_id first = expr_concat(p, expr_step(p, e.a, byte), e.b);
        if (!p->exprs[e.a].matches_empty) return first;
        return expr_or(p, first, expr_step(p, e.b, byte));
    }
    case EX_OR:
    case EX_AND:
        return step_list(p, e, byte);
    case EX_NOT:
        return expr_not(p, expr_step(p, e.a, byte));
    case EX_REPEAT: {
        expr_id first = expr_step(p, e.a, byte);
        if (first == EXPR_NONE) return EXPR_NONE;
        uint32_t min = e.b ? e.b - 1 : 0, max = e.c == EXPR_NO_MAX ? e.c : e.c - 1;
        return expr_concat(p, first, expr_repeat(p, e.a, min, max));
    }
    case EX_MULTIPLE:
        return step_multiple(p, e, byte);
    }
    CHECK(false);
    return EXPR_NONE;
}

/* The transition without the question whether it leads anywhere. */
static expr_id step_raw(struct expr_pool *p, expr_id id, uint8_t byte) {
    const struct expr *e = &p->exprs[id];
    if (e->kind <= EX_LITERAL || e->has_multiple) return derive(p, id, byte);
    if (e->row && e->row[byte]) return e->row[byte] - 1;
    expr_id next = derive(p, id, byte);
    if (p->budget->status != ST_OK) return EXPR_NONE;
    if (!p->exprs[id].row) {
        expr_id *row = budget_zalloc(p->budget, ROW_BYTES, sizeof(*row));
        if (!row) return EXPR_NONE;
        p->exprs[id].row = row;
    }
    p->exprs[id].row[byte] = next + 1;
    return next;
}

void expr_mark_classes(const struct expr_pool *p, expr_id id, struct byte_set *marks) {
    const struct expr *e = &p->exprs[id];
    switch ((enum expr_kind)e->kind) {
    case EX_NONE:
    case EX_EMPTY:
        return;
    case EX_SET: {
        const struct byte_set *s = &p->sets[e->a];
        for (int i = 0; i < 4; i++) {
            uint64_t below = s->bits[i] << 1 | (i ? s->bits[i - 1] >> 63 : s->bits[0] & 1);
            marks->bits[i] |= s->bits[i] ^ below;
        }
        return;
    }
    case EX_LITERAL: {
        uint8_t first = (uint8_t)p->bytes[e->a];
        byte_set_add(marks, first, first);
        if (first < 255) byte_set_add(marks, (uint8_t)(first + 1), (uint8_t)(first + 1));
        return;
    }
    case EX_CONCAT:
        expr_mark_classes(p, e->a, marks);
        if (p->exprs[e->a].matches_empty) expr_mark_classes(p, e->b, marks);
        return;
    case EX_OR:
    case EX_AND:
        for (uint32_t i = 0; i < e->b; i++) expr_mark_classes(p, p->lists[e->a + i], marks);
        return;
    case EX_NOT:
    case EX_REPEAT:
        expr_mark_classes(p, e->a, marks);
        return;
    case EX_MULTIPLE:
        byte_set_add(marks, '.', '9' + 1);
        return;
    }
}

/* A search for an expression that matches the empty text, first where the shortest text may be
 * left. Those that were expanded are at the front. */
struct search {
    uint32_t number;
    expr_id *found;
    uint32_t *from; /* index in `found` of the one that led here */
    uint32_t count, cap, from_cap;
};

static bool put_found(struct expr_pool *p, struct search *s, expr_id e, uint32_t from) {
    if (p->exprs[e].found_by == s->number) return true;
    p->exprs[e].found_by = s->number;
    if (!budget_grow(p->budget, (void **)&s->found, &s->cap, s->count + 1, sizeof(e))) return false;
    if (!budget_grow(p->budget, (void **)&s->from, &s->from_cap, s->count + 1, sizeof(from)))
        return false;
    s->found[s->count] = e;
    s->from[s->count++] = from;
    return true;
}

/* Without a search. Recursion goes as deep as the expression is high. */
static bool is_surely_alive(const struct expr_pool *p, expr_id id) {
    const struct expr *e = &p->exprs[id];
    if (e->matches_empty || e->life == LIFE_ALIVE) return true;
    if (!e->is_boolean) return e->kind != EX_NONE;
    if (e->kind == EX_CONCAT) return is_surely_alive(p, e->a) && is_surely_alive(p, e->b);
    for (uint32_t i = 0; e->kind == EX_OR && i < e->b; i++)
        if (is_surely_alive(p, p->lists[e->a + i])) return true;
    return false;
}

/* Adds the successors of found[at]. Returns the index of one that is alive, or UINT32_MAX. */
static uint32_t expand(struct expr_pool *p, struct search *s, uint32_t at) {
    struct byte_set marks = {{1, 0, 0, 0}};
    expr_mark_classes(p, s->found[at], &marks);
    for (uint32_t b = 0; b < ROW_BYTES; b++) {
        if (!byte_set_has(&marks, (uint8_t)b)) continue;
        expr_id next = step_raw(p, s->found[at], (uint8_t)b);
        if (p->exprs[next].life == LIFE_DEAD) continue;
        uint32_t before = s->count;
        if (!put_found(p, s, next, at)) return UINT32_MAX;
        if (s->count > before && is_surely_alive(p, next)) return before;
    }
    return UINT32_MAX;
}

/* Brings the one that has the least left to place `at`, which is the first to be expanded. */
static void choose(const struct expr_pool *p, struct search *s, uint32_t at) {
    uint32_t best = at;
    for (uint32_t i = at + 1; i < s->count; i++)
        if (p->exprs[s->found[i]].min_len < p->exprs[s->found[best]].min_len) best = i;
    const expr_id e = s->found[best];
    const uint32_t from = s->from[best];
    s->found[best] = s->found[at];
    s->from[best] = s->from[at];
    s->found[at] = e;
    s->from[at] = from;
}

bool expr_is_alive(struct expr_pool *p, expr_id e) {
    if (p->exprs[e].life == LIFE_DEAD) return false;
    if (is_surely_alive(p, e)) return true;
    struct search s = {.number = ++p->search_count};
    uint32_t at = 0, alive = UINT32_MAX;
    const uint32_t most = p->exprs[e].has_multiple ? SEARCH_MULTIPLE_MAX : SEARCH_MAX;
    put_found(p, &s, e, 0);
    for (; at < s.count && alive == UINT32_MAX && s.count < most; at++) {
        choose(p, &s, at);
        alive = expand(p, &s, at);
    }
    bool exhausted = alive == UINT32_MAX && at == s.count && p->budget->status == ST_OK;
    for (uint32_t i = 0; i < s.count && exhausted; i++) p->exprs[s.found[i]].life = LIFE_DEAD;
    for (uint32_t i = alive; alive != UINT32_MAX; i = s.from[i]) {
        p->exprs[s.found[i]].life = LIFE_ALIVE;
        if (i == 0) break;
    }
    if (!exhausted && p->budget->status == ST_OK) p->exprs[e].life = LIFE_ALIVE; /* or assumed */
    p->budget->bytes -= s.cap * sizeof(*s.found) + s.from_cap * sizeof(*s.from);
    mem_free(s.found);
    mem_free(s.from);
    return !exhausted;
}

/* Whether the intersection is a repetition of `item` without end and what follows it, from which a
 * finite number of texts may be excluded: whatever was read, the text can go on until it is longer
 * than all of these. */
static bool is_open_repeat(const struct expr_pool *p, const struct expr *e, expr_id item) {
    bool repeats = false;
    for (uint32_t i = 0; i < e->b; i++) {
        const struct expr *x = &p->exprs[p->lists[e->a + i]];
        if (x->kind == EX_NOT && p->exprs[x->a].is_finite) continue;
        if (x->kind == EX_CONCAT && !p->exprs[x->b].is_boolean) x = &p->exprs[x->a];
        if (x->kind != EX_REPEAT || x->a != item || x->c != EXPR_NO_MAX || repeats) return false;
        repeats = true;
    }
    return repeats;
}

/* The recursion goes one level deep: lists have no lists of their own kind as members. */
static uint32_t room_of(const struct expr_pool *p, expr_id id, expr_id item, bool is_member) {
    const struct expr *e = &p->exprs[id];
    if (e->kind == EX_CONCAT) {
        if (is_member && p->exprs[e->b].is_boolean) return 0; /* perhaps nothing follows */
        e = &p->exprs[e->a];
    }
    if (e->kind == EX_REPEAT) return e->a == item ? e->c : 0;
    if (e->kind == EX_AND) return is_open_repeat(p, e, item) ? EXPR_NO_MAX : 0;
    uint32_t room = 0;
    for (uint32_t i = 0; e->kind == EX_OR && !is_member && i < e->b; i++) {
        uint32_t one = room_of(p, p->lists[e->a + i], item, true);
        if (one > room) room = one;
    }
    return room;
}

/* Whether every text that matches begins with `byte`; false also where it takes more to know. */
static bool begins_with(const struct expr_pool *p, expr_id id, uint8_t byte) {
    const struct expr *e = &p->exprs[id];
    if (e->kind == EX_CONCAT) e = &p->exprs[e->a];
    if (e->kind == EX_LITERAL) return (uint8_t)p->bytes[e->a] == byte;
    if (e->kind != EX_SET) return false;
    struct byte_set others = p->sets[e->a];
    others.bits[byte >> 6] &= ~(UINT64_C(1) << (byte & 63));
    return (others.bits[0] | others.bits[1] | others.bits[2] | others.bits[3]) == 0;
}

bool expr_room_ends(const struct expr_pool *p, expr_id id, expr_id item, uint8_t stop) {
    const struct expr *e = &p->exprs[id];
    if (e->kind != EX_CONCAT || !begins_with(p, e->b, stop)) return false;
    const struct expr *first = &p->exprs[e->a];
    return first->kind == EX_REPEAT && first->a == item && first->c != EXPR_NO_MAX;
}

uint32_t expr_room(const struct expr_pool *p, expr_id e, expr_id item) {
    return room_of(p, e, item, false);
}

expr_id expr_step(struct expr_pool *p, expr_id e, uint8_t byte) {
    if (p->budget->status != ST_OK) return EXPR_NONE;
    return step_raw(p, e, byte);
}

bool expr_matches(struct expr_pool *p, expr_id e, struct str text) {
    for (size_t i = 0; i < text.len && e != EXPR_NONE; i++)
        e = expr_step(p, e, (uint8_t)text.ptr[i]);
    return expr_matches_empty(p, e);
}
