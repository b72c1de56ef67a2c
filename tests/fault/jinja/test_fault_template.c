/* Goal:   parsing and rendering a template survive the failure of any one allocation: ST_NOMEM
 *         with a sentence, nothing lost, and the next call works.
 * Method: do both again and again, the first time with the first allocation failing, then the
 *         second, until no more are needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "fault/fail_alloc.h"
#include "jinja/template.h"

enum { ALLOCATIONS_MAX = 10000 };

static const char source[] =
    "{% macro m(x, y=2) %}{% for i in x %}{{ loop.index }}{{ i | upper }}{% endfor %}{% endmacro %}"
    "{% set ns = namespace(t='') %}{% for k in range(200) %}{% set ns.t = ns.t ~ k ~ 'abcdef' %}"
    "{% endfor %}{{ m(l) }}{{ ns.t | replace('a', '<') | e | length }}{{ ns.t | tojson(indent=2) }}"
    "{% set words = ns.t.split('a') | sort | unique | list %}{{ words }}{{ '%9d' % 5 }}";

static enum status round_trip(const struct json *vars, struct err *err) {
    struct template *t = NULL;
    struct buf out;
    buf_init(&out, 1 << 20);
    enum status st = template_create(str_of(source), &t, err);
    if (st == ST_OK) st = template_render(t, vars, 0, &template_limits_default, &out, err);
    if (st != ST_OK) assert_int_equal(out.len, 0);
    template_destroy(t);
    buf_deinit(&out);
    return st;
}

static void test_every_failed_allocation_is_reported(void **state) {
    (void)state;
    struct json *vars = NULL;
    struct err err = {0};
    struct str text = STR("{\"l\": [\"a\", \"b\", {\"c\": 1.5}]}");
    assert_int_equal(json_parse(text, &json_limits_request, &vars, &err), ST_OK);
    long n = 0;
    for (; n < ALLOCATIONS_MAX; n++) {
        struct err said = {0};
        fail_alloc_at(n);
        enum status st = round_trip(vars, &said);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            break;
        }
        if (st != ST_NOMEM || !said.text[0])
            fail_msg("allocation %ld: %s \"%s\"", n, status_name(st), said.text);
    }
    assert_true(n > 10 && n < ALLOCATIONS_MAX);
    json_destroy(vars);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_failed_allocation_is_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
