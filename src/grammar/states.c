/* grammar/states.c - the states of a matcher: sets of threads, and the step from one to the next.
 *
 * A thread is an expression that is being read and a stack of rules that follow it. A step takes
 * each thread's expression one byte further; where the expression may end, the rules behind it are
 * followed to the next expressions. Stacks and sets are numbered, so that a state that was met
 * before is found again with all that is known about it: its row of successors and its mask.
 *
 * Bytes that no expression of the state tells apart lead to the same successor and are stepped
 * once (expr_mark_classes), when the first of them is asked for.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/states.h"

enum { SLOTS_FIRST = 256, THREADS_MAX = 20000, FOLLOWED_MAX = 200000, FEW_THREADS = 16 };

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

static uint64_t entry_hash(struct stack_entry e) {
    return mix(mix(mix(1 + e.kind, e.value), e.rule), e.below);
}

static uint64_t threads_hash(const struct thread_at *list, uint32_t count, bool complete) {
    uint64_t h = complete;
    for (uint32_t i = 0; i < count; i++) h = mix(mix(h, list[i].expr), list[i].stack);
    return h;
}

static uint64_t item_hash(const struct tables *t, const struct number_table *n, uint32_t i) {
    if (n == &t->stack_table) return entry_hash(t->stacks[i]);
    if (n == &t->followed_table) return entry_hash(t->followed[i]);
    const struct state *s = &t->states[i];
    return threads_hash(t->threads + s->start, s->count, s->complete);
}

/* Room for one more number. */
static bool reserve_slot(struct grammar *g, struct number_table *n) {
    if ((n->used + 1) * 2 <= n->slot_count) return true;
    uint32_t wanted = n->slot_count ? n->slot_count * 2 : SLOTS_FIRST;
    uint32_t *slots = budget_zalloc(&g->budget, wanted, sizeof(*slots));
    if (!slots) return false;
    for (uint32_t i = 0; i < n->slot_count; i++) {
        if (!n->slots[i]) continue;
        uint32_t at = (uint32_t)item_hash(&g->tables, n, n->slots[i] - 1) & (wanted - 1);
        while (slots[at]) at = (at + 1) & (wanted - 1);
        slots[at] = n->slots[i];
    }
    g->budget.bytes -= n->slot_count * sizeof(*slots);
    mem_free(n->slots);
    n->slots = slots;
    n->slot_count = wanted;
    return true;
}

uint32_t stack_push(struct grammar *g, struct stack_entry e) {
    struct tables *t = &g->tables;
    if (!reserve_slot(g, &t->stack_table)) return 0;
    const struct stack_entry *below = &t->stacks[e.below];
    e.tracks = e.kind == STACK_ITEM_FEW || (e.kind != STACK_TEXT && below->tracks);
    e.records = e.kind == STACK_ARRAY || (e.kind != STACK_TEXT && below->records);
    uint32_t mask = t->stack_table.slot_count - 1, at = (uint32_t)entry_hash(e) & mask;
    for (; t->stack_table.slots[at]; at = (at + 1) & mask) {
        const struct stack_entry *x = &t->stacks[t->stack_table.slots[at] - 1];
        if (x->rule == e.rule && x->below == e.below && x->value == e.value && x->kind == e.kind)
            return t->stack_table.slots[at] - 1;
    }
    if (!budget_grow(&g->budget, (void **)&t->stacks, &t->stack_cap, t->stack_count + 1, sizeof(e)))
        return 0;
    t->stacks[t->stack_count] = e;
    t->stack_table.used++;
    t->stack_table.slots[at] = ++t->stack_count;
    return t->stack_count - 1;
}

/* The number of a stack that goes on with `rule` and then with `below`. */
static uint32_t push_rule(struct grammar *g, rule_id rule, uint32_t below) {
    if (rule == RULE_END) return below;
    return stack_push(g, (struct stack_entry){.rule = rule, .below = below});
}

