/* grammar/room.c - how much plain text may follow in a state, whatever it is.
 *
 * Often one expression of the state says so: a repetition of any character. Otherwise the states
 * that plain text leads to are searched: if none of them is dead, all plain text may follow. Names
 * of properties need this, where one pattern has the names with a prefix and another one the rest.
 * Words are searched by their length.
 */
#include "grammar/states.h"
#include "grammar/vocabulary.h"

enum { SEARCHED_MAX = 160, SEARCHED_FEW = 24, LEVEL_MAX = 6 };

/* Where in a character of UTF-8 a text is: BETWEEN two of them, or before the bytes that remain. */
enum phase {
    BETWEEN,
    BEFORE_1,
    BEFORE_2,
    BEFORE_3,
    AFTER_E0, /* overlong forms, surrogates and numbers above U+10FFFF are not UTF-8 */
    AFTER_ED,
    AFTER_F0,
    AFTER_F4,
};

static const struct {
    uint8_t phase, low, high, next;
} steps[] = {
    {BETWEEN, 0x20, 0x21, BETWEEN},   {BETWEEN, 0x23, 0x5B, BETWEEN},
    {BETWEEN, 0x5D, 0x7F, BETWEEN},   {BETWEEN, 0xC2, 0xDF, BEFORE_1},
    {BETWEEN, 0xE0, 0xE0, AFTER_E0},  {BETWEEN, 0xE1, 0xEC, BEFORE_2},
    {BETWEEN, 0xED, 0xED, AFTER_ED},  {BETWEEN, 0xEE, 0xEF, BEFORE_2},
    {BETWEEN, 0xF0, 0xF0, AFTER_F0},  {BETWEEN, 0xF1, 0xF3, BEFORE_3},
    {BETWEEN, 0xF4, 0xF4, AFTER_F4},  {BEFORE_1, 0x80, 0xBF, BETWEEN},
    {BEFORE_2, 0x80, 0xBF, BEFORE_1}, {BEFORE_3, 0x80, 0xBF, BEFORE_2},
    {AFTER_E0, 0xA0, 0xBF, BEFORE_1}, {AFTER_ED, 0x80, 0x9F, BEFORE_1},
    {AFTER_F0, 0x90, 0xBF, BEFORE_2}, {AFTER_F4, 0x80, 0x8F, BEFORE_2},
};

struct position {
    uint32_t state;
    uint8_t phase;
};

struct search {
    struct position found[SEARCHED_MAX];
    uint32_t count, most;
};

/* What the expressions of a state say by themselves. */
static uint16_t room_of_threads(const struct grammar *g, const struct state *s) {
    uint32_t room = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        expr_id e = g->tables.threads[s->start + i].expr;
        for (int k = 0; k < 2 && g->text_chars[k] != EXPR_NONE; k++) {
            uint32_t one = expr_room(g->exprs, e, g->text_chars[k]);
            if (one > room) room = one;
        }
    }
    return (uint16_t)(room < TEXT_CHARS_MAX ? room : TEXT_CHARS_MAX);
}

/* Whether the closing quote must follow after the longest text that `room` counts. */
static bool ends_behind_room(const struct grammar *g, const struct state *s) {
    if (s->count != 1) return false;
    const expr_id e = g->tables.threads[s->start].expr;
    for (int k = 0; k < 2 && g->text_chars[k] != EXPR_NONE; k++)
        if (expr_room_ends(g->exprs, e, g->text_chars[k], '"')) return true;
    return false;
}

/* False: there are too many. */
static bool put(struct grammar *g, struct search *s, uint32_t state, uint8_t phase) {
    struct state *x = &g->tables.states[state];
    if (phase == BETWEEN && x->has_room && x->room == TEXT_CHARS_MAX) return true;
    if (x->found_by != g->tables.search_count) {
        x->found_by = g->tables.search_count;
        x->found_phases = 0;
    }
    if (x->found_phases & 1u << phase) return true;
    x->found_phases |= (uint8_t)(1u << phase);
    if (s->count == s->most) return false;
    s->found[s->count++] = (struct position){state, phase};
    return true;
}

