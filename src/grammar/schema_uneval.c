/* grammar/schema_uneval.c - unevaluatedProperties and unevaluatedItems.
 *
 * Which properties are evaluated is known without a value where only allOf and $ref stand beside
 * the keyword. It then is additionalProperties of a schema that names all of them. Beside
 * alternatives it is refused.
 */
#include "grammar/schema_int.h"

enum { DEPTH_MAX = 20 };

struct evaluated {
    struct json *made; /* {"properties": .., "patternProperties": ..}, or with "prefixItems" */
    bool everything;   /* additionalProperties or items of any of them */
    size_t prefix;     /* items that are evaluated by position */
    bool is_items;
};

static bool is_true(const struct json *v) { return json_kind(v) == JS_BOOL && json_bool(v, false); }

static enum status note_names(const struct evaluated *e, const struct json *schema,
                              const char *key) {
    struct json *to = json_get(e->made, key);
    const struct json *from = json_get(schema, key);
    for (struct json_iter i = json_iter_first(from); json_iter_ok(&i); json_iter_next(&i))
        TRY(json_set(to, i.key, json_bool_create(true)));
    return ST_OK;
}

static enum status note_items(struct schema *s, struct evaluated *e, const struct json *schema) {
    const struct json *items = json_get(schema, "items");
    const struct json *prefix = s->draft >= 2020 ? json_get(schema, "prefixItems") : items;
    if (json_kind(prefix) == JS_LIST && json_count(prefix) > e->prefix)
        e->prefix = json_count(prefix);
    if (items && json_kind(items) != JS_LIST) e->everything = true;
    if (json_kind(items) == JS_LIST && json_get(schema, "additionalItems")) e->everything = true;
    if (json_get(schema, "contains") && s->draft >= 2020)
        return schema_refuse(s, schema, "unevaluatedItems beside contains is not supported");
    return ST_OK;
}

/* Recursion is bounded by DEPTH_MAX. */
static enum status gather(struct schema *s, struct evaluated *e, const struct json *schema,
                          uint32_t depth) {
    static const char *const branches[] = {"anyOf", "oneOf", "if", "dependentSchemas"};
    if (json_kind(schema) != JS_MAP) return ST_OK;
    if (depth > DEPTH_MAX)
        return schema_refuse(s, schema,
                             "unevaluated keywords over so many schemas are not supported");
    for (size_t i = 0; i < sizeof(branches) / sizeof(*branches); i++)
        if (json_get(schema, branches[i]))
            return schema_refuse(s, schema, "%s beside %s cannot be kept exactly",
                                 e->is_items ? "unevaluatedItems" : "unevaluatedProperties",
                                 branches[i]);
    if (json_get(schema, "$dynamicRef"))
        return schema_refuse(s, schema, "$dynamicRef is not supported");
    if (e->is_items) {
        TRY(note_items(s, e, schema));
    } else {
        TRY(note_names(e, schema, "properties"));
        TRY(note_names(e, schema, "patternProperties"));
        if (json_get(schema, "additionalProperties")) e->everything = true;
    }
    if (depth && json_get(schema, e->is_items ? "unevaluatedItems" : "unevaluatedProperties"))
        e->everything = true;
    const struct json *all = json_get(schema, "allOf"), *target = NULL;
    for (size_t i = 0; i < json_count(all); i++) TRY(gather(s, e, json_at(all, i), depth + 1));
    if (!json_get(schema, "$ref")) return ST_OK;
    TRY(ref_resolve(s, schema, "$ref", &target));
    return gather(s, e, target, depth + 1);
}

static enum status make_schema(struct schema *s, const struct json *schema, const char *key,
                               bool is_items, const struct json **out) {
    struct evaluated e = {.is_items = is_items};
    e.made = schema_make(s, "{\"properties\":{},\"patternProperties\":{},\"\\u0001skip\":[]}");
    if (!e.made) return ST_NOMEM;
    TRY(gather(s, &e, schema, 0));
    for (size_t i = 0; i < e.prefix && !e.everything; i++)
        TRY(json_push(json_get(e.made, "\x01skip"), json_bool_create(true)));
    if (!e.everything)
        TRY(json_set(e.made, str_of(is_items ? "\x01rest" : "additionalProperties"),
                     json_pin(json_get(schema, key))));
    *out = made_keep(s, schema, key, STR(""), e.made);
    return *out ? ST_OK : ST_NOMEM;
}

static enum status add_made(struct schema *s, const struct json *schema, const char *key,
                            bool is_items, struct conjunction *out) {
    const struct json *rest = json_get(schema, key);
    if (!rest || is_true(rest) || s->draft < 2019) return ST_OK;
    const struct json *made = made_find(s, schema, key, STR(""));
    if (!made) TRY(make_schema(s, schema, key, is_items, &made));
    return conjunction_add(s, out, (struct term){made, TERM_LOCAL, 0}) ? ST_OK : ST_BAD;
}

enum status uneval_terms(struct schema *s, const struct json *schema, struct conjunction *out) {
    TRY(add_made(s, schema, "unevaluatedProperties", false, out));
    return add_made(s, schema, "unevaluatedItems", true, out);
}
