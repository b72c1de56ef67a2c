/* cli/cmd_grammar.c - `jitney grammar`: compile schemas, and test instances against them. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/grammar_trial.h"
#include "cli/model_args.h"
#include "grammar/grammar.h"
#include "text/tokenizer.h"

enum { FILE_BYTES_MAX = 64 << 20, REPORT_BYTES_MAX = 1 << 20, PATH_BYTES = 4096 };

static const struct json_limits file_limits = {
    .bytes_max = FILE_BYTES_MAX, .depth_max = 1000, .values_max = 10000000};

static const struct flag flags[] = {
    {.name = "accepts",
     .kind = FLAG_TEXT,
     .value = "INSTANCE.json",
     .help = "With check: test whether the schema accepts this instance."},
    {.name = "raw",
     .kind = FLAG_BOOL,
     .help = "With --accepts: test the bytes of the file as they are, not written again in "
             "canonical form."},
    {.name = "each",
     .kind = FLAG_BOOL,
     .help = "With bench: print a JSON object for each file, with the tokens, the verdict and the "
             "time of every mask of each test."},
    {.name = "json", .kind = FLAG_BOOL, .help = "Print one JSON object."},
    {0},
};

/* What `check` found. */
struct verdict {
    bool compiled, tested;
    struct grammar_refusal why;
    struct trial trial;
    int64_t compile_ns;
    struct durations masks;
    uint32_t states;
    size_t bytes;
};

/* The instance in the form in which it is tested. */
static enum status read_instance(const char *path, bool raw, struct buf *out, struct err *err) {
    struct buf file;
    struct json *doc = NULL;
    buf_init(&file, FILE_BYTES_MAX);
    enum status st = file_read(path, raw ? out : &file, err);
    if (st == ST_OK && !raw) {
        st = json_parse(buf_str(&file), &file_limits, &doc, err);
        if (st == ST_OK) instance_put(doc, out);
        if (st != ST_OK) err_prefix(err, st, path);
    }
    if (st == ST_OK && buf_status(out) != ST_OK)
        st = err_set(err, buf_status(out), "%s: out of memory", path);
    json_destroy(doc);
    buf_deinit(&file);
    return st;
}

static enum status compile(struct str source, struct grammar **out, struct grammar_refusal *why,
                           int64_t *ns) {
    const struct grammar_options options = {.kind = GRAMMAR_SCHEMA};
    int64_t start = clock_fine_ns();
    enum status st = grammar_compile(source, &options, out, why);
    *ns = clock_fine_ns() - start;
    return st;
}

static void put_verdict_json(struct verdict *v, struct buf *out) {
    buf_printf(out, "{\"compiled\":%s,\"refused\":", v->compiled ? "true" : "false");
    if (v->compiled) {
        buf_put_text(out, "null");
    } else {
        buf_put_text(out, "{\"path\":");
        buf_put_json_string(out, str_of(v->why.path));
        buf_put_text(out, ",\"sentence\":");
        buf_put_json_string(out, str_of(v->why.err.text));
        buf_put_char(out, '}');
    }
    bool rejected = v->tested && !v->trial.accepted;
    buf_printf(out, ",\"accepted\":%s,\"rejected_at\":",
               !v->tested          ? "null"
               : v->trial.accepted ? "true"
                                   : "false");
    if (rejected)
        buf_put_uint(out, v->trial.rejected_at);
    else
        buf_put_text(out, "null");
    buf_printf(out, ",\"compile_us\":%.2f,\"mask_us\":", (double)v->compile_ns / 1000);
    durations_put(&v->masks, out);
    buf_printf(out, ",\"states\":%u,\"bytes\":%zu}\n", v->states, v->bytes);
}

