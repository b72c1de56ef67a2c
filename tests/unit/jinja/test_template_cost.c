/* Goal: whatever a template does costs steps in proportion to the work, so that the limit of steps
 * bounds the time of a render; and processor time has a limit of its own.
 *
 * Method: each expression of a table looks at some thousand elements, or at some ten thousand
 * bytes, in one node of the template. A loop around it stays far below the limit of steps if only
 * nodes are counted, and exceeds it if elements and bytes are. Keys of a dict that collide in its
 * index are found by the hash that compare.c uses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/json.h"
#include "jinja/template.h"

enum {
    ROUNDS = 2000,
    ITEMS = 4000,
    TEXT_BYTES = 64 << 10,
    STEPS_MAX = 600000, /* the variables alone take about 220,000 */
    COLLIDING_KEYS = 600,
    TEXT_MAX = 64 << 20,
};

/* n, m: equal lists of numbers; p, q: of lists; d, e: equal dicts; t, u: texts that differ in their
 * last byte; w: words; k: a dict whose keys collide; z: a key that collides with them, too. */
static const char *const costly[] = {
    /* comparing */
    "n == m",
    "n != m",
    "n < m",
    "p == q",
    "p < q",
    "(n, 1) == (m, 1)",
    "d == e",
    "d.items() == e.items()",
    "d.keys() == e.keys()",
    "t == u",
    "t < u",
    "-1 in n",
    "'zz' in t",
    "n is eq(m)",
    "n is ne(m)",
    "t is eq(u)",
    "-1 is in(n)",
    "z in k",
    "k.get(z)",
    "k[z]",
    /* making lists and dicts */
    "n + m",
    "n * 2",
    "n[1:]",
    "n[::-1]",
    "t|list",
    "n|list",
    "d|items|list",
    "dict(d)",
    "n|batch(7)|list",
    "n|slice(7)|list",
    "n|map('int')|list",
    "n|select|list",
    "n|reject('odd')|list",
    "n|unique|list",
    "n|reverse|list",
    "n|sort",
    "d|dictsort",
    "n|min",
    "n|max",
    "n|sum",
    "n|join",
    "n|tojson",
    "n|string",
    "d|tojson",
    "d|string",
    "n.count(-1)",
    /* texts */
    "t ~ u",
    "t + u",
    "u * 2",
    "t[1:]",
    "t|length",
    "t|upper",
    "t|lower",
    "t|title",
    "t|capitalize",
    "t|trim",
    "t|replace('b', 'c')",
    "t|wordcount",
    "t|striptags",
    "t|escape",
    "t|indent",
    "t|reverse",
    "t|tojson",
    "t|urlencode",
    "w|wordwrap",
    "t|int",
    "t|float",
    "t is lower",
    "'%s' % t",
    "'{}'.format(t)",
    "t.strip('a')",
    "t.lstrip('a')",
    "t.split('b')",
    "w.split()",
    "w.splitlines()",
    "t.find('zz')",
    "t.rfind('zz')",
    "t.count('zz')",
    "t.replace('b', 'c')",
    "t.startswith(u)",
    "t.endswith(u)",
    "t.upper()",
    "t.title()",
    "t.isalpha()",
    "t.partition('zz')",
    "t.zfill(9)",
    "t.center(9)",
};

static char colliding_key[24];
static struct json *vars;

static uint64_t hash_of(const char *s) {
    uint64_t h = 0xCBF29CE484222325u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 0x100000001B3u;
    return h ^ (h >> 32);
}

/* The index of a dict of COLLIDING_KEYS entries has 2048 places. */
static void put_colliding_keys(struct buf *out) {
    uint32_t found = 0;
    for (uint32_t i = 0; found <= COLLIDING_KEYS; i++) {
        char key[24];
        snprintf(key, sizeof(key), "key%u", i);
        if (hash_of(key) % 2048 != 0) continue;
        if (found == COLLIDING_KEYS)
            memcpy(colliding_key, key, sizeof(key));
        else
            buf_printf(out, "%s\"%s\":1", found ? "," : "", key);
        found++;
    }
}

static void put_numbers(struct buf *out, const char *name, const char *format) {
    buf_printf(out, "\"%s\":[", name);
    for (int i = 0; i < ITEMS; i++) {
        if (i) buf_put_char(out, ',');
        buf_printf(out, format, i);
    }
    buf_put_text(out, "],");
}

static void put_dict(struct buf *out, const char *name) {
    buf_printf(out, "\"%s\":{", name);
    for (int i = 0; i < ITEMS; i++) buf_printf(out, "%s\"x%d\":%d", i ? "," : "", i, i);
    buf_put_text(out, "},");
}

