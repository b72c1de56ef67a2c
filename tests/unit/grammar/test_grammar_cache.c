/* Goal:   one compile for all of a tenant that ask, bounds in bytes and a tenant's share of them,
 *         cancelled compiles end, and answers that go on however much others use the same grammar.
 * Method: counts after each step; the lock of a grammar held while the cache is used; random takes
 *         and gives by seed with grammar_cache_verify; threads that walk through one grammar under
 *         a budget so small that states are forgotten all the time, compared with the same walk
 *         alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "base/rng.h"
#include "grammar/grammar_cache.h"
#include "grammar/grammar_int.h"
#include "unit/grammar/grammar_lib.h"

static struct grammar_cache *make_cache(size_t bytes_max) {
    struct grammar_cache *c = NULL;
    assert_int_equal(grammar_cache_create(0, bytes_max, &c), ST_OK);
    return c;
}

static enum status take(struct grammar_cache *c, const char *regex, struct grammar_lease *out) {
    const struct grammar_options options = {.kind = GRAMMAR_REGEX};
    struct grammar_refusal why;
    enum status st = grammar_cache_take(c, str_of(regex), &options, NULL, out, &why);
    assert_int_equal(st != ST_OK, why.err.text[0] != 0);
    return st;
}

static void test_equal_sources_share_one_grammar(void **state) {
    (void)state;
    struct grammar_cache *c = make_cache(0);
    struct grammar_lease a, b, other;
    assert_int_equal(take(c, "x+y", &a), ST_OK);
    assert_int_equal(take(c, "x+y", &b), ST_OK);
    assert_int_equal(take(c, "x+z", &other), ST_OK);
    assert_ptr_equal(a.grammar, b.grammar);
    assert_ptr_not_equal(a.grammar, other.grammar);
    assert_int_equal(grammar_cache_count(c).compiles, 2);
    assert_int_equal(grammar_cache_count(c).leases, 3);
    grammar_cache_give(c, &a);
    grammar_cache_give(c, &b);
    grammar_cache_give(c, &other);
    assert_int_equal(take(c, "x+y", &a), ST_OK);
    assert_int_equal(grammar_cache_count(c).compiles, 2);
    grammar_cache_give(c, &a);
    grammar_cache_verify(c);
    grammar_cache_destroy(c);
}

static void test_the_key_has_kind_options_and_vocabulary(void **state) {
    (void)state;
    const struct str token = STR("a");
    struct vocabulary *v = NULL;
    assert_int_equal(vocabulary_create(&token, 1, &v), ST_OK);
    const struct {
        struct grammar_options options;
        const struct vocabulary *vocabulary;
    } rows[] = {{{.kind = GRAMMAR_SCHEMA}, NULL},
                {{.kind = GRAMMAR_SCHEMA, .whitespace = true}, NULL},
                {{.kind = GRAMMAR_SCHEMA, .bytes_max = 1 << 20}, NULL},
                {{.kind = GRAMMAR_SCHEMA}, v},
                {{.kind = GRAMMAR_REGEX}, NULL}};
    struct grammar_cache *c = make_cache(0);
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
            struct grammar_lease lease;
            struct grammar_refusal why;
            assert_int_equal(grammar_cache_take(c, STR("true"), &rows[i].options,
                                                rows[i].vocabulary, &lease, &why),
                             ST_OK);
            grammar_cache_give(c, &lease);
        }
    }
    assert_int_equal(grammar_cache_count(c).compiles, 5);
    grammar_cache_destroy(c);
    vocabulary_destroy(v);
}

static void test_a_refusal_is_remembered(void **state) {
    (void)state;
    struct grammar_cache *c = make_cache(0);
    struct grammar_lease lease;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(take(c, "(a", &lease), ST_BAD);
        assert_null(lease.grammar);
        grammar_cache_give(c, &lease);
    }
    assert_int_equal(grammar_cache_count(c).compiles, 1);
    grammar_cache_verify(c);
    grammar_cache_destroy(c);
}

static void test_a_failure_of_the_budget_is_not(void **state) {
    (void)state;
    struct grammar_cache *c = make_cache(0);
    const struct grammar_options options = {.kind = GRAMMAR_REGEX, .states_max = 10};
    for (int i = 0; i < 2; i++) {
        struct grammar_lease lease;
        struct grammar_refusal why;
        assert_int_equal(
            grammar_cache_take(c, STR("(a|bc|d){7}(e|f|g)+"), &options, NULL, &lease, &why),
            ST_FULL);
    }
    assert_int_equal(grammar_cache_count(c).compiles, 2);
    assert_int_equal(grammar_cache_count(c).entries, 0);
    grammar_cache_verify(c);
    grammar_cache_destroy(c);
}

static void test_random_use_keeps_the_bound(void **state) {
    (void)state;
    enum { STEPS = 3000, OPEN = 12, SOURCES = 40 };
    const size_t bytes_max = 400000;
    struct grammar_cache *c = make_cache(bytes_max);
    struct grammar_lease open[OPEN] = {{0}};
    struct rng rng = {.seed = 17};
    for (int i = 0; i < STEPS; i++) {
        struct grammar_lease *l = &open[rng_below(&rng, OPEN)];
        char regex[32];
        snprintf(regex, sizeof(regex), "(a%dx|b){3}", (int)rng_below(&rng, SOURCES));
        if (l->grammar) {
            assert_true(accepts(l->grammar, "bbb"));
            grammar_cache_give(c, l);
        } else {
            assert_int_equal(take(c, regex, l), ST_OK);
        }
        grammar_cache_verify(c);
    }
    for (int i = 0; i < OPEN; i++) grammar_cache_give(c, &open[i]);
    grammar_cache_verify(c);
    const struct grammar_cache_counts counts = grammar_cache_count(c);
    assert_true(counts.bytes <= bytes_max);
    assert_true(counts.entries > 1);
    assert_true(counts.compiles > SOURCES); /* some had been removed */
    assert_true(counts.compiles < counts.takes);
    grammar_cache_destroy(c);
}

