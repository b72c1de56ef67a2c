/* Goal:   every interface takes the same range for a sampling parameter: the one of
 *         sample/ranges.def. Where one differs, the difference is listed here with its reason.
 * Method: walk the table. For each row try the least and the most value, values just outside, NaN
 *         and infinities, through HTTP fields, flags of the command line, lines of a request list
 *         and the C API. tests/e2e/test_python.py does the same for Python. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jitney.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/fields.h"
#include "api/request.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/model_args.h"
#include "sim/request_list.h"
#include "config/settings.h"
#include "sample/ranges.h"

#define LLAMA TEST_SOURCE_DIR "/golden/models/llama"

enum { TEXT_BYTES = 512 };

/* A range as one interface has it. */
struct limits {
    bool is_int;
    double least, most;
};

static struct limits limits_of(enum sample_index i) {
    const struct sample_range *r = &sample_ranges[i];
    return (struct limits){r->kind == SAMPLE_KIND_INT, r->least, r->most};
}

/* The number as JSON and flags write it; integers without an exponent. */
static const char *spell(const struct limits *l, double value, char out[64]) {
    bool is_whole = l->is_int && isfinite(value);
    snprintf(out, 64, is_whole ? "%.0f" : "%.17g", value);
    return is_whole && value == 0x1p63 ? "9223372036854775807" : out; /* a double rounds it */
}

/* Calls try(ctx, text, value, is_fine) for each case of a range. */
typedef void try_fn(void *ctx, const char *text, double value, bool is_fine);

