/* cli/cmd_inspect.c - `jitney inspect`: what a model file holds. */
#include <stdio.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/size_text.h"
#include "cli/cli.h"
#include "cli/model_args.h"
#include "format/model_file.h"
#include "graph/tape.h"
#include "model/arch.h"
#include "model/model.h"
#include "text/tokenizer.h"

enum { REPORT_BYTES_MAX = 1 << 28, GRAPH_ROWS_MAX = 4096, SHOWN_BYTES_MAX = 200 };

static const struct flag flags[] = {
    {.name = "json", .kind = FLAG_BOOL, .help = "Print one JSON object."},
    {.name = "tensors", .kind = FLAG_BOOL, .help = "List the tensors, too."},
    {.name = "meta", .kind = FLAG_BOOL, .help = "List the metadata of the file, too."},
    {.name = "graph",
     .kind = FLAG_BOOL,
     .help = "Print the forward pass instead: every op with its shapes, bytes and flops."},
    {.name = "svg",
     .kind = FLAG_TEXT,
     .value = "FILE",
     .help = "With --graph: also write it to FILE as a picture."},
    {.name = "rows",
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "1",
     .min = 1,
     .max = GRAPH_ROWS_MAX,
     .help = "With --graph: number of tokens in the step."},
    {.name = "ctx",
     .letter = 'c',
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "512",
     .min = 1,
     .max = 1 << 24,
     .help = "With --graph: number of tokens that attention reads."},
    {0},
};

/* A model as far as it can be read; the errors say what cannot. */
struct subject {
    struct model_file *file;
    struct model *model;         /* NULL: see model_err */
    struct tokenizer *tokenizer; /* NULL: see tokenizer_err */
    enum status model_status;
    struct err model_err, tokenizer_err;
    uint64_t tensor_bytes;
    struct {
        uint64_t tensors, bytes;
    } types[DTYPE_COUNT];
};

static enum status open_subject(const struct args *args, struct subject *s, struct err *err) {
    char path[MODEL_PATH_BYTES];
    *s = (struct subject){0};
    TRY(model_args_path(args, path, err));
    TRY(model_file_open(path, &s->file, err));
    const struct model_options options = {.ctx_tokens = 0};
    s->model_status = model_open(s->file, &options, &s->model, &s->model_err);
    tokenizer_create(s->file, &s->tokenizer, &s->tokenizer_err); /* stays NULL if it fails */
    for (size_t i = 0; i < tensor_count(s->file); i++) {
        const struct tensor_info *t = tensor_at(s->file, i);
        s->types[t->type].tensors++;
        s->types[t->type].bytes += t->bytes;
        s->tensor_bytes += t->bytes;
    }
    return ST_OK;
}

static void close_subject(struct subject *s) {
    tokenizer_destroy(s->tokenizer);
    model_close(s->model);
    model_file_close(s->file);
}

static const char *format_name(const struct subject *s) {
    return model_file_kind(s->file) == MODEL_GGUF ? "gguf" : "folder";
}

/* The name of the architecture in the file, supported or not. */
static struct str arch_name(const struct subject *s) {
    struct str name = {0};
    bool found = false;
    const char *key =
        model_file_kind(s->file) == MODEL_GGUF ? "general.architecture" : "model_type";
    if (s->model) return str_of(s->model->arch->name);
    if (meta_str(s->file, key, &found, &name, NULL) != ST_OK || !found) return STR("unknown");
    return name;
}

static struct str own_name(const struct subject *s) {
    struct str name = {0};
    bool found = false;
    const char *key = model_file_kind(s->file) == MODEL_GGUF ? "general.name" : "_name_or_path";
    if (meta_str(s->file, key, &found, &name, NULL) != ST_OK || !found) return STR("");
    return name;
}

static bool has_template(const struct subject *s) {
    return s->tokenizer && tokenizer_chat_template(s->tokenizer, false).len > 0;
}

/* "134.5 M" */
static void put_count(struct buf *out, uint64_t count) {
    if (count >= 1000000000)
        buf_printf(out, "%.2f billion", (double)count / 1e9);
    else
        buf_printf(out, "%.1f million", (double)count / 1e6);
}

static void put_types(const struct subject *s, struct buf *out) {
    char size[SIZE_TEXT_BYTES];
    bool first = true;
    for (int t = 0; t < DTYPE_COUNT; t++) {
        if (s->types[t].tensors == 0) continue;
        buf_printf(out, "%s%llu %s (%s)", first ? "" : ", ",
                   (unsigned long long)s->types[t].tensors, dtype_info((enum dtype)t)->name,
                   size_text(s->types[t].bytes, size));
        first = false;
    }
    if (first) buf_put_text(out, "none");
}

static void put_shape(const struct hparams *hp, struct buf *out) {
    buf_printf(out,
               "shape         %u layers, width %u, %u heads (%u for keys and values) of %u, "
               "feed-forward %u\n",
               hp->layers, hp->dim, hp->heads, hp->kv_heads, hp->head_dim, hp->ffn);
    if (hp->experts)
        buf_printf(out, "experts       %u, %u used, width %u\n", hp->experts, hp->experts_used,
                   hp->expert_ffn);
    if (hp->window) buf_printf(out, "window        %u tokens\n", hp->window);
    buf_printf(out, "context       %u tokens\n", hp->ctx_train);
    buf_printf(out, "vocabulary    %u\n", hp->vocab);
}

