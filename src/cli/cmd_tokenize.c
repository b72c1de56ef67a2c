/* cli/cmd_tokenize.c - `jitney tokenize`: text to token ids. */
#include "base/buf.h"
#include "cli/cli.h"
#include "cli/model_args.h"
#include "cli/stdin_texts.h"
#include "text/tokenizer.h"

enum { LINE_BYTES_MAX = 1 << 30 };

static const struct flag flags[] = {
    {.name = "no-special",
     .kind = FLAG_BOOL,
     .help = "Treat the text of special tokens as plain text."},
    {.name = "add-special",
     .kind = FLAG_BOOL,
     .help = "Add the special tokens that the model puts around a text, such as BOS."},
    {.name = "null",
     .letter = '0',
     .kind = FLAG_BOOL,
     .help = "The input is several texts, separated by NUL bytes; print one line for each."},
    {0},
};

static enum status put_ids(const struct tokens *ids, struct buf *line, struct err *err) {
    buf_clear(line);
    for (size_t i = 0; i < ids->count; i++) buf_printf(line, i ? " %d" : "%d", ids->ids[i]);
    buf_put_char(line, '\n');
    if (buf_status(line) != ST_OK) return err_set(err, buf_status(line), "tokenize: out of memory");
    return out_write(buf_str(line), err);
}

static enum status tokenize_all(const struct tokenizer *t, struct encode_options options,
                                struct stdin_texts *texts, struct err *err) {
    struct tokens ids = {0};
    struct buf line;
    buf_init(&line, LINE_BYTES_MAX);
    enum status st = ST_OK;
    struct str text;
    while (st == ST_OK && stdin_texts_next(texts, &text)) {
        ids.count = 0;
        st = tokenizer_encode(t, text, options, &ids);
        if (st != ST_OK) err_set(err, st, "tokenize: out of memory");
        if (st == ST_OK) st = put_ids(&ids, &line, err);
    }
    buf_deinit(&line);
    tokens_deinit(&ids);
    return st;
}

static enum exit_code run(const struct args *args, struct err *err) {
    const struct encode_options options = {
        .plain_special = args_on(args, "no-special"),
        .add_special = args_on(args, "add-special"),
    };
    struct text_model model;
    struct stdin_texts texts;
    enum status st = text_model_open(args, &model, err);
    if (st != ST_OK) return exit_of(st);
    st = stdin_texts_read(&texts, args_on(args, "null"), err);
    if (st == ST_OK) {
        st = tokenize_all(model.tokenizer, options, &texts, err);
        stdin_texts_deinit(&texts);
    }
    text_model_close(&model);
    return exit_of(st);
}

extern const struct command cmd_tokenize;
const struct command cmd_tokenize = {
    .name = "tokenize",
    .summary = "Turn text into token ids",
    .operands = "< TEXT",
    .about =
        "Reads standard input to its end (a final newline is part of the text) and prints the "
        "token ids on one line, separated by blanks. Bytes that are not UTF-8 count as U+FFFD.",
    .groups = {flags},
    .takes_model = true,
    .run = run,
};
