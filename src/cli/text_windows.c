/* cli/text_windows.c - see cli/text_windows.h for the contract. */
#include "cli/text_windows.h"

#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "cli/cli.h"
#include "format/model_file.h"

enum { TEXT_BYTES_MAX = 1 << 30 };

const struct flag flags_text[] = {
    {.name = "file",
     .letter = 'f',
     .kind = FLAG_TEXT,
     .value = "FILE",
     .help = "The text; \"-\" reads standard input."},
    {.name = "ctx",
     .letter = 'c',
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "512",
     .min = 8,
     .max = 1 << 20,
     .help = "Tokens in a window: the text is cut into windows that do not overlap."},
    {.name = "chunks",
     .kind = FLAG_INT,
     .value = "N",
     .fallback = "0",
     .min = 0,
     .max = 1 << 30,
     .help = "Use only the first N windows; 0: all (--calibrate: 64)."},
    {0},
};

/* A text that is wanted. */
struct wanted {
    const char *path;
    uint32_t least, most; /* windows */
    const char *purpose;  /* of the text, in messages */
};

static enum status read_tokens(const char *path, const struct tokenizer *tokenizer,
                               struct tokens *ids, struct err *err) {
    const struct encode_options options = {.plain_special = true, .add_special = true};
    struct buf text;
    if (file_is_dir(path)) return err_set(err, ST_BAD, "%s: is a folder, expected a text", path);
    buf_init(&text, TEXT_BYTES_MAX);
    enum status st = file_read(path, &text, err);
    if (st == ST_OK) {
        st = tokenizer_encode(tokenizer, buf_str(&text), options, ids);
        if (st != ST_OK) err_set(err, st, "%s: out of memory for the tokens", path);
    }
    buf_deinit(&text);
    return st;
}

static enum status count_windows(struct text_windows *t, const struct wanted *w, struct err *err) {
    size_t there = t->ids.count / t->window_tokens;
    unsigned long long needed = (unsigned long long)w->least * t->window_tokens;
    if (there < w->least)
        return err_set(err, ST_BAD,
                       "%s: has %zu tokens, too few for %s: at least %llu are needed (%u %s of "
                       "%u); use a longer text or a smaller --ctx",
                       strcmp(w->path, "-") == 0 ? "standard input" : w->path, t->ids.count,
                       w->purpose, needed, w->least, w->least == 1 ? "window" : "windows",
                       t->window_tokens);
    t->windows = there < w->most ? (uint32_t)there : w->most;
    return ST_OK;
}

static void begin_windows(const struct text_windows *t, const struct tokenizer *tokenizer) {
    if (!tokenizer_adds_bos(tokenizer) || tokenizer_bos(tokenizer) == TOKEN_NONE) return;
    for (uint32_t i = 0; i < t->windows; i++)
        t->ids.ids[(size_t)i * t->window_tokens] = tokenizer_bos(tokenizer);
}

static enum status read_windows(const struct args *args, const struct wanted *w,
                                const char *model_path, struct text_windows *out, struct err *err) {
    struct model_file *f;
    struct tokenizer *tokenizer = NULL;
    *out = (struct text_windows){.window_tokens = (uint32_t)args_int(args, "ctx")};
    TRY(model_file_open(model_path, &f, err));
    enum status st = tokenizer_create(f, &tokenizer, err);
    if (st == ST_OK) st = read_tokens(w->path, tokenizer, &out->ids, err);
    if (st == ST_OK) st = count_windows(out, w, err);
    if (st == ST_OK)
        begin_windows(out, tokenizer);
    else
        text_windows_deinit(out);
    tokenizer_destroy(tokenizer);
    model_file_close(f);
    return st;
}

enum status text_windows_read(const struct args *args, const char *path, const char *model_path,
                              struct text_windows *out, struct err *err) {
    uint32_t chunks = (uint32_t)args_int(args, "chunks");
    const struct wanted w = {
        .path = path, .least = 1, .most = chunks ? chunks : INT32_MAX, .purpose = "a window"};
    return read_windows(args, &w, model_path, out, err);
}

enum status text_windows_read_calibration(const struct args *args, const char *path,
                                          const char *model_path, struct text_windows *out,
                                          struct err *err) {
    uint32_t chunks = (uint32_t)args_int(args, "chunks");
    const struct wanted w = {
        .path = path,
        .least = chunks && chunks < CALIBRATE_WINDOWS_MIN ? chunks : CALIBRATE_WINDOWS_MIN,
        .most = chunks ? chunks : CALIBRATE_WINDOWS_DEFAULT,
        .purpose = "calibration"};
    return read_windows(args, &w, model_path, out, err);
}

void text_windows_deinit(struct text_windows *t) {
    tokens_deinit(&t->ids);
    *t = (struct text_windows){0};
}