static void put_tensors(const struct subject *s, struct buf *out) {
    buf_put_text(out, "\n");
    for (size_t i = 0; i < tensor_count(s->file); i++) {
        const struct tensor_info *t = tensor_at(s->file, i);
        buf_printf(out, "%-7s ", dtype_info(t->type)->name);
        for (uint32_t d = 0; d < t->dim_count; d++)
            buf_printf(out, d ? " x %llu" : "%llu", (unsigned long long)t->dims[d]);
        buf_printf(out, "  %.*s\n", STR_ARG(t->name));
    }
}

static void put_meta(const struct subject *s, struct buf *out) {
    buf_put_text(out, "\n");
    for (size_t i = 0; i < meta_count(s->file); i++) {
        buf_printf(out, "%.*s = ", STR_ARG(meta_key(s->file, i)));
        meta_put_value(s->file, i, out);
        buf_put_char(out, '\n');
    }
}

/* Metadata may contain control sequences for terminals. */
static void put_plain_row(struct buf *out, const char *title, struct str value) {
    buf_put_text(out, title);
    buf_put_plain(out, str_take(value, SHOWN_BYTES_MAX));
    buf_put_char(out, '\n');
}

static void put_summary(const struct subject *s, struct buf *out) {
    char size[SIZE_TEXT_BYTES];
    buf_printf(out, "file          %s (%s)\n", model_file_path(s->file), format_name(s));
    if (own_name(s).len) put_plain_row(out, "name          ", own_name(s));
    put_plain_row(out, "architecture  ", arch_name(s));
    if (s->model) {
        buf_put_text(out, "parameters    ");
        put_count(out, model_param_count(s->model));
        buf_put_char(out, '\n');
        put_shape(&s->model->hp, out);
    }
    buf_printf(out, "weights       %s: ", size_text(s->tensor_bytes, size));
    put_types(s, out);
    buf_put_char(out, '\n');
    if (s->tokenizer)
        buf_printf(out, "tokenizer     %s, %u tokens\n", tokenizer_model(s->tokenizer),
                   tokenizer_vocab(s->tokenizer));
    buf_printf(out, "chat          %s\n", has_template(s) ? "has a template" : "no template");
    if (!s->model) buf_printf(out, "does not run  %s\n", s->model_err.text);
    if (!s->tokenizer) buf_printf(out, "no tokenizer  %s\n", s->tokenizer_err.text);
}

static void put_json_text(struct buf *out, const char *key, struct str value) {
    buf_printf(out, ",\"%s\":", key);
    buf_put_json_string(out, value);
}

