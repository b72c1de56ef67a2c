/* grammar/expr.c - the pool of expressions: constructors that simplify and find equal ones.
 *
 * Every constructor returns the simplest form that costs nothing to find (x|x is x, x followed by
 * nothing-matches is EXPR_NONE). This keeps the number of different derivatives small and finite.
 */
#include "grammar/expr.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "grammar/budget.h"
#include "grammar/expr_int.h"

enum { HEIGHT_MAX = 4000, SLOTS_FIRST = 1024, CHOICE_DEPTH_MAX = 1500, MIN_LEN_MAX = 1 << 30 };
enum { FEW_IDS = 48 };        /* that are sorted by insertion */
enum { LITERAL_SHARED = 16 }; /* bytes of a literal that is found by its text, not by its place */

void byte_set_add(struct byte_set *s, uint8_t low, uint8_t high) {
    for (uint32_t b = low; b <= high; b++) s->bits[b >> 6] |= UINT64_C(1) << (b & 63);
}

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

static bool is_list(const struct expr *e) { return e->kind == EX_OR || e->kind == EX_AND; }

static bool is_shared(const struct expr *e) {
    return e->kind == EX_LITERAL && e->b <= LITERAL_SHARED;
}

static uint64_t hash_of(const struct expr_pool *p, const struct expr *e) {
    uint64_t h = mix(e->kind, e->b);
    if (is_shared(e)) {
        uint64_t text[LITERAL_SHARED / 8] = {0};
        memcpy(text, p->bytes + e->a, e->b);
        return mix(mix(h, text[0]), text[1]);
    }
    if (is_list(e)) {
        for (uint32_t i = 0; i < e->b; i++) h = mix(h, p->lists[e->a + i]);
        return h;
    }
    return mix(mix(mix(h, e->a), e->c), e->d);
}

static bool same(const struct expr_pool *p, const struct expr *x, const struct expr *y) {
    if (x->kind != y->kind || x->b != y->b) return false;
    if (is_shared(x)) return memcmp(p->bytes + x->a, p->bytes + y->a, x->b) == 0;
    if (is_list(x)) return memcmp(p->lists + x->a, p->lists + y->a, x->b * sizeof(*p->lists)) == 0;
    return x->a == y->a && x->c == y->c && x->d == y->d;
}

void expr_index(struct expr_pool *p) {
    memset(p->slots, 0, p->slot_count * sizeof(*p->slots));
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t at = (uint32_t)hash_of(p, &p->exprs[i]) & (p->slot_count - 1);
        while (p->slots[at]) at = (at + 1) & (p->slot_count - 1);
        p->slots[at] = i + 1;
    }
}

static bool grow_slots(struct expr_pool *p) {
    uint32_t wanted = p->slot_count ? p->slot_count * 2 : SLOTS_FIRST;
    uint32_t *slots = budget_zalloc(p->budget, wanted, sizeof(*slots));
    if (!slots) return false;
    p->budget->bytes -= p->slot_count * sizeof(*slots);
    mem_free(p->slots);
    p->slots = slots;
    p->slot_count = wanted;
    expr_index(p);
    return true;
}

/* A bound from its parts; enough to lead a search to a text that matches. */
static uint32_t min_len_of(const struct expr_pool *p, const struct expr *e) {
    uint64_t len = e->kind == EX_OR ? UINT32_MAX : 0;
    switch ((enum expr_kind)e->kind) {
    case EX_NONE:
    case EX_EMPTY:
        return 0;
    case EX_SET:
        return 1;
    case EX_LITERAL:
        return e->b;
    case EX_CONCAT:
        len = (uint64_t)p->exprs[e->a].min_len + p->exprs[e->b].min_len;
        break;
    case EX_REPEAT:
        len = e->b ? (uint64_t)p->exprs[e->a].min_len * e->b : 0;
        break;
    case EX_OR:
    case EX_AND:
        for (uint32_t i = 0; i < e->b; i++) {
            const uint32_t one = p->exprs[p->lists[e->a + i]].min_len;
            if ((one < len) == (e->kind == EX_OR)) len = one;
        }
        break;
    case EX_NOT:
    case EX_MULTIPLE:
        return !e->matches_empty;
    }
    return len > MIN_LEN_MAX ? MIN_LEN_MAX : (uint32_t)len;
}

