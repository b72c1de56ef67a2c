/* Goal:   templates stay inside their limits, and what goes wrong is said in one sentence that
 *         names the line.
 * Method: named cases; templates built to nest, loop, grow and recurse without end; the same
 *         render with every memory limit from nothing up; many renders of one template at once.
 *         What templates compute is compared with jinja2 in test_template_golden.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "jinja/template.h"

static const char chat[] =
    "{% set ns = namespace(n=0) %}{% macro put(m, end='\\n') %}<{{ m.role | upper }}>"
    "{{ m.content | trim }}{{ end }}{% endmacro %}{% for m in messages if m.content %}"
    "{% set ns.n = ns.n + loop.index %}{{ put(m) }}{% else %}nobody{% endfor %}"
    "{{ messages | map(attribute='role') | unique | join('+') }} {{ ns.n }} "
    "{{ {'b': [1, 2.5, none], 'a': 'x'} | tojson(indent=1, sort_keys=true) }} "
    "{{ '%s-%05.1f' % ('é' * 3, 2) }} {{ '{:>4}|'.format('x') }} {{ 'a b c'.split()[::-1] }}";
static const char chat_vars[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \" hi \"}, {\"role\": \"bot\"},"
    "{\"role\": \"user\", \"content\": \"x\"}]}";
static const char chat_result[] =
    "<USER>hi\n<USER>x\nuser+bot 3 {\n \"a\": \"x\",\n \"b\": [\n  1,\n  2.5,\n  null\n ]\n} "
    "\xC3\xA9\xC3\xA9\xC3\xA9-002.0    x| ['c', 'b', 'a']";

static struct json *parse_vars(const char *text) {
    struct json *vars = NULL;
    struct err err = {0};
    assert_int_equal(json_parse(str_of(text), &json_limits_request, &vars, &err), ST_OK);
    return vars;
}

static enum status render_with(const char *source, const char *vars_text,
                               const struct template_limits *limits, struct buf *out,
                               struct err *err) {
    struct template *t = NULL;
    enum status st = template_create(str_of(source), &t, err);
    if (st != ST_OK) return st;
    struct json *vars = parse_vars(vars_text);
    st = template_render(t, vars, 0, limits, out, err);
    json_destroy(vars);
    template_destroy(t);
    return st;
}

static enum status render(const char *source, struct buf *out, struct err *err) {
    return render_with(source, "{}", &template_limits_default, out, err);
}

static void assert_says(const char *source, enum status want, const char *sentence) {
    struct buf out;
    struct err err = {0};
    buf_init(&out, 1 << 20);
    buf_put_text(&out, "kept");
    enum status st = render(source, &out, &err);
    if (st != want || strcmp(err.text, sentence) != 0)
        fail_msg("%.60s: %s \"%s\", expected \"%s\"", source, status_name(st), err.text, sentence);
    assert_string_equal(buf_text(&out), "kept");
    buf_deinit(&out);
}

static void test_errors_name_the_line_and_the_cause(void **state) {
    (void)state;
    assert_says("a\n{% frob %}", ST_BAD, "line 2: unknown tag 'frob'");
    assert_says("\n\n{% include 'x' %}", ST_BAD,
                "line 3: tag 'include' is not supported in chat templates");
    assert_says("{% block x %}{% endblock %}", ST_BAD,
                "line 1: tag 'block' is not supported in chat templates");
    assert_says("{% if a %}\n", ST_BAD, "line 1: the template ends before 'endif'");
    assert_says("{{ a | frob }}", ST_BAD, "line 1: no filter named 'frob'");
    assert_says("{{ a is frob }}", ST_BAD, "line 1: no test named 'frob'");
    assert_says("\n{{ a.b }}", ST_BAD, "line 2: 'a' is undefined");
    assert_says("{% set a = {} %}\n{{ a.b.c }}", ST_BAD,
                "line 2: 'dict' has no attribute or element 'b'");
    assert_says("{{ raise_exception('no\nway') }}", ST_BAD, "line 1: raise_exception: no?way");
    assert_says("{{ [].append(1) }}", ST_BAD,
                "line 1: access to attribute 'append' of 'list' object is unsafe");
    assert_says("{{ 1 + 'a' }}", ST_BAD,
                "line 1: unsupported operand type(s) for +: 'int' and 'str'");
    assert_says("{{ 9223372036854775807 + 1 }}", ST_BAD,
                "line 1: integer result does not fit in 64 bits");
    assert_says("{{ 9223372036854775808 }}", ST_BAD, "line 1: an integer does not fit in 64 bits");
    assert_says("{{ 'a", ST_BAD, "line 1: a string is never closed");
    assert_says("{{ a ", ST_BAD, "line 1: expected '}}', got the end of the template");
    assert_says("{% break %}", ST_BAD, "line 1: 'break' outside a loop");
    assert_says("{{ '\xFF' }}", ST_BAD, "line 1: the template is not valid UTF-8");
    assert_says("{{ range(100001) }}", ST_BAD,
                "line 1: range too big: the sandbox allows 100000 elements");
}

static void test_variables_must_be_an_object(void **state) {
    (void)state;
    struct buf out;
    struct err err = {0};
    buf_init(&out, 100);
    enum status st = render_with("x", "[1]", &template_limits_default, &out, &err);
    assert_int_equal(st, ST_BAD);
    assert_string_equal(err.text, "line 1: the variables must be a JSON object");
    buf_deinit(&out);
}

/* `head`, then `middle` so many times, then `tail` as often. */
static void nest(struct buf *out, unsigned times, const char *head, const char *middle,
                 const char *tail) {
    for (unsigned i = 0; i < times; i++) buf_put_text(out, head);
    buf_put_text(out, middle);
    for (unsigned i = 0; i < times; i++) buf_put_text(out, tail);
}

