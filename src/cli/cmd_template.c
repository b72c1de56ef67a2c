/* cli/cmd_template.c - `jitney template`: render a chat template. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/model_args.h"
#include "jinja/template.h"
#include "text/tokenizer.h"

enum { SOURCE_BYTES_MAX = 1 << 24, OUTPUT_BYTES_MAX = 1 << 28 };

static const struct flag flags[] = {
    {.name = "file",
     .kind = FLAG_TEXT,
     .value = "T.jinja",
     .help = "Render the template in this file instead of a model's."},
    {0},
};

/* Append the source of the template to `out`. */
static enum status read_source(const struct args *args, bool tools, struct buf *out,
                               struct err *err) {
    const char *file = args_text(args, "file");
    if (file) return file_read(file, out, err);
    struct text_model model;
    TRY(text_model_open(args, &model, err));
    struct str source = tokenizer_chat_template(model.tokenizer, tools);
    enum status st = ST_OK;
    if (source.len == 0)
        st = err_set(err, ST_BAD, "%s has no chat template; give one with --file T.jinja",
                     args_model(args));
    buf_put_str(out, source);
    text_model_close(&model);
    return st;
}

static enum status render(struct str source, const char *name, const struct json *vars,
                          struct err *err) {
    struct template *t = NULL;
    struct buf out;
    buf_init(&out, OUTPUT_BYTES_MAX);
    enum status st = template_create(source, &t, err);
    if (st == ST_OK)
        st = template_render(t, vars, clock_wall_s(), &template_limits_default, &out, err);
    /* A template that exceeds a limit fails every time: not a temporary error. */
    if (st == ST_FULL) st = ST_BAD;
    if (st != ST_OK) err_prefix(err, st, name);
    if (st == ST_OK) st = out_write(buf_str(&out), err);
    template_destroy(t);
    buf_deinit(&out);
    return st;
}

static enum status read_vars(struct buf *text, struct json **out, struct err *err) {
    TRY(file_read("-", text, err));
    enum status st = json_parse(buf_str(text), &json_limits_model_file, out, err);
    if (st != ST_OK) return err_prefix(err, st, "template: standard input");
    if (json_kind(*out) == JS_MAP) return ST_OK;
    json_destroy(*out);
    *out = NULL;
    return err_set(err, ST_BAD, "template: standard input must be a JSON object");
}

static enum exit_code run(const struct args *args, struct err *err) {
    const char *file = args_text(args, "file");
    if (file && args_model(args))
        return usage_set(err, "template: give a model or --file, not both");
    if (!file && !args_model(args))
        return usage_set(err, "template: no template; give -m MODEL or --file T.jinja");
    struct buf text, source;
    struct json *vars = NULL;
    buf_init(&text, SOURCE_BYTES_MAX);
    buf_init(&source, SOURCE_BYTES_MAX);
    enum status st = read_vars(&text, &vars, err);
    if (st == ST_OK) st = read_source(args, json_count(json_get(vars, "tools")) > 0, &source, err);
    if (st == ST_OK) st = render(buf_str(&source), file ? file : args_model(args), vars, err);
    json_destroy(vars);
    buf_deinit(&text);
    buf_deinit(&source);
    return exit_of(st);
}

extern const struct command cmd_template;
const struct command cmd_template = {
    .name = "template",
    .summary = "Render a chat template",
    .operands = "< VARS.json",
    .about = "Reads a JSON object from standard input; its keys are the variables of the template "
             "(messages, tools, add_generation_prompt, bos_token, ...). Prints the result exactly, "
             "without a newline at the end.",
    .groups = {flags},
    .takes_model = true,
    .model_optional = true,
    .run = run,
};
