/* grammar/matcher.c - positions in a grammar's texts, and the masks of what may follow.
 *
 * A mask is a walk over the trees of tokens, in which the state at each depth is known. Inside a
 * JSON string that may go on, plain text is allowed without a walk (grammar/vocabulary.h). A mask
 * is remembered with its state. When the tables have grown to most of the budget, everything that
 * no matcher needs is forgotten (grammar/collect.c).
 */
#include <stdatomic.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "grammar/grammar.h"
#include "grammar/states.h"
#include "grammar/vocabulary.h"

enum {
    TEXT_BYTES_MAX = 4 << 20, /* of an array with uniqueItems */
    TEXT_BYTES_A_TICK = 64,   /* that are copied with one unit of work */
    HIGH_BYTES = 1 << 20,     /* that tables grow by if little memory is left for all grammars */
};

struct matcher matcher_init(struct grammar *g) {
    return (struct matcher){.grammar = g, .state = g->first};
}

static bool wants_collect(const struct grammar *g) {
    const struct tables *t = &g->tables;
    return g->budget.bytes > t->collect_at || t->mask_bytes > g->budget.bytes_max / 2 ||
           (g->account.is_high && g->budget.bytes > t->kept_bytes + HIGH_BYTES);
}

/* Every use of a matcher lies between begin and end. */
static struct grammar *begin(const struct matcher *m) {
    struct grammar *g = m->grammar;
    pthread_mutex_lock(&g->lock);
    if (g->is_quick) return g; /* the uses of a quick hold have one limit of work */
    g->budget.ticks = 0;
    if (wants_collect(g)) tables_collect(g);
    return g;
}

static void end(struct grammar *g) {
    if (g->budget.bytes != atomic_load_explicit(&g->bytes_now, memory_order_relaxed)) {
        atomic_store_explicit(&g->bytes_now, g->budget.bytes, memory_order_relaxed);
        grammar_charge(g);
    }
    pthread_mutex_unlock(&g->lock);
}

bool grammar_hold(struct grammar *g, bool is_quick) {
    if (!is_quick) return pthread_mutex_lock(&g->lock) == 0;
    if (pthread_mutex_trylock(&g->lock) != 0) return false;
    if (wants_collect(g)) {
        pthread_mutex_unlock(&g->lock);
        return false;
    }
    g->is_quick = true;
    g->budget.ticks = 0;
    g->budget.ticks_max = QUICK_TICKS_MAX;
    return true;
}

bool grammar_is_late(const struct grammar *g) { return g->is_late; }

void grammar_let_go(struct grammar *g) {
    g->is_quick = g->is_late = false;
    g->budget.ticks_max = MATCH_TICKS_MAX;
    pthread_mutex_unlock(&g->lock);
}

/* The first state, the dead one and the empty text are always kept. */
static bool needs_pin(const struct matcher *m) {
    return m->state != 0 && m->state != m->grammar->first;
}

static void pin(const struct matcher *m) {
    struct tables *t = &m->grammar->tables;
    if (needs_pin(m)) t->states[m->state].pins++;
    if (m->text) t->texts[m->text].pins++;
}

static void unpin(const struct matcher *m) {
    struct tables *t = &m->grammar->tables;
    if (needs_pin(m)) CHECK(t->states[m->state].pins-- > 0);
    if (m->text) CHECK(t->texts[m->text].pins-- > 0);
}

struct matcher matcher_copy(const struct matcher *m) {
    pthread_mutex_lock(&m->grammar->pins_lock);
    pin(m);
    pthread_mutex_unlock(&m->grammar->pins_lock);
    return *m;
}

void matcher_release(struct matcher *m) {
    struct grammar *g = m->grammar;
    if (!g) return;
    pthread_mutex_lock(&g->pins_lock);
    unpin(m);
    pthread_mutex_unlock(&g->pins_lock);
    *m = (struct matcher){0};
}

/* The budget has failed: forget what can be forgotten. True: try once more. */
static bool make_room(struct grammar *g) {
    if (g->budget.status != ST_FULL || g->is_quick) return false;
    g->budget.status = ST_OK;
    tables_collect(g);
    return g->budget.status == ST_OK;
}

/* It has failed again: that is the matcher's fault, and the others go on. */
static void give_up(struct grammar *g, struct matcher *m) {
    if (g->is_quick && g->budget.status == ST_FULL)
        g->is_late = true;
    else
        m->status = grammar_failure(g);
    g->budget.status = ST_OK;
}

/* The text of the unique array that a position is in, while bytes are read from there. */
struct reading {
    struct buf text; /* from its '[' on; empty outside of such arrays */
    uint32_t kept;   /* the number of the text that the matcher has */
    size_t kept_len; /* of `text`; what follows is new. 0: `kept` is not its beginning */
};

