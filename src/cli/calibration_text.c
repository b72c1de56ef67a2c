/* cli/calibration_text.c - see cli/calibration_text.h for the contract. */
#include "cli/calibration_text.h"

#include "base/buf.h"
#include "base/file.h"
#include "cli/cli.h"

enum { TEXT_BYTES_MAX = 1 << 30 };

static enum status read_tokens(const char *path, const struct tokenizer *tokenizer,
                               struct tokens *ids, struct err *err) {
    const struct encode_options options = {.plain_special = true, .add_special = true};
    struct buf text;
    buf_init(&text, TEXT_BYTES_MAX);
    enum status st = file_read(path, &text, err);
    if (st == ST_OK) {
        st = tokenizer_encode(tokenizer, buf_str(&text), options, ids);
        if (st != ST_OK) err_set(err, st, "out of memory for the tokens of the text");
    }
    buf_deinit(&text);
    return st;
}

static enum status count_windows(struct calibration_text *t, uint32_t wanted, const char *path,
                                 struct err *err) {
    uint32_t least = wanted && wanted < CALIBRATE_WINDOWS_MIN ? wanted : CALIBRATE_WINDOWS_MIN;
    size_t there = t->ids.count / t->window_tokens;
    if (there < least)
        return err_set(err, ST_BAD,
                       "quantize: %s has %zu tokens, too few for calibration: %u are wanted at "
                       "least (%u windows of %u), %u are better; use a longer text or a smaller "
                       "--ctx",
                       path, t->ids.count, least * t->window_tokens, least, t->window_tokens,
                       CALIBRATE_WINDOWS_DEFAULT * t->window_tokens);
    uint32_t most = wanted ? wanted : CALIBRATE_WINDOWS_DEFAULT;
    t->windows = there < most ? (uint32_t)there : most;
    return ST_OK;
}

static void begin_windows(const struct calibration_text *t, const struct tokenizer *tokenizer) {
    if (!tokenizer_adds_bos(tokenizer) || tokenizer_bos(tokenizer) == TOKEN_NONE) return;
    for (uint32_t i = 0; i < t->windows; i++)
        t->ids.ids[(size_t)i * t->window_tokens] = tokenizer_bos(tokenizer);
}

enum status calibration_text_read(const struct args *args, const char *path,
                                  const struct tokenizer *tokenizer, struct calibration_text *out,
                                  struct err *err) {
    *out = (struct calibration_text){.window_tokens = (uint32_t)args_int(args, "ctx")};
    enum status st = read_tokens(path, tokenizer, &out->ids, err);
    if (st == ST_OK) st = count_windows(out, (uint32_t)args_int(args, "chunks"), path, err);
    if (st == ST_OK)
        begin_windows(out, tokenizer);
    else
        calibration_text_deinit(out);
    return st;
}

void calibration_text_deinit(struct calibration_text *t) {
    tokens_deinit(&t->ids);
    *t = (struct calibration_text){.windows = 0};
}
