/* sample/proc_grammar.c - forbids the tokens that a grammar does not allow next.
 *
 * The matcher follows the answer's bytes. Accepting a token only notes it. The work is done by
 * `settle`: it follows the noted tokens, finds the text that the grammar forces, and makes the mask
 * of the place. Work that is not quick can be left to another thread in this way; until it is
 * settled nobody else may use the sampler. What is asked of it before is settled on the spot.
 *
 * Special tokens have bytes of their own (grammar/grammar.h): where one is forced it is that token,
 * and the text before it keeps its tokens, because nothing is joined across a special token.
 *
 * An end token is allowed only where the text is complete, also if the grammar names it. The token
 * before must be known: a sequence with a grammar is never described while a token is pending.
 */
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "grammar/grammar.h"
#include "sample/logit_proc.h"
#include "sample/sampler.h"
#include "text/tokenizer.h"

enum { FORCED_BYTES_MAX = 512, NOTED_MAX = 8 };

/* is_dead: the text has ended, or the matcher has failed (at.status). Nothing can follow. */
struct position {
    struct matcher at;
    bool is_dead, is_complete, is_over; /* is_over: it is complete, and nothing can follow */
};

struct follower {
    const struct vocabulary *vocabulary;
    const struct tokenizer *tokenizer; /* NULL: no text is forced */
    struct position now;
    bool in_answer;
    bool has_begun;       /* `now` knows whether it is at an end */
    uint32_t noted_count; /* tokens that were accepted and not followed yet */
    int32_t noted[NOTED_MAX];
    /* The text that is forced behind the last noted token, as tokens: found, followed and accepted
     * so many of them. */
    bool seeks_forced;
    uint32_t forced_count, forced_followed, forced_accepted;
    int32_t forced[SAMPLE_FORCED_MAX];
    bool has_mask;
    uint64_t *deny; /* [vocabulary_words] of `now`, if has_mask */
    /* Before the last tokens, a ring by `followed`: rollback can go back to past_count of them. An
     * entry that is not in use is zeroed. */
    uint32_t past_max, past_count;
    struct position *past;
    uint64_t followed;
    uint32_t end_count;
    int32_t ends[];
};

static void free_follower(struct follower *f) {
    if (!f) return;
    mem_free(f->deny);
    mem_free(f->past);
    mem_free(f);
}

static struct follower *create_with(const struct vocabulary *v, const int32_t *ends, uint32_t count,
                                    uint32_t past_max) {
    struct follower *f = mem_zalloc(sizeof(*f) + count * sizeof(f->ends[0]));
    if (!f) return NULL;
    f->deny = mem_alloc_array(vocabulary_words(v), sizeof(*f->deny));
    if (past_max > 0) f->past = mem_zalloc_array(past_max, sizeof(*f->past));
    if (!f->deny || (past_max > 0 && !f->past)) {
        free_follower(f);
        return NULL;
    }
    f->vocabulary = v;
    f->past_max = past_max;
    f->end_count = count;
    if (count > 0) memcpy(f->ends, ends, count * sizeof(f->ends[0]));
    return f;
}

/* `at` becomes the position; whether it is at an end is noted with it. */
static void set_position(struct follower *f, struct matcher at, bool is_dead) {
    f->now = (struct position){.at = at, .is_dead = is_dead};
    f->has_mask = false;
    if (is_dead) return;
    f->now.is_complete = matcher_is_complete(&at);
    f->now.is_over = f->now.is_complete && !matcher_may_continue(&at);
}

static enum status create(const struct sample_params *p, const struct sample_bounds *bounds,
                          void **self, struct err *err) {
    if (!p->grammar) return ST_OK;
    CHECK(vocabulary_count(p->vocabulary) == bounds->vocab);
    CHECK(p->rollback_max <= SAMPLE_ROLLBACK_MAX);
    struct follower *f = create_with(p->vocabulary, p->ends, p->end_count, p->rollback_max);
    if (!f) return err_set(err, ST_NOMEM, "sampler: out of memory");
    f->tokenizer = p->forces_with;
    f->now.at = matcher_init(p->grammar);
    *self = f;
    return ST_OK;
}

static bool is_end(const struct follower *f, int32_t token) {
    for (uint32_t i = 0; i < f->end_count; i++)
        if (f->ends[i] == token) return true;
    return false;
}

