/* Goal:   a command line is parsed by the table, and every error in it is named.
 * Method: a command made for the test, with a flag of each kind; then rules that the tables of all
 *         commands must follow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "cli/cli_int.h"

static enum exit_code never_run(const struct args *args, struct err *err) {
    (void)args;
    (void)err;
    fail();
    return EXIT_BUG;
}

static const struct flag own_flags[] = {
    {.name = "json", .kind = FLAG_BOOL, .help = "J."},
    {.name = "null", .letter = '0', .kind = FLAG_BOOL, .help = "N."},
    {.name = "count",
     .letter = 'n',
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "256",
     .min = 0,
     .max = 1000,
     .help = "C."},
    {.name = "temp",
     .kind = FLAG_REAL,
     .value = "T",
     .fallback = "0.8",
     .min = 0,
     .max = 10,
     .help = "T."},
    {.name = "type", .kind = FLAG_WORD, .value = "f16|f32", .fallback = "f16", .help = "W."},
    {0},
};
static const struct flag more_flags[] = {
    {.name = "prompt", .letter = 'p', .kind = FLAG_TEXT, .value = "TEXT", .help = "P."},
    {.name = "stop", .kind = FLAG_TEXT, .value = "S", .repeats = true, .help = "S."},
    {0},
};
static const struct flag set_flags[] = {
    {.name = "set", .kind = FLAG_TEXT, .value = "KNOB=VALUE", .repeats = true, .help = "K."},
    {0},
};
static const struct command command = {
    .name = "try",
    .summary = "Try",
    .operands = "[WORD]",
    .about = "About.",
    .groups = {own_flags, more_flags},
    .takes_model = true,
    .operands_max = 1,
    .run = never_run,
};
static const struct command knob_command = {
    .name = "turn",
    .summary = "Turn",
    .operands = "",
    .about = "About.",
    .groups = {set_flags},
    .run = never_run,
};

enum { WORDS_MAX = 16 };

/* Parse a line of words separated by single blanks. */
static enum exit_code parse(const char *line, struct args **out, struct err *err) {
    static char storage[512];
    static char *words[WORDS_MAX];
    int count = 0;
    strncpy(storage, line, sizeof(storage) - 1);
    for (char *p = storage; *p;) {
        words[count++] = p;
        p += strcspn(p, " ");
        if (*p) *p++ = 0;
    }
    *err = (struct err){0};
    *out = NULL;
    return args_parse(&command, count, words, out, err);
}

static struct args *parse_fine(const char *line) {
    struct args *a;
    struct err err;
    assert_int_equal(parse(line, &a, &err), EXIT_FINE);
    return a;
}

static void refuse(const char *line, const char *sentence) {
    struct args *a;
    struct err err;
    assert_int_equal(parse(line, &a, &err), EXIT_USAGE);
    assert_string_equal(err.text, sentence);
    assert_null(a);
}

static void test_flags_have_their_defaults(void **state) {
    (void)state;
    struct args *a = parse_fine("model");
    assert_false(args_on(a, "json"));
    assert_int_equal(args_int(a, "count"), 256);
    assert_true(args_real(a, "temp") == 0.8);
    assert_string_equal(args_text(a, "type"), "f16");
    assert_null(args_text(a, "prompt"));
    assert_int_equal(args_count(a, "stop"), 0);
    assert_false(args_given(a, "count"));
    args_destroy(a);
}

static void test_values_may_be_written_in_every_form(void **state) {
    (void)state;
    const char *lines[] = {"-m x --count 5 --temp 1.5 --prompt hi -0",
                           "-mx --count=5 --temp=1.5 -p hi --null", "-n5 --temp 1.5 -phi -0 x",
                           "x -0n5 -p hi --temp 1.5", "-n 9 -n 5 x --temp 1.5 -p hi -0"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct args *a = parse_fine(lines[i]);
        assert_string_equal(args_model(a), "x");
        assert_int_equal(args_int(a, "count"), 5);
        assert_true(args_real(a, "temp") == 1.5);
        assert_string_equal(args_text(a, "prompt"), "hi");
        assert_true(args_on(a, "null"));
        assert_int_equal(args_operands(a), 0);
        args_destroy(a);
    }
}