/* --- threads ------------------------------------------------------------------------------ */

enum { THREADS = 4 };

struct caller {
    struct grammar_cache *cache;
    const char *regex;
    pthread_barrier_t *start;
    struct grammar_lease lease;
    enum status status;
};

static void *ask(void *arg) {
    struct caller *a = arg;
    const struct grammar_options options = {.kind = GRAMMAR_REGEX};
    struct grammar_refusal why;
    pthread_barrier_wait(a->start);
    a->status = grammar_cache_take(a->cache, str_of(a->regex), &options, NULL, &a->lease, &why);
    return NULL;
}

static void test_those_who_ask_at_once_share_the_compile(void **state) {
    (void)state;
    struct grammar_cache *c = make_cache(0);
    struct caller callers[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        callers[i] = (struct caller){.cache = c, .regex = "(a|b){500}c", .start = &start};
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &callers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(callers[i].status, ST_OK);
        assert_ptr_equal(callers[i].lease.grammar, callers[0].lease.grammar);
    }
    assert_int_equal(grammar_cache_count(c).compiles, 1);
    for (int i = 0; i < THREADS; i++) grammar_cache_give(c, &callers[i].lease);
    pthread_barrier_destroy(&start);
    grammar_cache_destroy(c);
}

/* A compile that waits, inside its cancel function, until the test lets it go on. */
struct gate {
    atomic_bool is_inside, is_open, client_left;
};

static bool left(void *ctx) {
    struct gate *g = ctx;
    atomic_store(&g->is_inside, true);
    while (!atomic_load(&g->is_open)) sched_yield();
    return atomic_load(&g->client_left);
}

struct gated {
    struct grammar_cache *cache;
    struct gate gate;
    struct grammar_lease lease;
    enum status status;
};

static void *ask_gated(void *arg) {
    struct gated *a = arg;
    const struct grammar_options options = {
        .kind = GRAMMAR_CHOICE, .cancelled = left, .cancelled_ctx = &a->gate};
    struct grammar_refusal why;
    char source[8000];
    size_t len = (size_t)snprintf(source, sizeof(source), "[\"%d\"", 0);
    for (int i = 1; i < 600; i++) /* many units of work, so that the cancel function is called */
        len += (size_t)snprintf(source + len, sizeof(source) - len, ",\"w%dx\"", i * 7919);
    snprintf(source + len, sizeof(source) - len, "]");
    a->status = grammar_cache_take(a->cache, str_of(source), &options, NULL, &a->lease, &why);
    return NULL;
}