static void put_verdict_text(struct verdict *v, struct buf *out) {
    if (!v->compiled) {
        buf_printf(out, "refused at %s: ", v->why.path[0] ? v->why.path : "#");
        buf_put_plain(out, str_of(v->why.err.text));
        buf_put_char(out, '\n');
        return;
    }
    buf_printf(out, "compiled in %.1f us; %u states, %zu bytes\n", (double)v->compile_ns / 1000,
               v->states, v->bytes);
    if (!v->tested) return;
    if (v->trial.accepted)
        buf_put_text(out, "accepted\n");
    else
        buf_printf(out, "rejected at byte %zu\n", v->trial.rejected_at);
    buf_put_text(out, "masks: ");
    durations_put_text(&v->masks, out);
    buf_put_char(out, '\n');
}

/* Compiles and tests. ST_OK also where the schema is refused; the verdict says so. */
static enum status examine(struct str source, const struct buf *instance, struct trial_tokens *t,
                           struct verdict *v, struct err *err) {
    struct grammar *g = NULL;
    enum status st = compile(source, &g, &v->why, &v->compile_ns);
    if (st == ST_NOMEM) return err_set(err, st, "grammar: out of memory");
    v->compiled = st == ST_OK;
    st = ST_OK;
    if (v->compiled && instance) {
        st = trial_run(g, t, buf_str(instance), &v->masks, &v->trial, err);
        v->tested = st == ST_OK;
    }
    if (v->compiled) {
        v->states = grammar_states(g);
        v->bytes = grammar_bytes(g);
    }
    grammar_destroy(g);
    return st;
}

static enum exit_code check(const struct args *args, struct trial_tokens *t, struct err *err) {
    const char *instance_path = args_text(args, "accepts");
    struct buf source, instance, report;
    struct verdict v = {0};
    buf_init(&source, FILE_BYTES_MAX);
    buf_init(&instance, FILE_BYTES_MAX);
    buf_init(&report, REPORT_BYTES_MAX);
    enum status st = file_read(args_operand(args, 1), &source, err);
    if (st == ST_OK && instance_path)
        st = read_instance(instance_path, args_on(args, "raw"), &instance, err);
    if (st == ST_OK) st = examine(buf_str(&source), instance_path ? &instance : NULL, t, &v, err);
    if (st == ST_OK) {
        if (args_on(args, "json"))
            put_verdict_json(&v, &report);
        else
            put_verdict_text(&v, &report);
        st = out_write(buf_str(&report), err);
    }
    enum exit_code code = exit_of(st);
    if (st == ST_OK && !v.compiled) code = EXIT_BAD;
    if (st == ST_OK && v.compiled && v.tested && !v.trial.accepted) code = EXIT_REJECTED;
    durations_deinit(&v.masks);
    buf_deinit(&report);
    buf_deinit(&instance);
    buf_deinit(&source);
    return code;
}

/* The sums of `bench`. */
struct bench_sums {
    uint32_t schemas, passing, refused, valid_rejected, invalid_accepted, timeouts;
    struct durations compiles, masks;
    struct buf *each; /* NULL: only the sums are wanted */
};

/* The tokens of a test, the verdict and the time of its masks, which begin at `first`. */
static enum status put_test(const struct bench_sums *b, const struct trial_tokens *t,
                            struct str text, bool accepted, size_t first) {
    const struct encode_options options = {.plain_special = true};
    struct tokens ids = {0};
    if (t->tokenizer) TRY(tokenizer_encode(t->tokenizer, text, options, &ids));
    buf_printf(b->each, "{\"accepted\":%s,\"tokens\":[", accepted ? "true" : "false");
    for (size_t i = 0; i < ids.count; i++) buf_printf(b->each, i ? ",%d" : "%d", ids.ids[i]);
    buf_put_text(b->each, "],\"mask_us\":[");
    for (size_t i = first; i < b->masks.count; i++)
        buf_printf(b->each, i > first ? ",%.2f" : "%.2f", (double)b->masks.list[i] / 1000);
    buf_put_text(b->each, "]}");
    tokens_deinit(&ids);
    return buf_status(b->each);
}

