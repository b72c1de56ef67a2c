/* Goal:   a tool parser survives the failure of any one allocation: ST_NOMEM, nothing lost.
 * Method: parse an answer of each form again and again, the first time with the first allocation
 *         failing, then the second, until no more are needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "api/tools.h"
#include "fault/fail_alloc.h"
#include "unit/json_lib.h"

enum { ALLOCATIONS_MAX = 1000 };

static struct json *tools;

static const struct {
    const char *form, *text;
} cases[] = {
    {"hermes", " \n<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call> text"},
    {"llama3", "{\"name\": \"f\", \"parameters\": {\"a\": 1}}; {\"name\": \"g\"}"},
    {"mistral", "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS][{\"arguments\": {}, \"name\": \"f\"}]"},
    {"qwen3_coder",
     " \n<tool_call>\n<function=f>\n<parameter=a>\nx\xc3\xa9\n</parameter>\n<parameter=b>\n"
     "{\"k\": [1]}\n</parameter>\n</function>\n</tool_call> text"},
    {"glm4", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n</tool_call> text"},
    {"kimi", "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1} "
             "<|tool_call_end|>"},
    {"deepseek", "<\uff5ctool\u2581call\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>f\n"
                 "```json\n{\"a\": 1}\n```<\uff5ctool\u2581call\u2581end\uff5c>"},
    {"gemma", "```tool_code\nf(a='x')\n```<start_function_call>call:f{a:<escape>x<escape>}"},
    {"granite", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}] text"},
    {"phi4", "functools[{\"name\": \"f\", \"arguments\": 5}]<|tool_call|>[{\"name\": \"f\" x}]"},
    {"pythonic", "[f(a=[1, 'x'], b={'k': None})]<|python_start|>[f(1)]<|python_end|>"},
    {"json", "```json\n{\"arguments\": \"{}\", \"name\": \"f\"}\n```"},
};

static void ignore_text(void *ctx, struct str text) { (void)ctx, (void)text; }
static void ignore_call(void *ctx, uint32_t call, struct str text) {
    (void)ctx, (void)call, (void)text;
}

static enum status parse(size_t i) {
    const struct tool_callbacks callbacks = {ignore_text, ignore_call, ignore_call, NULL};
    struct tool_parser *p = NULL;
    enum status st = tool_parser_create(tool_form_find(cases[i].form), tools, &p);
    if (st == ST_OK) st = tool_parser_push(p, str_of(cases[i].text), &callbacks);
    if (st == ST_OK) st = tool_parser_finish(p, &callbacks);
    tool_parser_destroy(p);
    return st;
}

static void test_every_failed_allocation_is_reported(void **state) {
    (void)state;
    tools = json_of("[{\"function\":{\"name\":\"f\"}}]");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        long n = 0;
        for (; n < ALLOCATIONS_MAX; n++) {
            fail_alloc_at(n);
            enum status st = parse(i);
            if (!fail_alloc_stop()) {
                assert_int_equal(st, ST_OK);
                break;
            }
            if (st != ST_NOMEM) fail_msg("case %zu, allocation %ld: %s", i, n, status_name(st));
        }
        assert_in_range(n, 4, ALLOCATIONS_MAX - 1);
    }
    json_destroy(tools);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_failed_allocation_is_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