static void test_a_compile_ends_when_its_only_client_leaves(void **state) {
    (void)state;
    struct gated one = {.cache = make_cache(0), .gate = {.client_left = true, .is_open = true}};
    ask_gated(&one);
    assert_int_equal(one.status, ST_CANCELLED);
    assert_int_equal(grammar_cache_count(one.cache).entries, 0);
    one.gate.client_left = false;
    ask_gated(&one);
    assert_int_equal(one.status, ST_OK);
    grammar_cache_give(one.cache, &one.lease);
    grammar_cache_destroy(one.cache);
}

static void test_a_compile_goes_on_for_the_one_who_waits(void **state) {
    (void)state;
    struct grammar_cache *c = make_cache(0);
    struct gated first = {.cache = c}, second = {.cache = c};
    pthread_t threads[2];
    assert_int_equal(pthread_create(&threads[0], NULL, ask_gated, &first), 0);
    while (!atomic_load(&first.gate.is_inside)) sched_yield();
    assert_int_equal(pthread_create(&threads[1], NULL, ask_gated, &second), 0);
    while (!atomic_load(&second.gate.is_inside)) sched_yield(); /* it waits for the compile */
    atomic_store(&first.gate.client_left, true);
    atomic_store(&second.gate.is_open, true);
    atomic_store(&first.gate.is_open, true);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    assert_int_equal(second.status, ST_OK);
    assert_int_equal(grammar_cache_count(c).compiles, 1);
    grammar_cache_give(c, &first.lease);
    grammar_cache_give(c, &second.lease);
    grammar_cache_verify(c);
    grammar_cache_destroy(c);
}

static const char *const pieces[] = {"{\"a\":", "\"b\":", "[", "]", "{", "}",  ",",
                                     "\"xy\"",  "12",     "1", "a", "0", "\"", "{\"k\":"};
enum { PIECES = sizeof(pieces) / sizeof(*pieces), WALK_STEPS = 2000 };

/* A walk that takes an allowed token at random; returns a digest of all masks. */
static uint64_t walk(struct grammar *g, const struct vocabulary *v, uint64_t seed) {
    struct rng rng = {.seed = seed};
    struct matcher m = matcher_init(g);
    uint64_t digest = seed;
    for (int i = 0; i < WALK_STEPS; i++) {
        uint64_t mask[1];
        matcher_mask(&m, v, mask);
        digest = digest * 31 + mask[0] + matcher_is_complete(&m);
        if (matcher_status(&m, NULL) != ST_OK) return 0;
        if (!mask[0]) {
            matcher_release(&m);
            m = matcher_init(g);
        }
        uint64_t token = rng_below(&rng, PIECES);
        while (mask[0] && !(mask[0] >> token & 1)) token = (token + 1) % PIECES;
        struct matcher copy = matcher_copy(&m);
        if (mask[0] && !matcher_accept(&m, str_of(pieces[token]), NULL)) return 0;
        const bool goes_back = mask[0] && rng_below(&rng, 4) == 0;
        matcher_release(goes_back ? &m : &copy);
        if (goes_back) m = copy;
    }
    matcher_release(&m);
    return digest;
}

struct walker {
    struct grammar_cache *cache;
    const struct vocabulary *vocabulary;
    const struct grammar_options *options;
    uint64_t seed, digest;
};

static const char nested[] =
    "{\"$ref\":\"#/$defs/"
    "v\",\"$defs\":{\"v\":{\"anyOf\":[{\"type\":\"array\",\"uniqueItems\":true,\"items\":{"
    "\"$ref\":\"#/$defs/v\"}},{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/"
    "v\"},\"b\":{"
    "\"type\":\"string\",\"maxLength\":90}}},{\"type\":\"integer\",\"minimum\":0,\"maximum\":15}]}}"
    "}";

static void *walk_leased(void *arg) {
    struct walker *w = arg;
    struct grammar_lease lease;
    struct grammar_refusal why;
    w->digest = 0;
    if (grammar_cache_take(w->cache, str_of(nested), w->options, w->vocabulary, &lease, &why) !=
        ST_OK)
        return NULL;
    w->digest = walk(lease.grammar, w->vocabulary, w->seed);
    grammar_cache_give(w->cache, &lease);
    return NULL;
}