static void assert_nested(const char *head, const char *middle, const char *tail) {
    for (unsigned times = 10; times <= 100000; times *= 10) {
        struct buf source, out;
        struct err err = {0};
        buf_init(&source, 16 << 20);
        buf_init(&out, 16 << 20);
        nest(&source, times, head, middle, tail);
        enum status st = render(buf_text(&source), &out, &err);
        if (times == 10 && st != ST_OK) fail_msg("%s nested 10 deep: %s", head, err.text);
        if (st != ST_OK) assert_int_not_equal(err.text[0], 0);
        buf_deinit(&source);
        buf_deinit(&out);
    }
}

static void test_endless_nesting_is_an_error_not_a_crash(void **state) {
    (void)state;
    assert_nested("{% if 1 %}", "x", "{% endif %}");
    assert_nested("{% for x in [1] %}", "x", "{% endfor %}");
    assert_nested("{% macro m() %}", "x", "{% endmacro %}");
    assert_nested("{% set x %}", "x", "{% endset %}");
    assert_nested("{% filter upper %}", "x", "{% endfilter %}");
    assert_nested("{% with %}", "x", "{% endwith %}");
    assert_nested("{% generation %}", "x", "{% endgeneration %}");
}

static void assert_nested_expression(const char *head, const char *middle, const char *tail) {
    for (unsigned times = 10; times <= 100000; times *= 10) {
        struct buf source, out;
        struct err err = {0};
        buf_init(&source, 16 << 20);
        buf_init(&out, 16 << 20);
        buf_put_text(&source, "{% set x = ");
        nest(&source, times, head, middle, tail);
        buf_put_text(&source, " %}{{ x }}");
        enum status st = render(buf_text(&source), &out, &err);
        if (times == 10 && st != ST_OK) fail_msg("%s nested 10 deep: %s", head, err.text);
        if (st != ST_OK) assert_int_not_equal(err.text[0], 0);
        buf_deinit(&source);
        buf_deinit(&out);
    }
}

static void test_endless_expressions_are_an_error_not_a_crash(void **state) {
    (void)state;
    assert_nested_expression("(", "1", ")");
    assert_nested_expression("[", "1", "]");
    assert_nested_expression("{1:", "1", "}");
    assert_nested_expression("-", "1", "");
    assert_nested_expression("not ", "1", "");
    assert_nested_expression("1 + ", "1", "");
    assert_nested_expression("1 ** ", "1", "");
    assert_nested_expression("1 ~ ", "1", "");
    assert_nested_expression("1 < ", "2", "");
    assert_nested_expression("1 and ", "1", "");
    assert_nested_expression("1 if 1 else ", "1", "");
    assert_nested_expression("", "'a'", "|upper");
    assert_nested_expression("", "'a'", ".upper()");
    assert_nested_expression("", "[]", "[:]");
    assert_nested_expression("(", "1", ") is defined");
    assert_nested_expression("range(", "1", ")|length");
    assert_nested_expression("'a' ", "'a'", "");
}

static void assert_full(const char *source) {
    struct buf out;
    struct err err = {0};
    buf_init(&out, 1 << 20);
    enum status st = render(source, &out, &err);
    if (st != ST_FULL) fail_msg("%.60s: %s \"%s\"", source, status_name(st), err.text);
    assert_int_equal(out.len, 0);
    buf_deinit(&out);
}

