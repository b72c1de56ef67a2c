/* sample/proc_thinking.c - the thinking budget: ends a thought that has used up its tokens.
 *
 *   BEFORE   the answer may still begin with the opening mark
 *   INSIDE   a thought; its tokens are counted
 *   CLOSING  the budget is spent: only the next token of the closing text is allowed
 *   AFTER    the thought is closed, or there is none
 *
 * Marks are found in the bytes of the tokens, because a model may write the same mark with other
 * tokens than the tokenizer does. The last token must be known: a sequence with a budget is never
 * described while a token is pending. If a grammar forbids the next token of the closing text, the
 * grammar's mask stays as it is.
 */
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "sample/logit_proc.h"
#include "sample/sampler.h"
#include "text/tokenizer.h"

/* A longer token is not searched for marks. */
enum { TOKEN_BYTES_MAX = 512, MARK_BYTES_MAX = 64 };

enum phase { BEFORE, INSIDE, CLOSING, AFTER };

struct place {
    uint32_t spent; /* tokens of the thought */
    uint8_t phase;
    uint8_t matched; /* bytes of the mark that is being compared */
    uint8_t closed;  /* CLOSING: tokens of the closing text that were written */
};

struct thinking {
    struct sample_thinking params; /* `closing` is not used after create */
    bool in_answer;
    struct place now;
    /* Before the last tokens, a ring by `accepted`. */
    struct place past[SAMPLE_ROLLBACK_MAX];
    uint64_t accepted;
    struct buf bytes; /* of one token; room for TOKEN_BYTES_MAX */
    uint32_t closing_count;
    int32_t closing[];
};

static void destroy(void *self) {
    struct thinking *t = self;
    buf_deinit(&t->bytes);
    mem_free(t);
}

static struct thinking *create_with(const int32_t *closing, uint32_t count) {
    static const char room[TOKEN_BYTES_MAX];
    struct thinking *t = mem_zalloc(sizeof(*t) + count * sizeof(t->closing[0]));
    if (!t) return NULL;
    t->closing_count = count;
    memcpy(t->closing, closing, count * sizeof(t->closing[0]));
    buf_init(&t->bytes, TOKEN_BYTES_MAX);
    buf_put(&t->bytes, room, sizeof(room));
    if (buf_status(&t->bytes) == ST_OK) return t;
    destroy(t);
    return NULL;
}

static enum status create(const struct sample_params *p, const struct sample_bounds *bounds,
                          void **self, struct err *err) {
    const struct sample_thinking *from = &p->thinking;
    if (!from->has_budget) return ST_OK;
    CHECK(from->tokenizer);
    CHECK(strlen(from->open) < MARK_BYTES_MAX);
    CHECK(strlen(from->close) < MARK_BYTES_MAX);
    CHECK(from->closing_count > 0);
    CHECK(from->closing_count <= SAMPLE_CLOSING_MAX);
    for (uint32_t i = 0; i < from->closing_count; i++)
        CHECK(from->closing[i] >= 0 && (uint32_t)from->closing[i] < bounds->vocab);
    struct thinking *t = create_with(from->closing, from->closing_count);
    if (!t) return err_set(err, ST_NOMEM, "sampler: out of memory");
    t->params = *from;
    t->params.closing = NULL;
    t->now.phase = from->in_thought ? INSIDE : BEFORE;
    *self = t;
    return ST_OK;
}

/* ---- following the answer ---- */

/* One more byte is compared with a mark. If it does not fit, the longest end of the compared bytes
 * that can still begin the mark stays. True: the mark is complete. */
static bool match(const char *mark, uint8_t *matched, char c) {
    while (*matched && mark[*matched] != c) {
        uint8_t keep = (uint8_t)(*matched - 1);
        while (keep && memcmp(mark, mark + *matched - keep, keep) != 0) keep--;
        *matched = keep;
    }
    if (mark[*matched] == c) ++*matched;
    if (mark[*matched]) return false;
    *matched = 0;
    return true;
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static void follow_before(struct thinking *t, char c) {
    const char *mark = t->params.open;
    if (t->now.matched == 0 && is_blank(c)) return;
    if (mark[t->now.matched] != c) {
        t->now.phase = AFTER;
        return;
    }
    t->now.matched++;
    if (mark[t->now.matched]) return;
    t->now.phase = INSIDE;
    t->now.matched = 0;
}

static void follow_bytes(struct thinking *t, int32_t token) {
    buf_clear(&t->bytes);
    if (tokenizer_token_bytes(t->params.tokenizer, token, &t->bytes) != ST_OK) return;
    const struct str bytes = buf_str(&t->bytes);
    for (size_t i = 0; i < bytes.len && t->now.phase != AFTER; i++) {
        if (t->now.phase == BEFORE)
            follow_before(t, bytes.ptr[i]);
        else if (match(t->params.close, &t->now.matched, bytes.ptr[i]))
            t->now.phase = AFTER;
    }
}

/* The closing text goes on behind its mark. */
static void follow_closing(struct thinking *t, int32_t token) {
    struct place *now = &t->now;
    const bool is_next = token == t->closing[now->closed];
    follow_bytes(t, token);
    if (!is_next) return;
    now->closed++;
    now->phase = now->closed < t->closing_count ? CLOSING : AFTER;
}

static void check_budget(struct thinking *t) {
    if (t->now.phase == INSIDE && t->now.spent >= t->params.budget) t->now.phase = CLOSING;
}

static void accept(void *self, int32_t token) {
    struct thinking *t = self;
    if (!t->in_answer) return;
    t->past[t->accepted++ % SAMPLE_ROLLBACK_MAX] = t->now;
    if (t->now.phase == AFTER) return;
    if (t->now.phase == CLOSING) {
        follow_closing(t, token);
        return;
    }
    t->now.spent += t->now.phase == INSIDE;
    follow_bytes(t, token);
    check_budget(t);
}

static void rollback(void *self, uint32_t count) {
    struct thinking *t = self;
    if (!t->in_answer || count == 0) return;
    CHECK(count <= t->accepted);
    CHECK(count <= SAMPLE_ROLLBACK_MAX);
    t->accepted -= count;
    t->now = t->past[t->accepted % SAMPLE_ROLLBACK_MAX];
}

static void begin_answer(void *self) {
    struct thinking *t = self;
    t->in_answer = true;
    check_budget(t);
}

/* ---- the processor ---- */

static void edit(void *self, bool is_pending, struct logit_edits *out) {
    const struct thinking *t = self;
    CHECK(!is_pending);
    if (t->in_answer && t->now.phase == CLOSING)
        logit_edits_allow_only(out, t->closing[t->now.closed]);
}

static uint32_t edits_max(const void *self) {
    (void)self;
    return 0;
}

static enum status fork_thinking(const void *self, void **out) {
    const struct thinking *from = self;
    struct thinking *t = create_with(from->closing, from->closing_count);
    if (!t) return ST_NOMEM;
    t->params = from->params;
    t->in_answer = from->in_answer;
    t->now = from->now;
    memcpy(t->past, from->past, sizeof(t->past));
    t->accepted = from->accepted;
    *out = t;
    return ST_OK;
}

extern const struct logit_proc logit_proc_thinking;
const struct logit_proc logit_proc_thinking = {
    .name = "thinking",
    .create = create,
    .edit = edit,
    .edits_max = edits_max,
    .accept = accept,
    .rollback = rollback,
    .begin_answer = begin_answer,
    .fork = fork_thinking,
    .destroy = destroy,
};
