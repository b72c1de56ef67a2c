/* grammar/schema.c - JSON Schema: conjunctions of terms, and the rules of their values.
 *
 * schema_compile -> schema_rule(root) enters the first conjunction; run_entries compiles them in
 * the order in which they were met, without recursion, until none is left. A grammar may have
 * several schemas (grammar/parts.c); each has its own document.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "grammar/chars.h"
#include "grammar/schema_int.h"

enum { ENTRIES_MAX = 200000, EXPAND_MAX = 400 };

enum status schema_refuse(struct schema *s, const struct json *at, const char *fmt, ...) {
    char path[GRAMMAR_PATH_BYTES], text[ERR_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    json_pointer_of(s->doc, at, path, sizeof(path));
    return refuse(s->c, path, "%s", text);
}

static enum status budget_state(const struct schema *s) { return s->c->g->budget.status; }

bool conjunction_add(struct schema *s, struct conjunction *to, struct term t) {
    for (uint32_t i = 0; i < to->count; i++) {
        const struct term *x = &to->terms[i];
        if (x->schema == t.schema && x->kind == t.kind && x->arg == t.arg) return true;
    }
    if (to->count == CONJUNCTION_MAX) {
        schema_refuse(s, t.schema, "more than %d schemas apply to one value", CONJUNCTION_MAX);
        return false;
    }
    to->terms[to->count++] = t;
    return true;
}

struct json *schema_make(struct schema *s, const char *text) {
    static const struct json_limits limits = {
        .bytes_max = 1 << 16, .depth_max = 16, .values_max = 10000};
    struct json *made = NULL;
    if (json_parse(str_of(text), &limits, &made, NULL) == ST_OK &&
        json_push(s->made, made) == ST_OK)
        return made;
    if (budget_state(s) == ST_OK) s->c->g->budget.status = ST_NOMEM;
    return NULL;
}

static uint64_t mix_bytes(uint64_t h, const char *bytes, size_t len) {
    for (size_t i = 0; i < len; i++) h = (h ^ (uint8_t)bytes[i]) * UINT64_C(0x100000001B3);
    return h * UINT64_C(0x9E3779B97F4A7C15) ^ h >> 29;
}

static uint64_t made_key(const void *from, const char *tag, struct str name) {
    uint64_t h = (uint64_t)(uintptr_t)from * UINT64_C(0xC2B2AE3D27D4EB4F);
    return mix_bytes(mix_bytes(h, tag, strlen(tag)), name.ptr, name.len);
}

struct json *made_find(const struct schema *s, const void *from, const char *tag, struct str name) {
    uint64_t at = 0;
    return map64_find(s->kept, made_key(from, tag, name), &at) ? (struct json *)(uintptr_t)at
                                                               : NULL;
}

struct json *made_keep(struct schema *s, const void *from, const char *tag, struct str name,
                       struct json *made) {
    if (made && map64_put(s->kept, made_key(from, tag, name), (uint64_t)(uintptr_t)made) == ST_OK)
        return made;
    if (budget_state(s) == ST_OK) s->c->g->budget.status = ST_NOMEM;
    return NULL;
}

/* {key: schema} */
struct json *schema_wrap(struct schema *s, const char *key, const struct json *schema) {
    struct json *made = made_find(s, schema, key, STR(""));
    if (made) return made;
    made = schema_make(s, "{}");
    if (made && json_set(made, str_of(key), json_pin(schema)) == ST_OK)
        return made_keep(s, schema, key, STR(""), made);
    if (budget_state(s) == ST_OK) s->c->g->budget.status = ST_NOMEM;
    return NULL;
}

