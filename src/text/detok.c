/* text/detok.c - ids to text, one id at a time.
 *
 * A decoder is a list of stages. Each takes tokens (texts) and hands tokens to the next; what
 * it must remember between two tokens lives in struct detok. Decoding a whole list is pushing
 * its ids one by one, so a stream and a whole always agree.
 *
 * After FUSE (and in BYTE_LEVEL) there is only one token, the whole text, of which chunks
 * arrive; decoder_check has refused the few chains that would need to see all of it at once.
 */
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "text/text_int.h"

struct decoding {
    struct detok *d;
    const struct decoder_chain *c;
    struct buf *out;
    bool last; /* no token follows */
    bool raw;  /* bytes as they are, without the rules for the text as a whole */
    enum status status;
};

#define REPLACEMENT "\xEF\xBF\xBD"

static bool first_time(struct decoding *g, uint32_t stage) {
    bool first = !(g->d->seen >> stage & 1);
    g->d->seen |= 1u << stage;
    return first;
}

/* Bytes that may be cut inside a character: held until the rest comes. */
static void emit_bytes(struct decoding *g, struct str bytes) {
    struct detok *d = g->d;
    if (g->raw) {
        buf_put_str(g->out, bytes);
        return;
    }
    for (size_t i = 0; i < bytes.len;) {
        if (d->held_len == 0) {
            size_t whole = utf8_complete_len(str_skip(bytes, i));
            utf8_put_lossy(g->out, str_take(str_skip(bytes, i), whole));
            i += whole;
            if (i == bytes.len) return;
        }
        CHECK(d->held_len < DETOK_RUN_BYTES);
        d->held[d->held_len++] = bytes.ptr[i++];
        struct str held = {d->held, d->held_len};
        size_t whole = utf8_complete_len(held);
        if (whole == 0) continue;
        utf8_put_lossy(g->out, str_take(held, whole));
        memmove(d->held, d->held + whole, held.len - whole);
        d->held_len = (uint8_t)(held.len - whole);
    }
}

static void run_stage(struct decoding *g, uint32_t stage, struct str token);

/* Removes the marks that are at the front of the whole text; the chunk may be the first of it. */
static struct str strip_chunk(struct decoding *g, const struct decoder_stage *s, struct str chunk) {
    char mark[4];
    struct str one = {mark, utf8_encode(s->code, mark)};
    while (chunk.len && g->d->stripped < s->start) {
        if (!str_starts(chunk, one)) {
            g->d->stripped = UINT32_MAX;
            break;
        }
        chunk = str_skip(chunk, one.len);
        g->d->stripped++;
    }
    return chunk;
}

/* A run of byte tokens has ended: its text, or one U+FFFD for each byte. */
static void end_run(struct decoding *g, uint32_t stage) {
    struct detok *d = g->d;
    if (d->held_len == 0) return;
    char held[DETOK_RUN_BYTES];
    struct str run = {held, d->held_len};
    memcpy(held, d->held, run.len);
    d->held_len = 0;
    if (utf8_is_valid(run)) {
        run_stage(g, stage + 1, run);
        return;
    }
    for (size_t i = 0; i < run.len; i++) run_stage(g, stage + 1, STR(REPLACEMENT));
}

static bool is_hopeless(struct str run) {
    size_t whole = utf8_complete_len(run);
    return !utf8_is_valid(str_take(run, whole));
}

static void add_to_run(struct decoding *g, uint32_t stage, uint8_t byte) {
    struct detok *d = g->d;
    if (d->bad_run) {
        run_stage(g, stage + 1, STR(REPLACEMENT));
        return;
    }
    d->held[d->held_len++] = (char)byte;
    struct str run = {d->held, d->held_len};
    if (is_hopeless(run)) {
        d->bad_run = true;
        end_run(g, stage);
    } else if (d->held_len == DETOK_RUN_BYTES) { /* what is whole so far is decided */
        size_t whole = utf8_complete_len(run), rest = run.len - whole;
        char tail[4];
        memcpy(tail, d->held + whole, rest);
        d->held_len = (uint8_t)whole;
        end_run(g, stage);
        memcpy(d->held, tail, rest);
        d->held_len = (uint8_t)rest;
    }
}

static void stage_byte_fallback(struct decoding *g, uint32_t stage, struct str token) {
    int byte = byte_of_spelling(token);
    if (byte >= 0 && g->raw) {
        buf_put_char(g->out, (char)byte);
        return;
    }
    if (byte >= 0) {
        add_to_run(g, stage, (uint8_t)byte);
        return;
    }
    end_run(g, stage);
    g->d->bad_run = false;
    run_stage(g, stage + 1, token);
}

/* Whether stages from here on see chunks of one text and not tokens. */
static bool is_fused(const struct decoder_chain *c, uint32_t stage) {
    for (uint32_t i = 0; i < stage; i++)
        if (c->stages[i].kind == DECODER_FUSE) return true;
    return false;
}

