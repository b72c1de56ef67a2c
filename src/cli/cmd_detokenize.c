/* cli/cmd_detokenize.c - `jitney detokenize`: token ids to text. */
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/model_args.h"
#include "text/tokenizer.h"

enum { INPUT_BYTES_MAX = 1 << 30 };

static const struct flag flags[] = {
    {.name = "skip-special", .kind = FLAG_BOOL, .help = "Leave special tokens out of the text."},
    {.name = "null",
     .letter = '0',
     .kind = FLAG_BOOL,
     .help = "Each line of ids is a separate text; print a NUL byte between texts."},
    {0},
};

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* Append the ids in `line`. */
static enum status read_ids(struct str line, uint32_t vocab, struct tokens *out, struct err *err) {
    for (size_t i = 0; i < line.len;) {
        size_t start = i;
        while (i < line.len && !is_blank(line.ptr[i])) i++;
        struct str word = {line.ptr + start, i - start};
        while (i < line.len && is_blank(line.ptr[i])) i++;
        uint64_t id;
        if (word.len == 0) continue;
        if (!str_to_u64(word, &id))
            return err_set(err, ST_BAD, "detokenize: \"%.*s\" is not a token id", STR_ARG(word));
        if (id >= vocab)
            return err_set(err, ST_BAD,
                           "detokenize: token id %.*s is not in the vocabulary (0 to %u)",
                           STR_ARG(word), vocab - 1);
        if (tokens_push(out, (token_id)id) != ST_OK)
            return err_set(err, ST_NOMEM, "detokenize: out of memory");
    }
    return ST_OK;
}

static enum status print_text(const struct tokenizer *t, struct str line, bool skip_special,
                              struct err *err) {
    struct tokens ids = {0};
    struct buf text;
    buf_init(&text, INPUT_BYTES_MAX);
    enum status st = read_ids(line, tokenizer_vocab(t), &ids, err);
    if (st == ST_OK) {
        st = tokenizer_decode(t, ids.ids, ids.count, skip_special, &text);
        if (st != ST_OK) err_set(err, st, "detokenize: out of memory");
    }
    if (st == ST_OK) st = out_write(buf_str(&text), err);
    buf_deinit(&text);
    tokens_deinit(&ids);
    return st;
}

static enum status print_lines(const struct tokenizer *t, struct str input, bool skip_special,
                               struct err *err) {
    if (input.len && input.ptr[input.len - 1] == '\n') input.len--;
    for (;;) {
        const char *end = input.len ? memchr(input.ptr, '\n', input.len) : NULL;
        size_t len = end ? (size_t)(end - input.ptr) : input.len;
        TRY(print_text(t, str_take(input, len), skip_special, err));
        if (!end) return ST_OK;
        TRY(out_write((struct str){"", 1}, err));
        input = str_skip(input, len + 1);
    }
}

static enum exit_code run(const struct args *args, struct err *err) {
    bool skip_special = args_on(args, "skip-special");
    struct text_model model;
    enum status st = text_model_open(args, &model, err);
    if (st != ST_OK) return exit_of(st);
    struct buf input;
    buf_init(&input, INPUT_BYTES_MAX);
    st = file_read("-", &input, err);
    if (st == ST_OK && args_on(args, "null"))
        st = print_lines(model.tokenizer, buf_str(&input), skip_special, err);
    else if (st == ST_OK)
        st = print_text(model.tokenizer, buf_str(&input), skip_special, err);
    buf_deinit(&input);
    text_model_close(&model);
    return exit_of(st);
}

extern const struct command cmd_detokenize;
const struct command cmd_detokenize = {
    .name = "detokenize",
    .summary = "Turn token ids into text",
    .operands = "< IDS",
    .about = "Reads ids separated by blanks or newlines from standard input and prints their text "
             "exactly, without a newline at the end.",
    .groups = {flags},
    .takes_model = true,
    .run = run,
};
