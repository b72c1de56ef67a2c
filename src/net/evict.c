/* net/evict.c - which connection is closed for a new one, and which new one is not admitted.
 *
 * Peers. A peer that has as many connections as it may have gets a new one only in exchange for one
 * of its own. Nobody else's connection is closed for it.
 *
 * Places. All but the last `reserve` are for everybody. If they are taken, one connection is
 * evicted for the new one. If none can be evicted the new one gets a reserved place, in which only
 * probes and administrators are answered (http_is_reserved); if these are taken too it is closed.
 *
 * Order. A *large* peer has more than a sixteenth of all places (LARGE_PART): the largest one loses
 * a connection first, so that many slow connections of one client do not cost another its single
 * idle one. Then, or within a peer, connections without a request go first, then those that are
 * slow: a request that is arriving, or a response that is read at less than SLOW_FACTOR times the
 * least rate. Among them the peer with the most connections loses one, the slowest first and the
 * oldest of equally slow ones; what has begun just now counts as the fastest. Where a response is
 * being produced, or read fast enough, the connection stays.
 *
 * To bound the time, only the first SCAN_MAX connections of each queue are compared: those that
 * have waited longest. Of one peer's connections others are compared the next time, because those
 * with long responses stay where they are in its list.
 *
 * Entry points: conns_make_room, conn_admit.
 */
#include "net/http_int.h"

enum {
    SCAN_MAX = 64,
    SLOW_FACTOR = 16,
    LARGE_PART = 16,
    LARGE_MIN = 4, /* connections; with so few a peer is not large */
    NEW_MS = 250,  /* what began later has had no time to be slow or idle */
};

struct candidate {
    struct conn *conn;
    bool is_slow;   /* not idle */
    uint32_t conns; /* of its peer */
    uint32_t large; /* the same; 0: its peer is not large */
    uint64_t rate;  /* bytes a second */
    int64_t since_ms;
};

static int64_t waited_ms(const struct conn *c) {
    return (int64_t)uv_now(c->server->loop) - c->wait_since_ms;
}

static uint64_t rate_of(const struct conn *c, uint64_t bytes) {
    const int64_t ms = waited_ms(c);
    return bytes * 1000 / (uint64_t)(ms > 0 ? ms : 1);
}

static bool is_slow_reader(const struct conn *c, uint64_t rate) {
    const uint64_t least = (uint64_t)c->server->limits.rate * SLOW_FACTOR;
    return waited_ms(c) >= CONN_SLOW_MS && rate < least;
}

/* False: it must stay. */
static bool is_candidate(struct conn *c, struct candidate *out) {
    const enum conn_use use = c->wait == WAIT_TICK && c->proto->use ? c->proto->use(c) : USE_BUSY;
    const bool is_read = c->wait == WAIT_WRITE, is_new = !is_read && waited_ms(c) < NEW_MS;
    *out = (struct candidate){.conn = c,
                              .conns = c->account->is_exempt ? 1 : c->account->conns.count,
                              .since_ms = c->wait_since_ms};
    if (out->conns > LARGE_MIN && out->conns > c->server->limits.connections / LARGE_PART)
        out->large = out->conns;
    out->rate = is_new ? UINT64_MAX : rate_of(c, is_read ? conn_read_since(c) : c->wait_bytes);
    switch (c->wait) {
    case WAIT_LINGER:
        return true;
    case WAIT_IDLE: /* it may send its request any moment */
        out->is_slow = is_new;
        return true;
    case WAIT_HANDSHAKE:
    case WAIT_HEAD:
    case WAIT_BODY:
        out->is_slow = true;
        return true;
    case WAIT_WRITE:
        out->is_slow = true;
        return is_slow_reader(c, out->rate);
    case WAIT_TICK:
        out->is_slow = use == USE_SLOW;
        return use != USE_BUSY;
    case WAIT_NONE:
    case WAIT_KINDS:
        break;
    }
    return false;
}

static bool goes_before(const struct candidate *a, const struct candidate *b) {
    if (!b->conn) return true;
    if (a->large != b->large) return a->large > b->large;
    if (a->is_slow != b->is_slow) return b->is_slow;
    if (a->conns != b->conns) return a->conns > b->conns;
    if (a->is_slow && a->rate != b->rate) return a->rate < b->rate;
    return a->since_ms < b->since_ms;
}

/* The best one of a list but `stays`, or what `best` was. */
static void compare(const struct list *list, int which, const struct conn *stays,
                    struct candidate *best) {
    uint32_t count = 0;
    for (struct list_link *l = list->first; l && count < SCAN_MAX; l = l->next, count++) {
        struct candidate one;
        if (conn_at(l, which) == stays || !is_candidate(conn_at(l, which), &one)) continue;
        if (goes_before(&one, best)) *best = one;
    }
}

static bool evict(const struct candidate *best) {
    if (!best->conn) return false;
    best->conn->server->stats.evicted++;
    conn_close(best->conn);
    return true;
}

static uint32_t count_others(const struct http_server *s, const struct conn *newcomer) {
    return s->stats.connections - (newcomer != NULL);
}

bool conns_make_room(struct http_server *s, const struct conn *newcomer) {
    struct candidate best = {0};
    if (count_others(s, newcomer) < s->limits.connections - s->limits.reserve) return true;
    for (int kind = WAIT_NONE + 1; kind < WAIT_KINDS; kind++)
        compare(&s->waits[kind], LINK_WAIT, newcomer, &best);
    return evict(&best) || count_others(s, newcomer) < s->limits.connections;
}

static void rotate(struct list *list) {
    for (uint32_t i = 0; i < SCAN_MAX && i < list->count; i++)
        list_push_last(list, list_pop_first(list));
}

/* Within its peer's number, if need be in exchange for another of its connections. */
static bool has_own_place(struct conn *c) {
    struct http_server *s = c->server;
    struct candidate best = {0};
    if (c->account->is_exempt || c->account->conns.count <= s->limits.peer_connections) return true;
    compare(&c->account->conns, LINK_PEER, c, &best);
    if (evict(&best)) return true;
    rotate(&c->account->conns);
    s->stats.peer_refused++;
    return false;
}

bool conn_admit(struct conn *c) {
    struct http_server *s = c->server;
    if (!has_own_place(c) || !conns_make_room(s, c)) {
        s->stats.refused++;
        return false;
    }
    if (s->stats.connections > s->limits.connections - s->limits.reserve)
        c->is_reserved = c->is_draining = true;
    return true;
}
