/* grammar/parts.c - GRAMMAR_PARTS: see grammar/grammar.h.
 *
 * Each part becomes a rule that ends with RULE_END, and parts that contain parts call these rules.
 * The members of a list are compiled in their order, so that the first refusal and the first schema
 * that is relaxed are those of the document; their rules are then joined from the last to the
 * first.
 */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "grammar/compile.h"
#include "grammar/regex.h"

enum {
    DEPTH_MAX = 64,     /* of parts inside each other */
    REPEAT_MAX = 10000, /* of "min" and "max" */
    OPTIONS_MAX = 5,    /* of the keys beside the one that says the kind */
    LEVELS_OF_PART = 2, /* of JSON, for a part and its list */
};
static const uint32_t NO_INDEX = UINT32_MAX;

struct parts {
    struct compiler *c;
    char path[GRAMMAR_PATH_BYTES]; /* of the part that is being compiled */
    uint32_t depth;
};

typedef enum status (*build_fn)(struct parts *p, const struct json *part, rule_id *out);

struct part_kind {
    const char *key;
    const char *options[OPTIONS_MAX];
    build_fn build;
};

static enum status build(struct parts *p, const struct json *part, rule_id *out);

/* ---- parts without parts ---- */

static enum status need_text(struct parts *p, const struct json *part, const char *key,
                             struct str *out) {
    const struct json *v = json_get(part, key);
    *out = json_str(v);
    return json_kind(v) == JS_TEXT ? ST_OK : refuse(p->c, p->path, "%s: expected a text", key);
}

static void give_expr(struct parts *p, expr_id e, rule_id *out) {
    *out = rules_read(&p->c->g->rules, e, RULE_END);
}

static enum status build_text(struct parts *p, const struct json *part, rule_id *out) {
    struct str text;
    TRY(need_text(p, part, "text", &text));
    give_expr(p, expr_literal(p->c->g->exprs, text), out);
    return ST_OK;
}

static enum status build_token(struct parts *p, const struct json *part, rule_id *out) {
    struct expr_pool *pool = p->c->g->exprs;
    struct str text;
    TRY(need_text(p, part, "token", &text));
    if (text.len == 0) return refuse(p->c, p->path, "token: expected a text that is not empty");
    const expr_id mark = expr_range(pool, GRAMMAR_TOKEN_MARK, GRAMMAR_TOKEN_MARK);
    const expr_id rest = expr_concat(pool, expr_literal(pool, text), mark);
    give_expr(p, expr_concat(pool, mark, rest), out);
    return ST_OK;
}

/* One of the marks; EXPR_NONE: there are none. */
static enum status marks_expr(struct parts *p, const struct json *list, expr_id *out) {
    struct budget *b = &p->c->g->budget;
    const uint32_t count = (uint32_t)json_count(list);
    enum status st = ST_OK;
    if (json_kind(list) != JS_LIST) return refuse(p->c, p->path, "free: expected a list of marks");
    struct str *texts = budget_zalloc(b, count + (size_t)1, sizeof(*texts));
    if (!texts) return b->status;
    for (uint32_t i = 0; i < count && st == ST_OK; i++) {
        texts[i] = json_str(json_at(list, i));
        if (texts[i].len == 0)
            st = refuse(p->c, p->path, "free: expected marks that are texts and not empty");
    }
    if (st == ST_OK) *out = expr_choice(p->c->g->exprs, texts, count);
    b->bytes -= (count + (size_t)1) * sizeof(*texts);
    mem_free(texts);
    return st;
}

static enum status build_pattern(struct parts *p, const struct json *part, rule_id *out) {
    struct str source;
    struct err err = {0};
    expr_id e = EXPR_NONE;
    TRY(need_text(p, part, "pattern", &source));
    if (regex_whole(p->c->g->exprs, source, 0, &e, &err) != ST_OK)
        return refuse(p->c, p->path, "pattern: %s", err.text);
    give_expr(p, e, out);
    return ST_OK;
}

/* ---- schemas and other grammars ---- */

