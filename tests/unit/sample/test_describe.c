/* Goal:   descriptions are appended to the tables or leave them as they were; masks of processors
 *         that forbid many tokens are joined.
 * Method: a list of processors of this test's own, in place of sample/logit_proc_list.c: the
 *         penalties and two that forbid by mask. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "sample/logit_proc.h"
#include "sample/sampler.h"

enum { VOCAB = 130, WORDS = 3, ROOM = 20 };

/* ---- processors ---- */

static int32_t thirds = 3, fifths = 5;

static enum status create_thirds(const struct sample_params *p, const struct sample_bounds *bounds,
                                 void **self, struct err *err) {
    (void)bounds;
    (void)err;
    *self = p->top_k == 1 ? &thirds : NULL; /* as good a switch as any */
    return ST_OK;
}

static enum status create_fifths(const struct sample_params *p, const struct sample_bounds *bounds,
                                 void **self, struct err *err) {
    TRY(create_thirds(p, bounds, self, err));
    *self = *self ? &fifths : NULL;
    return ST_OK;
}

static void edit(void *self, bool is_pending, struct logit_edits *out) {
    uint64_t mask[WORDS] = {0};
    (void)is_pending;
    for (int32_t t = 0; t < VOCAB; t += *(const int32_t *)self)
        mask[t / 64] |= UINT64_C(1) << t % 64;
    logit_edits_deny(out, mask);
}

static uint32_t edits_max(const void *self) {
    (void)self;
    return 0;
}

static void destroy(void *self) { (void)self; }

static const struct logit_proc proc_thirds = {.name = "thirds",
                                              .create = create_thirds,
                                              .edit = edit,
                                              .edits_max = edits_max,
                                              .destroy = destroy};
static const struct logit_proc proc_fifths = {.name = "fifths",
                                              .create = create_fifths,
                                              .edit = edit,
                                              .edits_max = edits_max,
                                              .destroy = destroy};
extern const struct logit_proc logit_proc_penalty;
const struct logit_proc *const logit_procs[] = {
    &logit_proc_penalty,
    &proc_thirds,
    &proc_fifths,
    NULL,
};

/* ---- tests ---- */

static struct sampler *create(bool denies) {
    const struct sample_bounds bounds = {VOCAB, 50};
    struct sample_params p = sample_params_default();
    struct sampler *s;
    struct err err = {0};
    p.presence_penalty = 1.0f;
    p.penalty_window = 10;
    p.top_k = denies;
    assert_int_equal(sampler_create(&p, &bounds, &s, &err), ST_OK);
    for (int32_t t = 0; t < 5; t++) sampler_accept(s, t);
    return s;
}

static void test_masks_of_processors_are_joined(void **state) {
    (void)state;
    struct sampler *s = create(true);
    struct logit_edit edits[ROOM];
    uint64_t deny[3 * WORDS];
    struct sampling_tables tables = {
        .edits = edits, .edit_cap = ROOM, .deny = deny, .deny_cap = 3 * WORDS};
    struct sampling d;
    memset(deny, 0xff, sizeof(deny));
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(sampler_describe(s, 5, false, &tables, &d), ST_OK);
        assert_int_equal(d.edit_first, 5 * i);
        assert_int_equal(d.edit_count, 5);
        assert_int_equal(d.seen_count, 5);
        assert_int_equal(d.deny_first, WORDS * i);
        for (int32_t t = 0; t < VOCAB; t++) {
            bool is_denied = deny[d.deny_first + (uint32_t)t / 64] >> t % 64 & 1;
            assert_int_equal(is_denied, t % 3 == 0 || t % 5 == 0);
        }
    }
    assert_int_equal(tables.edit_count, 10);
    assert_int_equal(tables.deny_count, 2 * WORDS);
    sampler_destroy(s);
}

/* One edit too few, or one word of the mask. */
static void test_full_tables_stay_as_they_were(void **state) {
    (void)state;
    struct sampler *s = create(true);
    for (uint32_t lacks_words = 0; lacks_words < 2; lacks_words++) {
        struct logit_edit edits[ROOM] = {{.token = 99}};
        uint64_t deny[2 * WORDS] = {1, 2, 3};
        struct sampling_tables tables = {
            .edits = edits, .edit_cap = ROOM, .deny = deny, .deny_cap = 2 * WORDS};
        struct sampling d, before;
        tables.edit_count = 1;
        tables.deny_count = WORDS;
        *(lacks_words ? &tables.deny_cap : &tables.edit_cap) = lacks_words ? 2 * WORDS - 1 : 5;
        memset(&d, 0x5a, sizeof(d));
        memcpy(&before, &d, sizeof(d));
        assert_int_equal(sampler_describe(s, 5, false, &tables, &d), ST_FULL);
        assert_memory_equal(&d, &before, sizeof(d));
        assert_int_equal(tables.edit_count, 1);
        assert_int_equal(tables.deny_count, WORDS);
        assert_int_equal(edits[0].token, 99);
        assert_int_equal(deny[2], 3);
        tables.edit_cap = 6;
        tables.deny_cap = 2 * WORDS;
        assert_int_equal(sampler_describe(s, 5, false, &tables, &d), ST_OK);
        assert_int_equal(d.edit_first, 1);
        assert_int_equal(d.deny_first, WORDS);
    }
    sampler_destroy(s);
}

static void test_a_description_has_no_more_edits_than_the_bound(void **state) {
    (void)state;
    struct sampler *s = create(false);
    struct logit_edit edits[ROOM];
    struct sampling_tables tables = {.edits = edits, .edit_cap = ROOM};
    struct sampling d;
    assert_int_equal(sampler_edits_max(s), 10);
    for (int32_t t = 5; t < 40; t++) {
        for (int pending = 0; pending < 2; pending++) {
            uint32_t kept = (uint32_t)(t < 10 ? t : 10);
            tables.edit_count = 0;
            assert_int_equal(sampler_describe(s, (uint64_t)t, pending, &tables, &d), ST_OK);
            assert_int_equal(d.edit_count, kept - (pending && t >= 10));
            assert_int_equal(d.is_pending, pending);
            assert_true(d.deny_first == SAMPLING_NONE);
        }
        sampler_accept(s, t);
    }
    sampler_destroy(s);
}

/* Nobody has to wait for a token that changes nothing. */
static void test_a_token_is_pending_only_where_penalties_count_it(void **state) {
    (void)state;
    const struct sample_bounds bounds = {VOCAB, 50};
    struct sample_params p = sample_params_default();
    struct sampling_tables tables = {0};
    struct sampling d;
    struct sampler *s;
    struct err err = {0};
    assert_int_equal(sampler_create(&p, &bounds, &s, &err), ST_OK);
    assert_int_equal(sampler_describe(s, 5, true, &tables, &d), ST_OK);
    assert_false(d.is_pending);
    assert_int_equal(d.edit_count, 0);
    assert_int_equal(sampler_edits_max(s), 0);
    sampler_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks_of_processors_are_joined),
        cmocka_unit_test(test_full_tables_stay_as_they_were),
        cmocka_unit_test(test_a_description_has_no_more_edits_than_the_bound),
        cmocka_unit_test(test_a_token_is_pending_only_where_penalties_count_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
