/* Goal:   reading a body and telling an answer survive the failure of any one allocation, in the
 *         codecs of peers: ST_NOMEM, nothing lost, and never half an answer taken for a whole one.
 * Method: make the record of every case again and again, the first time with the first allocation
 *         failing, then the second, until no more are needed; then it is the record of before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault/fail_alloc.h"
#include "unit/api/codec_cases.h"

enum { ALLOCATIONS_MAX = 2000 };

static void check_case(const struct codec *codec, const struct codec_case *c) {
    struct buf want, got;
    buf_init(&want, CASE_BYTES_MAX);
    buf_init(&got, CASE_BYTES_MAX);
    assert_int_equal(case_transcribe(codec, c, &want), ST_OK);
    long n = 0;
    for (; n < ALLOCATIONS_MAX; n++) {
        buf_clear(&got);
        fail_alloc_at(n);
        enum status st = case_transcribe(codec, c, &got);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            break;
        }
        if (st != ST_NOMEM)
            fail_msg("%s %s, allocation %ld: %s", codec->name, c->name, n, status_name(st));
    }
    assert_in_range(n, 3, ALLOCATIONS_MAX - 1);
    assert_true(str_eq(buf_str(&got), buf_str(&want)));
    buf_deinit(&want);
    buf_deinit(&got);
}

static void check_cases(const char *name, const struct codec_case *cases, size_t count) {
    for (size_t i = 0; i < count; i++) check_case(codec_find(name), &cases[i]);
}

static void test_responses_report_every_failed_allocation(void **state) {
    (void)state;
    check_cases("openai.responses", responses_cases, CASE_COUNT(responses_cases));
}

static void test_anthropic_reports_every_failed_allocation(void **state) {
    (void)state;
    check_cases("anthropic.messages", anthropic_cases, CASE_COUNT(anthropic_cases));
    check_cases("anthropic.count_tokens", anthropic_count_cases, CASE_COUNT(anthropic_count_cases));
}

static void test_ollama_reports_every_failed_allocation(void **state) {
    (void)state;
    check_cases("ollama.chat", ollama_chat_cases, CASE_COUNT(ollama_chat_cases));
    check_cases("ollama.generate", ollama_generate_cases, CASE_COUNT(ollama_generate_cases));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_responses_report_every_failed_allocation),
        cmocka_unit_test(test_anthropic_reports_every_failed_allocation),
        cmocka_unit_test(test_ollama_reports_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
