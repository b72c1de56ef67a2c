/* grammar/grammar_cache.c - the list of compiled grammars, its lock, and who waits for a compile.
 *
 * The lock of the cache is held for look-ups only, never while a grammar is compiled or freed, or
 * while the lock of a grammar is waited for: a mask may hold that one for long.
 */
#include "grammar/grammar_cache.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/siphash.h"
#include "grammar/grammar_int.h"

enum {
    DEFAULT_KEPT = 256 << 20,
    DEFAULT_USED = 512 << 20,
    ENTRIES_MAX = 4096,
    WAIT_NS = 20000000,
    SECOND_NS = 1000000000,
};

enum entry_state { ENTRY_COMPILING, ENTRY_READY, ENTRY_FAILED };

/* What a grammar is found by. */
struct entry_key {
    struct siphash hash; /* of the source */
    struct str source;   /* heap, behind the entry */
    struct grammar_options options;
    const struct vocabulary *vocabulary;
};

struct grammar_entry {
    struct list_link in_entries; /* least recently used first */
    struct entry_key key;
    enum entry_state state;
    bool is_listed;
    uint32_t callers;   /* threads inside grammar_cache_take that refer to it */
    enum status status; /* ENTRY_FAILED */
    struct grammar_refusal why;
    struct grammar *grammar; /* ENTRY_READY */
    uint32_t lease_count;    /* not 0: the grammar is charged to its tenant */
    size_t bytes;            /* as they are counted in the cache */
};

struct grammar_cache {
    pthread_mutex_t lock;
    pthread_cond_t compiled; /* some entry is no longer compiling */
    struct list entries;
    size_t kept_max, bytes;
    struct grammar_memory *memory; /* of those in use */
    uint32_t lease_count;
    uint64_t takes, compiles;
};

static void init_cond(pthread_cond_t *cond) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

enum status grammar_cache_create(size_t used_max, size_t kept_max, struct grammar_cache **out) {
    struct grammar_cache *c = mem_zalloc(sizeof(*c));
    if (!c) return ST_NOMEM;
    if (grammar_memory_create(used_max ? used_max : DEFAULT_USED, &c->memory) != ST_OK) {
        mem_free(c);
        return ST_NOMEM;
    }
    c->kept_max = kept_max ? kept_max : DEFAULT_KEPT;
    pthread_mutex_init(&c->lock, NULL);
    init_cond(&c->compiled);
    *out = c;
    return ST_OK;
}

static void entry_free(struct grammar_entry *e) {
    grammar_destroy(e->grammar);
    mem_free(e);
}

/* --- the list ----------------------------------------------------------------------------- */

static bool same_key(const struct entry_key *a, const struct entry_key *b) {
    const struct grammar_options *x = &a->options, *y = &b->options;
    return a->hash.low == b->hash.low && a->hash.high == b->hash.high && x->kind == y->kind &&
           x->whitespace == y->whitespace && x->time_us == y->time_us &&
           x->bytes_max == y->bytes_max && x->states_max == y->states_max &&
           x->tenant == y->tenant && a->vocabulary == b->vocabulary && str_eq(a->source, b->source);
}

static struct grammar_entry *find(struct grammar_cache *c, const struct entry_key *key) {
    for (struct list_link *l = c->entries.last; l; l = l->prev) {
        struct grammar_entry *e = LIST_ITEM(l, struct grammar_entry, in_entries);
        if (same_key(&e->key, key)) return e;
    }
    return NULL;
}

static void count_bytes(struct grammar_cache *c, struct grammar_entry *e) {
    size_t now = sizeof(*e) + e->key.source.len + (e->grammar ? grammar_bytes(e->grammar) : 0);
    if (e->is_listed) c->bytes += now - e->bytes;
    e->bytes = now;
}

