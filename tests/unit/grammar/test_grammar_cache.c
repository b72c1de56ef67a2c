/* Goal:   one compile for all that ask, a bound in bytes, cancelled compiles end, and answers that
 *         go on however much other answers use the same grammar.
 * Method: counts after each step; random takes and gives by seed with grammar_cache_verify;
 *         threads that walk through one grammar under a budget so small that states are forgotten
 *         all the time, compared with the same walk alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/rng.h"
#include "grammar/grammar_cache.h"
#include "unit/grammar/grammar_lib.h"

static struct grammar_cache *make_cache(size_t bytes_max) {
    struct grammar_cache *c = NULL;
    assert_int_equal(grammar_cache_create(bytes_max, &c), ST_OK);
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
        if (!mask[0]) m = matcher_init(g);
        uint64_t token = rng_below(&rng, PIECES);
        while (mask[0] && !(mask[0] >> token & 1)) token = (token + 1) % PIECES;
        struct matcher copy = m;
        if (mask[0] && !matcher_accept(&m, str_of(pieces[token]), NULL)) return 0;
        if (mask[0] && rng_below(&rng, 4) == 0) m = copy; /* a step back */
    }
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
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