static void test_endless_work_reaches_a_limit(void **state) {
    (void)state;
    assert_full("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
    assert_full("{% macro f(x) %}{{ f([x]) }}{% endmacro %}{{ f(1) }}");
    assert_full("{% macro f() %}{{ caller() }}{% endmacro %}"
                "{% macro g() %}{% call f() %}{{ g() }}{% endcall %}{% endmacro %}{{ g() }}");
    assert_full("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}");
    assert_full("{% set ns = namespace(x=[]) %}{% for i in range(2000) %}{% set ns.x = [ns.x] %}"
                "{% endfor %}{{ ns.x }}");
    assert_full("{% set ns = namespace(x=1) %}{% for i in range(2000) %}"
                "{% set ns.x = {'a': ns.x} %}{% endfor %}{{ ns.x | tojson }}");
    assert_full("{% set ns = namespace(x=['a']) %}{% for i in range(2000) %}"
                "{% set ns.x = ns.x | map('upper') %}{% endfor %}{{ ns.x | list }}");
    assert_full("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}");
    assert_full("{{ 'a' * 10000000000 }}");
    assert_full("{{ [1] * 10000000000 }}");
    assert_full("{{ 'abc'.ljust(9223372036854775807) }}");
    assert_full("{{ '%9999999999d' % 1 }}");
    assert_full("{{ '{:9999999999}'.format(1) }}");
    assert_full("{{ 'x' | indent(9999999999) }}");
    assert_full("{% set ns = namespace(x='ab') %}{% for i in range(100) %}"
                "{% set ns.x = ns.x + ns.x %}{% endfor %}");
    assert_full("{% set ns = namespace(x='ab') %}{% for i in range(100) %}"
                "{% set ns.x = ns.x.replace('a', 'aaaaaaaaaa') %}{% endfor %}");
    assert_full("{% set s = 'a' * 1000000 %}{% for i in range(100000) %}"
                "{% if s.find(s[1:] + 'b') > 0 %}{% endif %}{% endfor %}");
    assert_full("{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% if s == s ~ '' %}"
                "{% endif %}{% endfor %}");
}

static void test_a_result_longer_than_the_buffer_is_refused(void **state) {
    (void)state;
    struct buf out;
    struct err err = {0};
    buf_init(&out, 10);
    assert_int_equal(render("{{ 'a' * 11 }}", &out, &err), ST_FULL);
    assert_string_equal(err.text, "the template's result does not fit in 10 bytes");
    buf_clear(&out);
    assert_int_equal(render("{{ 'a' * 10 }}", &out, &err), ST_OK);
    buf_deinit(&out);
}

static void test_any_memory_limit_gives_the_result_or_a_refusal(void **state) {
    (void)state;
    unsigned refused = 0, done = 0;
    for (uint64_t memory = 0; memory < 64 << 10; memory += 64) {
        struct template_limits limits = template_limits_default;
        struct buf out;
        struct err err = {0};
        limits.memory_max = memory;
        buf_init(&out, 1 << 20);
        enum status st = render_with(chat, chat_vars, &limits, &out, &err);
        assert_true(st == ST_OK || st == ST_FULL);
        if (st == ST_OK) assert_string_equal(buf_text(&out), chat_result);
        *(st == ST_OK ? &done : &refused) += 1;
        buf_deinit(&out);
    }
    assert_true(refused > 10);
    assert_true(done > 10);
}

static void test_any_step_and_depth_limit_gives_the_result_or_a_refusal(void **state) {
    (void)state;
    for (uint32_t limit = 0; limit < 1000; limit++) {
        struct template_limits steps = template_limits_default, depth = template_limits_default;
        struct buf out;
        struct err err = {0};
        steps.steps_max = limit;
        depth.depth_max = limit / 10;
        buf_init(&out, 1 << 20);
        enum status st = render_with(chat, chat_vars, limit % 2 ? &steps : &depth, &out, &err);
        assert_true(st == ST_OK || st == ST_FULL);
        if (st == ST_OK) assert_string_equal(buf_text(&out), chat_result);
        buf_deinit(&out);
    }
}

struct shared {
    const struct template *template;
    const struct json *vars;
    unsigned wrong;
};

static void *render_often(void *ctx) {
    struct shared *s = ctx;
    for (int i = 0; i < 200; i++) {
        struct buf out;
        struct err err = {0};
        buf_init(&out, 1 << 20);
        enum status st =
            template_render(s->template, s->vars, 0, &template_limits_default, &out, &err);
        s->wrong += st != ST_OK || strcmp(buf_text(&out), chat_result) != 0;
        buf_deinit(&out);
    }
    return NULL;
}

static void test_one_template_renders_on_many_threads(void **state) {
    (void)state;
    struct template *t = NULL;
    struct err err = {0};
    assert_int_equal(template_create(str_of(chat), &t, &err), ST_OK);
    struct json *vars = parse_vars(chat_vars);
    struct shared parts[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        parts[i] = (struct shared){t, vars, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, &parts[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(parts[i].wrong, 0);
    }
    json_destroy(vars);
    template_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_name_the_line_and_the_cause),
        cmocka_unit_test(test_variables_must_be_an_object),
        cmocka_unit_test(test_endless_nesting_is_an_error_not_a_crash),
        cmocka_unit_test(test_endless_expressions_are_an_error_not_a_crash),
        cmocka_unit_test(test_endless_work_reaches_a_limit),
        cmocka_unit_test(test_a_result_longer_than_the_buffer_is_refused),
        cmocka_unit_test(test_any_memory_limit_gives_the_result_or_a_refusal),
        cmocka_unit_test(test_any_step_and_depth_limit_gives_the_result_or_a_refusal),
        cmocka_unit_test(test_one_template_renders_on_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