expr_id expr_intern(struct expr_pool *p, struct expr e) {
    if (!budget_tick(p->budget)) return EXPR_NONE;
    if (p->count * 2 >= p->slot_count && !grow_slots(p)) return EXPR_NONE;
    uint32_t mask = p->slot_count - 1;
    uint32_t at = (uint32_t)hash_of(p, &e) & mask;
    for (; p->slots[at]; at = (at + 1) & mask)
        if (same(p, &p->exprs[p->slots[at] - 1], &e)) return p->slots[at] - 1;
    if (e.height > HEIGHT_MAX) {
        budget_spend_out(p->budget, "nesting");
        return EXPR_NONE;
    }
    if (p->count >= p->budget->states_max) {
        budget_spend_out(p->budget, "states");
        return EXPR_NONE;
    }
    if (!budget_grow(p->budget, (void **)&p->exprs, &p->cap, p->count + 1, sizeof(e)))
        return EXPR_NONE;
    e.min_len = min_len_of(p, &e);
    p->exprs[p->count] = e;
    p->slots[at] = ++p->count;
    return p->count - 1;
}

static expr_id set_of(struct expr_pool *p, const struct byte_set *set) {
    uint32_t i = 0;
    while (i < p->set_count && memcmp(&p->sets[i], set, sizeof(*set)) != 0) i++;
    if (i == p->set_count) {
        if (!budget_grow(p->budget, (void **)&p->sets, &p->set_cap, p->set_count + 1, sizeof(*set)))
            return EXPR_NONE;
        p->sets[p->set_count++] = *set;
    }
    return expr_intern(p, (struct expr){.kind = EX_SET, .is_finite = true, .a = i, .height = 1});
}

struct expr_pool *expr_pool_create(struct budget *budget) {
    struct expr_pool *p = budget_zalloc(budget, 1, sizeof(*p));
    if (!p) return NULL;
    p->budget = budget;
    struct byte_set all;
    memset(&all, 0xFF, sizeof(all));
    expr_intern(p,
                (struct expr){.kind = EX_NONE, .life = LIFE_DEAD, .is_finite = true, .height = 1});
    expr_intern(
        p, (struct expr){.kind = EX_EMPTY, .matches_empty = true, .is_finite = true, .height = 1});
    /* EXPR_ANY repeats the set of all bytes, which is interned behind it. */
    expr_intern(p, (struct expr){.kind = EX_REPEAT,
                                 .matches_empty = true,
                                 .a = EXPR_ANY + 1,
                                 .c = EXPR_NO_MAX,
                                 .height = 2});
    set_of(p, &all);
    if (budget->status == ST_OK) return p;
    expr_pool_destroy(p);
    return NULL;
}

void expr_pool_destroy(struct expr_pool *p) {
    if (!p) return;
    for (uint32_t i = 0; i < p->count; i++) mem_free(p->exprs[i].row);
    mem_free(p->exprs);
    mem_free(p->slots);
    mem_free(p->sets);
    mem_free(p->lists);
    mem_free(p->bytes);
    mem_free(p->scratch);
    mem_free(p);
}

uint32_t expr_count(const struct expr_pool *p) { return p->count; }

bool expr_has_failed(const struct expr_pool *p) { return p->budget->status != ST_OK; }

bool expr_matches_empty(const struct expr_pool *p, expr_id e) { return p->exprs[e].matches_empty; }

expr_id expr_bytes(struct expr_pool *p, const struct byte_set *set) {
    static const struct byte_set nothing;
    if (p->budget->status != ST_OK || memcmp(set, &nothing, sizeof(*set)) == 0) return EXPR_NONE;
    return set_of(p, set);
}

expr_id expr_range(struct expr_pool *p, uint8_t low, uint8_t high) {
    struct byte_set set = {0};
    byte_set_add(&set, low, high);
    return expr_bytes(p, &set);
}

expr_id expr_literal(struct expr_pool *p, struct str text) {
    if (p->budget->status != ST_OK) return EXPR_NONE;
    if (text.len == 0) return EXPR_EMPTY;
    if (text.len == 1) return expr_range(p, (uint8_t)text.ptr[0], (uint8_t)text.ptr[0]);
    size_t wanted = p->byte_count + text.len;
    if (!budget_grow(p->budget, (void **)&p->bytes, &p->byte_cap, wanted, 1)) return EXPR_NONE;
    memcpy(p->bytes + p->byte_count, text.ptr, text.len);
    uint32_t offset = p->byte_count;
    p->byte_count += (uint32_t)text.len;
    expr_id e = expr_intern(p, (struct expr){.kind = EX_LITERAL,
                                             .is_finite = true,
                                             .a = offset,
                                             .b = (uint32_t)text.len,
                                             .height = 1});
    if (e == EXPR_NONE || p->exprs[e].a != offset) p->byte_count = offset; /* it was known */
    return e;
}