static void put_text(struct buf *out, const char *name, const char *unit, const char *last) {
    buf_printf(out, "\"%s\":\"", name);
    for (size_t i = 0; i < TEXT_BYTES; i += strlen(unit)) buf_put_text(out, unit);
    buf_printf(out, "%s\",", last);
}

static int make_vars(void **state) {
    struct buf out;
    (void)state;
    buf_init(&out, TEXT_MAX);
    buf_put_char(&out, '{');
    put_numbers(&out, "n", "%d");
    put_numbers(&out, "m", "%d");
    put_numbers(&out, "p", "[%d]");
    put_numbers(&out, "q", "[%d]");
    put_dict(&out, "d");
    put_dict(&out, "e");
    put_text(&out, "t", "a", "b");
    put_text(&out, "u", "a", "c");
    put_text(&out, "w", "word ", "");
    buf_put_text(&out, "\"k\":{");
    put_colliding_keys(&out);
    buf_printf(&out, "},\"z\":\"%s\"}", colliding_key);
    enum status st = json_parse(buf_str(&out), &json_limits_model_file, &vars, NULL);
    buf_deinit(&out);
    return st == ST_OK ? 0 : -1;
}

static int free_vars(void **state) {
    (void)state;
    json_destroy(vars);
    return 0;
}

static enum status render(const char *source, const struct template_limits *limits,
                          struct err *err) {
    struct template *t = NULL;
    struct buf out;
    buf_init(&out, TEXT_MAX);
    assert_int_equal(template_create(str_of(source), &t, err), ST_OK);
    enum status st = template_render(t, vars, 0, limits, &out, err);
    template_destroy(t);
    buf_deinit(&out);
    return st;
}

/* Loads all variables, evaluates the expression ROUNDS times, and shows nothing. */
static void put_loop(char *out, size_t bytes, const char *expression) {
    snprintf(out, bytes, "{%% for i in range(%d) %%}{%% set x = %s %%}{%% endfor %%}", ROUNDS,
             expression);
}

static void test_every_element_and_byte_costs_steps(void **state) {
    (void)state;
    struct template_limits limits = template_limits_default;
    char source[256];
    unsigned failures = 0;
    limits.steps_max = STEPS_MAX;
    for (size_t i = 0; i < sizeof(costly) / sizeof(costly[0]); i++) {
        struct err err = {0};
        put_loop(source, sizeof(source), costly[i]);
        enum status st = render(source, &limits, &err);
        if (st == ST_FULL && strstr(err.text, "steps")) continue;
        print_error("%s: status %d, \"%s\"\n", costly[i], (int)st, err.text);
        failures++;
    }
    assert_int_equal(failures, 0);
}

/* Otherwise the test above would show nothing. */
static void test_the_loop_alone_is_far_below_the_limit(void **state) {
    (void)state;
    struct template_limits limits = template_limits_default;
    struct err err = {0};
    char source[256];
    limits.steps_max = STEPS_MAX / 2;
    put_loop(source, sizeof(source), "n|length + t[0]|length");
    if (render(source, &limits, &err) != ST_OK) fail_msg("%s", err.text);
}

/* Each entry of a loop's scope is set anew in every round. */
static void test_a_wide_scope_costs_steps(void **state) {
    (void)state;
    struct template_limits limits = template_limits_default;
    struct err err = {0};
    struct buf source;
    buf_init(&source, TEXT_MAX);
    buf_printf(&source, "{%% for i in range(%d) %%}{%% if false %%}", ROUNDS);
    for (int i = 0; i < ITEMS; i++) buf_printf(&source, "{%% set v%d = 1 %%}", i);
    buf_put_text(&source, "{% endif %}{% endfor %}");
    limits.steps_max = STEPS_MAX;
    assert_int_equal(render(buf_text(&source), &limits, &err), ST_FULL);
    assert_non_null(strstr(err.text, "steps"));
    buf_deinit(&source);
}

static void test_processor_time_has_a_limit(void **state) {
    (void)state;
    struct template_limits limits = template_limits_default;
    struct err err = {0};
    limits.steps_max = UINT64_MAX / 2;
    limits.cpu_us_max = 50000;
    const char *forever =
        "{% for i in range(99999) %}{% for j in range(99999) %}{% set x = i + j %}"
        "{% endfor %}{% endfor %}";
    assert_int_equal(render(forever, &limits, &err), ST_FULL);
    assert_non_null(strstr(err.text, "more than 50 ms of processor time"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_element_and_byte_costs_steps),
        cmocka_unit_test(test_the_loop_alone_is_far_below_the_limit),
        cmocka_unit_test(test_a_wide_scope_costs_steps),
        cmocka_unit_test(test_processor_time_has_a_limit),
    };
    return cmocka_run_group_tests_name("template_cost", tests, make_vars, free_vars);
}
