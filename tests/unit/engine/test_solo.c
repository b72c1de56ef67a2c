/* Goal:   every token that is embedded is checked, also the one that a cut keeps.
 * Method: the golden encoder, with a text longer than it takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "engine/solo.h"

enum { CTX = 24 };

static struct solo *open_golden(const char *name) {
    char path[4096] = TEST_SOURCE_DIR "/golden/models/";
    struct solo *e = NULL;
    struct err err = {{0}};
    strncat(path, name, sizeof(path) - strlen(path) - 1);
    struct solo_options o = {.threads = 1, .ctx_tokens = CTX, .chunk_tokens = 7};
    if (solo_open(path, &o, &e, &err) != ST_OK) fail_msg("%s", err.text);
    return e;
}

/* A text that is cut keeps its last token, wherever that stood. */
static void test_the_token_that_a_cut_keeps_is_checked_too(void **state) {
    (void)state;
    struct solo *e = open_golden("bert");
    uint32_t max = solo_ctx_tokens(e);
    int32_t ids[4096] = {0};
    float out[4096];
    struct err err = {{0}};
    assert_true(max + 5 < 4096 && solo_embed_dims(e) <= 4096);
    assert_int_equal(solo_embed(e, ids, max + 5, out, &err), ST_OK);
    ids[max + 4] = (int32_t)solo_vocab(e);
    assert_int_equal(solo_embed(e, ids, max + 5, out, &err), ST_BAD);
    solo_close(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_token_that_a_cut_keeps_is_checked_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
