/* Goal:   every form of --speculate is read, and every error names what was expected.
 * Method: tables of texts with what they mean, and with a piece of the error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "spec/drafter.h"
#include "spec/speculate_option.h"

static struct speculate_option parse(const char *text) {
    struct speculate_option o;
    struct err err = {0};
    memset(&o, 0x5a, sizeof(o));
    assert_int_equal(speculate_option_parse(str_of(text), &o, &err), ST_OK);
    return o;
}

static void test_every_drafter_is_known_by_its_name(void **state) {
    (void)state;
    for (const struct drafter *const *d = drafters; *d; d++) {
        struct speculate_option o = parse((*d)->name);
        assert_int_equal(o.kind, SPECULATE_TEXT);
        assert_ptr_equal(o.drafter, *d);
        assert_ptr_equal(drafter_find((*d)->name), *d);
        assert_int_equal(o.ngram_min, speculate_option_default().ngram_min);
        assert_true((*d)->create && (*d)->destroy && (*d)->propose && (*d)->bytes && (*d)->verify);
    }
    assert_null(drafter_find("off"));
}

static void test_off_and_model(void **state) {
    (void)state;
    struct speculate_option o = parse("off");
    assert_int_equal(o.kind, SPECULATE_OFF);
    assert_null(o.drafter);
    assert_int_equal(speculate_option_default().kind, SPECULATE_OFF);
    o = parse("model:/models/a:b.gguf");
    assert_int_equal(o.kind, SPECULATE_MODEL);
    assert_true(str_is(o.path, "/models/a:b.gguf"));
    assert_null(o.drafter);
}

static void test_lengths_of_ngrams(void **state) {
    (void)state;
    struct speculate_option o = parse("ngram:1-8");
    assert_int_equal(o.ngram_min, 1);
    assert_int_equal(o.ngram_max, SPECULATE_NGRAM_LIMIT);
    o = parse("ngram:3");
    assert_int_equal(o.ngram_min, 3);
    assert_int_equal(o.ngram_max, 3);
}

static void test_errors_say_what_was_expected(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "unknown name ''; known: off, ngram"},
        {"ngran", "did you mean 'ngram'? known: off"},
        {"of", "did you mean 'off'?"},
        {"transformer", "unknown name 'transformer'; known: off"},
        {"ngram:", "is not MIN-MAX"},
        {"ngram:2-", "is not MIN-MAX"},
        {"ngram:-4", "is not MIN-MAX"},
        {"ngram:2-4-5", "is not MIN-MAX"},
        {"ngram:0-4", "expected 1 <= MIN <= MAX <= 8"},
        {"ngram:5-4", "out of range"},
        {"ngram:2-9", "out of range"},
        {"ngram:2-99999999999999999999", "is not MIN-MAX"},
        {"off:2", "off: takes no options, but ':2' was given"},
        {"model", "expected model:PATH"},
        {"model:", "expected model:PATH"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct speculate_option o = speculate_option_default();
        struct err err = {0};
        o.ngram_min = 77;
        assert_int_equal(speculate_option_parse(str_of(cases[i].text), &o, &err), ST_BAD);
        assert_int_equal(o.ngram_min, 77);
        if (!strstr(err.text, cases[i].says))
            fail_msg("'%s': '%s' does not contain '%s'", cases[i].text, err.text, cases[i].says);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_drafter_is_known_by_its_name),
        cmocka_unit_test(test_off_and_model),
        cmocka_unit_test(test_lengths_of_ngrams),
        cmocka_unit_test(test_errors_say_what_was_expected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