static uint16_t height_over(const struct expr_pool *p, expr_id a, expr_id b) {
    uint16_t x = p->exprs[a].height, y = p->exprs[b].height;
    return (uint16_t)((x > y ? x : y) + 1);
}

expr_id expr_concat(struct expr_pool *p, expr_id a, expr_id b) {
    if (a == EXPR_NONE || b == EXPR_NONE) return EXPR_NONE;
    if (a == EXPR_EMPTY) return b;
    if (b == EXPR_EMPTY) return a;
    if (a == EXPR_ANY && b == EXPR_ANY) return EXPR_ANY;
    if (p->exprs[a].kind == EX_CONCAT) {
        expr_id tail = expr_concat(p, p->exprs[a].b, b);
        return expr_concat(p, p->exprs[a].a, tail);
    }
    return expr_intern(
        p, (struct expr){.kind = EX_CONCAT,
                         .matches_empty = p->exprs[a].matches_empty && p->exprs[b].matches_empty,
                         .is_boolean = p->exprs[a].is_boolean || p->exprs[b].is_boolean,
                         .has_multiple = p->exprs[a].has_multiple || p->exprs[b].has_multiple,
                         .is_finite = p->exprs[a].is_finite && p->exprs[b].is_finite,
                         .height = height_over(p, a, b),
                         .a = a,
                         .b = b});
}

expr_id expr_repeat(struct expr_pool *p, expr_id a, uint32_t min, uint32_t max) {
    DCHECK(min <= max);
    if (max == 0 || a == EXPR_EMPTY) return EXPR_EMPTY;
    if (a == EXPR_NONE) return min ? EXPR_NONE : EXPR_EMPTY;
    if (min == 1 && max == 1) return a;
    const struct expr *e = &p->exprs[a];
    if (e->kind == EX_REPEAT && e->b == 0 && e->c == EXPR_NO_MAX) return a;
    if (e->matches_empty) min = 0;
    return expr_intern(p, (struct expr){.kind = EX_REPEAT,
                                        .matches_empty = min == 0,
                                        .is_boolean = e->is_boolean,
                                        .has_multiple = e->has_multiple,
                                        .is_finite = e->is_finite && max < EXPR_NO_MAX,
                                        .height = height_over(p, a, a),
                                        .a = a,
                                        .b = min,
                                        .c = max});
}

static int compare_ids(const void *x, const void *y) {
    expr_id a = *(const expr_id *)x, b = *(const expr_id *)y;
    return (a > b) - (a < b);
}

static void sort_ids(expr_id *ids, uint32_t count) {
    if (count > FEW_IDS) {
        qsort(ids, count, sizeof(*ids), compare_ids);
        return;
    }
    for (uint32_t i = 1; i < count; i++) {
        const expr_id id = ids[i];
        uint32_t at = i;
        for (; at && ids[at - 1] > id; at--) ids[at] = ids[at - 1];
        ids[at] = id;
    }
}

/* A list that is being simplified before it becomes EX_OR or EX_AND. */
struct members {
    expr_id *ids;
    uint32_t count, cap;
    bool has_set;
    struct byte_set set; /* of the EX_SET members, united or intersected */
};

static void put_member(struct expr_pool *p, struct members *m, expr_id e, enum expr_kind kind) {
    const struct expr *x = &p->exprs[e];
    if (x->kind == EX_SET) {
        const struct byte_set *set = &p->sets[x->a];
        for (int i = 0; i < 4 && m->has_set; i++)
            m->set.bits[i] =
                kind == EX_OR ? m->set.bits[i] | set->bits[i] : m->set.bits[i] & set->bits[i];
        if (!m->has_set) m->set = *set;
        m->has_set = true;
        return;
    }
    uint32_t more = x->kind == kind ? x->b : 1;
    if (!budget_grow(p->budget, (void **)&m->ids, &m->cap, m->count + more + 1, sizeof(e))) return;
    if (x->kind == kind)
        memcpy(m->ids + m->count, p->lists + x->a, more * sizeof(e));
    else
        m->ids[m->count] = e;
    m->count += more;
}

