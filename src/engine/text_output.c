/* engine/text_output.c - see engine/text_output.h for the contract. */
#include "engine/text_output.h"

#include <string.h>

enum { PIECE_BYTES_MAX = 1 << 20 };

void text_output_init(struct text_output *o, const struct text_output_options *options) {
    *o = (struct text_output){.options = *options};
    buf_init(&o->piece, PIECE_BYTES_MAX);
    buf_init(&o->held, PIECE_BYTES_MAX);
}

void text_output_deinit(struct text_output *o) {
    buf_deinit(&o->piece);
    buf_deinit(&o->held);
}

/* --- which tokens have text ------------------------------------------------------------- */

static bool is_stop_token(const struct text_output_options *p, int32_t token) {
    for (uint32_t i = 0; i < p->stop_token_count; i++)
        if (p->stop_tokens[i] == token) return true;
    return false;
}

/* The token that ends the answer is not part of its text. */
static bool is_left_out(const struct text_output *o, int32_t token) {
    const struct text_output_options *p = &o->options;
    if (is_stop_token(p, token)) return !p->include_stop && o->token_count > p->min_tokens;
    if (p->keep_special || p->ignore_end) return false;
    return tokenizer_is_end(p->tokenizer, token);
}

static bool is_hidden(const struct text_output_options *p, int32_t token) {
    if (p->keep_special || !tokenizer_is_special(p->tokenizer, token)) return false;
    return !p->shows_special || !p->shows_special(p->ctx, token);
}

/* --- stop strings ----------------------------------------------------------------------- */

/* Where the earliest stop string begins in `text`, and which; text.len: there is none. */
static size_t find_stop(const struct text_output_options *p, struct str text, struct str *stop) {
    for (size_t at = 0; at < text.len; at++)
        for (uint32_t i = 0; i < p->stop_count; i++) {
            if (p->stops[i].len == 0 || !str_starts(str_skip(text, at), p->stops[i])) continue;
            *stop = p->stops[i];
            return at;
        }
    return text.len;
}

/* Where the longest ending of `text` begins that a stop string could continue. */
static size_t find_beginning(const struct text_output_options *p, struct str text) {
    for (size_t at = 0; at < text.len; at++)
        for (uint32_t i = 0; i < p->stop_count; i++)
            if (str_starts(p->stops[i], str_skip(text, at))) return at;
    return text.len;
}

static void note_status(struct buf *out, enum status st) {
    if (out->status == ST_OK) out->status = st;
}

static bool must_check_stops(const struct text_output *o) {
    return o->options.stop_count > 0 && o->token_count > o->options.min_tokens;
}

/* Appends o->piece to `out` as far as no stop string can begin in it. */
static void check_stops(struct text_output *o, struct buf *out) {
    if (o->piece.len == 0) return;
    buf_put_str(&o->held, buf_str(&o->piece));
    buf_clear(&o->piece);
    note_status(out, buf_status(&o->held));
    struct str text = buf_str(&o->held);
    size_t stop = find_stop(&o->options, text, &o->stop);
    o->has_stopped = stop < text.len;
    size_t shown = o->has_stopped ? stop : find_beginning(&o->options, text);
    buf_put(out, text.ptr, shown);
    if (o->has_stopped && o->options.include_stop) buf_put_str(out, o->stop);
    size_t rest = o->has_stopped ? 0 : text.len - shown;
    if (rest) memmove(o->held.ptr, o->held.ptr + shown, rest);
    o->held.len = rest;
}

/* --- tokens in, text out ---------------------------------------------------------------- */

bool text_output_push(struct text_output *o, int32_t token, struct buf *out) {
    const struct text_output_options *p = &o->options;
    if (o->has_stopped) return true;
    o->token_count++;
    if (is_left_out(o, token)) return false;
    bool is_checked = must_check_stops(o);
    note_status(out, detok_push(&o->detok, p->tokenizer, token, is_hidden(p, token),
                                is_checked ? &o->piece : out));
    if (is_checked) check_stops(o, out);
    return o->has_stopped;
}

enum finish_reason text_output_finish(struct text_output *o, enum finish_reason reason,
                                      struct buf *out) {
    bool is_checked = must_check_stops(o);
    if (o->has_stopped) return FINISH_STOP;
    detok_finish(&o->detok, is_checked ? &o->piece : out);
    note_status(out, buf_status(&o->piece));
    if (is_checked) check_stops(o, out);
    if (o->has_stopped) return FINISH_STOP;
    buf_put_str(out, buf_str(&o->held));
    buf_clear(&o->held);
    return reason;
}
