/* spec/suffix_automaton.c - see spec/suffix_automaton.h for the contract.
 *
 * Edges by hash: chains in buckets, and the number of buckets grows by one with every edge (linear
 * hashing: Litwin 1980). So no token waits for a table to be rebuilt, and the memory of buckets is
 * touched in order.
 *
 * The link of a state leads to the longest end of its pieces that also occurs elsewhere; the links
 * of all states form a tree with the empty piece as its root.
 */
#include "spec/suffix_automaton.h"

#include "base/check.h"
#include "base/mem.h"

/* State and edge numbers begin with 1; 0 is none. */
enum { ROOT = 1 };
#define FIRST UINT32_MAX /* the edge that is stored in the state */

/* With 32 edges in one bucket the tokens were chosen to collide: among random ones 10 are rare. */
enum { CHAIN_MAX = 32 };

/* A token that was matched by no long piece costs a step for each shorter one. Beyond this, it
 * counts as not matched: in a text of one repeated token there are as many pieces as tokens. */
enum { FALLS_MAX = 256 };

struct state {
    uint32_t tokens; /* of its longest piece */
    uint32_t link;
    int32_t token;         /* the last one of its pieces; all edges to this state carry it */
    uint32_t first_target; /* the first edge; 0: the state has none */
    uint32_t edges;        /* the other edges, a list */
    uint32_t best;         /* the edge that was counted most often: FIRST or a number; 0: none */
    uint16_t first_count;
    uint16_t total; /* of the counts of all edges */
};

struct edge {
    uint32_t from, target;
    uint32_t next;    /* of the same state */
    uint32_t chained; /* next in its bucket */
    uint32_t count;
};

struct suffix_automaton {
    uint32_t tokens_max, token_count;
    uint32_t last; /* the state of the whole text */
    uint32_t state_count, edge_count, bucket_count;
    bool is_full;
    struct state *states;
    struct edge *edges;
    uint32_t *buckets; /* the first edge of each */
};

_Static_assert(sizeof(struct state) == 28, "README.md states the bytes for a token");
_Static_assert(sizeof(struct edge) == 20, "README.md states the bytes for a token");

/* ---- edges ---- */