static enum status bench_tests(struct grammar *g, const struct json *tests, struct trial_tokens *t,
                               struct bench_sums *b, struct err *err) {
    struct buf text;
    buf_init(&text, FILE_BYTES_MAX);
    bool all_right = true;
    enum status st = ST_OK;
    for (size_t i = 0; i < json_count(tests) && st == ST_OK; i++) {
        const struct json *test = json_at(tests, i);
        bool valid = json_bool(json_get(test, "valid"), false);
        struct trial trial = {0};
        const size_t first = b->masks.count;
        buf_clear(&text);
        instance_put(json_get(test, "data"), &text);
        st = buf_status(&text);
        if (st == ST_OK) st = trial_run(g, t, buf_str(&text), &b->masks, &trial, err);
        if (st == ST_FULL) { /* past the budget of states: this instance cannot be answered */
            trial.accepted = false;
            st = ST_OK;
        }
        if (st == ST_OK && b->each) {
            if (i) buf_put_char(b->each, ',');
            st = put_test(b, t, buf_str(&text), trial.accepted, first);
        }
        if (st != ST_OK || trial.accepted == valid) continue;
        all_right = false;
        b->valid_rejected += valid;
        b->invalid_accepted += !valid;
    }
    if (st == ST_OK && all_right) b->passing++;
    buf_deinit(&text);
    return st;
}

static enum status bench_file(const char *path, struct trial_tokens *t, struct bench_sums *b,
                              struct err *err) {
    struct buf text, source;
    struct json *doc = NULL;
    struct grammar *g = NULL;
    struct grammar_refusal why;
    int64_t ns = 0;
    buf_init(&text, FILE_BYTES_MAX);
    buf_init(&source, FILE_BYTES_MAX);
    enum status st = file_read(path, &text, err);
    if (st == ST_OK) st = json_parse(buf_str(&text), &file_limits, &doc, err);
    if (st != ST_OK) err_prefix(err, st, path);
    if (st == ST_OK && !json_get(doc, "schema"))
        st = err_set(err, ST_BAD, "%s: expected an object with \"schema\" and \"tests\"", path);
    if (st == ST_OK) {
        json_put(json_get(doc, "schema"), &source);
        b->schemas++;
        enum status compiled = compile(buf_str(&source), &g, &why, &ns);
        st = durations_add(&b->compiles, ns);
        bool late = compiled == ST_FULL && strstr(why.err.text, "more time") != NULL;
        b->timeouts += late;
        b->refused += compiled != ST_OK && !late;
        if (compiled == ST_NOMEM) st = err_set(err, ST_NOMEM, "grammar: out of memory");
        if (b->each) {
            buf_put_text(b->each, "{\"file\":");
            buf_put_json_string(b->each, str_of(path));
            buf_printf(b->each, ",\"compiled\":%s,\"compile_us\":%.2f,\"tests\":[",
                       compiled == ST_OK ? "true" : "false", (double)ns / 1000);
        }
        if (compiled == ST_OK && st == ST_OK)
            st = bench_tests(g, json_get(doc, "tests"), t, b, err);
        if (b->each) buf_put_text(b->each, "]}\n");
    }
    grammar_destroy(g);
    json_destroy(doc);
    buf_deinit(&source);
    buf_deinit(&text);
    return st;
}

static int is_json_file(const struct dirent *entry) {
    return str_ends(str_of(entry->d_name), STR(".json"));
}

static enum status bench_folder(const char *folder, struct trial_tokens *t, struct bench_sums *b,
                                struct err *err) {
    struct dirent **list = NULL;
    int count = scandir(folder, &list, is_json_file, alphasort);
    if (count < 0) return err_set(err, ST_MISSING, "%s: cannot read the folder", folder);
    enum status st = ST_OK;
    for (int i = 0; i < count; i++) {
        char path[PATH_BYTES];
        snprintf(path, sizeof(path), "%s/%s", folder, list[i]->d_name);
        if (st == ST_OK) st = bench_file(path, t, b, err);
        if (st == ST_OK && b->each) st = out_write(buf_str(b->each), err);
        if (b->each) buf_clear(b->each);
        mem_free(list[i]);
    }
    mem_free(list);
    if (st == ST_OK && count == 0)
        st = err_set(err, ST_MISSING, "%s: the folder has no .json file", folder);
    return st;
}