expr_id mark_expr(struct schema *s, char mark) {
    expr_id e = expr_range(s->exprs, (uint8_t)mark, (uint8_t)mark);
    if (s->c->blanks == BLANKS_NONE) return e;
    if (s->c->blanks == BLANKS_ONE) {
        if (mark != ',' && mark != ':') return e;
        return expr_concat(s->exprs, e,
                           expr_repeat(s->exprs, expr_range(s->exprs, ' ', ' '), 0, 1));
    }
    struct byte_set set = {0};
    byte_set_add(&set, ' ', ' ');
    byte_set_add(&set, '\t', '\n');
    byte_set_add(&set, '\r', '\r');
    expr_id blanks = expr_repeat(s->exprs, expr_bytes(s->exprs, &set), 0, EXPR_NO_MAX);
    return expr_concat(s->exprs, blanks, expr_concat(s->exprs, e, blanks));
}

uint32_t types_of(const struct json *v) {
    switch (json_kind(v)) {
    case JS_NULL:
        return TYPE_NULL;
    case JS_BOOL:
        return TYPE_BOOL;
    case JS_INT:
        return TYPE_INTEGER;
    case JS_REAL: {
        double x = json_num(v, 0);
        return x > -1e300 && x < 1e300 && x - __builtin_floor(x) > 0 ? TYPE_FRACTION : TYPE_INTEGER;
    }
    case JS_TEXT:
        return TYPE_TEXT;
    case JS_LIST:
        return TYPE_LIST;
    case JS_MAP:
        return TYPE_MAP;
    case JS_NONE:
        break;
    }
    return 0;
}

static uint32_t type_named(struct str name) {
    static const struct {
        const char *name;
        uint32_t bits;
    } names[] = {{"null", TYPE_NULL},     {"boolean", TYPE_BOOL}, {"integer", TYPE_INTEGER},
                 {"number", TYPE_NUMBER}, {"string", TYPE_TEXT},  {"array", TYPE_LIST},
                 {"object", TYPE_MAP}};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (str_is(name, names[i].name)) return names[i].bits;
    return 0;
}

uint32_t types_named(const struct json *type) {
    if (json_kind(type) == JS_TEXT) return type_named(json_str(type));
    uint32_t bits = 0;
    for (size_t i = 0; i < json_count(type); i++) {
        uint32_t one = type_named(json_str(json_at(type, i)));
        if (!one) return 0;
        bits |= one;
    }
    return bits;
}

uint32_t conjunction_types(const struct conjunction *what) {
    uint32_t bits = TYPE_EVERY;
    for (uint32_t i = 0; i < what->count; i++) {
        const struct term *t = &what->terms[i];
        if (t->kind == TERM_TYPES) bits &= t->arg;
        if (t->kind == TERM_LOCAL && json_get(t->schema, "type"))
            bits &= types_named(json_get(t->schema, "type"));
        if (t->kind == TERM_NOT_PATTERN || t->kind == TERM_NOT_FORMAT) bits &= TYPE_TEXT;
        if (t->kind == TERM_NOT_MULTIPLE) bits &= TYPE_NUMBER;
    }
    return bits;
}

enum status count_keyword(struct schema *s, const struct json *schema, const char *key,
                          uint32_t *out) {
    const struct json *v = json_get(schema, key);
    if (!v) return ST_OK;
    double x = json_num(v, -1);
    if (x < 0 || x - __builtin_floor(x) > 0)
        return schema_refuse(s, schema, "%s: expected a whole number that is not negative", key);
    *out = x >= EXPR_NO_MAX ? EXPR_NO_MAX : (uint32_t)x;
    return ST_OK;
}

static enum status check_keywords(struct schema *s, const struct json *schema) {
    const struct json *type = json_get(schema, "type");
    if (type && types_named(type) == 0)
        return schema_refuse(s, schema,
                             "type: expected the name of a JSON type, or a list of them");
    static const char *const unsupported[] = {"$dynamicRef", "$recursiveRef"};
    for (size_t i = 0; i < sizeof(unsupported) / sizeof(*unsupported); i++)
        if (json_get(schema, unsupported[i]))
            return schema_refuse(s, schema, "%s is not supported", unsupported[i]);
    return ST_OK;
}