static void try_range(const struct limits *l, try_fn *try_value, void *ctx) {
    char text[64];
    double below = l->is_int ? 1 : 1e-3 * (1 + fabs(l->least));
    double above = l->is_int ? 1 : 1e-3 * (1 + fabs(l->most));
    const struct {
        double value;
        bool is_fine;
    } cases[] = {{l->least, true},          {l->most, true},      {l->least - below, false},
                 {l->most + above, false},  {(double)NAN, false}, {(double)INFINITY, false},
                 {(double)-INFINITY, false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool is_end = cases[i].value == l->least || cases[i].value == l->most;
        if (!cases[i].is_fine && is_end) continue; /* 2^63 and 1 more are the same double */
        try_value(ctx, spell(l, cases[i].value, text), cases[i].value, cases[i].is_fine);
    }
}

/* ---- the table itself ---- */

static void try_check(void *ctx, const char *text, double value, bool is_fine) {
    enum sample_index i = *(const enum sample_index *)ctx;
    struct err err = {0};
    (void)text;
    assert_int_equal(sample_range_check(i, value, &err), is_fine ? ST_OK : ST_BAD);
    if (!is_fine) assert_non_null(strstr(err.text, sample_ranges[i].name));
}

static void test_the_check_takes_both_ends_and_nothing_outside(void **state) {
    (void)state;
    for (enum sample_index i = 0; i < SAMPLE_RANGE_COUNT; i++) {
        const struct limits l = limits_of(i);
        assert_true(l.least < l.most);
        assert_int_equal(sample_range_check(i, sample_ranges[i].fallback, NULL), ST_OK);
        try_range(&l, try_check, &i);
    }
    struct err err = {0};
    sample_range_check(SAMPLE_AT_temperature, 11, &err);
    assert_string_equal(err.text, "temperature is 11; it must be a number from 0 to 10");
    sample_range_check(SAMPLE_AT_n, 17, &err);
    assert_string_equal(err.text, "n is 17; it must be a whole number from 1 to 16");
}

/* A float that was rounded from an end of the range is still in it: 0.01f < 0.01. */
static void test_a_float_rounded_from_the_least_value_is_in_range(void **state) {
    (void)state;
    float least = (float)SAMPLE_REPETITION_PENALTY(SAMPLE_LEAST_OF);
    assert_true((double)least < SAMPLE_REPETITION_PENALTY(SAMPLE_LEAST_OF));
    assert_int_equal(sample_range_check(SAMPLE_AT_repetition_penalty, (double)least, NULL), ST_OK);
}

/* ---- HTTP ---- */

#define AT(member) offsetof(struct api_request, member)
static const struct {
    uint32_t offset;
    enum sample_index range;
} members[] = {
    {AT(sample.temperature), SAMPLE_AT_temperature},
    {AT(sample.top_k), SAMPLE_AT_top_k},
    {AT(sample.top_p), SAMPLE_AT_top_p},
    {AT(sample.min_p), SAMPLE_AT_min_p},
    {AT(sample.typical_p), SAMPLE_AT_typical_p},
    {AT(sample.repetition_penalty), SAMPLE_AT_repetition_penalty},
    {AT(sample.presence_penalty), SAMPLE_AT_presence_penalty},
    {AT(sample.frequency_penalty), SAMPLE_AT_frequency_penalty},
    {AT(sample.penalty_window), SAMPLE_AT_penalty_window},
    {AT(sample.seed), SAMPLE_AT_seed},
    {AT(n), SAMPLE_AT_n},
    {AT(max_tokens), SAMPLE_AT_max_tokens},
    {AT(top_logprobs), SAMPLE_AT_top_logprobs},
};

/* Where the imitated service has limits of its own. */
static const struct {
    const char *path;
    uint32_t endpoints;
    double least, most;
} own_limits[] = {
    {"temperature", EP_CHAT | EP_COMPLETIONS | EP_RESPONSES, 0, 2}, /* OpenAI's */
    {"temperature", EP_MESSAGES, 0, 1},                             /* Anthropic's */
    {"top_k", EP_CHAT | EP_MESSAGES, -1, 2147483647},               /* vLLM's -1: off */
    {"options.top_k", EP_OLLAMA_CHAT, -1, 2147483647},
    {"logprobs", EP_COMPLETIONS, 0, 5},                /* OpenAI's */
    {"seed", EP_CHAT, -0x1p63, 0x1p63},                /* any int64_t */
    {"options.seed", EP_OLLAMA_CHAT, -0x1p63, 0x1p63}, /* any int64_t */
    {"max_tokens", EP_COMPLETIONS, 0, 2147483647},     /* OpenAI's 0: the prompt only */
    {"max_tokens", EP_CHAT | EP_MESSAGES, 1, 2147483647},
    {"max_completion_tokens", EP_CHAT, 1, 2147483647},
    {"max_output_tokens", EP_RESPONSES, 1, 2147483647},
    {"options.num_predict", EP_OLLAMA_CHAT, -2, 2147483647}, /* Ollama's -1, -2: no limit */
};

static struct limits http_limits(const struct api_field *f, enum sample_index range) {
    struct limits l = limits_of(range);
    for (size_t i = 0; i < sizeof(own_limits) / sizeof(own_limits[0]); i++)
        if (strcmp(own_limits[i].path, f->path) == 0 && (own_limits[i].endpoints & f->endpoints)) {
            l.least = own_limits[i].least;
            l.most = own_limits[i].most;
        }
    return l;
}

struct http_case {
    const struct api_field *field;
    enum api_endpoint endpoint;
};

static void write_body(const struct http_case *c, const char *value, char out[TEXT_BYTES]) {
    const char *dot = strchr(c->field->path, '.');
    const char *rest = c->endpoint == EP_COMPLETIONS ? "\"prompt\":\"x\""
                       : c->endpoint == EP_RESPONSES ? "\"input\":\"x\""
                                                     : "\"messages\":[]";
    if (c->endpoint & (EP_CHAT | EP_MESSAGES))
        rest = "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]";
    bool lacks_max = c->endpoint == EP_MESSAGES && strcmp(c->field->path, "max_tokens") != 0;
    snprintf(out, TEXT_BYTES, dot ? "{%s%s,\"options\":{\"%s\":%s}}" : "{%s%s,\"%s\":%s}", rest,
             lacks_max ? ",\"max_tokens\":8" : "", dot ? dot + 1 : c->field->path, value);
}

static void try_http(void *ctx, const char *text, double value, bool is_fine) {
    const struct http_case *c = ctx;
    char body[TEXT_BYTES];
    struct json *doc = NULL;
    struct api_request r;
    struct api_error e = {0};
    write_body(c, text, body);
    if (json_parse(str_of(body), &json_limits_request, &doc, NULL) != ST_OK) {
        assert_false(isfinite(value)); /* JSON cannot write it */
        return;
    }
    api_request_init(&r, NULL);
    enum status st = api_fields_read(c->endpoint, doc, &r, &e);
    if (st != (is_fine ? ST_OK : ST_BAD)) fail_msg("%s: %s", body, e.message.text);
    if (!is_fine) assert_string_equal(e.param, c->field->path);
    if (!is_fine) assert_int_equal(e.status, 400);
    if (is_fine) assert_int_equal(sample_params_check(&r.sample, NULL), ST_OK);
    r.doc = doc;
    api_request_deinit(&r);
}

static void try_row(const struct api_field *f, enum sample_index range) {
    const enum api_endpoint endpoints[] = {EP_CHAT,     EP_COMPLETIONS, EP_RESPONSES,
                                           EP_MESSAGES, EP_OLLAMA_CHAT, EP_OLLAMA_GENERATE};
    const struct limits l = http_limits(f, range);
    if (f->min != l.least || f->max != l.most)
        fail_msg("%s: %g to %g, expected %g to %g", f->path, f->min, f->max, l.least, l.most);
    for (size_t i = 0; i < sizeof(endpoints) / sizeof(endpoints[0]); i++) {
        struct http_case c = {f, endpoints[i]};
        if (f->endpoints & (uint32_t)endpoints[i]) try_range(&l, try_http, &c);
    }
}

static bool stores_number(const struct api_field *f) {
    return f->store == STORE_U32 || f->store == STORE_I32 || f->store == STORE_FLOAT ||
           f->store == STORE_TOP_K || f->store == STORE_LIMIT || f->store == STORE_SEED;
}

static void test_http_fields_have_the_ranges_of_the_table(void **state) {
    (void)state;
    const uint32_t others = EP_EMBEDDINGS | EP_TOKENIZE | EP_OLLAMA_EMBED; /* other structs */
    uint32_t rows = 0, seen = 0;
    for (uint32_t i = 0; i < api_field_count; i++) {
        const struct api_field *f = &api_fields[i];
        if (f->endpoints & others || !stores_number(f)) continue;
        for (size_t m = 0; m < sizeof(members) / sizeof(members[0]); m++) {
            if (f->offset != members[m].offset) continue;
            try_row(f, members[m].range);
            seen |= 1u << members[m].range;
            rows++;
        }
    }
    assert_true(rows >= 30);
    assert_int_equal(__builtin_popcount(seen), sizeof(members) / sizeof(members[0]));
}

/* ---- the command line ---- */

static const struct {
    const char *flag;
    enum sample_index range;
} flags[] = {
    {"--temp", SAMPLE_AT_temperature},
    {"--top-k", SAMPLE_AT_top_k},
    {"--top-p", SAMPLE_AT_top_p},
    {"--min-p", SAMPLE_AT_min_p},
    {"--typical", SAMPLE_AT_typical_p},
    {"--repeat-penalty", SAMPLE_AT_repetition_penalty},
    {"--presence-penalty", SAMPLE_AT_presence_penalty},
    {"--frequency-penalty", SAMPLE_AT_frequency_penalty},
    {"--penalty-window", SAMPLE_AT_penalty_window},
    {"--seed", SAMPLE_AT_seed},
    {"--logprobs", SAMPLE_AT_top_logprobs},
    {"--logit-bias=7", SAMPLE_AT_logit_bias},
};

static void try_flag(void *ctx, const char *text, double value, bool is_fine) {
    char word[128];
    static struct logit_bias bias[LOGIT_BIAS_MAX];
    char model[] = "model";
    char *argv[] = {model, word};
    struct args *a = NULL;
    struct sample_params p;
    struct err err = {0};
    (void)value;
    snprintf(word, sizeof(word), "%s=%s", (const char *)ctx, text);
    if (strcmp(word, "--logit-bias=7=-inf") == 0) is_fine = true; /* it forbids the token */
    enum exit_code code = args_parse(command_find("generate"), 2, argv, &a, &err);
    if (code == EXIT_FINE) code = model_args_sampling(a, bias, &p, &err);
    if (code != (is_fine ? EXIT_FINE : EXIT_USAGE)) fail_msg("%s: %s", word, err.text);
    args_destroy(a);
}

static void test_flags_have_the_ranges_of_the_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        const struct limits l = limits_of(flags[i].range);
        try_range(&l, try_flag, (void *)flags[i].flag);
    }
}