static void put_sums(struct bench_sums *b, bool as_json, struct buf *out) {
    const char *form = as_json
                           ? "{\"schemas\":%u,\"passing\":%u,\"refused\":%u,\"valid_rejected\":%u,"
                             "\"invalid_accepted\":%u,\"timeouts\":%u,\"compile_us\":"
                           : "schemas %u\npassing %u\nrefused %u\nvalid instances rejected %u\n"
                             "invalid instances accepted %u\ntimeouts %u\ncompiling: ";
    buf_printf(out, form, b->schemas, b->passing, b->refused, b->valid_rejected,
               b->invalid_accepted, b->timeouts);
    if (as_json) {
        durations_put(&b->compiles, out);
        buf_put_text(out, ",\"mask_us\":");
        durations_put(&b->masks, out);
        buf_put_text(out, "}\n");
        return;
    }
    durations_put_text(&b->compiles, out);
    buf_put_text(out, "\nmasks: ");
    durations_put_text(&b->masks, out);
    buf_put_char(out, '\n');
}

static enum exit_code bench(const struct args *args, struct trial_tokens *t, struct err *err) {
    struct bench_sums sums = {0};
    struct buf report;
    bool each = args_on(args, "each");
    buf_init(&report, FILE_BYTES_MAX);
    if (each) sums.each = &report;
    enum status st = bench_folder(args_operand(args, 1), t, &sums, err);
    if (st == ST_OK && !each) {
        put_sums(&sums, args_on(args, "json"), &report);
        st = out_write(buf_str(&report), err);
    }
    durations_deinit(&sums.compiles);
    durations_deinit(&sums.masks);
    buf_deinit(&report);
    return exit_of(st);
}

static enum exit_code run(const struct args *args, struct err *err) {
    const char *verb = args_operands(args) > 0 ? args_operand(args, 0) : "";
    bool is_check = strcmp(verb, "check") == 0;
    if (args_operands(args) < 2 || (!is_check && strcmp(verb, "bench") != 0))
        return usage_set(err, "grammar: expected \"check SCHEMA.json\" or \"bench DIR\"");
    struct text_model model = {0};
    struct trial_tokens tokens = {0};
    enum status st = args_model(args) ? text_model_open(args, &model, err) : ST_OK;
    if (st == ST_OK) st = trial_tokens_open(model.tokenizer, &tokens, err);
    enum exit_code code = exit_of(st);
    if (st == ST_OK) code = is_check ? check(args, &tokens, err) : bench(args, &tokens, err);
    trial_tokens_close(&tokens);
    text_model_close(&model);
    return code;
}

extern const struct command cmd_grammar;
const struct command cmd_grammar = {
    .name = "grammar",
    .summary = "Compile JSON Schemas to token masks and test instances against them",
    .operands = "check SCHEMA.json | bench DIR",
    .about =
        "check compiles a schema; exit code 0: compiled (and accepted), 1: the instance is "
        "rejected, 65: the schema is refused. With --accepts the instance is read and written "
        "again in canonical form (compact, UTF-8, its own property order) before it is tested. "
        "bench does so for every .json file of a folder: {\"schema\": ..., \"tests\": "
        "[{\"valid\": true, \"data\": ...}]}. Masks are computed for the tokens of the model; "
        "without -m every byte is a token.",
    .groups = {flags},
    .takes_model = true,
    .model_optional = true,
    .model_by_flag = true,
    .operands_max = 2,
    .run = run,
};