/* What refusals inside the part begin with: "at", or where the part is in the document. */
static enum status find_place(struct parts *p, const struct json *part, const char *key,
                              char place[GRAMMAR_PATH_BYTES]) {
    const struct json *at = json_get(part, "at");
    if (at && json_kind(at) != JS_TEXT) return refuse(p->c, p->path, "at: expected a text");
    if (at)
        str_store(json_str(at), place, GRAMMAR_PATH_BYTES);
    else if (snprintf(place, GRAMMAR_PATH_BYTES, "%s/%s", p->path, key) >= GRAMMAR_PATH_BYTES)
        place[GRAMMAR_PATH_BYTES - 1] = 0; /* a long path is cut */
    return ST_OK;
}

static enum status read_flag(struct parts *p, const struct json *part, const char *key, bool *out) {
    const struct json *v = json_get(part, key);
    *out = json_bool(v, false);
    if (!v || json_kind(v) == JS_BOOL) return ST_OK;
    return refuse(p->c, p->path, "%s: expected true or false", key);
}

/* Recursion is bounded by `levels`. */
static bool is_deeper(const struct json *v, uint32_t levels) {
    const enum json_kind kind = json_kind(v);
    if (kind != JS_LIST && kind != JS_MAP) return false;
    if (levels == 0) return true;
    for (size_t i = 0; kind == JS_LIST && i < json_count(v); i++)
        if (is_deeper(json_at(v, i), levels - 1)) return true;
    if (kind == JS_LIST) return false;
    for (struct json_iter i = json_iter_first(v); json_iter_ok(&i); json_iter_next(&i))
        if (is_deeper(i.value, levels - 1)) return true;
    return false;
}

static enum status schema_part_rule(struct compiler *c, const struct json *schema, rule_id *out) {
    if (is_deeper(schema, SCHEMA_DEPTH_MAX))
        return refuse(c, "#", "the schema nests more than %d levels deep", SCHEMA_DEPTH_MAX);
    return schema_compile(c, schema, out);
}

/* The first refusal that is not one after all is kept for grammar_relaxed. */
static void note_relaxed(struct compiler *c) {
    struct grammar *g = c->g;
    if (!g->relaxed[0])
        snprintf(g->relaxed, sizeof(g->relaxed), "%s: %.*s", c->why->path, ERR_TEXT_BYTES - 3,
                 c->why->err.text);
    *c->why = (struct grammar_refusal){0};
}

/* The pattern of a free text; EXPR_ANY: there is none, or it cannot be kept and need not be. */
static enum status free_pattern(struct parts *p, const struct json *part, expr_id *out) {
    struct compiler c = *p->c;
    struct str source;
    struct err err = {0};
    char place[GRAMMAR_PATH_BYTES];
    bool relaxes = false;
    *out = EXPR_ANY;
    if (!json_get(part, "pattern")) return ST_OK;
    TRY(find_place(p, part, "pattern", place));
    TRY(read_flag(p, part, "relax", &relaxes));
    TRY(need_text(p, part, "pattern", &source));
    if (regex_whole(c.g->exprs, source, 0, out, &err) == ST_OK) return ST_OK;
    c.place = place;
    *out = EXPR_ANY;
    const enum status st = refuse(&c, "#", "pattern: %s", err.text);
    if (!relaxes || c.g->budget.status != ST_OK) return st;
    note_relaxed(&c);
    return ST_OK;
}

/* The automaton has a state for each beginning of a mark. */
static enum status build_free(struct parts *p, const struct json *part, rule_id *out) {
    struct expr_pool *pool = p->c->g->exprs;
    expr_id mark = EXPR_NONE, pattern = EXPR_ANY;
    TRY(marks_expr(p, json_get(part, "free"), &mark));
    TRY(free_pattern(p, part, &pattern));
    const expr_id byte = expr_range(pool, 0, GRAMMAR_TOKEN_MARK - 1);
    const expr_id bytes = expr_repeat(pool, byte, 0, EXPR_NO_MAX);
    const expr_id marked = expr_concat(pool, EXPR_ANY, expr_concat(pool, mark, EXPR_ANY));
    const expr_id free = expr_and(pool, bytes, expr_not(pool, marked));
    give_expr(p, expr_and(pool, pattern, free), out);
    return ST_OK;
}

