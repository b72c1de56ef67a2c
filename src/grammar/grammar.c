/* grammar/grammar.c - compiling: the budget, the choice of the compiler, what is refused. */
#include "grammar/grammar.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "grammar/compile.h"
#include "grammar/regex.h"

enum {
    DEFAULT_TIME_US = 2000000,
    DEFAULT_BYTES = 64 << 20,
    DEFAULT_STATES = 1 << 20,
    CHOICES_MAX = 1000000,
};

enum status refuse(struct compiler *c, const char *path, const char *fmt, ...) {
    if (c->why->err.text[0]) return ST_BAD; /* the first reason stands */
    va_list args;
    va_start(args, fmt);
    char text[ERR_TEXT_BYTES];
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    const bool is_line = c->place && c->place[0] && path[0] && path[0] != '#' && path[0] != '/';
    char *out = c->why->path;
    snprintf(out, sizeof(c->why->path), "%s%s%s", c->place ? c->place : "", is_line ? ", " : "",
             path);
    return err_set(&c->why->err, ST_BAD, "%s", text);
}

static enum status failure(enum status st, const char *limit, struct err *err) {
    if (st == ST_NOMEM) return err_set(err, ST_NOMEM, "grammar: out of memory");
    if (st == ST_CANCELLED) return err_set(err, ST_CANCELLED, "grammar: cancelled");
    if (st == ST_UNAVAILABLE)
        return err_set(
            err, st,
            "grammar: the memory for grammars is used up by requests under way; try again "
            "later, or start the server with a larger --grammar-memory");
    if (st != ST_FULL) return ST_OK;
    return err_set(err, ST_FULL,
                   "grammar: more %s than its budget allows; simplify the schema or grammar, or "
                   "raise the limit",
                   limit);
}

enum status grammar_failure(const struct grammar *g) {
    const struct budget *b = &g->budget;
    bool is_short = b->bytes_max < g->bytes_limit && b->limit && strcmp(b->limit, "bytes") == 0;
    return b->status == ST_FULL && is_short ? ST_UNAVAILABLE : b->status;
}

void grammar_charge(struct grammar *g) {
    struct grammar_account *a = &g->account;
    const size_t bytes = g->budget.bytes;
    if (!a->memory) return;
    const struct grammar_pressure p =
        grammar_memory_change(a->memory, a->tenant, a->charged, bytes);
    a->charged = bytes;
    a->is_high = p.is_high;
    const size_t own = g->bytes_limit > bytes ? g->bytes_limit - bytes : 0;
    g->budget.bytes_max = bytes + (p.room < own ? p.room : own);
}

static struct budget budget_of(const struct grammar_options *o) {
    const struct clock *clock = o->clock ? o->clock : &clock_real;
    return (struct budget){
        .bytes_max = o->bytes_max ? o->bytes_max : DEFAULT_BYTES,
        .states_max = o->states_max ? o->states_max : DEFAULT_STATES,
        .clock = clock,
        .deadline_us = clock_now(clock) + (o->time_us ? o->time_us : DEFAULT_TIME_US),
        .cancelled = o->cancelled,
        .cancelled_ctx = o->cancelled_ctx,
    };
}

enum status compile_kind(struct compiler *c, enum grammar_kind kind, struct str source) {
    switch (kind) {
    case GRAMMAR_JSON:
        return compile_json_object(c);
    case GRAMMAR_SCHEMA:
        return compile_schema(c, source);
    case GRAMMAR_REGEX:
        return compile_regex(c, source);
    case GRAMMAR_CHOICE:
        return compile_choice(c, source);
    case GRAMMAR_GBNF:
        return compile_gbnf(c, source);
    case GRAMMAR_LARK:
        return compile_lark(c, source);
    case GRAMMAR_PARTS:
        return compile_parts(c, source);
    }
    return refuse(c, "", "unknown kind of grammar");
}

static void init_locks(struct grammar *g) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&g->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    pthread_mutex_init(&g->pins_lock, NULL);
}