/* The folder `config` is below `sample` and cannot use its table. */
static void test_the_setting_n_max_has_the_range_of_n(void **state) {
    (void)state;
    const struct limits l = limits_of(SAMPLE_AT_n);
    for (uint32_t i = 0; i < settings_count(); i++) {
        if (strcmp(setting_rows[i].flag, "n-max") != 0) continue;
        assert_true(setting_rows[i].min == l.least);
        assert_true(setting_rows[i].max == l.most);
        return;
    }
    fail();
}

/* ---- request lists ---- */

static void ignore_note(void *ctx, uint32_t line, bool is_bad, const char *reason) {
    (void)line;
    if (is_bad) snprintf(ctx, TEXT_BYTES, "%s", reason);
}

static void try_line(void *ctx, const char *text, double value, bool is_fine) {
    const char *field = ctx;
    char line[TEXT_BYTES], note[TEXT_BYTES] = "";
    struct request_list list;
    const struct prompt_source source = {.vocab = 100};
    bool is_max = strcmp(field, "max_tokens") == 0;
    snprintf(line, sizeof(line), "{\"prompt_len\":1%s,\"%s\":%s}",
             is_max ? "" : ",\"max_tokens\":1", field, text);
    struct str bytes = str_of(line);
    assert_int_equal(request_list_read(&list, bytes, &source, ignore_note, note, NULL), ST_OK);
    if (list.count != is_fine) fail_msg("%s: %s", line, note);
    if (!is_fine && isfinite(value)) assert_non_null(strstr(note, field));
    request_list_deinit(&list);
}

