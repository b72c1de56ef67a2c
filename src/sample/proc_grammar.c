/* sample/proc_grammar.c - forbids the tokens that a grammar does not allow next.
 *
 * The matcher follows the answer's bytes. Its mask is made in the step's own table of masks, so a
 * sequence keeps nothing that is as large as the vocabulary. An end token is allowed only where the
 * text is complete. The token before must be known: a sequence with a grammar is never described
 * while a token is pending.
 */
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "grammar/grammar.h"
#include "sample/logit_proc.h"
#include "sample/sampler.h"
#include "text/tokenizer.h"

enum { FORCED_BYTES_MAX = 512 };

/* is_dead: the text has ended, or the grammar's budget has. Nothing can follow. */
struct position {
    struct matcher at;
    bool is_dead;
};

struct follower {
    const struct vocabulary *vocabulary;
    const struct tokenizer *tokenizer; /* NULL: no text is forced */
    struct position now;
    bool in_answer;
    uint32_t past_count;                       /* that a rollback can go back to */
    struct position past[SAMPLE_ROLLBACK_MAX]; /* before the last tokens, a ring by `accepted` */
    uint64_t accepted;
    uint32_t end_count;
    int32_t ends[];
};

static struct follower *create_with(const int32_t *ends, uint32_t count) {
    struct follower *f = mem_zalloc(sizeof(*f) + count * sizeof(f->ends[0]));
    if (!f) return NULL;
    f->end_count = count;
    if (count > 0) memcpy(f->ends, ends, count * sizeof(f->ends[0]));
    return f;
}

static enum status create(const struct sample_params *p, const struct sample_bounds *bounds,
                          void **self, struct err *err) {
    if (!p->grammar) return ST_OK;
    CHECK(vocabulary_count(p->vocabulary) == bounds->vocab);
    struct follower *f = create_with(p->ends, p->end_count);
    if (!f) return err_set(err, ST_NOMEM, "sampler: out of memory");
    f->vocabulary = p->vocabulary;
    f->tokenizer = p->forces_with;
    f->now.at = matcher_init(p->grammar);
    *self = f;
    return ST_OK;
}

static void edit(const void *self, bool is_pending, struct logit_edits *out) {
    const struct follower *f = self;
    CHECK(!is_pending);
    uint64_t *mask = logit_edits_new_mask(out);
    if (!mask) return;
    struct matcher at = f->now.at;
    uint32_t words = vocabulary_words(f->vocabulary);
    if (f->now.is_dead)
        memset(mask, 0, words * sizeof(*mask));
    else
        matcher_mask(&at, f->vocabulary, mask);
    bool may_end = !f->now.is_dead && matcher_is_complete(&at);
    for (uint32_t i = 0; i < f->end_count; i++) {
        const uint64_t bit = UINT64_C(1) << f->ends[i] % 64;
        if (may_end)
            mask[f->ends[i] / 64] |= bit;
        else
            mask[f->ends[i] / 64] &= ~bit; /* also one that has bytes which could follow */
    }
    for (uint32_t i = 0; i < words; i++) mask[i] = ~mask[i];
}

static uint32_t edits_max(const void *self) {
    (void)self;
    return 0;
}

static bool is_end(const struct follower *f, int32_t token) {
    for (uint32_t i = 0; i < f->end_count; i++)
        if (f->ends[i] == token) return true;
    return false;
}

static void accept(void *self, int32_t token) {
    struct follower *f = self;
    if (!f->in_answer) return;
    f->past[f->accepted++ % SAMPLE_ROLLBACK_MAX] = f->now;
    if (f->past_count < SAMPLE_ROLLBACK_MAX) f->past_count++;
    if (f->now.is_dead) return;
    struct str bytes = vocabulary_token(f->vocabulary, (uint32_t)token);
    f->now.is_dead = is_end(f, token) || !matcher_accept(&f->now.at, bytes, NULL);
}

static void rollback(void *self, uint32_t count) {
    struct follower *f = self;
    if (!f->in_answer || count == 0) return;
    CHECK(count <= f->past_count);
    f->accepted -= count;
    f->past_count -= count;
    f->now = f->past[f->accepted % SAMPLE_ROLLBACK_MAX];
}

static void begin_answer(void *self) { ((struct follower *)self)->in_answer = true; }

static bool is_over(const void *self) {
    const struct follower *f = self;
    return !f->now.is_dead && matcher_is_complete(&f->now.at) && !matcher_may_continue(&f->now.at);
}

/* How many of the tokens spell the beginning of `text`. A tokenizer that puts a blank before a text
 * gives tokens of another one. */
static uint32_t count_spelling(const struct follower *f, const struct tokens *ids,
                               struct str text) {
    uint32_t count = 0;
    for (size_t at = 0; count < ids->count; count++) {
        struct str bytes = vocabulary_token(f->vocabulary, (uint32_t)ids->ids[count]);
        if (bytes.len == 0 || !str_starts(str_skip(text, at), bytes)) break;
        at += bytes.len;
    }
    return count;
}

/* The last token is held back unless the text ends with it: together with what follows it may
 * become another one. */
static uint32_t forced(const void *self, int32_t *out, uint32_t max) {
    const struct follower *f = self;
    char bytes[FORCED_BYTES_MAX];
    if (!f->tokenizer || f->now.is_dead) return 0;
    const struct str text = {bytes, matcher_forced(&f->now.at, bytes, sizeof(bytes))};
    struct matcher after = f->now.at;
    if (text.len < 2 || !matcher_accept(&after, text, NULL)) return 0;
    bool is_last = matcher_is_complete(&after) && !matcher_may_continue(&after);
    struct tokens ids = {0};
    const struct encode_options options = {.plain_special = true};
    uint32_t count = 0;
    if (tokenizer_encode(f->tokenizer, text, options, &ids) == ST_OK)
        count = count_spelling(f, &ids, text);
    if (count > 0 && !(is_last && count == ids.count)) count--;
    if (count > max) count = max;
    if (count > 0) memcpy(out, ids.ids, count * sizeof(*out));
    tokens_deinit(&ids);
    return count;
}

static enum status fork_follower(const void *self, void **out) {
    const struct follower *from = self;
    struct follower *f = create_with(from->ends, from->end_count);
    if (!f) return ST_NOMEM;
    memcpy(f, from, sizeof(*f));
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
    .is_over = is_over,
    .forced = forced,
    .fork = fork_follower,
    .destroy = mem_free,
};