static void reading_start(const struct grammar *g, const struct matcher *m, struct reading *r) {
    const struct tables *t = &g->tables;
    *r = (struct reading){.kept = m->text};
    buf_init(&r->text, TEXT_BYTES_MAX);
    for (uint32_t at = m->text; at; at = t->texts[at].before)
        buf_put_char(&r->text, (char)t->texts[at].byte);
    for (size_t i = 0; i < r->text.len / 2; i++) {
        char c = r->text.ptr[i];
        r->text.ptr[i] = r->text.ptr[r->text.len - 1 - i];
        r->text.ptr[r->text.len - 1 - i] = c;
    }
    r->kept_len = r->text.len;
}

/* The state after a byte, by what the row says: 0: it cannot follow. */
static uint32_t reading_step(struct grammar *g, struct reading *r, uint32_t next, uint8_t byte) {
    if (r->text.len) buf_put_char(&r->text, (char)byte);
    if (next & STATE_FORK) { /* the array is read from its start */
        if (!budget_ticks(&g->budget, (uint32_t)r->text.len)) return 0;
        const struct fork f = g->tables.forks[next & ~STATE_FORK];
        next = unique_is_new(g, buf_str(&r->text)) ? f.if_new : f.if_equal;
    }
    if (g->tables.states[next].records == (r->text.len > 0)) return next;
    buf_clear(&r->text); /* the array has ended, or begins */
    r->kept_len = 0;
    if (g->tables.states[next].records) buf_put_char(&r->text, (char)byte);
    return next;
}

static bool has_text_room(struct grammar *g) {
    struct tables *t = &g->tables;
    pthread_mutex_lock(&g->pins_lock);
    bool has_room = budget_grow(&g->budget, (void **)&t->texts, &t->text_cap, t->text_count + 1,
                                sizeof(*t->texts));
    pthread_mutex_unlock(&g->pins_lock);
    return has_room;
}

/* Keeps what was read; returns its number. */
static uint32_t reading_keep(struct grammar *g, struct reading *r) {
    struct tables *t = &g->tables;
    uint32_t before = r->kept_len ? r->kept : 0;
    if (buf_status(&r->text) != ST_OK) budget_spend_out(&g->budget, "bytes");
    for (size_t i = r->kept_len; i < r->text.len && g->budget.status == ST_OK; i++) {
        uint32_t node = t->text_free;
        if (node)
            t->text_free = t->texts[node].before;
        else if (has_text_room(g))
            node = t->text_count++;
        else
            break;
        t->texts[node] = (struct text_node){.before = before, .byte = (uint8_t)r->text.ptr[i]};
        before = node;
    }
    return before;
}

/* Where the matcher is after `bytes`. Returns how many bytes could follow. */
static size_t advance(struct grammar *g, const struct matcher *m, struct str bytes,
                      struct matcher *to) {
    struct reading r;
    size_t i = 0;
    *to = *m;
    reading_start(g, m, &r);
    budget_ticks(&g->budget, (uint32_t)(r.text.len / TEXT_BYTES_A_TICK));
    for (; i < bytes.len; i++) {
        const uint8_t byte = (uint8_t)bytes.ptr[i];
        uint32_t next = state_next(g, to->state, byte);
        if (next && (next & STATE_FORK || r.text.len || g->tables.states[next].records))
            next = reading_step(g, &r, next, byte);
        if (next == 0) break;
        to->state = next;
    }
    if (i == bytes.len) to->text = reading_keep(g, &r);
    buf_deinit(&r.text);
    return i;
}

bool matcher_accept(struct matcher *m, struct str bytes, size_t *accepted) {
    struct grammar *g = begin(m);
    struct matcher to;
    size_t count = advance(g, m, bytes, &to);
    if (g->budget.status != ST_OK && make_room(g)) count = advance(g, m, bytes, &to);
    bool has_failed = g->budget.status != ST_OK;
    if (has_failed) {
        give_up(g, m);
        count = 0;
    }
    bool fits = !has_failed && count == bytes.len && m->status == ST_OK;
    if (fits) {
        pthread_mutex_lock(&g->pins_lock);
        pin(&to);
        unpin(m);
        pthread_mutex_unlock(&g->pins_lock);
        *m = to;
    }
    end(g);
    if (accepted) *accepted = count;
    return fits;
}

bool matcher_is_complete(const struct matcher *m) {
    struct grammar *g = begin(m);
    bool complete = g->tables.states[m->state].complete;
    end(g);
    return complete;
}

bool matcher_may_continue(const struct matcher *m) {
    struct grammar *g = begin(m);
    bool more = g->tables.states[m->state].count > 0;
    end(g);
    return more;
}

/* The only byte that may follow, or -1. One that ends an item is not forced: it is decided when it
 * comes. */