/* ---- settling: each function returns false if the grammar is late ---- */

/* The position that is left is kept, or is no longer needed. */
static void keep_past(struct follower *f) {
    struct position *oldest = &f->now;
    if (f->past_max > 0) {
        oldest = &f->past[f->followed++ % f->past_max];
        if (f->past_count < f->past_max) f->past_count++;
    }
    matcher_release(&oldest->at);
    if (f->past_max > 0) *oldest = f->now;
}

static bool follow(struct follower *f, int32_t token) {
    const struct str bytes = vocabulary_token(f->vocabulary, (uint32_t)token);
    struct matcher next = matcher_copy(&f->now.at);
    bool is_dead = f->now.is_dead || is_end(f, token) || !matcher_accept(&next, bytes, NULL);
    if (grammar_is_late(next.grammar)) {
        matcher_release(&next);
        return false;
    }
    keep_past(f);
    set_position(f, next, is_dead);
    return true;
}

static bool follow_noted(struct follower *f) {
    uint32_t done = 0;
    while (done < f->noted_count && follow(f, f->noted[done])) done++;
    if (done == 0) return f->noted_count == 0;
    f->seeks_forced = f->tokenizer != NULL;
    f->noted_count -= done;
    memmove(f->noted, f->noted + done, f->noted_count * sizeof(f->noted[0]));
    return f->noted_count == 0;
}

/* How many of the tokens spell the first `len` bytes of `text`, or some of them. A tokenizer that
 * puts a blank before a text gives tokens of another one. */
static uint32_t count_spelling(const struct follower *f, const struct tokens *ids, struct str text,
                               size_t len) {
    uint32_t count = 0;
    for (size_t at = 0; count < ids->count; count++) {
        struct str bytes = vocabulary_token(f->vocabulary, (uint32_t)ids->ids[count]);
        if (bytes.len == 0 || !str_starts(str_skip(text, at), bytes)) break;
        at += bytes.len;
        if (at > len) break;
    }
    return count;
}

enum byte_kind { BYTE_LETTER, BYTE_DIGIT, BYTE_BLANK, BYTE_OTHER };