/* The rule of another schema, instead of that of one that was refused. */
static enum status relax(struct compiler *c, struct str to, rule_id *out) {
    static const struct json_limits limits = {.bytes_max = 100, .depth_max = 2, .values_max = 10};
    struct grammar *g = c->g;
    struct json *schema = NULL;
    note_relaxed(c);
    if (json_parse(to, &limits, &schema, NULL) != ST_OK) return g->budget.status = ST_NOMEM;
    const enum status st = schema_compile(c, schema, out);
    json_destroy(schema);
    return st;
}

/* What a schema that cannot be kept becomes; empty: it is refused. */
static enum status read_relax(struct parts *p, const struct json *part, struct str *out) {
    const struct json *relax = json_get(part, "relax");
    *out = (struct str){0};
    if (str_is(json_str(relax), "object")) *out = STR("{\"type\":\"object\"}");
    if (str_is(json_str(relax), "value")) *out = STR("{}");
    if (!relax || out->len) return ST_OK;
    return refuse(p->c, p->path, "relax: expected \"object\" or \"value\"");
}

static enum status build_schema(struct parts *p, const struct json *part, rule_id *out) {
    struct compiler c = *p->c;
    char place[GRAMMAR_PATH_BYTES];
    struct str relaxed;
    bool is_spaced = false, has_blanks = false;
    TRY(find_place(p, part, "schema", place));
    TRY(read_relax(p, part, &relaxed));
    TRY(read_flag(p, part, "spaced", &is_spaced));
    TRY(read_flag(p, part, "whitespace", &has_blanks));
    c.place = place;
    if (is_spaced && c.blanks == BLANKS_NONE) c.blanks = BLANKS_ONE;
    if (has_blanks) c.blanks = BLANKS_ANY;
    enum status st = schema_part_rule(&c, json_get(part, "schema"), out);
    if (st == ST_BAD && relaxed.len && c.g->budget.status == ST_OK) st = relax(&c, relaxed, out);
    return st;
}

static enum status build_refusal(struct parts *p, const struct json *part, rule_id *out) {
    struct str sentence;
    char place[GRAMMAR_PATH_BYTES];
    *out = RULE_FAIL;
    TRY(need_text(p, part, "refuse", &sentence));
    TRY(find_place(p, part, "refuse", place));
    return refuse(p->c, place, "%.*s", STR_ARG(sentence));
}

static enum status build_grammar(struct parts *p, const struct json *part, rule_id *out) {
    static const struct {
        const char *name;
        enum grammar_kind kind;
    } kinds[] = {{"json", GRAMMAR_JSON},     {"schema", GRAMMAR_SCHEMA}, {"regex", GRAMMAR_REGEX},
                 {"choice", GRAMMAR_CHOICE}, {"gbnf", GRAMMAR_GBNF},     {"lark", GRAMMAR_LARK}};
    enum { KINDS = sizeof(kinds) / sizeof(*kinds) };
    struct compiler c = *p->c;
    struct str name, source;
    char place[GRAMMAR_PATH_BYTES];
    size_t k = 0;
    TRY(need_text(p, part, "grammar", &name));
    TRY(find_place(p, part, "source", place));
    while (k < KINDS && !str_is(name, kinds[k].name)) k++;
    if (k == KINDS)
        return refuse(p->c, p->path,
                      "grammar: unknown kind \"%.*s\"; expected json, schema, regex, choice, gbnf "
                      "or lark",
                      STR_ARG(name));
    TRY(need_text(p, part, "source", &source));
    c.place = place;
    TRY(compile_kind(&c, kinds[k].kind, source));
    *out = c.g->root;
    return ST_OK;
}

/* ---- parts with parts ---- */

static enum status build_inside(struct parts *p, const struct json *part, const char *key,
                                uint32_t index, rule_id *out) {
    const size_t len = strlen(p->path);
    if (index == NO_INDEX)
        snprintf(p->path + len, sizeof(p->path) - len, "/%s", key);
    else
        snprintf(p->path + len, sizeof(p->path) - len, "/%s/%u", key, index);
    const enum status st = build(p, part, out);
    p->path[len] = 0;
    return st;
}