static void test_answers_share_a_small_grammar(void **state) {
    (void)state;
    enum { ROUNDS = 5 };
    struct str tokens[PIECES];
    struct vocabulary *v = NULL;
    for (int i = 0; i < PIECES; i++) tokens[i] = str_of(pieces[i]);
    assert_int_equal(vocabulary_create(tokens, PIECES, &v), ST_OK);
    const struct grammar_options small = {.kind = GRAMMAR_SCHEMA, .bytes_max = 600000},
                                 large = {.kind = GRAMMAR_SCHEMA};
    struct grammar_cache *c = make_cache(0);
    struct grammar *alone = NULL;
    struct grammar_refusal why;
    assert_int_equal(grammar_compile(str_of(nested), &large, &alone, &why), ST_OK);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct walker walkers[THREADS];
        pthread_t threads[THREADS];
        for (uint64_t i = 0; i < THREADS; i++) {
            walkers[i] = (struct walker){c, v, &small, 1 + round * THREADS + i, 0};
            assert_int_equal(pthread_create(&threads[i], NULL, walk_leased, &walkers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            if (walkers[i].digest == 0 || walkers[i].digest != walk(alone, v, walkers[i].seed))
                fail_msg("seed %d", (int)walkers[i].seed);
        }
    }
    assert_true(grammar_bytes(alone) > small.bytes_max); /* it could not have been kept whole */
    assert_int_equal(grammar_cache_count(c).compiles, 1);
    grammar_cache_verify(c);
    grammar_cache_destroy(c);
    grammar_destroy(alone);
    vocabulary_destroy(v);
}

/* --- what one answer keeps ---------------------------------------------------------------- */

/* One of far more states than fit: each of the last 40 characters is to be remembered. */
static bool answer_some(struct grammar *g, uint64_t seed, struct matcher *m) {
    struct rng rng = {.seed = seed};
    *m = matcher_init(g);
    for (int i = 0; i < 60; i++)
        if (!matcher_accept(m, rng_below(&rng, 2) ? STR("a") : STR("b"), NULL)) return false;
    return true;
}

static void test_a_long_answer_keeps_its_own_states_only(void **state) {
    (void)state;
    enum { ANSWERS = 1500 };
    const struct str source = STR("(a|b)*a(a|b){40}");
    const struct grammar_options options = {.kind = GRAMMAR_REGEX, .bytes_max = 800000};
    struct grammar_cache *c = make_cache(0);
    struct grammar_lease first, lease;
    struct grammar_refusal why;
    struct matcher kept, other;
    uint64_t before[4] = {0}, after[4] = {0};
    const struct str tokens[] = {STR("a"), STR("b"), STR("ba"), STR("c")};
    struct vocabulary *v = NULL;
    assert_int_equal(vocabulary_create(tokens, 4, &v), ST_OK);
    assert_int_equal(grammar_cache_take(c, source, &options, v, &first, &why), ST_OK);
    assert_true(answer_some(first.grammar, 1, &kept));
    matcher_mask(&kept, v, before);
    for (uint64_t i = 0; i < ANSWERS; i++) {
        assert_int_equal(grammar_cache_take(c, source, &options, v, &lease, &why), ST_OK);
        assert_ptr_equal(lease.grammar, first.grammar);
        if (!answer_some(lease.grammar, 2 + i, &other)) fail_msg("answer %d", (int)i);
        matcher_release(&other);
        grammar_cache_give(c, &lease);
    }
    matcher_mask(&kept, v, after);
    assert_int_equal(before[0], after[0]);
    assert_true(matcher_accept(&kept, STR("ab"), NULL));
    matcher_release(&kept);
    grammar_cache_give(c, &first);
    grammar_cache_verify(c);
    grammar_cache_destroy(c);
    vocabulary_destroy(v);
}

struct user {
    struct grammar_cache *cache;
    atomic_bool is_done;
};

/* Uses the cache for the grammar that is locked, and for another. */
static void *use_cache(void *arg) {
    struct user *u = arg;
    struct grammar_lease same, other;
    if (take(u->cache, "x+y", &same) == ST_OK && take(u->cache, "x+z", &other) == ST_OK) {
        grammar_cache_give(u->cache, &other);
        grammar_cache_give(u->cache, &same);
    }
    atomic_store(&u->is_done, true);
    return NULL;
}

static void test_a_slow_mask_does_not_hold_the_cache(void **state) {
    (void)state;
    struct user user = {.cache = make_cache(0)};
    struct grammar_lease lease;
    pthread_t thread;
    assert_int_equal(take(user.cache, "x+y", &lease), ST_OK);
    pthread_mutex_lock(&lease.grammar->lock); /* as while a mask is computed */
    assert_int_equal(pthread_create(&thread, NULL, use_cache, &user), 0);
    for (int ms = 0; ms < 60000 && !atomic_load(&user.is_done); ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    bool was_done = atomic_load(&user.is_done);
    pthread_mutex_unlock(&lease.grammar->lock);
    pthread_join(thread, NULL);
    assert_true(was_done);
    grammar_cache_give(user.cache, &lease);
    grammar_cache_verify(user.cache);
    grammar_cache_destroy(user.cache);
}

/* --- tenants ------------------------------------------------------------------------------ */

static enum status take_for(struct grammar_cache *c, const char *regex, uint32_t tenant,
                            struct grammar_lease *out, struct grammar_refusal *why) {
    const struct grammar_options options = {
        .kind = GRAMMAR_REGEX, .tenant = tenant, .has_others = true};
    return grammar_cache_take(c, str_of(regex), &options, NULL, out, why);
}

/* Whether a source is known must not be seen from the time that a request takes. */
static void test_tenants_share_no_grammar(void **state) {
    (void)state;
    struct grammar_cache *c = make_cache(0);
    struct grammar_lease a, b, again;
    struct grammar_refusal why;
    assert_int_equal(take_for(c, "x+y", 1, &a, &why), ST_OK);
    assert_int_equal(take_for(c, "x+y", 2, &b, &why), ST_OK);
    assert_int_equal(take_for(c, "x+y", 1, &again, &why), ST_OK);
    assert_ptr_not_equal(a.grammar, b.grammar);
    assert_ptr_equal(a.grammar, again.grammar);
    assert_int_equal(grammar_cache_count(c).compiles, 2);
    for (uint32_t tenant = 1; tenant < 3; tenant++) /* nor a refusal */
        assert_int_equal(take_for(c, "(a", tenant, &(struct grammar_lease){0}, &why), ST_BAD);
    assert_int_equal(grammar_cache_count(c).compiles, 4);
    grammar_cache_give(c, &a);
    grammar_cache_give(c, &b);
    grammar_cache_give(c, &again);
    assert_int_equal(grammar_cache_count(c).used_bytes, 0);
    grammar_cache_destroy(c);
}

/* Takes different grammars until none is given any more; returns how many. */
static uint32_t take_all(struct grammar_cache *c, uint32_t tenant, struct grammar_lease *leases,
                         uint32_t max, struct grammar_refusal *why) {
    uint32_t count = 0;
    enum status st = ST_OK;
    while (count < max && st == ST_OK) {
        char regex[40];
        snprintf(regex, sizeof(regex), "(a%ub|c){40}", count);
        st = take_for(c, regex, tenant, &leases[count], why);
        count += st == ST_OK;
    }
    assert_true(count < max);
    assert_int_equal(st, ST_UNAVAILABLE);
    assert_non_null(strstr(why->err.text, "memory for grammars"));
    return count;
}

/* A grammar that was compiled when its tenant was alone may be used when there are others. */
static void test_the_share_is_that_of_now(void **state) {
    (void)state;
    enum { USED_MAX = 1 << 20, LEASES = 400 };
    static struct grammar_lease leases[LEASES];
    const struct grammar_options alone = {.kind = GRAMMAR_REGEX, .tenant = 1};
    struct grammar_cache *c = NULL;
    struct grammar_refusal why;
    struct grammar_lease old;
    assert_int_equal(grammar_cache_create(USED_MAX, 0, &c), ST_OK);
    assert_int_equal(grammar_cache_take(c, STR("(old|c){40}"), &alone, NULL, &old, &why), ST_OK);
    grammar_cache_give(c, &old);
    const uint32_t many = take_all(c, 1, leases, LEASES, &why);
    assert_int_equal(take_for(c, "(old|c){40}", 1, &old, &why), ST_UNAVAILABLE);
    assert_true(why.is_share); /* not all of the memory is its own */
    assert_true(grammar_cache_count(c).used_bytes <= USED_MAX / 2);
    for (uint32_t i = 0; i < many; i++) grammar_cache_give(c, &leases[i]);
    grammar_cache_destroy(c);
}

static void test_grammars_in_use_have_a_bound_and_tenants_a_share(void **state) {
    (void)state;
    enum { USED_MAX = 1 << 20, LEASES = 400 };
    static struct grammar_lease mine[LEASES], others[LEASES];
    struct grammar_cache *c = NULL;
    struct grammar_refusal why;
    assert_int_equal(grammar_cache_create(USED_MAX, 0, &c), ST_OK);
    const uint32_t many = take_all(c, 1, mine, LEASES, &why);
    assert_true(why.is_share);
    assert_true(many > 2);
    assert_true(grammar_cache_count(c).used_bytes <= USED_MAX / 2); /* one more may come */
    const uint32_t some = take_all(c, 2, others, LEASES, &why);
    assert_true(some > 1);
    assert_true(grammar_cache_count(c).used_bytes <= USED_MAX);
    /* A grammar that its tenant has in use already costs nothing. */
    struct grammar_lease shared;
    assert_int_equal(take_for(c, "(a0b|c){40}", 1, &shared, &why), ST_OK);
    grammar_cache_give(c, &shared);
    for (uint32_t i = 0; i < some; i++) grammar_cache_give(c, &others[i]);
    for (uint32_t i = 0; i < many; i++) grammar_cache_give(c, &mine[i]);
    grammar_cache_verify(c);
    assert_int_equal(grammar_cache_count(c).used_bytes, 0);
    assert_int_equal(take_for(c, "(new|c){40}", 1, &shared, &why), ST_OK);
    grammar_cache_give(c, &shared);
    grammar_cache_destroy(c);
}

/* Answers whose tables would grow without end, in many grammars at once. */
static void test_grammars_in_use_give_back_what_they_can_compute_again(void **state) {
    (void)state;
    enum { USED_MAX = 12 << 20, LEASES = 6, ROUNDS = 40 };
    struct grammar_lease leases[LEASES];
    struct grammar_cache *c = NULL;
    struct grammar_refusal why;
    const struct grammar_options options = {.kind = GRAMMAR_REGEX, .bytes_max = 4 << 20};
    assert_int_equal(grammar_cache_create(USED_MAX, 0, &c), ST_OK);
    for (int i = 0; i < LEASES; i++) {
        char regex[40];
        snprintf(regex, sizeof(regex), "(a|b)*a(a|b){%d}", 40 + i);
        assert_int_equal(grammar_cache_take(c, str_of(regex), &options, NULL, &leases[i], &why),
                         ST_OK);
    }
    for (uint64_t round = 0; round < ROUNDS; round++)
        for (int i = 0; i < LEASES; i++) {
            struct matcher m;
            assert_true(answer_some(leases[i].grammar, round * LEASES + (uint64_t)i, &m));
            matcher_release(&m);
            assert_true(grammar_cache_count(c).used_bytes <= USED_MAX);
        }
    for (int i = 0; i < LEASES; i++) grammar_cache_give(c, &leases[i]);
    assert_int_equal(grammar_cache_count(c).used_bytes, 0);
    grammar_cache_destroy(c);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_equal_sources_share_one_grammar),
        cmocka_unit_test(test_the_key_has_kind_options_and_vocabulary),
        cmocka_unit_test(test_a_refusal_is_remembered),
        cmocka_unit_test(test_a_failure_of_the_budget_is_not),
        cmocka_unit_test(test_random_use_keeps_the_bound),
        cmocka_unit_test(test_those_who_ask_at_once_share_the_compile),
        cmocka_unit_test(test_a_compile_ends_when_its_only_client_leaves),
        cmocka_unit_test(test_a_compile_goes_on_for_the_one_who_waits),
        cmocka_unit_test(test_answers_share_a_small_grammar),
        cmocka_unit_test(test_a_long_answer_keeps_its_own_states_only),
        cmocka_unit_test(test_a_slow_mask_does_not_hold_the_cache),
        cmocka_unit_test(test_tenants_share_no_grammar),
        cmocka_unit_test(test_the_share_is_that_of_now),
        cmocka_unit_test(test_grammars_in_use_have_a_bound_and_tenants_a_share),
        cmocka_unit_test(test_grammars_in_use_give_back_what_they_can_compute_again),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
