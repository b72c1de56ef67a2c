/* text/regex.c - pre-tokenizer patterns, run by PCRE2 in time linear in the text.
 *
 * regex_translate.c has turned the pattern into PCRE2's language. A backtracking matcher can
 * take time quadratic in the text: \s+$ tries every place of a long run of blanks and walks to
 * its end each time. So a search looks at a window of the text, and asks PCRE2 to say
 * "partial" as soon as an attempt needs to see past it. Inside a window a failed attempt costs
 * at most WINDOW. An attempt that needs more gets a window twice as long, again and again, and
 * the bytes of those long windows come out of a budget that is linear in the text. A pattern
 * that uses up the budget finds no more matches in that text; the patterns that models ship
 * stay far inside it, because their attempts at a long run succeed.
 */
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/regex_int.h"
#include "text/text_int.h"

enum {
    WINDOW = 4096,             /* bytes a search looks at first */
    BUDGET_PER_BYTE = 64,      /* of long windows, for each byte of text */
    BUDGET_MIN = 1 << 20,      /* ... and at least this many */
    JIT_STACK_MAX = 8 << 20,   /* bytes, when the usual 32 KiB are not enough */
    MATCH_LIMIT = 4 << 20,     /* steps of the interpreter, where there is no JIT */
    HEAP_LIMIT_KIB = 64 << 10, /* memory of the interpreter */
    NESTING_LIMIT = 64,        /* parentheses inside parentheses */
};

struct regex {
    pcre2_code *code;
};

struct regex_work {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack; /* NULL until it is needed */
};

static void *give_memory(size_t bytes, void *ctx) {
    (void)ctx;
    return mem_alloc(bytes);
}

static void take_memory(void *ptr, void *ctx) {
    (void)ctx;
    mem_free(ptr);
}

static enum status refuse(const char *what, int code, size_t at, struct err *err) {
    char reason[128] = "";
    pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof(reason));
    return err_set(err, ST_BAD, "%s: regular expression: %s at byte %zu", what, reason, at);
}

static enum status compile(struct str pattern, const char *what, pcre2_code **out,
                           struct err *err) {
    pcre2_general_context *general = pcre2_general_context_create(give_memory, take_memory, NULL);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    enum status st = ST_NOMEM;
    if (context) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        pcre2_set_parens_nest_limit(context, NESTING_LIMIT);
        int code;
        size_t at;
        uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
        *out = pcre2_compile((PCRE2_SPTR)pattern.ptr, pattern.len, options, &code, &at, context);
        if (*out)
            st = ST_OK;
        else if (code != PCRE2_ERROR_HEAP_FAILED)
            st = refuse(what, code, at, err);
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    return st;
}

void regex_destroy(struct regex *re) {
    if (!re) return;
    pcre2_code_free(re->code);
    mem_free(re);
}

enum status regex_create(struct str pattern, const char *what, struct regex **out,
                         struct err *err) {
    *out = NULL;
    if (pattern.len > PATTERN_BYTES_MAX)
        return err_set(err, ST_BAD, "%s: a regular expression of %zu bytes", what, pattern.len);
    struct regex *re = mem_zalloc(sizeof(*re));
    struct buf translated;
    buf_init(&translated, (size_t)PATTERN_BYTES_MAX * 16);
    enum status st = re ? regex_translate(pattern, what, &translated, err) : ST_NOMEM;
    if (st == ST_OK) st = buf_status(&translated);
    if (st == ST_OK) st = compile(buf_str(&translated), what, &re->code, err);
    buf_deinit(&translated);
    if (st != ST_OK) {
        mem_free(re);
        return st;
    }
    /* Where there is no JIT the interpreter does the same, more slowly. */
    if (pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) ==
        PCRE2_ERROR_NOMEMORY) {
        regex_destroy(re);
        return ST_NOMEM;
    }
    *out = re;
    return ST_OK;
}

struct regex_work *regex_work_create(void) {
    struct regex_work *w = mem_zalloc(sizeof(*w));
    if (!w) return NULL;
    w->data = pcre2_match_data_create(1, NULL);
    w->context = pcre2_match_context_create(NULL);
    if (!w->data || !w->context) {
        regex_work_destroy(w);
        return NULL;
    }
    pcre2_set_match_limit(w->context, MATCH_LIMIT);
    pcre2_set_heap_limit(w->context, HEAP_LIMIT_KIB);
    return w;
}

void regex_work_destroy(struct regex_work *w) {
    if (!w) return;
    pcre2_match_data_free(w->data);
    pcre2_match_context_free(w->context);
    pcre2_jit_stack_free(w->stack);
    mem_free(w);
}