enum status grammar_compile(struct str source, const struct grammar_options *options,
                            struct grammar **out, struct grammar_refusal *why) {
    *why = (struct grammar_refusal){0};
    struct grammar *g = mem_zalloc(sizeof(*g));
    if (!g) return err_set(&why->err, ST_NOMEM, "grammar: out of memory");
    init_locks(g);
    g->budget = budget_of(options);
    g->is_json = options->kind == GRAMMAR_JSON || options->kind == GRAMMAR_SCHEMA;
    g->bytes_limit = g->budget.bytes_max;
    if (options->bytes_room && options->bytes_room < g->bytes_limit)
        g->budget.bytes_max = options->bytes_room;
    struct compiler c = {.g = g, .why = why};
    c.blanks = options->whitespace ? BLANKS_ANY : BLANKS_NONE;
    enum status st = ST_OK;
    g->exprs = expr_pool_create(&g->budget);
    if (g->exprs && rules_init(&g->rules, g->exprs, &g->budget))
        st = compile_kind(&c, options->kind, source);
    if (g->budget.status == ST_OK && st == ST_OK) {
        rules_finish(&g->rules);
        tables_start(g);
    }
    if (g->budget.status == ST_OK && (st == ST_NOMEM || st == ST_FULL)) {
        g->budget.status = st; /* of a buffer */
        g->budget.limit = "bytes";
    }
    if (g->budget.status != ST_OK) st = failure(grammar_failure(g), g->budget.limit, &why->err);
    why->is_late = st == ST_FULL && strcmp(g->budget.limit, "time") == 0;
    g->budget.clock = NULL; /* the time is that of compiling only */
    g->budget.cancelled = NULL;
    g->budget.ticks_max = MATCH_TICKS_MAX;
    atomic_init(&g->bytes_now, g->budget.bytes);
    if (st == ST_OK)
        *out = g;
    else
        grammar_destroy(g);
    return st;
}

void grammar_destroy(struct grammar *g) {
    if (!g) return;
    tables_deinit(&g->tables);
    rules_deinit(&g->rules);
    expr_pool_destroy(g->exprs);
    pthread_mutex_destroy(&g->lock);
    pthread_mutex_destroy(&g->pins_lock);
    mem_free(g);
}

const char *grammar_relaxed(const struct grammar *g) { return g->relaxed; }

bool grammar_is_empty(const struct grammar *g) { return g->first == 0; }

uint32_t grammar_states(struct grammar *g) {
    pthread_mutex_lock(&g->lock);
    uint32_t states = g->tables.state_count;
    pthread_mutex_unlock(&g->lock);
    return states;
}

size_t grammar_bytes(struct grammar *g) {
    return atomic_load_explicit(&g->bytes_now, memory_order_relaxed); /* a number by itself */
}

enum status matcher_status(const struct matcher *m, struct err *err) {
    return failure(m->status, "states, bytes or work for the next token", err);
}

enum status compile_choice(struct compiler *c, struct str source) {
    const struct json_limits limits = {
        .bytes_max = 64 << 20, .depth_max = 2, .values_max = CHOICES_MAX + 1};
    struct json *doc = NULL;
    struct err err = {0};
    enum status st = json_parse(source, &limits, &doc, &err);
    if (st == ST_NOMEM) return c->g->budget.status = ST_NOMEM;
    if (st != ST_OK) return refuse(c, "", "the list of choices is not JSON: %s", err.text);
    uint32_t count = (uint32_t)json_count(doc);
    struct str *texts = budget_zalloc(&c->g->budget, count + 1, sizeof(*texts));
    if (json_kind(doc) != JS_LIST || count == 0)
        st = refuse(c, "", "choices: expected a list of at least one text");
    for (uint32_t i = 0; i < count && st == ST_OK && texts; i++) {
        texts[i] = json_str(json_at(doc, i));
        if (json_kind(json_at(doc, i)) == JS_TEXT) continue;
        char path[32];
        snprintf(path, sizeof(path), "/%u", i);
        st = refuse(c, path, "choices: expected a text");
    }
    if (st == ST_OK && texts) {
        expr_id e = expr_choice(c->g->exprs, texts, count);
        c->g->root = rules_read(&c->g->rules, e, RULE_END);
    }
    mem_free(texts);
    json_destroy(doc);
    return st;
}

enum status compile_regex(struct compiler *c, struct str source) {
    struct err err = {0};
    expr_id e = EXPR_NONE;
    enum status st = regex_whole(c->g->exprs, source, 0, &e, &err);
    if (st != ST_OK) return refuse(c, "", "%s", err.text);
    c->g->root = rules_read(&c->g->rules, e, RULE_END);
    return ST_OK;
}