static bool add_dependents(struct schema *s, const struct json *schema, struct conjunction *out) {
    static const char *const names[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    for (uint32_t n = 0; n < 3; n++) {
        if ((n == 2) != (s->draft <= 7)) continue;
        uint32_t count = (uint32_t)json_count(json_get(schema, names[n]));
        for (uint32_t i = 0; i < count; i++)
            if (!conjunction_add(s, out, (struct term){schema, TERM_DEPENDENT, i * 4 + n}))
                return false;
    }
    return true;
}

/* The branches of one schema. */
static bool add_branches(struct schema *s, const struct json *schema, struct conjunction *out) {
    if (json_get(schema, "anyOf") &&
        !conjunction_add(s, out, (struct term){schema, TERM_ANY_OF, 0}))
        return false;
    if (json_get(schema, "oneOf") &&
        !conjunction_add(s, out, (struct term){schema, TERM_ONE_OF, 0}))
        return false;
    for (uint32_t i = 0; i < 2; i++) {
        const struct json *fails = json_get(schema, i ? "\x01not" : "not");
        if (fails && !conjunction_add(s, out, (struct term){fails, TERM_NOT, i})) return false;
    }
    bool has_if = json_get(schema, "if") && (json_get(schema, "then") || json_get(schema, "else"));
    if (has_if && !conjunction_add(s, out, (struct term){schema, TERM_IF, 0})) return false;
    return add_dependents(s, schema, out);
}

/* Schemas that were expanded, and those that wait. What a schema refers to comes right behind it,
 * because the order of the terms is the order of properties. */
struct expansion {
    const struct json *list[EXPAND_MAX];
    uint32_t count;
    uint32_t next; /* where the next one is put */
};

static enum status put_schema(struct schema *s, struct expansion *e, const struct json *schema) {
    for (uint32_t i = 0; i < e->count; i++)
        if (e->list[i] == schema) return ST_OK;
    if (e->count == EXPAND_MAX)
        return schema_refuse(s, schema, "more than %d schemas apply to one value", EXPAND_MAX);
    for (uint32_t i = e->count; i > e->next; i--) e->list[i] = e->list[i - 1];
    e->list[e->next++] = schema;
    e->count++;
    return ST_OK;
}

/* Follow $ref to what is not one; a circle is refused. */
static enum status follow_ref(struct schema *s, const struct json *schema, struct expansion *e) {
    const struct json *target = NULL, *at = schema;
    for (uint32_t i = 0; i < EXPAND_MAX; i++) {
        TRY(ref_resolve(s, at, "$ref", &target));
        if (!json_get(target, "$ref")) return put_schema(s, e, target);
        at = target;
        if (json_count(at) > 1 && s->draft > 7) return put_schema(s, e, at);
    }
    return schema_refuse(s, schema, "$ref refers to itself without a value between");
}

static enum status expand_schema(struct schema *s, const struct json *schema, struct expansion *e,
                                 struct conjunction *out) {
    if (json_kind(schema) == JS_BOOL) {
        if (!json_bool(schema, true)) out->is_false = true;
        return ST_OK;
    }
    if (json_kind(schema) != JS_MAP)
        return schema_refuse(s, schema, "a schema is an object or a boolean");
    if (json_get(schema, "$ref")) {
        TRY(follow_ref(s, schema, e));
        if (s->draft <= 7) return ST_OK; /* what stands beside it is not read */
    }
    TRY(check_keywords(s, schema));
    if (!conjunction_add(s, out, (struct term){schema, TERM_LOCAL, 0})) return ST_BAD;
    if (!add_branches(s, schema, out)) return ST_BAD;
    const struct json *all = json_get(schema, "allOf");
    for (size_t i = 0; i < json_count(all); i++) TRY(put_schema(s, e, json_at(all, i)));
    return uneval_terms(s, schema, out);
}

enum status expand(struct schema *s, const struct conjunction *what, struct conjunction *out) {
    struct expansion e = {.count = 0};
    *out = (struct conjunction){.is_false = what->is_false};
    for (uint32_t i = 0; i < what->count; i++) {
        if (what->terms[i].kind == TERM_ALL)
            TRY(put_schema(s, &e, what->terms[i].schema));
        else if (!conjunction_add(s, out, what->terms[i]))
            return ST_BAD;
    }
    for (uint32_t i = 0; i < e.count && !out->is_false; i++) {
        e.next = i + 1;
        TRY(expand_schema(s, e.list[i], &e, out));
    }
    return budget_state(s);
}

static uint64_t conjunction_hash(const struct conjunction *what) {
    uint64_t h = what->count;
    for (uint32_t i = 0; i < what->count; i++) {
        h = (h ^ (uint64_t)(uintptr_t)what->terms[i].schema) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 31;
        h = (h ^ what->terms[i].kind ^ (uint64_t)what->terms[i].arg << 8) *
            UINT64_C(0xC2B2AE3D27D4EB4F);
        h ^= h >> 29;
    }
    return h;
}

static rule_id known_rule(const struct schema *s, const struct conjunction *what, uint64_t hash) {
    uint64_t at = 0;
    if (!map64_find(s->known, hash, &at)) return RULE_FAIL;
    const struct value_entry *e = &s->entries[at];
    if (e->count != what->count) return RULE_FAIL;
    for (uint32_t i = 0; i < e->count; i++) {
        const struct term *x = &s->terms[e->start + i], *y = &what->terms[i];
        if (x->schema != y->schema || x->kind != y->kind || x->arg != y->arg) return RULE_FAIL;
    }
    return e->rule;
}

rule_id value_rule(struct schema *s, const struct conjunction *what) {
    struct budget *b = &s->c->g->budget;
    if (what->is_false) return RULE_FAIL;
    uint64_t hash = conjunction_hash(what);
    rule_id rule = known_rule(s, what, hash);
    if (rule != RULE_FAIL) return rule;
    if (s->entry_count >= ENTRIES_MAX) budget_spend_out(b, "states");
    rule = rules_open(s->rules);
    if (!budget_grow(b, (void **)&s->entries, &s->entry_cap, s->entry_count + 1,
                     sizeof(*s->entries)) ||
        !budget_grow(b, (void **)&s->terms, &s->term_cap, s->term_count + what->count,
                     sizeof(*s->terms)))
        return RULE_FAIL;
    if (map64_put(s->known, hash, s->entry_count) != ST_OK) b->status = ST_NOMEM;
    s->entries[s->entry_count++] = (struct value_entry){s->term_count, what->count, rule};
    if (what->count) memcpy(s->terms + s->term_count, what->terms, what->count * sizeof(*s->terms));
    s->term_count += what->count;
    return rule;
}

rule_id schema_rule(struct schema *s, const struct json *schema) {
    struct conjunction one = {.count = 0};
    if (schema) one.terms[one.count++] = (struct term){schema, TERM_ALL, 0};
    return value_rule(s, &one);
}

/* One after the other, the alternatives of a branch beside the remaining terms. */
struct choosing {
    const struct conjunction *rest;
    rule_id *rules;
    uint32_t count, cap;
};

static enum status add_alternative(struct schema *s, const struct term *terms, uint32_t count,
                                   void *ctx) {
    struct choosing *c = ctx;
    struct conjunction all = *c->rest;
    for (uint32_t i = 0; i < count; i++)
        if (!conjunction_add(s, &all, terms[i])) return ST_BAD;
    struct budget *b = &s->c->g->budget;
    if (!budget_grow(b, (void **)&c->rules, &c->cap, c->count + 1, sizeof(*c->rules)))
        return b->status;
    c->rules[c->count++] = value_rule(s, &all);
    return b->status;
}

static enum status branch_rule(struct schema *s, const struct conjunction *what, uint32_t at,
                               rule_id *out) {
    struct conjunction rest = *what;
    const struct term branch = what->terms[at];
    rest.count--;
    memmove(rest.terms + at, rest.terms + at + 1, (rest.count - at) * sizeof(*rest.terms));
    struct choosing c = {.rest = &rest};
    s->around = &rest;
    enum status st = alternatives_of(s, branch, add_alternative, &c);
    s->around = NULL;
    if (st == ST_OK) *out = rules_choice(s->rules, c.rules, c.count);
    s->c->g->budget.bytes -= c.cap * sizeof(*c.rules);
    mem_free(c.rules);
    return st;
}

static enum status typed_rules(struct schema *s, const struct conjunction *what, uint32_t types,
                               rule_id *out) {
    rule_id list[5] = {RULE_FAIL, RULE_FAIL, RULE_FAIL, RULE_FAIL, RULE_FAIL};
    struct rules *r = s->rules;
    expr_id words = EXPR_NONE, number = EXPR_NONE, text = EXPR_NONE;
    if (types & TYPE_NULL) words = expr_literal(s->exprs, STR("null"));
    if (types & TYPE_BOOL) {
        words = expr_or(s->exprs, words, expr_literal(s->exprs, STR("true")));
        words = expr_or(s->exprs, words, expr_literal(s->exprs, STR("false")));
    }
    for (uint32_t i = 0; i < what->count; i++) {
        const struct json *not_these = schema_values(s, what->terms[i].schema);
        if (what->terms[i].kind != TERM_NOT_VALUES) continue;
        for (size_t k = 0; k < json_count(not_these); k++) {
            expr_id e = value_expr(s, json_at(not_these, k));
            words = expr_and(s->exprs, words, expr_not(s->exprs, e));
            if (types_of(json_at(not_these, k)) & types & (TYPE_LIST | TYPE_MAP))
                return schema_refuse(s, what->terms[i].schema,
                                     "an array or object is excluded by its value; that cannot be "
                                     "kept exactly");
        }
    }
    if (types & TYPE_NUMBER) TRY(number_expr(s, what, types, &number));
    if (types & TYPE_TEXT) TRY(text_expr(s, what, &text));
    list[0] = rules_read(r, words, RULE_END);
    list[1] = rules_read(r, number, RULE_END);
    list[2] = rules_read(r, text, RULE_END);
    if (types & TYPE_LIST) TRY(list_rule(s, what, &list[3]));
    if (types & TYPE_MAP) TRY(map_rule(s, what, &list[4]));
    *out = rules_choice(r, list, 5);
    return ST_OK;
}

static enum status local_rule(struct schema *s, const struct conjunction *what, rule_id *out) {
    uint32_t types = conjunction_types(what);
    for (uint32_t i = 0; i < what->count; i++) {
        const struct term *t = &what->terms[i];
        if (t->kind == TERM_LOCAL && t->arg == 0 && schema_values(s, t->schema))
            return values_rule(s, what, i, out);
    }
    return typed_rules(s, what, types, out);
}

static bool requires(const struct json *schema, struct str name) {
    const struct json *list = json_get(schema, "required");
    for (size_t i = 0; json_kind(list) == JS_LIST && i < json_count(list); i++)
        if (str_eq(json_str(json_at(list, i)), name)) return true;
    return false;
}

/* Whether it can be seen at once that nothing satisfies the terms, before all their alternatives
 * are written down: there is no common type, or a property is required that must not be there. */
static bool is_contradiction(const struct conjunction *all) {
    const uint32_t types = conjunction_types(all);
    for (uint32_t i = 0; types == TYPE_MAP && i < all->count; i++) {
        const struct json *properties = json_get(all->terms[i].schema, "properties");
        const struct json_iter only = json_iter_first(properties);
        if (all->terms[i].kind != TERM_LOCAL || json_count(properties) != 1) continue;
        if (json_kind(only.value) != JS_BOOL || json_bool(only.value, true)) continue;
        for (uint32_t k = 0; k < all->count; k++)
            if (all->terms[k].kind == TERM_LOCAL && requires(all->terms[k].schema, only.key))
                return true;
    }
    return types == 0;
}

static enum status compile_entry(struct schema *s, uint32_t at) {
    struct conjunction what = {.count = s->entries[at].count}, all;
    if (what.count)
        memcpy(what.terms, s->terms + s->entries[at].start, what.count * sizeof(*what.terms));
    rule_id open = s->entries[at].rule, body = RULE_FAIL;
    TRY(expand(s, &what, &all));
    uint32_t branch = 0;
    while (branch < all.count && all.terms[branch].kind < TERM_BRANCHES) branch++;
    if (all.is_false || is_contradiction(&all))
        body = RULE_FAIL;
    else if (branch < all.count)
        TRY(branch_rule(s, &all, branch, &body));
    else
        TRY(local_rule(s, &all, &body));
    rules_close(s->rules, open, body);
    return budget_state(s);
}

/* A dialect that is made of the parts of drafts 2019-09 or 2020-12 may leave some of them out, and
 * its keywords then assert nothing. Other names than those of the drafts are read as 2020-12. */
static enum status check_dialect(struct schema *s) {
    struct str uri = json_str(json_get(s->doc, "$schema"));
    bool is_uri = false, is_known = false, has_parts = false;
    for (size_t i = 0; i < uri.len; i++) {
        const struct str rest = str_skip(uri, i);
        is_uri |= str_starts(rest, STR("://"));
        is_known |= str_starts(rest, STR("json-schema.org/"));
        has_parts |= str_starts(rest, STR("2019-09")) || str_starts(rest, STR("2020-12"));
    }
    if (!is_uri || is_known || !has_parts) return ST_OK;
    return schema_refuse(s, s->doc, "$schema \"%.*s\" is not a known draft", STR_ARG(uri));
}

static uint32_t draft_of(const struct json *doc) {
    static const struct {
        const char *part;
        uint32_t draft;
    } drafts[] = {{"draft-03", 3}, {"draft-04", 4},   {"draft-06", 6},
                  {"draft-07", 7}, {"2019-09", 2019}, {"2020-12", 2020}};
    struct str uri = json_str(json_get(doc, "$schema"));
    for (size_t i = 0; i < sizeof(drafts) / sizeof(*drafts); i++)
        for (size_t k = 0; k < uri.len; k++)
            if (str_starts(str_skip(uri, k), str_of(drafts[i].part))) return drafts[i].draft;
    return 2020;
}

/* Every JSON string: raw characters, short escapes, \u and four hexadecimal digits; surrogates only
 * in pairs. */
static expr_id any_char(struct expr_pool *p) {
    struct code_set raw = {0};
    code_set_add(&raw, 0, 0x1F);
    code_set_add(&raw, '"', '"');
    code_set_add(&raw, '\\', '\\');
    code_set_negate(&raw);
    struct byte_set shorts = {0}, hex = {0}, high = {0};
    for (const char *c = "\"\\/bfnrt"; *c; c++) byte_set_add(&shorts, (uint8_t)*c, (uint8_t)*c);
    byte_set_add(&hex, '0', '9');
    byte_set_add(&hex, 'A', 'F');
    byte_set_add(&hex, 'a', 'f');
    expr_id h = expr_bytes(p, &hex), h2 = expr_repeat(p, h, 2, 2);
    byte_set_add(&high, 'D', 'D');
    byte_set_add(&high, 'd', 'd');
    expr_id d = expr_bytes(p, &high);
    struct byte_set plain = hex, low7 = {0}, high8 = {0}, highc = {0};
    plain.bits[1] &= ~((UINT64_C(1) << ('D' - 64)) | (UINT64_C(1) << ('d' - 64)));
    byte_set_add(&low7, '0', '7');
    byte_set_add(&high8, '8', '9');
    byte_set_add(&high8, 'A', 'B');
    byte_set_add(&high8, 'a', 'b');
    byte_set_add(&highc, 'C', 'F');
    byte_set_add(&highc, 'c', 'f');
    expr_id u = expr_literal(p, STR("\\u"));
    expr_id single = expr_or(p, expr_concat(p, expr_bytes(p, &plain), h),
                             expr_concat(p, d, expr_bytes(p, &low7)));
    expr_id first = expr_concat(p, d, expr_concat(p, expr_bytes(p, &high8), h2));
    expr_id second = expr_concat(p, d, expr_concat(p, expr_bytes(p, &highc), h2));
    expr_id pair = expr_concat(p, u, expr_concat(p, first, expr_concat(p, u, second)));
    expr_id escape = expr_concat(p, expr_range(p, '\\', '\\'), expr_bytes(p, &shorts));
    expr_id code = expr_concat(p, u, expr_concat(p, single, h2));
    return expr_or_all(p, (expr_id[]){chars_expr(p, &raw, SPELL_UTF8), escape, code, pair}, 4);
}

static enum status schema_init(struct schema *s, struct compiler *c) {
    *s = (struct schema){.c = c, .exprs = c->g->exprs, .rules = &c->g->rules};
    s->made = json_list_create();
    s->known = map64_create(64);
    s->kept = map64_create(16);
    if (!s->made || !s->known || !s->kept) return c->g->budget.status = ST_NOMEM;
    struct expr_pool *p = s->exprs;
    expr_id quote = expr_range(p, '"', '"');
    s->char_any = any_char(p);
    expr_id canonical = expr_repeat(p, chars_any(p, SPELL_JSON), 0, EXPR_NO_MAX);
    s->text_canonical = expr_concat(p, quote, expr_concat(p, canonical, quote));
    s->key_end = mark_expr(s, ':');
    c->g->text_chars[0] = s->char_any;
    c->g->text_chars[1] = chars_any(p, SPELL_JSON);
    return ST_OK;
}

static void schema_deinit(struct schema *s) {
    refs_deinit(s);
    map64_destroy(s->known);
    map64_destroy(s->kept);
    mem_free(s->entries);
    mem_free(s->terms);
    json_destroy(s->made);
}

static enum status run_entries(struct schema *s) {
    enum status st = budget_state(s);
    for (uint32_t i = 0; i < s->entry_count && st == ST_OK; i++) st = compile_entry(s, i);
    struct budget *b = &s->c->g->budget; /* these are given back */
    b->bytes -= s->entry_cap * sizeof(*s->entries) + s->term_cap * sizeof(*s->terms);
    return st;
}

enum status schema_compile(struct compiler *c, const struct json *doc, rule_id *out) {
    struct schema s;
    enum status st = schema_init(&s, c);
    s.doc = doc;
    if (st == ST_OK) {
        s.draft = draft_of(s.doc);
        st = check_dialect(&s);
        if (st == ST_OK) st = refs_init(&s);
    }
    if (st == ST_OK) *out = schema_rule(&s, s.doc);
    if (st == ST_OK) st = run_entries(&s);
    schema_deinit(&s);
    return st;
}

enum status compile_schema(struct compiler *c, struct str source) {
    static const struct json_limits limits = {.bytes_max = SCHEMA_BYTES_MAX,
                                              .depth_max = SCHEMA_DEPTH_MAX,
                                              .values_max = SCHEMA_VALUES_MAX};
    struct json *doc = NULL;
    struct err err = {0};
    enum status st = json_parse(source, &limits, &doc, &err);
    if (st == ST_NOMEM) c->g->budget.status = ST_NOMEM;
    if (st == ST_BAD) st = refuse(c, "", "the schema cannot be read: %s", err.text);
    if (st == ST_OK) st = schema_compile(c, doc, &c->g->root);
    json_destroy(doc);
    return st;
}

enum status compile_json_object(struct compiler *c) {
    return compile_schema(c, STR("{\"type\":\"object\"}"));
}