static void test_a_value_may_look_like_a_flag(void **state) {
    (void)state;
    struct args *a = parse_fine("m -p --json --stop= --stop -");
    assert_string_equal(args_text(a, "prompt"), "--json");
    assert_false(args_on(a, "json"));
    assert_int_equal(args_count(a, "stop"), 2);
    assert_string_equal(args_text_at(a, "stop", 0), "");
    assert_string_equal(args_text_at(a, "stop", 1), "-");
    args_destroy(a);
}

static void test_the_model_is_a_flag_or_the_first_operand(void **state) {
    (void)state;
    struct args *a = parse_fine("first second");
    assert_string_equal(args_model(a), "first");
    assert_int_equal(args_operands(a), 1);
    assert_string_equal(args_operand(a, 0), "second");
    args_destroy(a);
    a = parse_fine("--model flag first");
    assert_string_equal(args_model(a), "flag");
    assert_string_equal(args_operand(a, 0), "first");
    args_destroy(a);
    a = parse_fine("m -- --json");
    assert_string_equal(args_operand(a, 0), "--json");
    args_destroy(a);
}

static void expect_hint(const char *flag, const char *sentence) {
    char word[32];
    char *words[] = {word};
    struct args *a = NULL;
    struct err err = {0};
    snprintf(word, sizeof(word), "%s", flag);
    assert_int_equal(args_parse(&knob_command, 1, words, &a, &err), EXIT_USAGE);
    assert_string_equal(err.text, sentence);
}

static void test_a_knob_written_as_a_flag_gets_a_hint(void **state) {
    (void)state;
    expect_hint("--threads", "turn: unknown flag --threads; it is a knob: --set threads=VALUE");
    expect_hint("--kv-type", "turn: unknown flag --kv-type; it is a knob: --set kv_type=VALUE");
    expect_hint("--max_seqs=9",
                "turn: unknown flag --max_seqs; it is a knob: --set max_seqs=VALUE");
    expect_hint("--threa", "turn: unknown flag --threa; \"jitney turn --help\" lists them");
    refuse("m --threads 2", "try: unknown flag --threads; \"jitney try --help\" lists them");
}

static void test_mistakes_are_named(void **state) {
    (void)state;
    refuse("m --jsn", "try: unknown flag --jsn; did you mean --json?");
    refuse("m --promt x", "try: unknown flag --promt; did you mean --prompt?");
    refuse("m --coun=3", "try: unknown flag --coun; did you mean --count?");
    refuse("m --frobnicate", "try: unknown flag --frobnicate; \"jitney try --help\" lists them");
    refuse("m -x", "try: unknown flag -x; \"jitney try --help\" lists them");
    refuse("m --count", "try: --count needs a value: --count N");
    refuse("m -n", "try: -n needs a value: -n N");
    refuse("m --json=yes", "try: --json takes no value");
    refuse("m -n 1001", "try: --count is \"1001\"; it must be a whole number from 0 to 1000");
    refuse("m -n -1", "try: --count is \"-1\"; it must be a whole number from 0 to 1000");
    refuse("m -n 2x", "try: --count is \"2x\"; it must be a whole number from 0 to 1000");
    refuse("m --temp nan", "try: --temp is \"nan\"; it must be a number from 0 to 10");
    refuse("m --temp 1e9", "try: --temp is \"1e9\"; it must be a number from 0 to 10");
    refuse("m --type f64", "try: --type is \"f64\"; it must be one of f16|f32");
    refuse("m --type f", "try: --type is \"f\"; it must be one of f16|f32");
    refuse("a b c", "try: unexpected argument \"c\"; \"jitney try --help\" shows the usage");
    refuse("--json", "try: no model; give one with jitney try -m MODEL (\"jitney list\" shows the "
                     "models in the cache)");
}