static void transform(struct decoding *g, uint32_t stage, struct str token, struct buf *b) {
    const struct decoder_stage *s = &g->c->stages[stage];
    enum status st = decoder_apply(s, token, first_time(g, stage), g->last, b);
    if (st != ST_OK) g->status = st;
    if (s->kind == DECODER_CTC && b->len == 0) return;
    if (s->kind == DECODER_BYTE_LEVEL)
        emit_bytes(g, buf_str(b));
    else
        run_stage(g, stage + 1, buf_str(b));
}

/* Recursion is as deep as there are stages: DECODER_STAGES_MAX at most. */
static void run_stage(struct decoding *g, uint32_t stage, struct str token) {
    if (stage == g->c->count) {
        buf_put_str(g->out, token);
        return;
    }
    const struct decoder_stage *s = &g->c->stages[stage];
    if (s->kind == DECODER_FUSE) {
        run_stage(g, stage + 1, token);
    } else if (s->kind == DECODER_BYTE_FALLBACK) {
        stage_byte_fallback(g, stage, token);
    } else if (s->kind == DECODER_STRIP && is_fused(g->c, stage)) {
        run_stage(g, stage + 1, strip_chunk(g, s, token));
    } else {
        struct buf b;
        buf_init(&b, TEXT_BYTES_MAX);
        transform(g, stage, token, &b);
        buf_deinit(&b);
    }
}

/* BPEDecoder treats the last token differently, and CTC drops a repeated one. */
static bool waits(const struct decoder_chain *c) {
    return c->count && c->stages[0].kind == DECODER_BPE;
}

static bool repeats(const struct decoder_chain *c, struct detok *d, token_id id) {
    if (!c->count || c->stages[0].kind != DECODER_CTC) return false;
    bool same = d->has_pending && d->pending == id;
    d->has_pending = true;
    d->pending = id;
    return same;
}

static struct str text_of(const struct vocab *v, token_id id) {
    return v->shown && v->shown[id].ptr ? v->shown[id] : v->pieces[id];
}

enum status detok_push(struct detok *d, const struct tokenizer *t, token_id id, bool skip_special,
                       struct buf *out) {
    d->t = t;
    if (id < 0 || (uint32_t)id >= t->vocab.count || !t->vocab.pieces[id].ptr) return ST_OK;
    if (skip_special && (t->flags[id] & TOKEN_SPECIAL)) return ST_OK;
    struct decoding g = {.d = d, .c = &t->decoder, .out = out};
    if (repeats(g.c, d, id)) return ST_OK;
    if (waits(g.c)) {
        token_id before = d->pending;
        bool had = d->has_pending;
        d->pending = id;
        d->has_pending = true;
        if (had) run_stage(&g, 0, text_of(&t->vocab, before));
    } else {
        run_stage(&g, 0, text_of(&t->vocab, id));
    }
    return g.status != ST_OK ? g.status : buf_status(out);
}

void detok_finish(struct detok *d, struct buf *out) {
    if (!d->t) return;
    struct decoding g = {.d = d, .c = &d->t->decoder, .out = out, .last = true};
    if (waits(g.c) && d->has_pending) run_stage(&g, 0, text_of(&d->t->vocab, d->pending));
    bool bytes = false;
    for (uint32_t i = 0; i < g.c->count; i++) {
        if (g.c->stages[i].kind == DECODER_BYTE_FALLBACK) end_run(&g, i);
        if (g.c->stages[i].kind == DECODER_BYTE_LEVEL) bytes = true;
    }
    if (bytes) utf8_put_lossy(out, (struct str){d->held, d->held_len});
    if (g.status != ST_OK) out->status = g.status; /* the caller checks its buffer */
    *d = (struct detok){0};
}

enum status tokenizer_decode(const struct tokenizer *t, const token_id *ids, size_t count,
                             bool skip_special, struct buf *out) {
    struct detok d = {0};
    for (size_t i = 0; i < count; i++) TRY(detok_push(&d, t, ids[i], skip_special, out));
    detok_finish(&d, out);
    return buf_status(out);
}

enum status tokenizer_token_bytes(const struct tokenizer *t, token_id id, struct buf *out) {
    if (id < 0 || (uint32_t)id >= t->vocab.count || !t->vocab.pieces[id].ptr) return ST_OK;
    /* As if text had been decoded before it, so that nothing is taken off its front. */
    struct detok d = {.t = t, .seen = UINT32_MAX, .stripped = UINT32_MAX};
    struct decoding g = {.d = &d, .c = &t->decoder, .out = out, .raw = true};
    run_stage(&g, 0, text_of(&t->vocab, id));
    return g.status != ST_OK ? g.status : buf_status(out);
}
