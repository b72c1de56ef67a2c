/* Goal:   stored events are cut after any number, and become lists and lines without a loss; a
 *         stored prompt comes back as it was, and damaged bytes are refused.
 * Method: an encoder's own text; every place to continue from; every cut of the bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/json.h"
#include "server/prompt.h"
#include "server/stored_events.h"

#define FIRST "id: 1\nevent: a.b\ndata: {\"x\":1}\n\n"
#define SECOND "id: 2\ndata: {\"y\":\"data: id: 3\"}\n\n"
#define THIRD "id: 3\ndata: [DONE]\n\n"
#define ALL FIRST SECOND THIRD

static void assert_text(struct str have, const char *want) {
    assert_int_equal(have.len, strlen(want));
    assert_memory_equal(have.ptr, want, have.len);
}

static void test_events_continue_after_a_number(void **state) {
    (void)state;
    assert_text(stored_events_after(STR(ALL), 0, false), ALL);
    assert_text(stored_events_after(STR(ALL), 1, false), SECOND THIRD);
    assert_text(stored_events_after(STR(ALL), 2, false), THIRD);
    assert_text(stored_events_after(STR(ALL), 3, false), "");
    assert_text(stored_events_after(STR(ALL), UINT32_MAX, false), "");
    assert_text(stored_events_after(STR(""), 0, false), "");
}

#define EARLY "id: 1\ndata: {\"error\":1}\n\n"
#define EARLY_END "id: 2\ndata: [DONE]\n\n"

static void test_the_error_of_a_failure_is_always_given(void **state) {
    (void)state;
    assert_text(stored_events_after(STR(ALL), 9, true), SECOND THIRD);
    assert_text(stored_events_after(STR(ALL), 3, true), SECOND THIRD);
    assert_text(stored_events_after(STR(ALL), 2, true), THIRD);
    assert_text(stored_events_after(STR(ALL), 1, true), SECOND THIRD);
    assert_text(stored_events_after(STR(ALL), 0, true), ALL);
    assert_text(stored_events_after(STR(FIRST SECOND), 9, true), SECOND);
    assert_text(stored_events_after(STR(EARLY_END), 9, true), "");
    assert_text(stored_events_after(STR(""), 9, true), "");
    for (uint32_t after = 0; after < 4; after++)
        assert_text(stored_events_after(STR(EARLY EARLY_END), after, true), EARLY EARLY_END);
}

static void test_events_as_a_list(void **state) {
    struct buf out;
    bool is_all;
    (void)state;
    buf_init(&out, 4096);
    assert_int_equal(stored_events_put_list(STR(ALL), 0, 2, &is_all, &out), 2);
    assert_false(is_all);
    assert_text(buf_str(&out), "{\"id\":1,\"event\":\"a.b\",\"data\":{\"x\":1}},"
                               "{\"id\":2,\"event\":null,\"data\":{\"y\":\"data: id: 3\"}}");
    buf_clear(&out);
    assert_int_equal(stored_events_put_list(STR(THIRD), 2, 512, &is_all, &out), 3);
    assert_true(is_all);
    assert_text(buf_str(&out), "{\"id\":3,\"event\":null,\"data\":\"[DONE]\"}");
    buf_clear(&out);
    assert_int_equal(stored_events_put_list(STR(""), 7, 512, &is_all, &out), 7);
    assert_true(is_all);
    buf_deinit(&out);
}

static void test_events_as_lines(void **state) {
    struct buf out;
    (void)state;
    buf_init(&out, 4096);
    stored_events_put_lines(STR(ALL), &out);
    assert_text(buf_str(&out), "{\"x\":1}\n{\"y\":\"data: id: 3\"}\n[DONE]\n");
    buf_deinit(&out);
}

static void test_a_cut_text_gives_whole_events_only(void **state) {
    (void)state;
    for (size_t cut = 0; cut <= strlen(ALL); cut++) {
        struct buf out;
        bool is_all;
        buf_init(&out, 4096);
        uint32_t last = stored_events_put_list(str_take(STR(ALL), cut), 0, 512, &is_all, &out);
        uint32_t whole =
            (cut >= strlen(FIRST)) + (cut >= strlen(FIRST SECOND)) + (cut >= strlen(ALL));
        assert_int_equal(last, whole);
        buf_deinit(&out);
    }
}

static struct prompts make_prompts(void) {
    struct prompts p = {.in_thought = true};
    static struct tokens list[2];
    memset(list, 0, sizeof(list));
    for (int i = 0; i < 5; i++) assert_int_equal(tokens_push(&list[0], i * 1000), ST_OK);
    assert_int_equal(tokens_push(&list[1], 42), ST_OK);
    assert_int_equal(tokens_push(&p.closing, 7), ST_OK);
    p.list = list;
    p.count = 2;
    return p;
}

static void free_prompts(struct prompts *p) {
    tokens_deinit(&p->closing);
    for (uint32_t i = 0; i < p->count; i++) tokens_deinit(&p->list[i]);
}

static void test_prompts_are_stored_and_read(void **state) {
    struct prompts p = make_prompts(), q = {0};
    struct buf bytes;
    (void)state;
    buf_init(&bytes, 4096);
    prompts_put(&p, &bytes);
    assert_int_equal(prompts_get(buf_str(&bytes), &q), ST_OK);
    assert_int_equal(q.count, 2);
    assert_true(q.in_thought);
    assert_false(q.thought_is_over);
    assert_int_equal(q.closing.count, 1);
    assert_int_equal(q.list[0].count, 5);
    assert_int_equal(q.list[0].ids[4], 4000);
    assert_int_equal(q.list[1].ids[0], 42);
    prompts_deinit(&q);
    free_prompts(&p);
    buf_deinit(&bytes);
}

static void test_damaged_prompts_are_refused(void **state) {
    struct prompts p = make_prompts();
    struct buf bytes;
    (void)state;
    buf_init(&bytes, 4096);
    prompts_put(&p, &bytes);
    for (size_t cut = 0; cut < bytes.len; cut++) {
        struct prompts q = {0};
        assert_int_equal(prompts_get(str_take(buf_str(&bytes), cut), &q), ST_BAD);
        prompts_deinit(&q);
    }
    buf_put_char(&bytes, 0);
    struct prompts q = {0};
    assert_int_equal(prompts_get(buf_str(&bytes), &q), ST_BAD);
    prompts_deinit(&q);
    free_prompts(&p);
    buf_deinit(&bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_continue_after_a_number),
        cmocka_unit_test(test_the_error_of_a_failure_is_always_given),
        cmocka_unit_test(test_events_as_a_list),
        cmocka_unit_test(test_events_as_lines),
        cmocka_unit_test(test_a_cut_text_gives_whole_events_only),
        cmocka_unit_test(test_prompts_are_stored_and_read),
        cmocka_unit_test(test_damaged_prompts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
