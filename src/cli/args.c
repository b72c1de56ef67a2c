/* cli/args.c - the command line, checked against a command's table. See cli/cli.h.
 *
 * Entry points: args_parse, args_destroy, the args_* getters, flag_at, word_suggest.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/cli_int.h"
#include "sched/knobs.h"

enum { WHERE_BYTES = 64 };

/* One flag that was given; `value` is NULL for FLAG_BOOL. */
struct given {
    const struct flag *flag;
    const char *value;
};

struct args {
    const struct command *command;
    const char *model;
    uint32_t given_count, operand_count;
    struct given *given;   /* in the order of the command line */
    const char **operands; /* without the model */
    bool wants_help;
};

static const struct flag flag_help = {
    .name = "help", .letter = 'h', .kind = FLAG_BOOL, .help = "Show this help and exit."};

static const struct flag flag_model = {
    .name = "model",
    .letter = 'm',
    .kind = FLAG_TEXT,
    .value = "MODEL",
    .help = "Model: a name in the cache, a GGUF file or a Hugging Face folder. It may also be the "
            "first argument."};

static const struct flag flag_model_only = {
    .name = "model",
    .letter = 'm',
    .kind = FLAG_TEXT,
    .value = "MODEL",
    .help = "Model: a name in the cache, a GGUF file or a Hugging Face folder."};

const struct flag *flag_at(const struct command *c, uint32_t i) {
    if (c->takes_model && i-- == 0) return c->model_by_flag ? &flag_model_only : &flag_model;
    for (uint32_t g = 0; g < FLAG_GROUPS_MAX && c->groups[g]; g++)
        for (const struct flag *f = c->groups[g]; f->name; f++)
            if (i-- == 0) return f;
    return i == 0 ? &flag_help : NULL;
}

static const struct flag *flag_by_name(const struct command *c, struct str name) {
    const struct flag *f;
    for (uint32_t i = 0; (f = flag_at(c, i)); i++)
        if (str_is(name, f->name)) return f;
    return NULL;
}

static const struct flag *flag_by_letter(const struct command *c, char letter) {
    const struct flag *f;
    for (uint32_t i = 0; (f = flag_at(c, i)); i++)
        if (f->letter == letter) return f;
    return NULL;
}

bool word_is_near(struct str word, const char *candidate, uint32_t *best) {
    struct str other = str_of(candidate);
    uint32_t distance = str_distance(word, other);
    if (word.len >= 3 && str_starts(other, word)) distance = 1;
    uint32_t allowed = word.len <= 3 ? 1 : word.len <= 6 ? 2 : 3;
    if (distance > allowed || distance >= *best) return false;
    *best = distance;
    return true;
}

/* The knob with the name of a flag, "kv_type" for "kv-type"; NULL: no such knob. */
static const char *knob_named(struct str flag) {
    const struct knobs defaults = knobs_default();
    for (uint32_t i = 0; i < knobs_count(); i++) {
        struct knob_row row;
        knobs_show(&defaults, i, &row);
        bool same = strlen(row.name) == flag.len;
        for (size_t j = 0; same && j < flag.len; j++)
            same = flag.ptr[j] == row.name[j] || (flag.ptr[j] == '-' && row.name[j] == '_');
        if (same) return row.name;
    }
    return NULL;
}

static enum exit_code unknown_flag(const struct command *c, struct str name, const char *dashes,
                                   struct err *err) {
    const struct flag *f, *near = NULL;
    uint32_t best = UINT32_MAX;
    const char *knob = flag_by_name(c, STR("set")) ? knob_named(name) : NULL;
    if (knob)
        return usage_set(err, "%s: unknown flag %s%.*s; it is a knob: --set %s=VALUE", c->name,
                         dashes, STR_ARG(name), knob);
    for (uint32_t i = 0; (f = flag_at(c, i)); i++)
        if (word_is_near(name, f->name, &best)) near = f;
    if (near)
        return usage_set(err, "%s: unknown flag %s%.*s; did you mean --%s?", c->name, dashes,
                         STR_ARG(name), near->name);
    return usage_set(err, "%s: unknown flag %s%.*s; \"jitney %s --help\" lists them", c->name,
                     dashes, STR_ARG(name), c->name);
}

/* Is `value` one of the words of "one|two|three"? */
static bool word_in(const char *words, struct str value) {
    for (struct str rest = str_of(words); rest.len > 0;) {
        const char *bar = memchr(rest.ptr, '|', rest.len);
        size_t len = bar ? (size_t)(bar - rest.ptr) : rest.len;
        if (str_eq(str_take(rest, len), value)) return true;
        rest = str_skip(rest, bar ? len + 1 : len);
    }
    return false;
}