/* False: some text cannot follow, or it is not known. */
static bool expand(struct grammar *g, struct search *s, struct position at) {
    if (at.phase == BETWEEN && room_of_threads(g, &g->tables.states[at.state]) == TEXT_CHARS_MAX)
        return true;
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        if (steps[i].phase != at.phase) continue;
        uint32_t last = 0;
        for (uint32_t b = steps[i].low; b <= steps[i].high; b++) {
            const uint32_t next = state_next(g, at.state, (uint8_t)b);
            if (next == 0 || next & STATE_FORK) return false;
            if (next == last) continue;
            last = next;
            if (!put(g, s, last, steps[i].next)) return false;
        }
    }
    return true;
}

static bool is_open(struct grammar *g, uint32_t state, uint32_t most) {
    struct search s; /* `found` is not cleared */
    s.count = 0;
    s.most = most;
    g->tables.search_count++;
    put(g, &s, state, BETWEEN);
    for (uint32_t at = 0; at < s.count; at++)
        if (!expand(g, &s, s.found[at])) return false;
    for (uint32_t i = 0; i < s.count; i++) {
        if (s.found[i].phase != BETWEEN) continue;
        g->tables.states[s.found[i].state].has_room = true;
        g->tables.states[s.found[i].state].room = TEXT_CHARS_MAX;
    }
    return true;
}

/* The states that words of some length lead to. */
struct level {
    uint32_t states[LEVEL_MAX];
    uint32_t count;
};

static bool put_state(struct level *l, uint32_t state) {
    for (uint32_t i = 0; i < l->count; i++)
        if (l->states[i] == state) return true;
    if (l->count == LEVEL_MAX) return false;
    l->states[l->count++] = state;
    return true;
}

/* Puts what follows a state by one character. False: nothing, or too many states. */
static bool put_next(struct grammar *g, uint32_t state, int word_class, struct level *next) {
    for (int b = 'z'; b >= '0'; b--) { /* where only digits may follow, the first says so */
        if (!word_has(word_class, (uint8_t)b)) continue;
        const uint32_t to = state_next(g, state, (uint8_t)b);
        if (to == 0 || to & STATE_FORK || !put_state(next, to)) return false;
    }
    return true;
}

static bool reads_words(struct grammar *g, uint32_t state, int word_class) {
    struct level level = {.states = {state}, .count = 1};
    for (int chars = 0; chars < WORD_CHARS_MAX; chars++) {
        struct level next = {.count = 0};
        for (uint32_t i = 0; i < level.count; i++)
            if (!put_next(g, level.states[i], word_class, &next)) return false;
        if (next.count == 1 && level.count == 1 && next.states[0] == level.states[0]) return true;
        level = next;
    }
    return true;
}

static uint8_t words_of(struct grammar *g, uint32_t state) {
    if (g->text_chars[0] == EXPR_NONE) return 0; /* no JSON: it would seldom help */
    for (int k = WORD_CLASSES; k > 0; k--)
        if (reads_words(g, state, k - 1)) return (uint8_t)k;
    return 0;
}

uint8_t state_words(struct grammar *g, uint32_t state) {
    struct state *s = &g->tables.states[state];
    if (s->has_words) return s->words;
    uint8_t words = words_of(g, state);
    s = &g->tables.states[state]; /* the search may have moved it */
    s->words = words;
    s->has_words = true;
    return words;
}

uint16_t state_room(struct grammar *g, uint32_t state, bool is_first) {
    struct state *s = &g->tables.states[state];
    if (s->has_room) return s->room;
    uint16_t room = room_of_threads(g, s);
    if (room && room < TEXT_CHARS_MAX) s->room_is_limit = ends_behind_room(g, s);
    if (room == 0 && g->text_chars[0] != EXPR_NONE &&
        is_open(g, state, is_first ? SEARCHED_MAX : SEARCHED_FEW))
        room = TEXT_CHARS_MAX;
    s = &g->tables.states[state]; /* the search may have moved it */
    s->room = room;
    s->has_room = true;
    return room;
}