/* Note that the rules from `rule` on have to be followed, once per step. */
static void follow(struct grammar *g, rule_id rule, uint32_t below) {
    struct tables *t = &g->tables;
    const struct stack_entry e = {.rule = rule, .below = below};
    if (!g->rules.list[rule].alive || !reserve_slot(g, &t->followed_table)) return;
    struct number_table *n = &t->followed_table;
    uint32_t mask = n->slot_count - 1, at = (uint32_t)entry_hash(e) & mask;
    for (; n->slots[at]; at = (at + 1) & mask) {
        const struct stack_entry *x = &t->followed[n->slots[at] - 1];
        if (x->rule == rule && x->below == below) return;
    }
    if (t->followed_count >= FOLLOWED_MAX) {
        budget_spend_out(&g->budget, "states");
        return;
    }
    if (!budget_grow(&g->budget, (void **)&t->followed, &t->followed_cap, t->followed_count + 1,
                     sizeof(e)) ||
        !budget_grow(&g->budget, (void **)&t->pending, &t->pending_cap, t->pending_count + 1,
                     sizeof(e)))
        return;
    t->followed[t->followed_count] = e;
    n->slots[at] = ++t->followed_count;
    n->used++;
    t->pending[t->pending_count++] = e;
}

static void resume(struct grammar *g, uint32_t stack) {
    struct tables *t = &g->tables;
    const struct stack_entry e = t->stacks[stack];
    uint32_t below = e.below;
    if (e.kind == STACK_ITEM) {
        t->met_item = true;
        if (!t->item_is_new) return;
    }
    if (stack == 0)
        t->complete = true;
    else if (e.kind != STACK_ITEM_FEW || unique_end(g, stack, &below))
        follow(g, e.rule, below);
}

static void put_thread(struct grammar *g, expr_id e, uint32_t stack) {
    struct tables *t = &g->tables;
    if (expr_matches_empty(g->exprs, e)) resume(g, stack);
    if (e == EXPR_EMPTY) return;
    if (t->building_count >= THREADS_MAX) {
        budget_spend_out(&g->budget, "states");
        return;
    }
    if (!budget_grow(&g->budget, (void **)&t->building, &t->building_cap, t->building_count + 1,
                     sizeof(*t->building)))
        return;
    t->building[t->building_count++] = (struct thread_at){e, stack};
}

static void start_expr(struct grammar *g, expr_id e, uint32_t stack) {
    const struct stack_entry *top = &g->tables.stacks[stack];
    if (top->kind == STACK_ITEM_FEW && top->value == 0) {
        e = unique_rest(g, e, stack);
        if (e == EXPR_NONE || !expr_is_alive(g->exprs, e)) return;
    }
    put_thread(g, e, stack);
}

static void follow_above(struct grammar *g, struct rule rule, enum stack_kind kind,
                         uint32_t below) {
    const struct stack_entry e = {.rule = rule.b, .below = below, .kind = (uint8_t)kind};
    follow(g, rule.a, stack_push(g, e));
}

static void follow_one(struct grammar *g, struct stack_entry e) {
    const struct rule rule = g->rules.list[e.rule];
    switch ((enum rule_kind)rule.kind) {
    case RULE_IS_END:
        resume(g, e.below);
        return;
    case RULE_READS:
        start_expr(g, rule.a, push_rule(g, rule.b, e.below));
        return;
    case RULE_CALLS:
        follow(g, rule.a, push_rule(g, rule.b, e.below));
        return;
    case RULE_CHOICE:
        for (uint32_t i = 0; i < rule.b; i++) follow(g, g->rules.choices[rule.a + i], e.below);
        return;
    case RULE_UNIQUE:
        follow_above(g, rule, STACK_ARRAY, e.below);
        return;
    case RULE_ITEM:
        follow_above(g, rule, STACK_ITEM, e.below);
        return;
    case RULE_UNIQUE_FEW:
        follow_above(g, rule, STACK_ARRAY_FEW, e.below);
        return;
    case RULE_ITEM_FEW:
        follow_above(g, rule, STACK_ITEM_FEW, e.below);
        return;
    }
}

static void follow_all(struct grammar *g) {
    struct tables *t = &g->tables;
    while (t->pending_count && budget_tick(&g->budget))
        follow_one(g, t->pending[--t->pending_count]);
    if (t->followed_table.used)
        memset(t->followed_table.slots, 0,
               t->followed_table.slot_count * sizeof(*t->followed_table.slots));
    t->followed_table.used = 0;
    t->followed_count = 0;
    t->pending_count = 0;
}

static int compare_threads(const void *x, const void *y) {
    const struct thread_at *a = x, *b = y;
    if (a->expr != b->expr) return a->expr < b->expr ? -1 : 1;
    return (a->stack > b->stack) - (a->stack < b->stack);
}