static enum exit_code check_word(const struct command *c, const struct flag *f, const char *value,
                                 struct err *err) {
    char where[WHERE_BYTES];
    if (!word_in(f->value, str_of(value)))
        return usage_set(err, "%s: --%s is \"%s\"; it must be one of %s", c->name, f->name, value,
                         f->value);
    if (!f->check || f->check(value, err) == ST_OK) return EXIT_FINE;
    snprintf(where, sizeof(where), "%s: --%s", c->name, f->name);
    (void)err_prefix(err, ST_BAD, where);
    return EXIT_USAGE;
}

static enum exit_code check_value(const struct command *c, const struct flag *f, const char *value,
                                  struct err *err) {
    struct str text = str_of(value);
    int64_t whole;
    double real;
    switch (f->kind) {
    case FLAG_BOOL:
    case FLAG_TEXT:
        return EXIT_FINE;
    case FLAG_WORD:
        return check_word(c, f, value, err);
    case FLAG_INT:
        if (str_to_i64(text, &whole) && (double)whole >= f->min && (double)whole <= f->max)
            return EXIT_FINE;
        return usage_set(err, "%s: --%s is \"%s\"; it must be a whole number from %.15g to %.15g",
                         c->name, f->name, value, f->min, f->max);
    case FLAG_REAL:
        if (str_to_f64(text, &real) && real >= f->min && real <= f->max) return EXIT_FINE;
        return usage_set(err, "%s: --%s is \"%s\"; it must be a number from %.15g to %.15g",
                         c->name, f->name, value, f->min, f->max);
    }
    return EXIT_BUG;
}

static enum exit_code take_flag(struct args *a, const struct flag *f, const char *value,
                                struct err *err) {
    enum exit_code code = value ? check_value(a->command, f, value, err) : EXIT_FINE;
    if (code != EXIT_FINE) return code;
    if (f == &flag_help) a->wants_help = true;
    if (f == &flag_model || f == &flag_model_only) a->model = value;
    a->given[a->given_count++] = (struct given){f, value};
    return EXIT_FINE;
}

/* argv[*i] is "--name" or "--name=value"; *i becomes the index of the last word used. */
static enum exit_code parse_long(struct args *a, int argc, char **argv, int *i, struct err *err) {
    const char *word = argv[*i] + 2;
    const char *equals = strchr(word, '=');
    struct str name = {word, equals ? (size_t)(equals - word) : strlen(word)};
    const struct flag *f = flag_by_name(a->command, name);
    if (!f) return unknown_flag(a->command, name, "--", err);
    if (f->kind == FLAG_BOOL) {
        if (equals) return usage_set(err, "%s: --%s takes no value", a->command->name, f->name);
        return take_flag(a, f, NULL, err);
    }
    if (equals) return take_flag(a, f, equals + 1, err);
    if (*i + 1 >= argc)
        return usage_set(err, "%s: --%s needs a value: --%s %s", a->command->name, f->name, f->name,
                         f->value);
    return take_flag(a, f, argv[++*i], err);
}

/* argv[*i] is "-x", "-xVALUE" or several letters that take no value: "-0v". */
static enum exit_code parse_letters(struct args *a, int argc, char **argv, int *i,
                                    struct err *err) {
    for (const char *p = argv[*i] + 1; *p; p++) {
        const struct flag *f = flag_by_letter(a->command, *p);
        if (!f) return unknown_flag(a->command, str_of(p), "-", err);
        if (f->kind == FLAG_BOOL) {
            enum exit_code code = take_flag(a, f, NULL, err);
            if (code != EXIT_FINE) return code;
            continue;
        }
        if (p[1]) return take_flag(a, f, p + 1, err);
        if (*i + 1 >= argc)
            return usage_set(err, "%s: -%c needs a value: -%c %s", a->command->name, *p, *p,
                             f->value);
        return take_flag(a, f, argv[++*i], err);
    }
    return EXIT_FINE;
}

static enum exit_code parse_words(struct args *a, int argc, char **argv, struct err *err) {
    bool flags_over = false;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        enum exit_code code = EXIT_FINE;
        if (!flags_over && strcmp(word, "--") == 0)
            flags_over = true;
        else if (!flags_over && strncmp(word, "--", 2) == 0)
            code = parse_long(a, argc, argv, &i, err);
        else if (!flags_over && word[0] == '-' && word[1])
            code = parse_letters(a, argc, argv, &i, err);
        else
            a->operands[a->operand_count++] = word;
        if (code != EXIT_FINE) return code;
    }
    return EXIT_FINE;
}