static enum byte_kind kind_of(char c) {
    const uint8_t b = (uint8_t)c;
    if ((b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') || b >= 0x80) return BYTE_LETTER;
    if (b >= '0' && b <= '9') return BYTE_DIGIT;
    return b == ' ' || (b >= '\t' && b <= '\r') ? BYTE_BLANK : BYTE_OTHER;
}

/* How many bytes of a text have the same tokens whatever follows. Tokenizers first divide a text
 * into words, numbers, blanks and runs of other characters, of which each may begin with one blank,
 * and a word with one other character; what is added changes the last of these only. */
static size_t stable_bytes(struct str text) {
    size_t at = text.len;
    if (at == 0) return 0;
    const enum byte_kind last = kind_of(text.ptr[at - 1]);
    while (at > 0 && kind_of(text.ptr[at - 1]) == last) at--;
    if (last == BYTE_BLANK) /* line ends may belong to what is before them */
        while (at > 0 && kind_of(text.ptr[at - 1]) == BYTE_OTHER) at--;
    if (at == 0) return 0;
    const enum byte_kind before = kind_of(text.ptr[at - 1]);
    return before == BYTE_BLANK || (last == BYTE_LETTER && before == BYTE_OTHER) ? at - 1 : at;
}

/* The bytes before the first mark of a special token from `from` on. */
static struct str before_mark(struct str text, size_t from) {
    const struct str rest = str_skip(text, from);
    const char *mark = rest.len ? memchr(rest.ptr, GRAMMAR_TOKEN_MARK, rest.len) : NULL;
    return mark ? str_take(text, (size_t)(mark - text.ptr)) : text;
}

/* Forces the tokens of a text without special tokens. Those that may become others together with
 * what follows are held back, unless nothing follows or a special token does. Returns whether all
 * of the text is forced. */
static bool force_text(struct follower *f, struct str text, bool is_last) {
    struct tokens ids = {0};
    const struct encode_options options = {.plain_special = true};
    const uint32_t room = SAMPLE_FORCED_MAX - f->forced_count;
    uint32_t count = 0;
    if (tokenizer_encode(f->tokenizer, text, options, &ids) == ST_OK)
        count = count_spelling(f, &ids, text, is_last ? text.len : stable_bytes(text));
    const bool is_whole = is_last && count == ids.count && count <= room;
    if (count > room) count = room;
    if (count > 0) memcpy(f->forced + f->forced_count, ids.ids, count * sizeof(f->forced[0]));
    f->forced_count += count;
    tokens_deinit(&ids);
    return is_whole && count > 0;
}

/* Forces the special token that has these bytes, its marks included; an end is never forced. */
static bool force_special(struct follower *f, struct str bytes) {
    const struct str spelling = str_take(str_skip(bytes, 1), bytes.len - 2);
    const token_id id = tokenizer_find(f->tokenizer, spelling);
    if (f->forced_count == SAMPLE_FORCED_MAX || id < 0 || is_end(f, id)) return false;
    if ((uint32_t)id >= vocabulary_count(f->vocabulary)) return false;
    if (!str_eq(vocabulary_token(f->vocabulary, (uint32_t)id), bytes)) return false;
    f->forced[f->forced_count++] = id;
    return true;
}

/* Forces what `text` begins with: special tokens, and the texts between them. */
static void divide(struct follower *f, struct str text, bool is_last) {
    bool goes_on = true;
    while (goes_on && text.len > 0) {
        const bool is_special = (uint8_t)text.ptr[0] == GRAMMAR_TOKEN_MARK;
        struct str part = before_mark(text, is_special);
        const bool has_mark = part.len < text.len;
        if (is_special && !has_mark) break; /* it is cut */
        if (is_special) part.len++;
        goes_on = is_special ? force_special(f, part) : force_text(f, part, has_mark || is_last);
        text = str_skip(text, part.len);
    }
}

static bool find_forced(struct follower *f) {
    char bytes[FORCED_BYTES_MAX];
    if (!f->seeks_forced) return true;
    f->forced_count = f->forced_followed = f->forced_accepted = 0;
    const struct str text = {bytes,
                             f->now.is_dead ? 0 : matcher_forced(&f->now.at, bytes, sizeof(bytes))};
    if (text.len >= 2) {
        struct matcher after = matcher_copy(&f->now.at);
        bool fits = matcher_accept(&after, text, NULL);
        bool is_last = fits && matcher_is_complete(&after) && !matcher_may_continue(&after);
        matcher_release(&after);
        if (fits) divide(f, text, is_last);
    }
    if (grammar_is_late(f->now.at.grammar)) return false;
    f->seeks_forced = false;
    return true;
}

static bool follow_forced(struct follower *f) {
    while (f->forced_followed < f->forced_count && follow(f, f->forced[f->forced_followed]))
        f->forced_followed++;
    return f->forced_followed == f->forced_count;
}

static bool make_mask(struct follower *f) {
    const uint32_t words = vocabulary_words(f->vocabulary);
    if (f->has_mask) return true;
    if (f->now.is_dead)
        memset(f->deny, 0, words * sizeof(*f->deny));
    else
        matcher_mask(&f->now.at, f->vocabulary, f->deny);
    if (grammar_is_late(f->now.at.grammar)) return false;
    for (uint32_t i = 0; i < f->end_count; i++) {
        const uint64_t bit = UINT64_C(1) << f->ends[i] % 64;
        if (f->now.is_complete)
            f->deny[f->ends[i] / 64] |= bit;
        else
            f->deny[f->ends[i] / 64] &= ~bit; /* also one that has bytes which could follow */
    }
    for (uint32_t i = 0; i < words; i++) f->deny[i] = ~f->deny[i];
    f->has_mask = true;
    return true;
}

static bool is_settled(const struct follower *f, bool wants_mask) {
    return f->has_begun && f->noted_count == 0 && !f->seeks_forced &&
           f->forced_followed == f->forced_count && (f->has_mask || !wants_mask);
}

/* A text that is over needs a mask only if it is to be drawn from. */
static bool settle_for(struct follower *f, bool is_quick, bool is_drawn) {
    struct grammar *g = f->now.at.grammar;
    if (is_settled(f, is_drawn || !f->now.is_over)) return true;
    if (!grammar_hold(g, is_quick)) return false;
    if (!f->has_begun) set_position(f, f->now.at, false);
    f->has_begun = true;
    bool is_done = follow_noted(f) && find_forced(f) && follow_forced(f) &&
                   ((f->now.is_over && !is_drawn) || make_mask(f));
    grammar_let_go(g);
    CHECK(is_done || is_quick);
    return is_done;
}

static bool settle(void *self, bool is_quick) { return settle_for(self, is_quick, false); }

/* ---- the processor ---- */

static void edit(void *self, bool is_pending, struct logit_edits *out) {
    struct follower *f = self;
    CHECK(!is_pending);
    uint64_t *mask = logit_edits_new_mask(out);
    if (!mask) return;
    settle_for(f, false, true);
    memcpy(mask, f->deny, vocabulary_words(f->vocabulary) * sizeof(*mask));
}

static uint32_t edits_max(const void *self) {
    (void)self;
    return 0;
}

static void accept(void *self, int32_t token) {
    struct follower *f = self;
    if (!f->in_answer) return;
    if (f->forced_accepted < f->forced_count) { /* it is followed already */
        CHECK(token == f->forced[f->forced_accepted]);
        f->forced_accepted++;
        return;
    }
    if (f->noted_count == NOTED_MAX) settle(f, false);
    f->noted[f->noted_count++] = token;
}

static void rollback(void *self, uint32_t count) {
    struct follower *f = self;
    if (!f->in_answer) return;
    const uint32_t unfollowed = count < f->noted_count ? count : f->noted_count;
    f->noted_count -= unfollowed;
    count -= unfollowed;
    if (count == 0) return;
    f->seeks_forced = false; /* what is forced behind the position that is left */
    CHECK(count <= f->past_count);
    for (uint32_t i = 0; i < count; i++) {
        struct position *before = &f->past[--f->followed % f->past_max];
        matcher_release(&f->now.at);
        f->now = *before;
        *before = (struct position){.is_dead = false};
    }
    f->past_count -= count;
    f->forced_count = f->forced_followed = f->forced_accepted = 0;
    f->has_mask = false;
}

static void begin_answer(void *self) { ((struct follower *)self)->in_answer = true; }

static bool is_over(void *self) {
    struct follower *f = self;
    settle(f, false);
    return f->now.is_over;
}

static bool allows_some(const struct follower *f) {
    uint32_t words = vocabulary_words(f->vocabulary), i = 0;
    while (f->has_mask && i < words && f->deny[i] == UINT64_MAX) i++;
    return f->has_mask && i < words;
}

static enum status explain(const void *self, bool has_bias, struct err *err) {
    const struct follower *f = self;
    enum status st = matcher_status(&f->now.at, err);
    if (st != ST_OK) return st;
    if (!has_bias && allows_some(f)) return ST_OK; /* the logits are at fault */
    return err_set(
        err, ST_BAD,
        "no token is possible: those that the grammar allows are forbidden by a bias, or "
        "the model's vocabulary has none for what must follow");
}

static uint32_t forced(void *self, int32_t *out) {
    struct follower *f = self;
    settle(f, false);
    const uint32_t count = f->forced_count - f->forced_accepted;
    if (count > 0) memcpy(out, f->forced + f->forced_accepted, count * sizeof(*out));
    return count;
}

static void destroy(void *self) {
    struct follower *f = self;
    for (uint32_t i = 0; i < f->past_max; i++) matcher_release(&f->past[i].at);
    matcher_release(&f->now.at);
    free_follower(f);
}

static enum status fork_follower(const void *self, void **out) {
    const struct follower *from = self;
    struct follower *f = create_with(from->vocabulary, from->ends, from->end_count, from->past_max);
    if (!f) return ST_NOMEM;
    uint64_t *deny = f->deny;
    struct position *past = f->past;
    memcpy(f, from, sizeof(*f));
    f->deny = deny;
    f->past = past;
    f->has_mask = false;
    f->now.at = matcher_copy(&from->now.at);
    for (uint32_t i = 0; i < f->past_max; i++) {
        f->past[i] = from->past[i];
        if (from->past[i].at.grammar) f->past[i].at = matcher_copy(&from->past[i].at);
    }
    *out = f;
    return ST_OK;
}

extern const struct logit_proc logit_proc_grammar;
const struct logit_proc logit_proc_grammar = {
    .name = "grammar",
    .create = create,
    .edit = edit,
    .edits_max = edits_max,
    .accept = accept,
    .rollback = rollback,
    .begin_answer = begin_answer,
    .settle = settle,
    .is_over = is_over,
    .explain = explain,
    .forced = forced,
    .fork = fork_follower,
    .destroy = destroy,
};