static void sort_threads(struct thread_at *list, uint32_t count) {
    if (count > FEW_THREADS) {
        qsort(list, count, sizeof(*list), compare_threads);
        return;
    }
    for (uint32_t i = 1; i < count; i++) {
        const struct thread_at one = list[i];
        uint32_t at = i;
        for (; at && compare_threads(&list[at - 1], &one) > 0; at--) list[at] = list[at - 1];
        list[at] = one;
    }
}

static void sort_building(struct tables *t) {
    if (t->building_count < 2) return;
    sort_threads(t->building, t->building_count);
    uint32_t kept = 1;
    for (uint32_t i = 1; i < t->building_count; i++)
        if (compare_threads(&t->building[kept - 1], &t->building[i]) != 0)
            t->building[kept++] = t->building[i];
    t->building_count = kept;
}

static bool same_state(const struct tables *t, const struct state *s) {
    return s->count == t->building_count && s->complete == t->complete &&
           (s->count == 0 ||
            memcmp(t->threads + s->start, t->building, s->count * sizeof(*t->threads)) == 0);
}

/* A number for a new state; 0 also where the budget has failed. */
static uint32_t new_number(struct grammar *g) {
    struct tables *t = &g->tables;
    if (t->free_first) {
        uint32_t state = t->free_first;
        t->free_first = t->states[state].start;
        return state;
    }
    if (t->state_count >= g->budget.states_max) {
        budget_spend_out(&g->budget, "states");
        return 0;
    }
    pthread_mutex_lock(&g->pins_lock);
    bool has_room = budget_grow(&g->budget, (void **)&t->states, &t->state_cap, t->state_count + 1,
                                sizeof(*t->states));
    pthread_mutex_unlock(&g->pins_lock);
    return has_room ? t->state_count++ : 0;
}

/* The number of the state that was built; a known one or a new one. */
static uint32_t intern_state(struct grammar *g) {
    struct tables *t = &g->tables;
    struct number_table *n = &t->state_table;
    sort_building(t);
    if (g->budget.status != ST_OK || !reserve_slot(g, n)) return 0;
    uint32_t mask = n->slot_count - 1;
    uint32_t at = (uint32_t)threads_hash(t->building, t->building_count, t->complete) & mask;
    for (; n->slots[at]; at = (at + 1) & mask)
        if (same_state(t, &t->states[n->slots[at] - 1])) return n->slots[at] - 1;
    if (!budget_grow(&g->budget, (void **)&t->threads, &t->thread_cap,
                     t->thread_count + t->building_count, sizeof(*t->threads)))
        return 0;
    uint32_t state = new_number(g);
    if (g->budget.status != ST_OK) return 0;
    t->states[state] = (struct state){
        .start = t->thread_count, .count = t->building_count, .complete = t->complete};
    if (t->building_count)
        memcpy(t->threads + t->thread_count, t->building, t->building_count * sizeof(*t->threads));
    for (uint32_t i = 0; i < t->building_count; i++)
        t->states[state].records |= t->stacks[t->building[i].stack].records;
    t->thread_count += t->building_count;
    n->used++;
    n->slots[at] = state + 1;
    return state;
}

static void begin_state(struct tables *t) {
    t->building_count = 0;
    t->complete = false;
}

void tables_start(struct grammar *g) {
    struct tables *t = &g->tables;
    budget_grow(&g->budget, (void **)&t->stacks, &t->stack_cap, 1, sizeof(*t->stacks));
    budget_grow(&g->budget, (void **)&t->texts, &t->text_cap, 1, sizeof(*t->texts));
    t->stack_count = 1; /* number 0 is the end of the text */
    t->text_count = 1;
    t->item_is_new = true;
    begin_state(t);
    intern_state(g); /* number 0 is the dead state */
    begin_state(t);
    follow(g, g->root, 0);
    follow_all(g);
    g->first = intern_state(g);
    g->compiled_exprs = expr_count(g->exprs);
    t->collect_at = g->budget.bytes_max / 4 * 3;
    t->kept_bytes = g->budget.bytes;
}

static uint32_t step(struct grammar *g, uint32_t state, uint8_t byte, bool item_is_new) {
    struct tables *t = &g->tables;
    begin_state(t);
    t->item_is_new = item_is_new;
    const uint32_t start = t->states[state].start, count = t->states[state].count;
    for (uint32_t i = 0; i < count && budget_tick(&g->budget); i++) {
        const struct thread_at at = t->threads[start + i];
        expr_id next = expr_step(g->exprs, at.expr, byte);
        if (next == EXPR_NONE || !expr_is_alive(g->exprs, next)) continue;
        put_thread(g, next, unique_record(g, at.stack, byte));
    }
    if (t->pending_count) follow_all(g);
    budget_ticks(&g->budget, t->building_count); /* they are sorted and compared */
    return intern_state(g);
}