/* A list that is a member of this one has had its sets joined into one: take it out again. */
static void join_sets(struct expr_pool *p, struct members *m, enum expr_kind kind) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        expr_id e = m->ids[i];
        if (p->exprs[e].kind == EX_SET)
            put_member(p, m, e, kind);
        else
            m->ids[kept++] = e;
    }
    m->count = kept;
    if (!m->has_set) return;
    expr_id set = expr_bytes(p, &m->set);
    if (set == EXPR_NONE && kind == EX_OR) return;
    if (budget_grow(p->budget, (void **)&m->ids, &m->cap, m->count + 1, sizeof(set)))
        m->ids[m->count++] = set;
}

static bool has_opposite(const struct expr_pool *p, const struct members *m) {
    for (uint32_t i = 0; i < m->count; i++) {
        const struct expr *e = &p->exprs[m->ids[i]];
        if (e->kind == EX_NOT &&
            bsearch(&e->a, m->ids, m->count, sizeof(*m->ids), compare_ids) != NULL)
            return true;
    }
    return false;
}

static bool all_match_empty(const struct expr_pool *p, const struct members *m) {
    for (uint32_t i = 0; i < m->count; i++)
        if (!p->exprs[m->ids[i]].matches_empty) return false;
    return true;
}

/* Sorts and drops what adds nothing. `whole` ends the list (EXPR_ANY in a union), `unit` is left
 * out (EXPR_NONE in a union). false: the result is `whole`. */
static bool tidy(const struct expr_pool *p, struct members *m, expr_id whole, expr_id unit) {
    sort_ids(m->ids, m->count);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        if (m->ids[i] == whole) return false;
        if (m->ids[i] == unit || (kept && m->ids[kept - 1] == m->ids[i])) continue;
        m->ids[kept++] = m->ids[i];
    }
    m->count = kept;
    return !has_opposite(p, m);
}

static expr_id intern_list(struct expr_pool *p, const struct members *m, enum expr_kind kind) {
    struct expr e = {.kind = (uint8_t)kind,
                     .matches_empty = kind == EX_AND,
                     .is_boolean = kind == EX_AND,
                     .is_finite = kind == EX_OR,
                     .a = p->list_count,
                     .b = m->count};
    if (!budget_grow(p->budget, (void **)&p->lists, &p->list_cap, p->list_count + m->count,
                     sizeof(*p->lists)))
        return EXPR_NONE;
    for (uint32_t i = 0; i < m->count; i++) {
        const struct expr *x = &p->exprs[m->ids[i]];
        p->lists[p->list_count + i] = m->ids[i];
        e.is_boolean |= x->is_boolean;
        e.has_multiple |= x->has_multiple;
        e.is_finite = kind == EX_AND ? e.is_finite || x->is_finite : e.is_finite && x->is_finite;
        e.matches_empty = kind == EX_AND ? e.matches_empty && x->matches_empty
                                         : e.matches_empty || x->matches_empty;
        if (x->height >= e.height) e.height = (uint16_t)(x->height + 1);
    }
    uint32_t before = p->count;
    expr_id found = expr_intern(p, e);
    if (p->count > before) p->list_count += m->count; /* else an equal list is there already */
    return found;
}

static expr_id join(struct expr_pool *p, struct members *m, enum expr_kind kind) {
    bool is_or = kind == EX_OR;
    join_sets(p, m, kind);
    if (p->budget->status != ST_OK) return EXPR_NONE;
    expr_id whole = is_or ? EXPR_ANY : EXPR_NONE, unit = is_or ? EXPR_NONE : EXPR_ANY;
    if (!tidy(p, m, whole, unit)) return whole;
    if (m->count == 0) return unit;
    if (!is_or && m->ids[0] == EXPR_EMPTY) return all_match_empty(p, m) ? EXPR_EMPTY : EXPR_NONE;
    if (m->count == 1) return m->ids[0];
    return intern_list(p, m, kind);
}

static expr_id join_all(struct expr_pool *p, const expr_id *list, uint32_t count,
                        enum expr_kind kind) {
    if (p->budget->status != ST_OK) return EXPR_NONE;
    struct members m = {.ids = p->scratch, .cap = p->scratch_cap};
    for (uint32_t i = 0; i < count; i++) put_member(p, &m, list[i], kind);
    expr_id e = join(p, &m, kind);
    p->scratch = m.ids;
    p->scratch_cap = m.cap;
    return e;
}