static void test_request_lists_have_the_ranges_of_the_table(void **state) {
    (void)state;
    const enum sample_index ranges[] = {SAMPLE_AT_temperature, SAMPLE_AT_seed, SAMPLE_AT_n,
                                        SAMPLE_AT_max_tokens};
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        const struct limits l = limits_of(ranges[i]);
        try_range(&l, try_line, (void *)sample_ranges[ranges[i]].name);
    }
}

/* Seeds above 2^53 keep their last digit. */
static void test_a_request_list_keeps_a_seed_of_63_bits(void **state) {
    (void)state;
    struct request_list list;
    const struct prompt_source source = {.vocab = 100};
    char note[TEXT_BYTES] = "";
    struct str line = STR("{\"prompt_len\":1,\"max_tokens\":1,\"seed\":9007199254740993}\n"
                          "{\"prompt_len\":1,\"max_tokens\":1,\"seed\":1e18}");
    assert_int_equal(request_list_read(&list, line, &source, ignore_note, note, NULL), ST_OK);
    assert_int_equal(list.count, 1);
    assert_true(list.items[0].seed == 9007199254740993u);
    assert_non_null(strstr(note, "seed"));
    request_list_deinit(&list);
}

/* ---- the C API ---- */

struct embed_case {
    struct jitney *model;
    enum sample_index range;
};

static bool fits_u32(double v) { return v >= 0 && v <= UINT32_MAX; }