/* The rules of a list of parts, joined by `join`; `between` is for "some" alone. */
typedef rule_id (*join_fn)(struct rules *r, const rule_id *list, uint32_t count, rule_id between);

struct joint {
    join_fn join;
    rule_id between;
};

static enum status build_list(struct parts *p, const struct json *part, const char *key,
                              struct joint joint, rule_id *out) {
    struct budget *b = &p->c->g->budget;
    const struct json *list = json_get(part, key);
    const uint32_t count = (uint32_t)json_count(list);
    enum status st = ST_OK;
    if (json_kind(list) != JS_LIST || count == 0)
        return refuse(p->c, p->path, "%s: expected a list of at least one part", key);
    rule_id *rules = budget_zalloc(b, count, sizeof(*rules));
    if (!rules) return b->status;
    for (uint32_t i = 0; i < count && st == ST_OK; i++)
        st = build_inside(p, json_at(list, i), key, i, &rules[i]);
    if (st == ST_OK) *out = joint.join(&p->c->g->rules, rules, count, joint.between);
    b->bytes -= count * sizeof(*rules);
    mem_free(rules);
    return st;
}

static rule_id join_sequence(struct rules *r, const rule_id *list, uint32_t count,
                             rule_id between) {
    (void)between;
    rule_id next = RULE_END;
    for (uint32_t i = count; i-- > 0;) next = rules_call(r, list[i], next);
    return next;
}

static enum status build_sequence(struct parts *p, const struct json *part, rule_id *out) {
    return build_list(p, part, "sequence", (struct joint){.join = join_sequence}, out);
}

static rule_id join_any(struct rules *r, const rule_id *list, uint32_t count, rule_id between) {
    (void)between;
    return rules_choice(r, list, count);
}

static enum status build_any(struct parts *p, const struct json *part, rule_id *out) {
    return build_list(p, part, "any", (struct joint){.join = join_any}, out);
}

/* `first` has nothing before it, `more` has; both are what may follow from list[i] on. */
static rule_id join_some(struct rules *r, const rule_id *list, uint32_t count, rule_id between) {
    rule_id first = RULE_END, more = RULE_END;
    for (uint32_t i = count; i-- > 0;) {
        const rule_id with = rules_call(r, list[i], more);
        first = rules_either(r, first, with);
        more = rules_either(r, more, rules_call(r, between, with));
    }
    return first;
}

static enum status build_some(struct parts *p, const struct json *part, rule_id *out) {
    struct joint joint = {.join = join_some, .between = RULE_END};
    const struct json *between = json_get(part, "between");
    if (between) TRY(build_inside(p, between, "between", NO_INDEX, &joint.between));
    return build_list(p, part, "some", joint, out);
}

static enum status read_count(struct parts *p, const struct json *part, const char *key,
                              uint32_t *out) {
    const struct json *v = json_get(part, key);
    const int64_t count = json_kind(v) == JS_INT ? json_int(v, -1) : -1;
    if (!v) return ST_OK;
    if (count < 0 || count > REPEAT_MAX)
        return refuse(p->c, p->path, "%s: expected a whole number from 0 to %d", key, REPEAT_MAX);
    *out = (uint32_t)count;
    return ST_OK;
}

/* `item`, min to max times. `more` is an item that is not the first. */
struct repetition {
    rule_id item, more;
    uint32_t min, max;
};

/* What follows the first item. */
static rule_id repeat_rest(struct rules *r, const struct repetition *t) {
    const uint32_t least = t->min > 1 ? t->min : 1;
    rule_id next = RULE_END;
    if (t->max == EXPR_NO_MAX) {
        next = rules_open(r);
        rules_close(r, next, rules_either(r, RULE_END, rules_call(r, t->more, next)));
    } else {
        for (uint32_t i = t->max; i > least; i--)
            next = rules_either(r, RULE_END, rules_call(r, t->more, next));
    }
    for (uint32_t i = least; i > 1; i--) next = rules_call(r, t->more, next);
    return next;
}