expr_id expr_or_all(struct expr_pool *p, const expr_id *list, uint32_t count) {
    return join_all(p, list, count, EX_OR);
}

expr_id expr_or(struct expr_pool *p, expr_id a, expr_id b) {
    if (a == b || b == EXPR_NONE) return a;
    if (a == EXPR_NONE) return b;
    return join_all(p, (expr_id[]){a, b}, 2, EX_OR);
}

expr_id expr_and(struct expr_pool *p, expr_id a, expr_id b) {
    if (a == b || b == EXPR_ANY) return a;
    if (a == EXPR_ANY) return b;
    if (a == EXPR_NONE || b == EXPR_NONE) return EXPR_NONE;
    return join_all(p, (expr_id[]){a, b}, 2, EX_AND);
}

expr_id expr_not(struct expr_pool *p, expr_id a) {
    if (p->budget->status != ST_OK) return EXPR_NONE;
    if (a == EXPR_NONE) return EXPR_ANY;
    if (a == EXPR_ANY) return EXPR_NONE;
    if (p->exprs[a].kind == EX_NOT) return p->exprs[a].a;
    return expr_intern(p, (struct expr){.kind = EX_NOT,
                                        .matches_empty = !p->exprs[a].matches_empty,
                                        .is_boolean = true,
                                        .has_multiple = p->exprs[a].has_multiple,
                                        .height = height_over(p, a, a),
                                        .a = a});
}

expr_id expr_multiple_at(struct expr_pool *p, struct expr e) {
    uint64_t rest = e.b;
    uint32_t digits = e.d ? e.d - 1 : 0;
    for (uint32_t i = digits; i < e.c; i++) rest = rest * 10 % e.a;
    e.kind = EX_MULTIPLE;
    e.is_boolean = true;
    e.has_multiple = true;
    e.height = 1;
    e.matches_empty = rest == 0;
    return expr_intern(p, e);
}

expr_id expr_multiple(struct expr_pool *p, uint32_t unit, uint32_t scale) {
    CHECK(unit > 0);
    return expr_multiple_at(p, (struct expr){.a = unit, .c = scale});
}

static int compare_texts(const void *x, const void *y) {
    return str_cmp(*(const struct str *)x, *(const struct str *)y);
}

/* The tree of sorted texts, without the `skip` bytes that they all share. Each level passes at
 * least one byte or ends; the depth is bounded by CHOICE_DEPTH_MAX. */
static expr_id choice_tree(struct expr_pool *p, const struct str *texts, uint32_t count,
                           size_t skip, uint32_t depth) {
    if (depth > CHOICE_DEPTH_MAX) budget_spend_out(p->budget, "nesting");
    if (!budget_tick(p->budget)) return EXPR_NONE;
    if (count == 1) return expr_literal(p, str_skip(texts[0], skip));
    size_t shared = texts[0].len - skip, last = texts[count - 1].len - skip;
    if (last < shared) shared = last;
    const char *a = texts[0].ptr + skip, *b = texts[count - 1].ptr + skip;
    size_t len = 0;
    while (len < shared && a[len] == b[len]) len++;
    struct members m = {0};
    for (uint32_t i = 0, next; i < count; i = next) {
        next = i + 1;
        if (texts[i].len == skip + len) {
            put_member(p, &m, EXPR_EMPTY, EX_OR);
            continue;
        }
        while (next < count && texts[next].ptr[skip + len] == texts[i].ptr[skip + len]) next++;
        put_member(p, &m, choice_tree(p, texts + i, next - i, skip + len, depth + 1), EX_OR);
    }
    expr_id rest = join(p, &m, EX_OR);
    p->budget->bytes -= m.cap * sizeof(*m.ids);
    mem_free(m.ids);
    return expr_concat(p, expr_literal(p, (struct str){a, len}), rest);
}

expr_id expr_choice(struct expr_pool *p, struct str *texts, uint32_t count) {
    if (count == 0) return EXPR_NONE;
    qsort(texts, count, sizeof(*texts), compare_texts);
    uint32_t kept = 1;
    for (uint32_t i = 1; i < count; i++)
        if (!str_eq(texts[kept - 1], texts[i])) texts[kept++] = texts[i];
    return choice_tree(p, texts, kept, 0, 0);
}
