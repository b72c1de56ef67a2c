/* Goal:   requests share cached prefixes exactly if tenant, salt text and prompt are equal, and no
 *         client can make them equal without the server's secret.
 * Method: all pairs of some hundred tenants and texts that are alike; seeded random requests
 *         through an engine, whose cached_tokens are compared with a list of what was computed
 *         before; the text that gave another tenant's salt when salts were unkeyed 64-bit hashes;
 *         files with and without a secret in them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"
#include "engine/cache_salt.h"
#include "unit/engine/rig.h"

enum { TEXT_MAX = 12 };

struct label {
    uint32_t tenant;
    uint8_t text[TEXT_MAX];
    size_t len;
};

static bool label_eq(const struct label *a, const struct label *b) {
    return a->tenant == b->tenant && a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

static struct str text_of(const struct label *l) {
    return (struct str){(const char *)l->text, l->len};
}

/* Few tenants and few bytes, so that labels are often alike and sometimes equal. A text may be the
 * bytes of a tenant's number. */
static struct label draw_label(struct rng *rng) {
    static const uint8_t bytes[] = {0, 1, 2, 'a', 0xff};
    struct label l = {.tenant = (uint32_t)(rng_next(rng) % 5)};
    if (rng_next(rng) % 8 == 0) l.tenant = (uint32_t)rng_next(rng);
    l.len = rng_next(rng) % 4;
    for (size_t i = 0; i < l.len; i++) l.text[i] = bytes[rng_next(rng) % sizeof(bytes)];
    if (rng_next(rng) % 8 == 0) {
        uint32_t number = (uint32_t)(rng_next(rng) % 5);
        memcpy(l.text, &number, l.len = sizeof(number));
    }
    return l;
}

static void test_salts_are_equal_exactly_if_tenant_and_text_are(void **state) {
    (void)state;
    enum { LABELS = 400 };
    struct rng rng = {.seed = 1};
    struct cache_secret secret = {{7}};
    struct cache_salts *s = cache_salts_create(&secret);
    struct label labels[LABELS];
    struct kv_salt salts[LABELS];
    uint32_t equal = 0;
    for (uint32_t i = 0; i < LABELS; i++) {
        labels[i] = draw_label(&rng);
        salts[i] = cache_salts_find(s, labels[i].tenant, text_of(&labels[i]));
        for (uint32_t j = 0; j < i; j++) {
            bool is_same = label_eq(&labels[i], &labels[j]);
            assert_int_equal(kv_salt_eq(salts[i], salts[j]), is_same);
            /* Neither half repeats alone: nothing was cut to 64 bits. */
            assert_int_equal(salts[i].low == salts[j].low, is_same);
            assert_int_equal(salts[i].high == salts[j].high, is_same);
            equal += is_same;
        }
    }
    assert_true(equal > 100);
    cache_salts_destroy(s);
}

/* HMAC-SHA-256 under 32 zero bytes, by Python's hmac, of 01 05000000 and of 02 05000000 "abc". */
static void test_a_salt_is_the_hmac_of_tenant_and_text(void **state) {
    (void)state;
    struct cache_salts *s = cache_salts_create(&(struct cache_secret){{0}});
    struct kv_salt of_tenant = cache_salts_find(s, 5, (struct str){0});
    struct kv_salt of_text = cache_salts_find(s, 5, STR("abc"));
    const uint8_t tenant_bits[16] = {0xc9, 0x65, 0x9a, 0xa5, 0x03, 0x42, 0x22, 0x95,
                                     0xc7, 0x41, 0x5b, 0x9c, 0x9b, 0x3d, 0xa7, 0x2a};
    const uint8_t text_bits[16] = {0x50, 0x2c, 0x04, 0x57, 0x57, 0x21, 0xfb, 0x9d,
                                   0x87, 0x98, 0x88, 0xd2, 0x71, 0x27, 0xb2, 0xcb};
    assert_memory_equal(&of_tenant, tenant_bits, 16);
    assert_memory_equal(&of_text, text_bits, 16);
    cache_salts_destroy(s);
}

static void test_another_secret_gives_other_salts_and_keys(void **state) {
    (void)state;
    for (uint32_t bit = 0; bit < CACHE_SECRET_BYTES * 8; bit++) {
        struct cache_secret one = {{0}}, other = {{0}};
        other.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        struct cache_salts *a = cache_salts_create(&one), *b = cache_salts_create(&other);
        for (uint32_t tenant = 0; tenant < 3; tenant++) {
            assert_false(kv_salt_eq(cache_salts_find(a, tenant, (struct str){0}),
                                    cache_salts_find(b, tenant, (struct str){0})));
            assert_false(kv_salt_eq(cache_salts_find(a, tenant, STR("x")),
                                    cache_salts_find(b, tenant, STR("x"))));
        }
        struct siphash_key x = cache_salts_block_secret(a), y = cache_salts_block_secret(b);
        assert_true(x.low != y.low && x.high != y.high);
        cache_salts_destroy(a);
        cache_salts_destroy(b);
    }
}

static void test_salts_are_remembered_for_more_tenants_than_the_table_holds(void **state) {
    (void)state;
    struct cache_secret secret = {{3}};
    struct cache_salts *s = cache_salts_create(&secret);
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t tenant = 0; tenant < 1000; tenant++) {
            struct cache_salts *fresh = cache_salts_create(&secret);
            assert_true(kv_salt_eq(cache_salts_find(s, tenant, (struct str){0}),
                                   cache_salts_find(fresh, tenant, (struct str){0})));
            cache_salts_destroy(fresh);
        }
    cache_salts_destroy(s);
}