static enum status build_repeat(struct parts *p, const struct json *part, rule_id *out) {
    struct rules *r = &p->c->g->rules;
    const struct json *between = json_get(part, "between");
    struct repetition t = {.item = RULE_FAIL, .min = 0, .max = EXPR_NO_MAX};
    TRY(read_count(p, part, "min", &t.min));
    TRY(read_count(p, part, "max", &t.max));
    if (t.min > t.max)
        return refuse(p->c, p->path, "repeat: min is %u and max is %u; expected min <= max", t.min,
                      t.max);
    TRY(build_inside(p, json_get(part, "repeat"), "repeat", NO_INDEX, &t.item));
    t.more = t.item;
    if (between) {
        TRY(build_inside(p, between, "between", NO_INDEX, &t.more));
        t.more = rules_call(r, t.more, t.item);
    }
    *out = RULE_END;
    if (t.max > 0) *out = rules_call(r, t.item, repeat_rest(r, &t));
    if (t.min == 0) *out = rules_either(r, RULE_END, *out);
    return ST_OK;
}

/* ---- any part ---- */

static const struct part_kind kinds[] = {
    {"text", {NULL}, build_text},
    {"token", {NULL}, build_token},
    {"free", {"pattern", "at", "relax", NULL}, build_free},
    {"pattern", {NULL}, build_pattern},
    {"schema", {"at", "relax", "spaced", "whitespace", NULL}, build_schema},
    {"grammar", {"at", "source", NULL}, build_grammar},
    {"refuse", {"at", NULL}, build_refusal},
    {"sequence", {NULL}, build_sequence},
    {"any", {NULL}, build_any},
    {"some", {"between", NULL}, build_some},
    {"repeat", {"min", "max", "between", NULL}, build_repeat},
};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

static bool has_option(const struct part_kind *kind, struct str key) {
    if (str_is(key, kind->key)) return true;
    for (uint32_t i = 0; i < OPTIONS_MAX && kind->options[i]; i++)
        if (str_is(key, kind->options[i])) return true;
    return false;
}

static enum status build_kind(struct parts *p, const struct json *part, rule_id *out) {
    size_t k = 0;
    while (k < KINDS && !json_get(part, kinds[k].key)) k++;
    if (k == KINDS)
        return refuse(p->c, p->path,
                      "expected an object with text, token, free, pattern, schema, grammar, "
                      "sequence, any, some or repeat");
    for (struct json_iter i = json_iter_first(part); json_iter_ok(&i); json_iter_next(&i))
        if (!has_option(&kinds[k], i.key))
            return refuse(p->c, p->path, "unknown key \"%.*s\" beside \"%s\"", STR_ARG(i.key),
                          kinds[k].key);
    TRY(kinds[k].build(p, part, out));
    return p->c->g->budget.status;
}

/* Recursion is bounded by DEPTH_MAX. */
static enum status build(struct parts *p, const struct json *part, rule_id *out) {
    if (p->depth == DEPTH_MAX)
        return refuse(p->c, p->path, "parts nest more than %d levels deep", DEPTH_MAX);
    p->depth++;
    const enum status st = build_kind(p, part, out);
    p->depth--;
    return st;
}

enum status compile_parts(struct compiler *c, struct str source) {
    static const struct json_limits limits = {.bytes_max = SCHEMA_BYTES_MAX,
                                              .depth_max = SCHEMA_DEPTH_MAX +
                                                           (DEPTH_MAX + 1) * LEVELS_OF_PART,
                                              .values_max = SCHEMA_VALUES_MAX};
    struct parts p = {.c = c, .path = "#"};
    struct json *doc = NULL;
    struct err err = {0};
    rule_id root = RULE_FAIL;
    enum status st = json_parse(source, &limits, &doc, &err);
    if (st == ST_NOMEM) c->g->budget.status = ST_NOMEM;
    if (st == ST_BAD) st = refuse(c, "", "the parts cannot be read: %s", err.text);
    if (st == ST_OK) st = build(&p, doc, &root);
    if (st == ST_OK) c->g->root = root;
    json_destroy(doc);
    return st;
}