static uint32_t hash_of(uint32_t state, int32_t token) {
    uint64_t h = ((uint64_t)state << 32 | (uint32_t)token) * UINT64_C(0x9E3779B97F4A7C15);
    h = (h ^ h >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
    return (uint32_t)(h >> 32);
}

static uint32_t bucket_of(uint32_t hash, uint32_t bucket_count) {
    uint32_t mask = UINT32_MAX >> __builtin_clz(bucket_count | 1);
    uint32_t i = hash & mask;
    return i < bucket_count ? i : hash & mask >> 1;
}

static uint32_t edge_bucket(const struct suffix_automaton *a, const struct edge *e) {
    return bucket_of(hash_of(e->from, a->states[e->target].token), a->bucket_count);
}

/* The edge of a state with this token: FIRST, a number, or 0 if there is none. */
static uint32_t find_edge(const struct suffix_automaton *a, uint32_t state, int32_t token) {
    const struct state *s = &a->states[state];
    if (s->first_target == 0) return 0;
    if (a->states[s->first_target].token == token) return FIRST;
    if (s->edges == 0) return 0;
    uint32_t i = a->buckets[bucket_of(hash_of(state, token), a->bucket_count)];
    for (; i; i = a->edges[i].chained)
        if (a->edges[i].from == state && a->states[a->edges[i].target].token == token) return i;
    return 0;
}

static uint32_t edge_target(const struct suffix_automaton *a, uint32_t state, uint32_t edge) {
    return edge == FIRST ? a->states[state].first_target : a->edges[edge].target;
}

static uint32_t edge_count(const struct suffix_automaton *a, uint32_t state, uint32_t edge) {
    return edge == FIRST ? a->states[state].first_count : a->edges[edge].count;
}

/* Open one more bucket, and move to it the edges that belong there. */
static void add_bucket(struct suffix_automaton *a) {
    uint32_t added = a->bucket_count++;
    a->buckets[added] = 0;
    if (added == 0) return;
    uint32_t split = added ^ UINT32_C(1) << (31 - __builtin_clz(added));
    uint32_t *place = &a->buckets[split];
    while (*place) {
        uint32_t i = *place;
        struct edge *e = &a->edges[i];
        if (edge_bucket(a, e) == split) {
            place = &e->chained;
            continue;
        }
        *place = e->chained;
        e->chained = a->buckets[added];
        a->buckets[added] = i;
    }
}

static uint32_t chain_length(const struct suffix_automaton *a, uint32_t edge) {
    uint32_t length = 0;
    for (; edge && length <= CHAIN_MAX; edge = a->edges[edge].chained) length++;
    return length;
}

static uint32_t add_edge(struct suffix_automaton *a, uint32_t from, uint32_t target,
                         uint32_t count) {
    struct state *s = &a->states[from];
    if (s->first_target == 0) {
        s->first_target = target;
        s->first_count = (uint16_t)count;
        if (s->best == 0) s->best = FIRST;
        return FIRST;
    }
    uint32_t i = ++a->edge_count;
    CHECK(i <= a->tokens_max);
    add_bucket(a);
    struct edge *e = &a->edges[i];
    *e = (struct edge){.from = from, .target = target, .next = s->edges, .count = count};
    uint32_t *bucket = &a->buckets[edge_bucket(a, e)];
    e->chained = *bucket;
    *bucket = i;
    if (chain_length(a, i) > CHAIN_MAX) a->is_full = true;
    s->edges = i;
    return i;
}

static void set_target(struct suffix_automaton *a, uint32_t state, uint32_t edge, uint32_t target) {
    if (edge == FIRST)
        a->states[state].first_target = target;
    else
        a->edges[edge].target = target;
}

/* ---- building ---- */

static uint32_t add_state(struct suffix_automaton *a, uint32_t tokens, int32_t token) {
    uint32_t i = ++a->state_count;
    CHECK(i <= 2 * a->tokens_max);
    a->states[i] = (struct state){.tokens = tokens, .token = token};
    return i;
}

/* `state` stands for pieces of which the shorter ones, up to `tokens` long, now occur at one more
 * place. Move those to a state of their own, with equal edges. */
static uint32_t split_state(struct suffix_automaton *a, uint32_t state, uint32_t tokens) {
    uint32_t half = add_state(a, tokens, a->states[state].token);
    struct state *from = &a->states[state], *to = &a->states[half];
    to->link = from->link;
    to->first_target = from->first_target;
    to->first_count = from->first_count;
    to->total = from->total;
    to->best = from->best;
    for (uint32_t i = from->edges; i; i = a->edges[i].next) {
        uint32_t copy = add_edge(a, half, a->edges[i].target, a->edges[i].count);
        if (from->best == i) to->best = copy;
    }
    from->link = half;
    return half;
}

/* The longest end of the new piece that occurred before. `p` is the longest end of the text
 * without the token that has an edge with the token. */
static uint32_t link_of_new(struct suffix_automaton *a, uint32_t p, int32_t token) {
    if (p == 0) return ROOT;
    uint32_t q = edge_target(a, p, find_edge(a, p, token));
    uint32_t tokens = a->states[p].tokens + 1;
    if (a->states[q].tokens == tokens) return q;
    uint32_t half = split_state(a, q, tokens);
    for (; p; p = a->states[p].link) {
        uint32_t edge = find_edge(a, p, token);
        if (edge_target(a, p, edge) != q) break;
        set_target(a, p, edge, half);
    }
    return half;
}

/* The token followed each end of the text. */
static void count_token(struct suffix_automaton *a, uint32_t state, int32_t token) {
    for (uint32_t depth = 0; depth < SUFFIX_COUNT_DEPTH && state != ROOT; depth++) {
        struct state *s = &a->states[state];
        uint32_t edge = find_edge(a, state, token);
        state = s->link;
        if (s->total == UINT16_MAX) continue;
        s->total++;
        uint32_t count = edge == FIRST ? ++s->first_count : ++a->edges[edge].count;
        uint32_t from = (uint32_t)(s - a->states);
        if (count >= edge_count(a, from, s->best)) s->best = edge;
    }
}

bool suffix_automaton_add(struct suffix_automaton *a, int32_t token) {
    if (a->is_full || a->token_count == a->tokens_max) return false;
    uint32_t added = add_state(a, ++a->token_count, token);
    uint32_t p = a->last;
    for (; p && !find_edge(a, p, token); p = a->states[p].link) add_edge(a, p, added, 0);
    uint32_t link = link_of_new(a, p, token);
    a->states[added].link = link;
    if (token != SUFFIX_END) count_token(a, a->last, token);
    a->last = added;
    return true;
}

/* ---- matching ---- */

struct suffix_match suffix_automaton_repeat(const struct suffix_automaton *a) {
    if (a->last == ROOT) return (struct suffix_match){0};
    uint32_t link = a->states[a->last].link;
    return (struct suffix_match){.state = link, .tokens = a->states[link].tokens};
}

struct suffix_match suffix_automaton_step(const struct suffix_automaton *a, struct suffix_match m,
                                          int32_t token) {
    if (m.tokens == 0) m.state = ROOT;
    for (uint32_t falls = 0; falls < FALLS_MAX; falls++) {
        uint32_t edge = find_edge(a, m.state, token);
        if (edge) {
            m.state = edge_target(a, m.state, edge);
            m.tokens++;
            return m;
        }
        if (m.state == ROOT) break;
        m.state = a->states[m.state].link;
        m.tokens = a->states[m.state].tokens;
    }
    return (struct suffix_match){0};
}

struct suffix_match suffix_automaton_followed(const struct suffix_automaton *a,
                                              struct suffix_match m) {
    if (m.tokens == 0 || m.state != a->last) return m;
    return suffix_automaton_repeat(a);
}

uint32_t suffix_automaton_guess(const struct suffix_automaton *a, struct suffix_match m,
                                double chance_min, uint32_t max, int32_t *out) {
    uint32_t state = m.tokens ? m.state : ROOT, given = 0;
    double chance = 1.0;
    while (given < max && state != ROOT) {
        if (state == a->last) state = a->states[state].link;
        const struct state *s = &a->states[state];
        if (s->total == 0) break; /* among others the root, which counts nothing */
        chance *=
            edge_count(a, state, s->best) / (s->total + (double)SUFFIX_DOUBT / (m.tokens + given));
        if (chance < chance_min) break;
        state = edge_target(a, state, s->best);
        DCHECK(a->states[state].token != SUFFIX_END);
        out[given++] = a->states[state].token;
    }
    return given;
}

/* ---- life ---- */

void suffix_automaton_clear(struct suffix_automaton *a) {
    a->token_count = a->state_count = a->edge_count = a->bucket_count = 0;
    a->is_full = false;
    a->last = ++a->state_count;
    a->states[ROOT] = (struct state){.token = SUFFIX_END};
}

/* Nothing is zeroed: states, edges and buckets are written when the text reaches them. */
enum status suffix_automaton_create(struct suffix_automaton **out, uint32_t tokens_max) {
    CHECK(tokens_max <= INT32_MAX / 2);
    uint32_t room = tokens_max ? tokens_max : 1;
    struct suffix_automaton *a = mem_zalloc(sizeof(*a));
    if (!a) return ST_NOMEM;
    a->tokens_max = tokens_max;
    a->states = mem_alloc_array((size_t)2 * room + 1, sizeof(*a->states));
    a->edges = mem_alloc_array((size_t)room + 1, sizeof(*a->edges));
    a->buckets = mem_alloc_array((size_t)room + 1, sizeof(*a->buckets));
    if (!a->states || !a->edges || !a->buckets) {
        suffix_automaton_destroy(a);
        return ST_NOMEM;
    }
    suffix_automaton_clear(a);
    *out = a;
    return ST_OK;
}

void suffix_automaton_destroy(struct suffix_automaton *a) {
    if (!a) return;
    mem_free(a->states);
    mem_free(a->edges);
    mem_free(a->buckets);
    mem_free(a);
}

uint32_t suffix_automaton_tokens(const struct suffix_automaton *a) { return a->token_count; }

static size_t bytes_of(size_t states, size_t edges, size_t buckets) {
    return sizeof(struct suffix_automaton) + states * sizeof(struct state) +
           edges * sizeof(struct edge) + buckets * sizeof(uint32_t);
}

size_t suffix_automaton_bytes_for(uint32_t tokens_max) {
    size_t room = tokens_max ? tokens_max : 1;
    return bytes_of(2 * room + 1, room + 1, room + 1);
}

size_t suffix_automaton_bytes(const struct suffix_automaton *a) {
    return suffix_automaton_bytes_for(a->tokens_max);
}

size_t suffix_automaton_bytes_used(const struct suffix_automaton *a) {
    return bytes_of(a->state_count, a->edge_count, a->bucket_count);
}

static void verify_state(const struct suffix_automaton *a, uint32_t i) {
    const struct state *s = &a->states[i];
    uint32_t total = s->first_count;
    CHECK((s->first_target == 0) == (i == a->last));
    CHECK((s->best == 0) == (i == a->last));
    CHECK(i == ROOT || a->states[s->link].tokens < s->tokens);
    CHECK(i == ROOT || s->link == ROOT || a->states[s->link].token == s->token);
    CHECK(s->edges == 0 || s->first_target != 0);
    for (uint32_t e = s->edges; e; e = a->edges[e].next) {
        CHECK(a->edges[e].from == i);
        CHECK(a->states[a->edges[e].target].tokens > s->tokens);
        CHECK(find_edge(a, i, a->states[a->edges[e].target].token) == e);
        CHECK(a->edges[e].count <= edge_count(a, i, s->best));
        total += a->edges[e].count;
    }
    CHECK(i == a->last || s->first_count <= edge_count(a, i, s->best));
    CHECK(total == s->total);
}

void suffix_automaton_verify(const struct suffix_automaton *a) {
    uint32_t chained = 0;
    CHECK(a->token_count <= a->tokens_max);
    CHECK(a->edge_count <= a->token_count);
    CHECK(a->bucket_count == a->edge_count);
    CHECK(a->states[a->last].tokens == a->token_count);
    for (uint32_t i = ROOT; i <= a->state_count; i++) verify_state(a, i);
    for (uint32_t i = 0; i < a->bucket_count; i++)
        for (uint32_t e = a->buckets[i]; e; e = a->edges[e].chained) {
            CHECK(edge_bucket(a, &a->edges[e]) == i);
            chained++;
        }
    CHECK(chained == a->edge_count);
}