static int only_byte(struct grammar *g, uint32_t state) {
    int only = -1;
    for (int b = 0; b < 256; b++) {
        const uint32_t next = state_next(g, state, (uint8_t)b);
        if (!next) continue;
        if (only >= 0 || next & STATE_FORK) return -1;
        only = b;
    }
    return g->budget.status == ST_OK ? only : -1;
}

static size_t forced(struct grammar *g, uint32_t state, char *out, size_t max) {
    size_t len = 0;
    while (len < max && !g->tables.states[state].complete) {
        int byte = only_byte(g, state);
        if (byte < 0) break;
        out[len++] = (char)byte;
        state = state_next(g, state, (uint8_t)byte);
    }
    return len;
}

size_t matcher_forced(const struct matcher *m, char *out, size_t max) {
    struct grammar *g = begin(m);
    size_t len = forced(g, m->state, out, max);
    if (g->budget.status != ST_OK && make_room(g)) len = forced(g, m->state, out, max);
    if (g->budget.status != ST_OK) { /* nothing is known to be forced */
        struct matcher failed = *m;
        give_up(g, &failed);
        len = 0;
    }
    end(g);
    return len;
}

static void allow(uint64_t *allowed, uint32_t token) {
    allowed[token >> 6] |= UINT64_C(1) << (token & 63);
}

static void allow_alike(const struct vocabulary *v, uint32_t token, uint64_t *allowed) {
    for (; token != TOKEN_ABSENT; token = v->next_alike[token]) allow(allowed, token);
}

/* Allow all the plain text at and below a node. */
static void allow_part(const struct vocabulary *v, const struct text_class *c, uint32_t node,
                       uint64_t *allowed) {
    const struct text_part *part = &c->parts[node];
    if (part->mask) {
        const uint32_t words = vocabulary_words(v);
        const uint64_t *mask = c->part_masks + (size_t)(part->mask - 1) * words;
        for (uint32_t i = 0; i < words; i++) allowed[i] |= mask[i];
        return;
    }
    for (uint32_t i = part->first; i < part->end; i++) allow(allowed, c->tokens[i]);
}

static uint16_t room_at(struct grammar *g, uint32_t state) {
    const struct state *s = &g->tables.states[state];
    return s->has_room ? s->room : state_room(g, state, false);
}

/* Whether all the plain text below a node may follow, in the state behind the node. */
static bool may_follow_below(struct grammar *g, const struct text_class *c, uint32_t node,
                             uint32_t state) {
    const uint16_t below = c->parts[node].chars_below;
    return below != TEXT_SPLIT && below <= room_at(g, state);
}

/* A walk over one of the trees: by depth, the state before the byte and the nodes to come. */
struct walk {
    const struct vocabulary *vocabulary;
    uint64_t *allowed;
    const struct matcher *matcher;
    bool has_forks; /* what may follow depends on what was read */
    uint32_t states[VOCABULARY_TOKEN_BYTES_MAX + 1];
    uint32_t at[VOCABULARY_TOKEN_BYTES_MAX + 1], ends[VOCABULARY_TOKEN_BYTES_MAX + 1];
    char path[VOCABULARY_TOKEN_BYTES_MAX];
};

/* The state behind a byte that ends an item: all bytes of the path are read again. */
static uint32_t decide(struct grammar *g, struct walk *w, uint32_t depth, uint32_t fork,
                       uint8_t byte) {
    struct reading r;
    w->has_forks = true;
    reading_start(g, w->matcher, &r);
    for (uint32_t d = 0; d < depth; d++)
        if (r.text.len || g->tables.states[w->states[d + 1]].records)
            reading_step(g, &r, w->states[d + 1], (uint8_t)w->path[d]);
    const uint32_t next = reading_step(g, &r, fork, byte);
    buf_deinit(&r.text);
    return next;
}

/* The state behind a byte that is not in the row, or that may end an item. */
static uint32_t find_next(struct grammar *g, struct walk *w, uint32_t depth, uint8_t byte) {
    const uint32_t next = state_step(g, w->states[depth], byte);
    return next & STATE_FORK ? decide(g, w, depth, next, byte) : next;
}