static void put_json_shape(const struct model *m, struct buf *out) {
    const struct hparams *hp = &m->hp;
    buf_printf(out, ",\"parameters\":%llu", (unsigned long long)model_param_count(m));
    const struct {
        const char *key;
        uint32_t value;
    } rows[] = {
        {"layers", hp->layers},       {"width", hp->dim},
        {"heads", hp->heads},         {"kv_heads", hp->kv_heads},
        {"head_width", hp->head_dim}, {"feed_forward", hp->ffn},
        {"experts", hp->experts},     {"experts_used", hp->experts_used},
        {"window", hp->window},       {"context", hp->ctx_train},
        {"vocabulary", hp->vocab},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        buf_printf(out, ",\"%s\":%u", rows[i].key, rows[i].value);
}

static void put_json_types(const struct subject *s, struct buf *out) {
    bool first = true;
    buf_put_text(out, ",\"types\":{");
    for (int t = 0; t < DTYPE_COUNT; t++) {
        if (s->types[t].tensors == 0) continue;
        buf_printf(out, "%s\"%s\":{\"tensors\":%llu,\"bytes\":%llu}", first ? "" : ",",
                   dtype_info((enum dtype)t)->name, (unsigned long long)s->types[t].tensors,
                   (unsigned long long)s->types[t].bytes);
        first = false;
    }
    buf_put_char(out, '}');
}

static void put_json_tensors(const struct subject *s, struct buf *out) {
    buf_put_text(out, ",\"tensors\":[");
    for (size_t i = 0; i < tensor_count(s->file); i++) {
        const struct tensor_info *t = tensor_at(s->file, i);
        buf_put_text(out, i ? ",\n{\"name\":" : "\n{\"name\":");
        buf_put_json_string(out, t->name);
        buf_printf(out, ",\"type\":\"%s\",\"shape\":[", dtype_info(t->type)->name);
        for (uint32_t d = 0; d < t->dim_count; d++)
            buf_printf(out, d ? ",%llu" : "%llu", (unsigned long long)t->dims[d]);
        buf_printf(out, "],\"bytes\":%zu}", t->bytes);
    }
    buf_put_char(out, ']');
}

static void put_json_meta(const struct subject *s, struct buf *out) {
    struct buf value;
    buf_init(&value, 1 << 20);
    buf_put_text(out, ",\"meta\":{");
    for (size_t i = 0; i < meta_count(s->file); i++) {
        buf_clear(&value);
        meta_put_value(s->file, i, &value);
        if (i) buf_put_char(out, ',');
        buf_put_json_string(out, meta_key(s->file, i));
        buf_put_char(out, ':');
        buf_put_json_string(out, buf_str(&value));
    }
    buf_put_char(out, '}');
    buf_deinit(&value);
}

static void put_json(const struct subject *s, const struct args *args, struct buf *out) {
    buf_put_text(out, "{\"path\":");
    buf_put_json_string(out, str_of(model_file_path(s->file)));
    put_json_text(out, "format", str_of(format_name(s)));
    put_json_text(out, "name", own_name(s));
    put_json_text(out, "architecture", arch_name(s));
    if (s->model) put_json_shape(s->model, out);
    buf_printf(out, ",\"bytes\":%llu,\"tensor_count\":%zu", (unsigned long long)s->tensor_bytes,
               tensor_count(s->file));
    put_json_types(s, out);
    if (s->tokenizer)
        buf_printf(out, ",\"tokenizer\":{\"model\":\"%s\",\"tokens\":%u,\"bos\":%d,\"eos\":%d}",
                   tokenizer_model(s->tokenizer), tokenizer_vocab(s->tokenizer),
                   tokenizer_bos(s->tokenizer), tokenizer_eos(s->tokenizer));
    buf_printf(out, ",\"chat_template\":%s,\"runs\":%s", has_template(s) ? "true" : "false",
               s->model && s->tokenizer ? "true" : "false");
    if (!s->model) put_json_text(out, "problem", str_of(s->model_err.text));
    if (s->model && !s->tokenizer) put_json_text(out, "problem", str_of(s->tokenizer_err.text));
    if (args_on(args, "tensors")) put_json_tensors(s, out);
    if (args_on(args, "meta")) put_json_meta(s, out);
    buf_put_text(out, "}\n");
}

static enum status build_tape(const struct subject *s, uint32_t rows, struct tape **out,
                              struct err *err) {
    const struct tape_sizes sizes = {rows, rows, 1};
    TRY(tape_create(out) == ST_OK ? ST_OK : err_set(err, ST_NOMEM, "out of memory"));
    model_build(s->model, model_is_encoder(s->model) ? GOAL_POOLED : GOAL_LOGITS, *out);
    return tape_finish(*out, &sizes, err);
}

static enum status put_graph(const struct subject *s, const struct args *args, struct buf *out,
                             struct err *err) {
    if (!s->model) return err_set(err, s->model_status, "%s", s->model_err.text);
    uint32_t rows = (uint32_t)args_int(args, "rows"), ctx = (uint32_t)args_int(args, "ctx");
    struct tape *tape = NULL;
    enum status st = build_tape(s, rows, &tape, err);
    if (st == ST_OK) tape_dump(tape, rows, ctx, out);
    if (st == ST_OK && args_text(args, "svg")) {
        struct buf svg;
        buf_init(&svg, REPORT_BYTES_MAX);
        tape_svg(tape, args_model(args), rows, ctx, &svg);
        st = buf_status(&svg) == ST_OK
                 ? file_write_atomic(args_text(args, "svg"), buf_str(&svg), err)
                 : err_set(err, ST_NOMEM, "out of memory for the picture");
        buf_deinit(&svg);
    }
    tape_destroy(tape);
    return st;
}

static enum status report(const struct subject *s, const struct args *args, struct buf *out,
                          struct err *err) {
    if (args_on(args, "graph")) {
        TRY(put_graph(s, args, out, err));
    } else if (args_on(args, "json")) {
        put_json(s, args, out);
    } else {
        put_summary(s, out);
        if (args_on(args, "tensors")) put_tensors(s, out);
        if (args_on(args, "meta")) put_meta(s, out);
    }
    if (buf_status(out) != ST_OK) return err_set(err, ST_NOMEM, "out of memory for the report");
    return out_write(buf_str(out), err);
}

static enum exit_code run(const struct args *args, struct err *err) {
    if (args_text(args, "svg") && !args_on(args, "graph"))
        return usage_set(err, "inspect: --svg needs --graph");
    struct subject s;
    struct buf out;
    buf_init(&out, REPORT_BYTES_MAX);
    enum status st = open_subject(args, &s, err);
    if (st == ST_OK) st = report(&s, args, &out, err);
    close_subject(&s);
    buf_deinit(&out);
    return exit_of(st);
}

extern const struct command cmd_inspect;
const struct command cmd_inspect = {
    .name = "inspect",
    .summary = "Show the contents of a model file",
    .operands = "",
    .about = "Prints a summary: architecture, parameters, number formats, context, vocabulary, "
             "tokenizer, chat template. No weights are loaded, so it is fast for a model of any "
             "size. If the model cannot be run, the summary says why.",
    .groups = {flags},
    .takes_model = true,
    .run = run,
};