/* false: the member's type cannot hold the value. */
static bool set_member(struct jitney_request *r, enum sample_index i, double v) {
    static struct jitney_bias bias;
    float *const reals[SAMPLE_RANGE_COUNT] = {
        [SAMPLE_AT_temperature] = &r->temperature,
        [SAMPLE_AT_top_p] = &r->top_p,
        [SAMPLE_AT_min_p] = &r->min_p,
        [SAMPLE_AT_typical_p] = &r->typical_p,
        [SAMPLE_AT_repetition_penalty] = &r->repetition_penalty,
        [SAMPLE_AT_presence_penalty] = &r->presence_penalty,
        [SAMPLE_AT_frequency_penalty] = &r->frequency_penalty,
        [SAMPLE_AT_logit_bias] = &bias.bias,
    };
    uint32_t *const counts[SAMPLE_RANGE_COUNT] = {
        [SAMPLE_AT_top_k] = &r->top_k,
        [SAMPLE_AT_n] = &r->n,
        [SAMPLE_AT_max_tokens] = &r->max_tokens,
        [SAMPLE_AT_top_logprobs] = &r->top_logprobs,
    };
    if (i == SAMPLE_AT_logit_bias) r->bias = &bias, r->bias_count = 1;
    if (reals[i]) *reals[i] = (float)v;
    if (counts[i] && fits_u32(v)) *counts[i] = (uint32_t)v;
    if (i == SAMPLE_AT_penalty_window && fabs(v) <= INT32_MAX) r->penalty_window = (int32_t)v;
    if (counts[i]) return fits_u32(v);
    return reals[i] || (i == SAMPLE_AT_penalty_window && fabs(v) <= INT32_MAX);
}

static void try_submit(void *ctx, const char *text, double value, bool is_fine) {
    const struct embed_case *c = ctx;
    struct jitney_request r = jitney_request_default();
    char why[JITNEY_ERROR_BYTES] = "";
    uint64_t id = 0;
    r.text = "Hello";
    r.logprobs = true;
    if (!set_member(&r, c->range, value)) return;
    if (c->range == SAMPLE_AT_logit_bias && value < 0 && isinf(value)) is_fine = true;
    enum jitney_status st = jitney_submit(c->model, &r, &id, why);
    if (st != (is_fine ? JITNEY_OK : JITNEY_BAD))
        fail_msg("%s %s: %s", sample_ranges[c->range].name, text, why);
    if (!is_fine) assert_non_null(strstr(why, sample_ranges[c->range].name));
    if (is_fine) jitney_cancel(c->model, id);
    struct jitney_event ev = jitney_event_default();
    while (jitney_next(c->model, &ev, -1) == JITNEY_OK) {
    }
    jitney_event_clear(&ev);
}

/* Not the seed: every uint64_t is one. */
static void test_the_c_api_has_the_ranges_of_the_table(void **state) {
    (void)state;
    struct embed_case c = {0};
    struct jitney_options o = jitney_options_default();
    char why[JITNEY_ERROR_BYTES] = "";
    o.pretend = true;
    o.threads = 1;
    if (jitney_open(LLAMA, &o, &c.model, why) != JITNEY_OK) fail_msg("%s", why);
    for (c.range = 0; c.range < SAMPLE_RANGE_COUNT; c.range++) {
        const struct limits l = limits_of(c.range);
        try_range(&l, try_submit, &c);
    }
    jitney_close(c.model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_check_takes_both_ends_and_nothing_outside),
        cmocka_unit_test(test_a_float_rounded_from_the_least_value_is_in_range),
        cmocka_unit_test(test_http_fields_have_the_ranges_of_the_table),
        cmocka_unit_test(test_flags_have_the_ranges_of_the_table),
        cmocka_unit_test(test_the_setting_n_max_has_the_range_of_n),
        cmocka_unit_test(test_request_lists_have_the_ranges_of_the_table),
        cmocka_unit_test(test_a_request_list_keeps_a_seed_of_63_bits),
        cmocka_unit_test(test_the_c_api_has_the_ranges_of_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