/* Allows the tokens of a tree. With parts: of plain text. False: the budget has failed. */
static bool walk_tree(struct grammar *g, struct walk *w, const struct token_tree *tree,
                      const struct text_class *texts) {
    uint32_t depth = 0, i = 0, end = tree->root_count;
    const struct state_row *row = state_row(g, w->states[0]);
    while (row) {
        if (i == end) {
            if (depth == 0) return true;
            depth--;
            i = w->at[depth];
            end = w->ends[depth];
            row = g->tables.states[w->states[depth]].row;
            continue;
        }
        const struct vocabulary_node *node = &tree->nodes[i++];
        uint32_t next = row->next[row->class_of[node->byte]];
        if (next & STATE_FORK) next = find_next(g, w, depth, node->byte);
        if (next == 0) continue;
        if (texts && node->child_count && may_follow_below(g, texts, i - 1, next)) {
            allow_part(w->vocabulary, texts, i - 1, w->allowed);
            continue;
        }
        if (node->has_alike)
            allow_alike(w->vocabulary, node->token, w->allowed);
        else if (node->token != TOKEN_ABSENT)
            allow(w->allowed, node->token);
        if (node->child_count == 0) continue;
        w->path[depth] = (char)node->byte;
        w->at[depth] = i;
        w->ends[depth] = end;
        w->states[++depth] = next;
        i = node->children;
        end = i + node->child_count;
        row = state_row(g, next);
    }
    return false;
}

/* Whether the state is of one answer: the items that it has read are part of it. */
static bool is_single(const struct tables *t, uint32_t state) {
    const struct state *s = &t->states[state];
    for (uint32_t i = 0; i < s->count; i++)
        if (t->stacks[t->threads[s->start + i].stack].tracks) return true;
    return false;
}

static void remember(struct grammar *g, uint32_t state, const struct vocabulary *v,
                     const uint64_t *mask) {
    struct tables *t = &g->tables;
    size_t bytes = vocabulary_words(v) * sizeof(*mask);
    if (!t->mask_vocabulary) t->mask_vocabulary = v;
    if (t->mask_vocabulary != v || bytes > g->budget.bytes_max - g->budget.bytes) return;
    if (is_single(t, state)) return;
    uint64_t *copy = mem_alloc(bytes);
    if (!copy) return;
    memcpy(copy, mask, bytes);
    t->states[state].mask = copy;
    t->mask_bytes += bytes;
    g->budget.bytes += bytes;
}

/* Allow the plain texts of up to `chars` characters and no others. */
static void allow_lengths(const struct vocabulary *v, uint16_t chars, uint64_t *allowed) {
    const size_t words = vocabulary_words(v);
    const uint16_t known = chars < TEXT_LENGTHS ? chars : TEXT_LENGTHS - 1;
    memcpy(allowed, v->lengths + known * words, words * sizeof(*allowed));
    for (uint32_t i = 0; i < v->long_count && v->long_texts[i].chars <= chars; i++)
        allow(allowed, v->long_texts[i].token);
}

/* Allow the plain text that may follow. False: the budget has failed. */
static bool allow_text(struct grammar *g, struct walk *w, size_t bytes, bool *in_string) {
    const struct vocabulary *v = w->vocabulary;
    const uint32_t state = w->states[0];
    const uint16_t room = state_room(g, state, true);
    *in_string = room > 0;
    if (g->tables.states[state].room_is_limit) {
        allow_lengths(v, room, w->allowed);
        return true;
    }
    const uint8_t words = room < v->texts[1].chars ? state_words(g, state) : 0;
    *in_string |= words > 0;
    const struct text_class *c = &v->texts[TEXT_CLASSES - 1];
    while (c->chars > room) c--;
    if (words) c = &v->words[words - 1];
    memcpy(w->allowed, c->mask, bytes);
    return walk_tree(g, w, &c->tree, c);
}

/* false: the budget has failed, and nothing is allowed. */
static bool compute_mask(struct grammar *g, struct walk *w, size_t bytes) {
    const struct vocabulary *v = w->vocabulary;
    /* Outside of strings JSON has no letters at will; other texts may have them anywhere. */
    bool in_string = false;
    w->has_forks = false;
    w->states[0] = w->matcher->state;
    if (allow_text(g, w, bytes, &in_string) &&
        ((in_string && g->is_json) || walk_tree(g, w, &v->controls, NULL)) &&
        walk_tree(g, w, &v->rest, NULL) && g->budget.status == ST_OK)
        return true;
    memset(w->allowed, 0, bytes);
    return false;
}

void matcher_mask(struct matcher *m, const struct vocabulary *v, uint64_t *allowed) {
    struct grammar *g = begin(m);
    const uint64_t *known = g->tables.states[m->state].mask;
    const size_t bytes = vocabulary_words(v) * sizeof(*allowed);
    if (known && g->tables.mask_vocabulary == v) {
        memcpy(allowed, known, bytes);
    } else {
        struct walk w; /* most of it is not used: it is not cleared */
        w.vocabulary = v;
        w.allowed = allowed;
        w.matcher = m;
        bool done = compute_mask(g, &w, bytes);
        if (!done && make_room(g)) done = compute_mask(g, &w, bytes);
        if (!done)
            give_up(g, m);
        else if (!w.has_forks)
            remember(g, m->state, v, allowed);
    }
    end(g);
}