static struct grammar_entry *put_new(struct grammar_cache *c, const struct entry_key *key) {
    struct grammar_entry *e = mem_zalloc(sizeof(*e) + key->source.len + 1);
    if (!e) return NULL;
    if (key->source.len) memcpy(e + 1, key->source.ptr, key->source.len);
    e->key = *key;
    e->key.source.ptr = (const char *)(e + 1);
    list_push_last(&c->entries, &e->in_entries);
    e->is_listed = true;
    count_bytes(c, e);
    return e;
}

static void take_out(struct grammar_cache *c, struct grammar_entry *e) {
    if (!e->is_listed) return;
    list_remove(&c->entries, &e->in_entries);
    e->is_listed = false;
    c->bytes -= e->bytes;
}

static bool is_unused(const struct grammar_entry *e) {
    return e->callers == 0 && e->lease_count == 0;
}

/* Takes out what is not used and passes the bound; the caller frees it without the lock. */
static struct list take_surplus(struct grammar_cache *c) {
    struct list surplus = {0};
    struct list_link *next = NULL;
    for (struct list_link *l = c->entries.first; l; l = next) {
        struct grammar_entry *e = LIST_ITEM(l, struct grammar_entry, in_entries);
        next = l->next;
        if (c->bytes <= c->kept_max && c->entries.count <= ENTRIES_MAX) break;
        if (!is_unused(e)) continue;
        take_out(c, e);
        list_push_last(&surplus, &e->in_entries);
    }
    return surplus;
}

/* The end of every use: frees what is to be freed once the lock is open. */
static void unlock(struct grammar_cache *c) {
    struct list surplus = take_surplus(c);
    pthread_mutex_unlock(&c->lock);
    for (struct list_link *l; (l = list_pop_first(&surplus)) != NULL;)
        entry_free(LIST_ITEM(l, struct grammar_entry, in_entries));
}

