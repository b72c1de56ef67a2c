/* api/grammar_read.c - see api/grammar_read.h for the contract. */
#include "api/grammar_read.h"

#include <string.h>

#include "api/fields.h"
#include "api/request.h"
#include "base/check.h"
#include "base/json.h"

enum { SOURCE_BYTES_MAX = 1 << 26 };

/* The first name of a path: "response_format" of "response_format.type". */
static struct str root_of(const char *path) { return (struct str){path, strcspn(path, ".")}; }

/* A schema may follow the type of the same format; else one grammar is all that a request has. */
static enum status take_place(const struct api_field *f, struct api_request *r, const char *param,
                              struct api_error *e) {
    struct api_grammar *g = &r->grammar;
    bool completes = g->field && g->is_format && str_eq(root_of(g->field), root_of(f->path));
    if (g->field && !completes)
        return api_refuse(e, 400, param, "invalid_value",
                          "'%s' and '%s' both say what the answer must be; give one of them.",
                          g->field, param);
    *g = (struct api_grammar){.field = f->path, .is_given = true};
    buf_init(&g->source, SOURCE_BYTES_MAX);
    return ST_OK;
}

static enum status store_source(struct api_request *r, enum grammar_kind kind,
                                const struct json *v) {
    struct api_grammar *g = &r->grammar;
    g->kind = kind;
    if (json_kind(v) == JS_TEXT)
        buf_put_str(&g->source, json_str(v));
    else
        json_put(v, &g->source);
    return buf_status(&g->source) == ST_OK ? ST_OK : ST_NOMEM;
}

/* "text", "json_object" or "json_schema"; the row's words allow no other. */
static enum status store_format(const struct api_field *f, const struct json *v,
                                struct api_request *r, const char *param, struct api_error *e) {
    struct str type = json_str(v);
    if (str_is(type, "text")) return ST_OK;
    TRY(take_place(f, r, param, e));
    r->grammar.kind = GRAMMAR_JSON;
    r->grammar.is_format = true;
    r->grammar.needs_schema = str_is(type, "json_schema");
    return ST_OK;
}

/* Ollama's: "json", or a schema. */
static enum status store_json_or_schema(const struct api_field *f, const struct json *v,
                                        struct api_request *r, const char *param,
                                        struct api_error *e) {
    struct str text = json_str(v);
    if (json_kind(v) == JS_TEXT && !str_is(text, "json"))
        return api_refuse(e, 400, param, "invalid_value",
                          "Invalid '%s': '%.*s' is not supported; supported: \"json\", or a JSON "
                          "schema as an object.",
                          param, (int)(text.len > 100 ? 100 : text.len), text.ptr);
    TRY(take_place(f, r, param, e));
    r->grammar.kind = GRAMMAR_JSON;
    return json_kind(v) == JS_TEXT ? ST_OK : store_source(r, GRAMMAR_SCHEMA, v);
}

static bool is_left_out(const struct json *v) {
    if (json_kind(v) == JS_BOOL) return !json_bool(v, false);
    bool is_short = json_kind(v) == JS_TEXT || json_kind(v) == JS_LIST;
    return is_short && json_str(v).len == 0 && json_count(v) == 0;
}

static enum grammar_kind kind_of(enum field_store store, const struct json *v) {
    switch (store) {
    case STORE_SCHEMA:
        return GRAMMAR_SCHEMA;
    case STORE_REGEX:
        return GRAMMAR_REGEX;
    case STORE_CHOICE:
        return GRAMMAR_CHOICE;
    case STORE_RULES:
        return grammar_notation(json_str(v));
    default:
        CHECK(store == STORE_GBNF);
        return GRAMMAR_GBNF;
    }
}

enum status grammar_store(const struct api_field *f, const struct json *v, struct api_request *r,
                          const char *param, struct api_error *e) {
    if (f->store == STORE_FORMAT) return store_format(f, v, r, param, e);
    if (is_left_out(v) && f->store != STORE_SCHEMA) return ST_OK;
    if (f->store == STORE_JSON_OR_SCHEMA) return store_json_or_schema(f, v, r, param, e);
    if (json_kind(v) == JS_TEXT && json_str(v).len == 0) return ST_OK;
    TRY(take_place(f, r, param, e));
    if (f->store != STORE_ANY_JSON) return store_source(r, kind_of(f->store, v), v);
    r->grammar.kind = GRAMMAR_JSON;
    return ST_OK;
}

static enum status refuse_no_schema(const struct api_grammar *g, struct api_error *e) {
    struct str root = root_of(g->field);
    bool is_chat = str_is(root, "response_format");
    return api_refuse_missing(e, "%.*s.%s", STR_ARG(root),
                              is_chat ? "json_schema.schema" : "format.schema");
}

enum status grammar_check(const struct api_request *r, struct api_error *e) {
    if (r->grammar.needs_schema) return refuse_no_schema(&r->grammar, e);
    return ST_OK;
}