/* The successor, or both of them if an item ends. */
static uint32_t successor(struct grammar *g, uint32_t state, uint8_t byte) {
    struct tables *t = &g->tables;
    t->met_item = false;
    uint32_t next = step(g, state, byte, true);
    if (!t->met_item) return next;
    const struct fork f = {next, step(g, state, byte, false)};
    if (f.if_new == f.if_equal) return f.if_new;
    if (!budget_grow(&g->budget, (void **)&t->forks, &t->fork_cap, t->fork_count + 1, sizeof(f)))
        return 0;
    t->forks[t->fork_count] = f;
    return STATE_FORK | t->fork_count++;
}

size_t state_row_bytes(const struct state_row *row) {
    return sizeof(*row) + row->class_count * sizeof(*row->next);
}

/* Notes the classes, which begin at the marks; byte 0 has one. */
static void fill_classes(const struct byte_set *marks, struct state_row *row) {
    uint32_t first = 0, count = 0;
    for (uint32_t i = 0; i < 4; i++) {
        for (uint64_t bits = marks->bits[i]; bits; bits &= bits - 1) {
            const uint32_t at = i * 64 + (uint32_t)__builtin_ctzll(bits);
            if (at) memset(row->class_of + first, (int)count++, at - first);
            first = at;
        }
    }
    memset(row->class_of + first, (int)count, sizeof(row->class_of) - first);
    row->class_count = count + 1;
    memset(row->next, 0xFF, row->class_count * sizeof(*row->next));
}

struct state_row *state_row(struct grammar *g, uint32_t state) {
    struct tables *t = &g->tables;
    if (t->states[state].row) return t->states[state].row;
    struct byte_set marks = {{1, 0, 0, 0}};
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->states[state].count; i++)
        expr_mark_classes(g->exprs, t->threads[t->states[state].start + i].expr, &marks);
    for (int i = 0; i < 4; i++) count += (uint32_t)__builtin_popcountll(marks.bits[i]);
    struct state_row *row = budget_zalloc(&g->budget, 1, sizeof(*row) + count * sizeof(*row->next));
    if (row) fill_classes(&marks, row);
    t->states[state].row = row;
    return row;
}

uint32_t state_step(struct grammar *g, uint32_t state, uint8_t byte) {
    struct state_row *row = state_row(g, state);
    if (!row || g->budget.status != ST_OK) return 0;
    uint32_t *next = &row->next[row->class_of[byte]];
    if (*next != STATE_UNKNOWN) return *next;
    const uint32_t found = successor(g, state, byte);
    if (g->budget.status != ST_OK) return 0;
    *next = found;
    return found;
}

static void index_numbers(struct tables *t, struct number_table *n, uint32_t first,
                          uint32_t count) {
    n->used = 0;
    if (!n->slots) return;
    memset(n->slots, 0, n->slot_count * sizeof(*n->slots));
    for (uint32_t i = first; i < count; i++) {
        if (n == &t->state_table && t->states[i].is_free) continue;
        uint32_t at = (uint32_t)item_hash(t, n, i) & (n->slot_count - 1);
        while (n->slots[at]) at = (at + 1) & (n->slot_count - 1);
        n->slots[at] = i + 1;
        n->used++;
    }
}

void tables_index(struct grammar *g) {
    struct tables *t = &g->tables;
    index_numbers(t, &t->stack_table, 1, t->stack_count);
    index_numbers(t, &t->state_table, 0, t->state_count);
}

void tables_deinit(struct tables *t) {
    for (uint32_t i = 0; i < t->state_count; i++) {
        mem_free(t->states[i].row);
        mem_free(t->states[i].mask);
    }
    mem_free(t->states);
    mem_free(t->stacks);
    mem_free(t->threads);
    mem_free(t->building);
    mem_free(t->pending);
    mem_free(t->followed);
    mem_free(t->path);
    mem_free(t->forks);
    mem_free(t->texts);
    mem_free(t->stack_table.slots);
    mem_free(t->state_table.slots);
    mem_free(t->followed_table.slots);
}
