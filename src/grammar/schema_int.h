/* grammar/schema_int.h - what the parts of the JSON Schema compiler share.
 *
 * A value is described by a conjunction: a list of terms that all hold. A term is a schema, a part
 * of one, or its negation. Terms that are alternatives (anyOf, not, if, ...) are resolved one after
 * the other: the conjunction becomes a choice of conjunctions with one alternative each. What
 * remains are local terms, whose keywords speak of the value itself; from these come the rules.
 *
 * Equal conjunctions have the same rule, so recursive schemas end.
 */
#ifndef GRAMMAR_SCHEMA_INT_H
#define GRAMMAR_SCHEMA_INT_H

#include "base/json.h"
#include "grammar/compile.h"

struct map64;

enum term_kind {
    TERM_ALL,          /* the whole schema */
    TERM_LOCAL,        /* its keywords about the value itself; arg 1: without enum and const */
    TERM_TYPES,        /* the value has one of the types `arg` */
    TERM_NOT_VALUES,   /* it is none of the schema's enum, nor its const */
    TERM_NOT_PATTERN,  /* a string that the schema's pattern does not match */
    TERM_NOT_FORMAT,   /* a string that is not of the schema's format */
    TERM_NOT_MULTIPLE, /* a number that is no multiple of the schema's multipleOf */
    TERM_BRANCHES,     /* from here on: terms that are resolved to alternatives */
    TERM_NOT = TERM_BRANCHES, /* arg 1: of a schema of oneOf that another one excludes */
    TERM_ANY_OF,
    TERM_ONE_OF,
    TERM_IF,
    TERM_DEPENDENT,   /* arg: the member of dependentRequired and its relatives */
    TERM_UNEVALUATED, /* arg 0: unevaluatedProperties, 1: unevaluatedItems */
};

enum type_bit {
    TYPE_NULL = 1,
    TYPE_BOOL = 2,
    TYPE_INTEGER = 4,
    TYPE_FRACTION = 8, /* a number that is not an integer */
    TYPE_TEXT = 16,
    TYPE_LIST = 32,
    TYPE_MAP = 64,
    TYPE_NUMBER = TYPE_INTEGER | TYPE_FRACTION,
    TYPE_EVERY = 127,
};

struct term {
    const struct json *schema; /* NULL: TERM_TYPES */
    enum term_kind kind;
    uint32_t arg;
};

enum { CONJUNCTION_MAX = 100, PROPERTIES_MAX = 20000 };
/* Parts of one array or object for which a schema has to hold ("\1has"), counted by bits. */
enum { HAS_MAX = 3 };

struct conjunction {
    uint32_t count;
    bool is_false; /* nothing satisfies it */
    struct term terms[CONJUNCTION_MAX];
};

/* A conjunction whose rule is known or waits to be compiled. */
struct value_entry {
    uint32_t start, count; /* in `terms` */
    rule_id rule;
};

/* A schema with an identifier of its own, and anchors inside it. */
struct resource {
    char *uri; /* heap; without fragment */
    const struct json *schema;
};

struct schema {
    struct compiler *c;
    struct expr_pool *exprs;
    struct rules *rules;
    const struct json *doc;
    struct json *made;    /* a list that owns the schemas which the compiler makes */
    uint32_t draft;       /* 4, 6, 7, 2019 or 2020 */
    struct map64 *places; /* of maps in `doc`: address to 1 + index of the resource; may be NULL */
    struct resource *resources;
    uint32_t resource_count, resource_cap;
    struct value_entry *entries;
    uint32_t entry_count, entry_cap;
    struct map64 *known; /* hash of a conjunction to index in `entries` */
    struct map64 *kept;  /* hash of what a schema was made for to its address */
    struct term *terms;
    uint32_t term_count, term_cap;
    expr_id char_any;       /* one character of a JSON string, with every escape */
    expr_id text_canonical; /* every JSON string as chars_spell_json writes it */
    expr_id key_end;        /* ':' */
    /* The terms beside the branch that is being resolved; NULL: none. */
    const struct conjunction *around;
    uint32_t apart_steps; /* that schemas_apart may still take */
};