/* ---- through an engine ---- */

/* Run a request to its end; returns its cached_tokens. */
static uint32_t cached(struct rig *rig, const struct label *l, uint32_t number, uint32_t tokens) {
    int32_t prompt[RIG_CTX];
    struct err err = {0};
    struct request *r = NULL;
    struct request_spec spec = rig_spec(prompt, tokens, number, 1);
    spec.tenant = l->tenant;
    spec.cache_salt = text_of(l);
    if (engine_submit(rig->engine, &spec, &r, &err) != ST_OK) fail_msg("%s", err.text);
    rig_run(rig, r);
    uint32_t count = r->choices[0].cached_tokens;
    for (struct choice *c; (c = engine_next(rig->engine, 0));) request_unref(c->request);
    request_unref(r);
    return count;
}

static void test_prefixes_are_kept_apart_by_tenant_and_salt(void **state) {
    (void)state;
    enum { REQUESTS = 600, PROMPTS = 3 };
    struct past {
        struct label label;
        uint32_t number, tokens;
    } *past = calloc(REQUESTS, sizeof(*past));
    struct rig rig;
    struct rng rng = {.seed = 2};
    struct knobs k = rig_knobs();
    k.kv_blocks = 8192; /* nothing is evicted */
    uint32_t hits = 0, block = k.block_size;
    rig_open(&rig, &k, NULL, false, 0);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        past[i] = (struct past){.label = draw_label(&rng),
                                .number = (uint32_t)(rng_next(&rng) % PROMPTS),
                                .tokens = 1 + (uint32_t)(rng_next(&rng) % (6 * block))};
        uint32_t most = 0; /* blocks that an equal label has computed of this prompt */
        for (uint32_t j = 0; j < i; j++) {
            bool is_same =
                past[i].number == past[j].number && label_eq(&past[i].label, &past[j].label);
            if (is_same && past[j].tokens / block > most) most = past[j].tokens / block;
        }
        uint32_t limit = (past[i].tokens - 1) / block, blocks = most < limit ? most : limit;
        assert_int_equal(cached(&rig, &past[i].label, past[i].number, past[i].tokens),
                         blocks * block);
        hits += blocks > 0;
    }
    assert_true(hits > 50);
    engine_destroy(rig.engine);
    free(past);
}

/* When the salt was XXH3_64bits(tenant), or XXH3_64bits_withSeed(text, tenant), tenant 2 got tenant
 * 1's salt with this text: the hash of eight bytes can be inverted. */
static void test_a_text_that_once_gave_another_tenants_salt_gives_nothing(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    const struct label victim = {.tenant = 1};
    const struct label attacker = {
        .tenant = 2, .text = {0x91, 0x66, 0x3b, 0xf2, 0xf0, 0xae, 0x10, 0x03}, .len = 8};
    rig_open(&rig, &k, NULL, false, 0);
    assert_int_equal(cached(&rig, &victim, 1, 100), 0);
    assert_int_equal(cached(&rig, &attacker, 1, 100), 0);
    assert_true(cached(&rig, &victim, 1, 100) > 0);
    engine_destroy(rig.engine);
}

/* ---- the secret's file ---- */

static void write_file(const char *path, size_t bytes, char fill, mode_t mode) {
    FILE *f = fopen(path, "w");
    for (size_t i = 0; i < bytes; i++) fputc(fill, f);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
}

static void test_a_secret_comes_from_a_file_or_is_random(void **state) {
    (void)state;
    char path[] = "/tmp/jitney-secret-XXXXXX";
    struct cache_secret a, b;
    struct err err = {0};
    close(mkstemp(path));
    write_file(path, 32, 'x', 0600);
    assert_int_equal(cache_secret_make(path, &a, &err), ST_OK);
    assert_int_equal(cache_secret_make(path, &b, &err), ST_OK);
    assert_memory_equal(&a, &b, sizeof(a));
    write_file(path, 33, 'x', 0400);
    assert_int_equal(cache_secret_make(path, &b, &err), ST_OK);
    assert_memory_not_equal(&a, &b, sizeof(a));

    unlink(path);
    write_file(path, 31, 'x', 0600);
    assert_int_equal(cache_secret_make(path, &b, &err), ST_BAD);
    assert_non_null(strstr(err.text, "has 31 bytes, expected 32 or more"));
    write_file(path, 32, 'x', 0640);
    assert_int_equal(cache_secret_make(path, &b, &err), ST_BAD);
    assert_non_null(strstr(err.text, "mode 640"));
    unlink(path);
    assert_int_equal(cache_secret_make(path, &b, &err), ST_MISSING);

    assert_int_equal(cache_secret_make(NULL, &a, &err), ST_OK);
    assert_int_equal(cache_secret_make(NULL, &b, &err), ST_OK);
    assert_memory_not_equal(&a, &b, sizeof(a));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_salts_are_equal_exactly_if_tenant_and_text_are),
        cmocka_unit_test(test_a_salt_is_the_hmac_of_tenant_and_text),
        cmocka_unit_test(test_another_secret_gives_other_salts_and_keys),
        cmocka_unit_test(test_salts_are_remembered_for_more_tenants_than_the_table_holds),
        cmocka_unit_test(test_prefixes_are_kept_apart_by_tenant_and_salt),
        cmocka_unit_test(test_a_text_that_once_gave_another_tenants_salt_gives_nothing),
        cmocka_unit_test(test_a_secret_comes_from_a_file_or_is_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