/* pcre2_match, with a bigger stack, then without JIT, when JIT runs out of stack. */
static int run_match(const struct regex *re, struct regex_work *w, struct str text, size_t pos,
                     uint32_t options) {
    options |= PCRE2_NO_UTF_CHECK;
    PCRE2_SPTR subject = (PCRE2_SPTR)text.ptr;
    int rc = pcre2_match(re->code, subject, text.len, pos, options, w->data, w->context);
    if (rc != PCRE2_ERROR_JIT_STACKLIMIT) return rc;
    if (!w->stack) {
        w->stack = pcre2_jit_stack_create(32 << 10, JIT_STACK_MAX, NULL);
        if (w->stack) pcre2_jit_stack_assign(w->context, NULL, w->stack);
        rc = pcre2_match(re->code, subject, text.len, pos, options, w->data, w->context);
        if (rc != PCRE2_ERROR_JIT_STACKLIMIT) return rc;
    }
    options |= PCRE2_NO_JIT;
    return pcre2_match(re->code, subject, text.len, pos, options, w->data, w->context);
}

/* The end of a window: never inside a character. */
static size_t window_end(struct str text, size_t pos, size_t bytes) {
    if (bytes >= text.len - pos) return text.len;
    size_t end = pos + bytes;
    while (end > pos && ((uint8_t)text.ptr[end] & 0xC0) == 0x80) end--;
    return end;
}

static size_t next_char(struct str text, size_t pos) {
    do pos++;
    while (pos < text.len && ((uint8_t)text.ptr[pos] & 0xC0) == 0x80);
    return pos;
}

/* The first match from s->pos on. s->pos moves past the places where no match can start. */
static bool find(struct regex_search *s, size_t *start, size_t *end) {
    size_t window = WINDOW;
    while (s->pos <= s->text.len) {
        size_t stop = window_end(s->text, s->pos, window);
        bool last = stop == s->text.len;
        /* In a long last window only one place is tried; trying all would take quadratic time. */
        uint32_t options = !last ? PCRE2_PARTIAL_HARD : window > WINDOW ? PCRE2_ANCHORED : 0;
        int rc = run_match(s->re, s->work, str_take(s->text, stop), s->pos, options);
        const size_t *where = pcre2_get_ovector_pointer(s->work->data);
        if (rc >= 0) {
            *start = where[0];
            *end = where[1] > where[0] ? where[1] : where[0];
            return true;
        }
        if (rc == PCRE2_ERROR_PARTIAL) {
            s->pos = where[0];
            window *= 2;
            if (s->budget < window) return false;
            s->budget -= window;
        } else if (rc == PCRE2_ERROR_NOMATCH && !last) {
            s->pos = stop;
            window = WINDOW;
        } else if (rc == PCRE2_ERROR_NOMATCH && window > WINDOW && s->pos < s->text.len) {
            s->pos = next_char(s->text, s->pos);
            window = WINDOW;
        } else {
            return false;
        }
    }
    return false;
}

void regex_search_init(struct regex_search *s, const struct regex *re, struct regex_work *work,
                       struct str text) {
    uint64_t budget = (uint64_t)text.len * BUDGET_PER_BYTE;
    *s = (struct regex_search){.re = re, .work = work, .text = text};
    s->budget = budget < BUDGET_MIN ? BUDGET_MIN : budget;
}

/* An empty match right after the last one does not count. */
bool regex_search_next(struct regex_search *s, size_t *start, size_t *end) {
    while (find(s, start, end)) {
        s->pos = *end;
        bool repeats = *start == *end && s->any && *end == s->last_end;
        if (!repeats) {
            s->any = true;
            s->last_end = *end;
            return true;
        }
        if (s->pos >= s->text.len) return false;
        s->pos = next_char(s->text, s->pos);
    }
    return false;
}

void pattern_deinit(struct pattern *p) {
    regex_destroy(p->re);
    mem_free(p->literal);
    *p = (struct pattern){0};
}

void pattern_search_init(struct pattern_search *s, const struct pattern *p, struct regex_work *work,
                         struct str text) {
    *s = (struct pattern_search){.p = p, .text = text};
    if (p->re) regex_search_init(&s->re, p->re, work, text);
}

/* memmem by hand: the first byte is found by memchr, and literals are a few bytes long. */
static bool find_literal(struct pattern_search *s, size_t *start, size_t *end) {
    size_t len = s->p->literal_len;
    if (len == 0) return false;
    while (s->pos + len <= s->text.len) {
        const char *from = s->text.ptr + s->pos;
        const char *hit = memchr(from, s->p->literal[0], s->text.len - s->pos - len + 1);
        if (!hit) return false;
        s->pos = (size_t)(hit - s->text.ptr);
        if (memcmp(hit, s->p->literal, len) == 0) {
            *start = s->pos;
            *end = s->pos += len;
            return true;
        }
        s->pos++;
    }
    return false;
}

bool pattern_search_next(struct pattern_search *s, size_t *start, size_t *end) {
    return s->p->re ? regex_search_next(&s->re, start, end) : find_literal(s, start, end);
}

void pattern_replace(const struct pattern *p, struct str with, struct regex_work *work,
                     struct str text, struct buf *out) {
    struct pattern_search s;
    pattern_search_init(&s, p, work, text);
    size_t done = 0, start, end;
    while (pattern_search_next(&s, &start, &end)) {
        buf_put(out, text.ptr + done, start - done);
        buf_put_str(out, with);
        done = end;
    }
    buf_put(out, text.ptr + done, text.len - done);
}