/* schema.c */
enum status schema_refuse(struct schema *s, const struct json *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool conjunction_add(struct schema *s, struct conjunction *to, struct term t);
rule_id value_rule(struct schema *s, const struct conjunction *what);
rule_id schema_rule(struct schema *s, const struct json *schema); /* of one schema; NULL: any */
/* Resolve `what` to local terms and branches. */
enum status expand(struct schema *s, const struct conjunction *what, struct conjunction *out);
/* A punctuation character, with blanks around it if they are allowed. */
expr_id mark_expr(struct schema *s, char mark);
/* A schema that the compiler makes: `text` is JSON; NULL: the budget has failed. */
struct json *schema_make(struct schema *s, const char *text);
struct json *schema_wrap(struct schema *s, const char *key, const struct json *schema);
/* Made schemas are kept by what they were made for, so that the same conjunction has the same
 * terms. made_find gives NULL where there is none; made_keep returns what it keeps. */
struct json *made_find(const struct schema *s, const void *from, const char *tag, struct str name);
struct json *made_keep(struct schema *s, const void *from, const char *tag, struct str name,
                       struct json *made);
uint32_t types_of(const struct json *v);       /* of a value: one bit */
uint32_t types_named(const struct json *type); /* of the keyword `type`; 0: wrong */
uint32_t conjunction_types(const struct conjunction *what);
/* The values that a schema's enum and const allow; NULL: no such keyword. A const is a list of
 * one. */
const struct json *schema_values(struct schema *s, const struct json *schema);

/* A keyword that is a count; EXPR_NO_MAX stands for more. `out` is unchanged where it is absent. */
enum status count_keyword(struct schema *s, const struct json *schema, const char *key,
                          uint32_t *out);
/* schema_value.c: the rule of terms of which number `at` lists the values. */
enum status values_rule(struct schema *s, const struct conjunction *what, uint32_t at,
                        rule_id *out);
/* schema_uneval.c: unevaluatedProperties and unevaluatedItems as a schema of its own. */
enum status uneval_terms(struct schema *s, const struct json *schema, struct conjunction *out);

/* schema_branch.c: alternatives of a branch term, given to `each` one after the other. */
typedef enum status (*alternative_fn)(struct schema *s, const struct term *terms, uint32_t count,
                                      void *ctx);
enum status alternatives_of(struct schema *s, struct term t, alternative_fn each, void *ctx);
/* schema_uneval.c: those of TERM_UNEVALUATED. */
enum status uneval_alternatives(struct schema *s, struct term t, alternative_fn each, void *ctx);

/* schema_not.c. `is_implied`: as of TERM_NOT; what cannot be negated then gives no alternative. */
enum status negation_of(struct schema *s, struct term t, alternative_fn each, void *ctx);
/* schema_not_parts.c: the alternatives in which keywords about parts of arrays and objects fail.
 * Some of them need a part for which a schema holds. The made schema {"\1has": {"value": ..}} says
 * so, with "from" (the first place of an array where the item may be), or with "kind": a property
 *   "other"     that `additionalProperties` of "base" is about
 *   "matching"  whose name matches "pattern"
 *   "named"     whose name is not of "value", which is a propertyNames; its value may be any */
struct negation {
    struct schema *s;
    const struct json *schema;
    bool is_implied;
    alternative_fn each;
    void *ctx;
};
enum status negate_parts(const struct negation *n);
enum status negation_give(const struct negation *n, const struct json *schema, enum term_kind kind,
                          uint32_t arg);
/* The schema that holds where `schema` does not. */
const struct json *negation_wrap(const struct negation *n, const struct json *schema);
/* schema_apart.c */
/* The schema that a chain of $ref ends at, as far as it can be resolved. */
const struct json *ref_follow(struct schema *s, const struct json *schema);
/* Whether no value of s->around satisfies both; false also where it is not known. */
bool schemas_apart(struct schema *s, const struct json *a, const struct json *b);

/* schema_ref.c */
enum status refs_init(struct schema *s);
void refs_deinit(struct schema *s);
enum status ref_resolve(struct schema *s, const struct json *schema, const char *keyword,
                        const struct json **out);
void json_pointer_of(const struct json *doc, const struct json *at, char *out, size_t bytes);

/* schema_scalar.c */
enum status number_expr(struct schema *s, const struct conjunction *what, uint32_t types,
                        expr_id *out);
enum status text_expr(struct schema *s, const struct conjunction *what, expr_id *out);
/* Strings that satisfy any terms, branches included. */
enum status text_language(struct schema *s, const struct conjunction *what, uint32_t depth,
                          expr_id *out);
expr_id value_expr(struct schema *s, const struct json *value); /* exactly this value */
expr_id key_expr(struct schema *s, struct str name);            /* with its quotes */
/* Two patterns, one of which matches texts of the format; the second may be NULL. NULL: the format
 * asserts nothing. The first is NULL: it cannot be kept. */
const char *const *format_patterns(struct str name);
/* Times with a leap second, with their quotes, for the formats that have them; else EXPR_NONE. */
expr_id format_leap_seconds(struct expr_pool *p, struct str name);

/* schema_list.c, schema_map.c */
/* The schemas of the first items, by position, and of those behind them; NULL: any. */
const struct json *list_prefix(const struct schema *s, const struct json *schema);
const struct json *list_rest(const struct json *schema);
enum status list_rule(struct schema *s, const struct conjunction *what, rule_id *out);
enum status map_rule(struct schema *s, const struct conjunction *what, rule_id *out);

#endif