static void test_help_needs_nothing_else(void **state) {
    (void)state;
    struct args *a = parse_fine("--help");
    assert_true(args_want_help(a));
    args_destroy(a);
}

static void test_help_shows_every_flag_within_80_columns(void **state) {
    (void)state;
    for (const struct command *const *c = commands; *c; c++) {
        struct buf text;
        buf_init(&text, 1 << 16);
        help_put_command(*c, &text);
        const struct flag *f;
        for (uint32_t i = 0; (f = flag_at(*c, i)); i++) assert_non_null(strstr(text.ptr, f->name));
        for (const char *line = buf_text(&text); *line;) {
            size_t len = strcspn(line, "\n");
            assert_true(len <= 80);
            line += len + (line[len] == '\n');
        }
        buf_deinit(&text);
    }
}

static void check_flag(const struct command *c, const struct flag *f) {
    assert_true(f->help[strlen(f->help) - 1] == '.');
    assert_true((f->kind == FLAG_BOOL) == (f->value == NULL));
    if (f->kind == FLAG_INT || f->kind == FLAG_REAL) assert_true(f->min < f->max);
    /* A fallback passes its own check: reading it does not stop at a CHECK. */
    if (!f->fallback) return;
    char *words[4];
    char flag_text[64];
    int count = 0;
    snprintf(flag_text, sizeof(flag_text), "--%s", f->name);
    if (c->takes_model) words[count++] = (char *)"-m";
    if (c->takes_model || c->operands_max) words[count++] = (char *)"m";
    words[count++] = flag_text;
    words[count++] = (char *)f->fallback;
    struct args *a = NULL;
    struct err err = {0};
    assert_int_equal(args_parse(c, count, words, &a, &err), EXIT_FINE);
    args_destroy(a);
}

static void test_every_table_is_sound(void **state) {
    (void)state;
    for (const struct command *const *c = commands; *c; c++) {
        assert_non_null((*c)->run);
        assert_true(isupper((unsigned char)(*c)->summary[0]));
        assert_true((*c)->about[strlen((*c)->about) - 1] == '.');
        assert_ptr_equal(command_find((*c)->name), *c);
        const struct flag *f, *g;
        for (uint32_t i = 0; (f = flag_at(*c, i)); i++) {
            check_flag(*c, f);
            for (uint32_t j = i + 1; (g = flag_at(*c, j)); j++) {
                assert_string_not_equal(f->name, g->name);
                assert_true(!f->letter || f->letter != g->letter);
            }
        }
    }
}

static void test_statuses_have_the_codes_of_sysexits(void **state) {
    (void)state;
    assert_int_equal(exit_of(ST_OK), 0);
    assert_int_equal(exit_of(ST_BAD), 65);
    assert_int_equal(exit_of(ST_MISSING), 66);
    assert_int_equal(exit_of(ST_UNAVAILABLE), 69);
    assert_int_equal(exit_of(ST_DEVICE), 69);
    assert_int_equal(exit_of(ST_CREATE), 73);
    assert_int_equal(exit_of(ST_IO), 74);
    assert_int_equal(exit_of(ST_FULL), 75);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags_have_their_defaults),
        cmocka_unit_test(test_values_may_be_written_in_every_form),
        cmocka_unit_test(test_a_value_may_look_like_a_flag),
        cmocka_unit_test(test_the_model_is_a_flag_or_the_first_operand),
        cmocka_unit_test(test_a_knob_written_as_a_flag_gets_a_hint),
        cmocka_unit_test(test_mistakes_are_named),
        cmocka_unit_test(test_help_needs_nothing_else),
        cmocka_unit_test(test_help_shows_every_flag_within_80_columns),
        cmocka_unit_test(test_every_table_is_sound),
        cmocka_unit_test(test_statuses_have_the_codes_of_sysexits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