void grammar_cache_destroy(struct grammar_cache *c) {
    if (!c) return;
    CHECK(c->lease_count == 0);
    for (struct list_link *l; (l = list_pop_first(&c->entries)) != NULL;)
        entry_free(LIST_ITEM(l, struct grammar_entry, in_entries));
    grammar_memory_destroy(c->memory);
    pthread_cond_destroy(&c->compiled);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

/* --- leases ------------------------------------------------------------------------------- */

static enum status refuse_for_memory(struct grammar_cache *c, const struct grammar_tenant *t,
                                     struct grammar_refusal *why) {
    grammar_memory_room(c->memory, t, &why->is_share);
    if (why->is_share)
        return err_set(
            &why->err, ST_UNAVAILABLE,
            "grammar: the grammars of this API key's requests under way use up its share "
            "of the memory for grammars; try again later");
    return err_set(&why->err, ST_UNAVAILABLE,
                   "grammar: the memory for grammars is used up by requests under way; try again "
                   "later, or start the server with a larger --grammar-memory");
}

/* The first lease of a grammar: no thread uses it yet. `exists`: it was compiled for this one. */
static enum status begin_use(struct grammar_cache *c, struct grammar_entry *e, bool exists,
                             const struct grammar_options *o, struct grammar_refusal *why) {
    const size_t bytes = grammar_bytes(e->grammar);
    struct grammar_tenant *t = grammar_memory_enter(c->memory, o->tenant, o->has_others);
    if (!t) return err_set(&why->err, ST_NOMEM, "grammar: out of memory");
    if (!exists && !grammar_memory_take(c->memory, t, bytes)) {
        refuse_for_memory(c, t, why);
        grammar_memory_leave(c->memory, t);
        return ST_UNAVAILABLE;
    }
    e->grammar->account =
        (struct grammar_account){.memory = c->memory, .tenant = t, .charged = exists ? 0 : bytes};
    grammar_charge(e->grammar);
    return ST_OK;
}

/* The last lease was given back: no thread uses it any more. */
static void end_use(struct grammar_cache *c, struct grammar_entry *e) {
    struct grammar *g = e->grammar;
    grammar_memory_change(c->memory, g->account.tenant, g->account.charged, 0);
    grammar_memory_leave(c->memory, g->account.tenant);
    g->account = (struct grammar_account){.memory = NULL};
    g->budget.bytes_max = g->bytes_limit;
}

static struct grammar_lease lease(struct grammar_cache *c, struct grammar_entry *e) {
    e->lease_count++;
    c->lease_count++;
    count_bytes(c, e);
    return (struct grammar_lease){e->grammar, e};
}

void grammar_cache_give(struct grammar_cache *c, struct grammar_lease *lease) {
    struct grammar_entry *e = lease->entry;
    if (!e) return;
    pthread_mutex_lock(&c->lock);
    CHECK(e->lease_count > 0);
    if (--e->lease_count == 0) end_use(c, e);
    c->lease_count--;
    count_bytes(c, e);
    *lease = (struct grammar_lease){0};
    unlock(c);
}

/* --- compiling ---------------------------------------------------------------------------- */

/* The one that compiles goes on while another request waits. */
struct leader {
    struct grammar_cache *cache;
    struct grammar_entry *entry;
    const struct grammar_options *options;
};

static bool nobody_waits(void *ctx) {
    struct leader *l = ctx;
    if (!l->options->cancelled || !l->options->cancelled(l->options->cancelled_ctx)) return false;
    pthread_mutex_lock(&l->cache->lock);
    bool alone = l->entry->callers == 1;
    pthread_mutex_unlock(&l->cache->lock);
    return alone;
}

/* Compiles within what the tenant has left of the memory. */
static enum status compile_within(struct grammar_cache *c, struct grammar_entry *e,
                                  const struct grammar_options *options, struct grammar **out,
                                  struct grammar_refusal *why) {
    struct leader leader = {c, e, options};
    struct grammar_options own = *options;
    struct grammar_tenant *t =
        grammar_memory_enter(c->memory, options->tenant, options->has_others);
    if (!t) return err_set(&why->err, ST_NOMEM, "grammar: out of memory");
    const uint64_t room = grammar_memory_room(c->memory, t, NULL);
    own.cancelled = nobody_waits;
    own.cancelled_ctx = &leader;
    own.bytes_room = room > 0 ? room : 1;
    enum status st = grammar_compile(e->key.source, &own, out, why);
    if (st == ST_UNAVAILABLE) refuse_for_memory(c, t, why);
    grammar_memory_leave(c->memory, t);
    return st;
}

/* Called with the lock, which is open while it compiles. */
static void compile(struct grammar_cache *c, struct grammar_entry *e,
                    const struct grammar_options *options) {
    struct grammar *g = NULL;
    struct grammar_refusal why = {0};
    c->compiles++;
    unlock(c);
    enum status st = compile_within(c, e, options, &g, &why);
    pthread_mutex_lock(&c->lock);
    e->state = st == ST_OK ? ENTRY_READY : ENTRY_FAILED;
    e->status = st;
    e->grammar = g;
    e->why = why;
    count_bytes(c, e);
    if (st != ST_OK && st != ST_BAD) take_out(c, e); /* another attempt may succeed */
    pthread_cond_broadcast(&c->compiled);
}

/* Called with the lock. False: this request was cancelled. */
static bool wait_for(struct grammar_cache *c, struct grammar_entry *e,
                     const struct grammar_options *options) {
    while (e->state == ENTRY_COMPILING) {
        if (options->cancelled && options->cancelled(options->cancelled_ctx)) return false;
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += WAIT_NS;
        if (until.tv_nsec >= SECOND_NS) {
            until.tv_nsec -= SECOND_NS;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&c->compiled, &c->lock, &until);
    }
    return true;
}

static void touch(struct grammar_cache *c, struct grammar_entry *e) {
    if (!e->is_listed) return;
    list_remove(&c->entries, &e->in_entries);
    list_push_last(&c->entries, &e->in_entries);
}

/* What the request of an entry that is no longer compiling gets; `options` are the request's. */
static enum status answer(struct grammar_cache *c, struct grammar_entry *e, bool is_leader,
                          const struct grammar_options *options, struct grammar_lease *out,
                          struct grammar_refusal *why) {
    touch(c, e);
    if (e->state == ENTRY_FAILED) {
        *why = e->why;
        return e->status;
    }
    if (e->lease_count == 0) TRY(begin_use(c, e, is_leader, options, why));
    *out = lease(c, e);
    return ST_OK;
}

/* One look at the entry of the key, with the lock. False: another request has cancelled the
 * compile; look again. */
static bool ask(struct grammar_cache *c, const struct entry_key *key, struct grammar_lease *out,
                struct grammar_refusal *why, enum status *st) {
    struct grammar_entry *e = find(c, key);
    bool is_leader = e == NULL;
    if (is_leader) e = put_new(c, key);
    if (!e) {
        *st = err_set(&why->err, ST_NOMEM, "grammar: out of memory");
        return true;
    }
    e->callers++;
    if (is_leader) compile(c, e, &key->options);
    bool has_waited = is_leader || wait_for(c, e, &key->options);
    *st = has_waited ? answer(c, e, is_leader, &key->options, out, why)
                     : err_set(&why->err, ST_CANCELLED, "grammar: cancelled");
    bool is_done = !has_waited || is_leader || *st != ST_CANCELLED;
    e->callers--;
    if (is_unused(e) && !e->is_listed) entry_free(e); /* it has failed and has no grammar */
    return is_done;
}

enum status grammar_cache_take(struct grammar_cache *c, struct str source,
                               const struct grammar_options *options,
                               const struct vocabulary *vocabulary, struct grammar_lease *out,
                               struct grammar_refusal *why) {
    const struct siphash_key plain = {0}; /* equal hashes cost time only: sources are compared */
    const struct entry_key key = {.hash = siphash_of(plain, source.ptr, source.len),
                                  .source = source,
                                  .options = *options,
                                  .vocabulary = vocabulary};
    enum status st = ST_OK;
    *out = (struct grammar_lease){0};
    *why = (struct grammar_refusal){0};
    pthread_mutex_lock(&c->lock);
    c->takes++;
    while (!ask(c, &key, out, why, &st)) *why = (struct grammar_refusal){0};
    unlock(c);
    return st;
}

/* --- looking at it ------------------------------------------------------------------------ */

struct grammar_cache_counts grammar_cache_count(struct grammar_cache *c) {
    pthread_mutex_lock(&c->lock);
    struct grammar_cache_counts counts = {.entries = c->entries.count,
                                          .leases = c->lease_count,
                                          .bytes = c->bytes,
                                          .used_bytes = grammar_memory_used(c->memory),
                                          .takes = c->takes,
                                          .compiles = c->compiles};
    pthread_mutex_unlock(&c->lock);
    return counts;
}

static void verify_entry(const struct grammar_entry *e) {
    CHECK(e->is_listed);
    CHECK((e->state == ENTRY_READY) == (e->grammar != NULL));
    CHECK(e->state != ENTRY_COMPILING || e->callers > 0);
    CHECK(e->state != ENTRY_FAILED || e->status == ST_BAD);
    CHECK(e->lease_count == 0 || e->state == ENTRY_READY);
}

void grammar_cache_verify(struct grammar_cache *c) {
    pthread_mutex_lock(&c->lock);
    size_t bytes = 0, unused = 0;
    uint32_t leases = 0;
    list_verify(&c->entries);
    for (struct list_link *l = c->entries.first; l; l = l->next) {
        const struct grammar_entry *e = LIST_ITEM(l, struct grammar_entry, in_entries);
        verify_entry(e);
        CHECK(find(c, &e->key) == e);
        bytes += e->bytes;
        leases += e->lease_count;
        if (is_unused(e)) unused += e->bytes;
    }
    CHECK(bytes == c->bytes);
    CHECK(leases == c->lease_count);
    CHECK(unused == 0 || bytes <= c->kept_max);
    pthread_mutex_unlock(&c->lock);
}