/* The model may be the first operand; the rest must not be more than the command takes. */
static enum exit_code settle_operands(struct args *a, struct err *err) {
    const struct command *c = a->command;
    if (c->takes_model && !c->model_by_flag && !a->model && a->operand_count > 0) {
        a->model = a->operands[0];
        a->operand_count--;
        memmove(a->operands, a->operands + 1, a->operand_count * sizeof(a->operands[0]));
    }
    if (a->wants_help) return EXIT_FINE;
    if (c->takes_model && !a->model && !c->model_optional)
        return usage_set(err,
                         "%s: no model; give one with jitney %s -m MODEL (\"jitney list\" "
                         "shows the models in the cache)",
                         c->name, c->name);
    if (a->operand_count > c->operands_max)
        return usage_set(err,
                         "%s: unexpected argument \"%s\"; \"jitney %s --help\" shows the usage",
                         c->name, a->operands[c->operands_max], c->name);
    return EXIT_FINE;
}

/* One word may hold several flags of one letter, so there are at most as many as characters. */
static size_t letters_in(int argc, char **argv) {
    size_t count = 1;
    for (int i = 0; i < argc; i++) count += strlen(argv[i]) + 1;
    return count;
}

enum exit_code args_parse(const struct command *c, int argc, char **argv, struct args **out,
                          struct err *err) {
    struct args *a = mem_zalloc(sizeof(*a));
    if (!a) return exit_of(err_set(err, ST_NOMEM, "out of memory"));
    a->command = c;
    a->given = mem_zalloc_array(letters_in(argc, argv), sizeof(a->given[0]));
    a->operands = mem_zalloc_array((size_t)argc + 1, sizeof(a->operands[0]));
    enum exit_code code = EXIT_FINE;
    if (!a->given || !a->operands) code = exit_of(err_set(err, ST_NOMEM, "out of memory"));
    if (code == EXIT_FINE) code = parse_words(a, argc, argv, err);
    if (code == EXIT_FINE) code = settle_operands(a, err);
    if (code != EXIT_FINE) {
        args_destroy(a);
        return code;
    }
    *out = a;
    return EXIT_FINE;
}

void args_destroy(struct args *a) {
    if (!a) return;
    mem_free(a->given);
    mem_free(a->operands);
    mem_free(a);
}

bool args_want_help(const struct args *a) { return a->wants_help; }

static const struct flag *must_find(const struct args *a, const char *name) {
    const struct flag *f = flag_by_name(a->command, str_of(name));
    CHECK(f != NULL);
    return f;
}

/* The last value given, else the fallback. */
static const char *value_of(const struct args *a, const struct flag *f) {
    for (uint32_t i = a->given_count; i-- > 0;)
        if (a->given[i].flag == f) return a->given[i].value;
    return f->fallback;
}

bool args_given(const struct args *a, const char *name) { return args_count(a, name) > 0; }

bool args_on(const struct args *a, const char *name) {
    CHECK(must_find(a, name)->kind == FLAG_BOOL);
    return args_count(a, name) > 0;
}

int64_t args_int(const struct args *a, const char *name) {
    const struct flag *f = must_find(a, name);
    CHECK(f->kind == FLAG_INT);
    int64_t value = 0;
    const char *text = value_of(a, f);
    if (text) CHECK(str_to_i64(str_of(text), &value));
    return value;
}

double args_real(const struct args *a, const char *name) {
    const struct flag *f = must_find(a, name);
    CHECK(f->kind == FLAG_REAL);
    double value = 0.0;
    const char *text = value_of(a, f);
    if (text) CHECK(str_to_f64(str_of(text), &value));
    return value;
}

const char *args_text(const struct args *a, const char *name) {
    const struct flag *f = must_find(a, name);
    CHECK(f->kind == FLAG_TEXT || f->kind == FLAG_WORD);
    return value_of(a, f);
}

const char *args_typed(const struct args *a, const char *name) {
    const struct flag *f = must_find(a, name);
    CHECK(f->kind != FLAG_BOOL);
    return args_given(a, name) ? value_of(a, f) : NULL;
}

uint32_t args_count(const struct args *a, const char *name) {
    const struct flag *f = must_find(a, name);
    uint32_t count = 0;
    for (uint32_t i = 0; i < a->given_count; i++) count += a->given[i].flag == f;
    return count;
}

const char *args_text_at(const struct args *a, const char *name, uint32_t i) {
    const struct flag *f = must_find(a, name);
    CHECK(f->repeats);
    for (uint32_t g = 0; g < a->given_count; g++)
        if (a->given[g].flag == f && i-- == 0) return a->given[g].value;
    CHECK(false);
    return NULL;
}

uint32_t args_operands(const struct args *a) { return a->operand_count; }

const char *args_operand(const struct args *a, uint32_t i) {
    CHECK(i < a->operand_count);
    return a->operands[i];
}

const char *args_model(const struct args *a) { return a->model; }
