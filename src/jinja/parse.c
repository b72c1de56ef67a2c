/* jinja/parse.c - parses statements and the text between them.
 *
 * Entry points: jinja_parse(), template_create(), template_destroy(), and the small tools
 * that expr.c and scope.c share.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/mem.h"
#include "jinja/template.h"
#include "jinja/parse.h"

enum {
    SOURCE_BYTES_MAX = 1 << 20,
    ARENA_BYTES_MAX = 256 << 20, /* a token and a node for every byte or two of source */
    PARSE_DEPTH_MAX = 200,       /* every level is a dozen C frames */
};

/* ------------------------------------------------------------------ shared tools */

enum status jinja_parse_fail(struct parse *p, uint32_t line, const char *fmt, ...) {
    char text[ERR_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return err_set(p->err, ST_BAD, "line %u: %s", line, text);
}

enum status jinja_parse_full(struct parse *p) {
    if (arena_status(p->arena) == ST_NOMEM) return err_set(p->err, ST_NOMEM, "out of memory");
    return err_set(p->err, ST_FULL, "the template is too large to parse");
}

enum status jinja_parse_enter(struct parse *p, uint32_t line) {
    if (p->depth >= PARSE_DEPTH_MAX)
        return jinja_parse_fail(p, line, "nested over %d deep", PARSE_DEPTH_MAX);
    p->depth++;
    return ST_OK;
}

const struct token *jinja_token_now(const struct parse *p) { return &p->tokens.items[p->pos]; }

/* The last token is T_EOF and is never passed. */
const struct token *jinja_token_take(struct parse *p) {
    const struct token *t = jinja_token_now(p);
    if (t->kind != T_EOF) p->pos++;
    return t;
}

bool jinja_token_is_name(const struct parse *p, const char *name) {
    return jinja_token_now(p)->kind == T_NAME && str_is(jinja_token_now(p)->text, name);
}

bool jinja_token_skip(struct parse *p, enum token_kind kind) {
    if (jinja_token_now(p)->kind != kind) return false;
    jinja_token_take(p);
    return true;
}

bool jinja_token_skip_name(struct parse *p, const char *name) {
    if (!jinja_token_is_name(p, name)) return false;
    jinja_token_take(p);
    return true;
}

static const char *token_words(enum token_kind kind) {
    static const char *const words[] = {
        [T_EOF] = "the end of the template",
        [T_DATA] = "text",
        [T_VARIABLE_BEGIN] = "'{{'",
        [T_VARIABLE_END] = "'}}'",
        [T_BLOCK_BEGIN] = "'{%'",
        [T_BLOCK_END] = "'%}'",
        [T_NAME] = "a name",
        [T_STRING] = "a string",
        [T_INT] = "an integer",
        [T_FLOAT] = "a number",
        [T_ADD] = "'+'",
        [T_SUB] = "'-'",
        [T_MUL] = "'*'",
        [T_DIV] = "'/'",
        [T_FLOORDIV] = "'//'",
        [T_MOD] = "'%'",
        [T_POW] = "'**'",
        [T_TILDE] = "'~'",
        [T_EQ] = "'=='",
        [T_NE] = "'!='",
        [T_LT] = "'<'",
        [T_LE] = "'<='",
        [T_GT] = "'>'",
        [T_GE] = "'>='",
        [T_IN] = "'in'",
        [T_NOT_IN] = "'not in'",
        [T_ASSIGN] = "'='",
        [T_DOT] = "'.'",
        [T_COLON] = "':'",
        [T_SEMICOLON] = "';'",
        [T_PIPE] = "'|'",
        [T_COMMA] = "','",
        [T_LPAREN] = "'('",
        [T_RPAREN] = "')'",
        [T_LBRACKET] = "'['",
        [T_RBRACKET] = "']'",
        [T_LBRACE] = "'{'",
        [T_RBRACE] = "'}'",
    };
    return words[kind];
}

enum status jinja_token_unexpected(struct parse *p) {
    const struct token *t = jinja_token_now(p);
    if (t->kind == T_NAME)
        return jinja_parse_fail(p, t->line, "unexpected '%.*s'", STR_ARG(t->text));
    return jinja_parse_fail(p, t->line, "unexpected %s", token_words(t->kind));
}

enum status jinja_token_expect(struct parse *p, enum token_kind kind) {
    const struct token *t = jinja_token_now(p);
    if (jinja_token_skip(p, kind)) return ST_OK;
    if (t->kind == T_NAME)
        return jinja_parse_fail(p, t->line, "expected %s, got '%.*s'", token_words(kind),
                                STR_ARG(t->text));
    return jinja_parse_fail(p, t->line, "expected %s, got %s", token_words(kind),
                            token_words(t->kind));
}

enum status jinja_node_new(struct parse *p, enum node_kind kind, uint32_t line, struct node **out) {
    struct node *n = arena_zalloc_array(p->arena, 1, sizeof(*n));
    if (!n) return jinja_parse_full(p);
    n->kind = kind;
    n->line = line;
    *out = n;
    return ST_OK;
}

enum status jinja_nodes_push(struct parse *p, struct nodes *list, struct node *node) {
    if (list->count == list->cap) {
        uint32_t cap = list->cap ? list->cap * 2 : 2;
        struct node **grown = arena_zalloc_array(p->arena, cap, sizeof(struct node *));
        if (!grown) return jinja_parse_full(p);
        if (list->count) memcpy(grown, list->items, list->count * sizeof(struct node *));
        list->items = grown;
        list->cap = cap;
    }
    list->items[list->count++] = node;
    return ST_OK;
}

/* ------------------------------------------------------------------ bodies */

static enum status parse_statement(struct parse *p, struct node **out);

static bool is_end(const struct parse *p, const char *const *ends) {
    for (; *ends; ends++)
        if (jinja_token_is_name(p, *ends)) return true;
    return false;
}

/* Append to the last node of `body` if that is output, else start a new one. */
static enum status push_output(struct parse *p, struct nodes *body, struct node *value) {
    struct node *last = body->count ? body->items[body->count - 1] : NULL;
    if (!last || last->kind != N_OUTPUT) {
        TRY(jinja_node_new(p, N_OUTPUT, value->line, &last));
        TRY(jinja_nodes_push(p, body, last));
    }
    return jinja_nodes_push(p, &last->list, value);
}

static enum status push_data(struct parse *p, struct nodes *body) {
    const struct token *t = jinja_token_take(p);
    struct node *n = NULL;
    TRY(jinja_node_new(p, N_CONST, t->line, &n));
    struct text *text = jinja_text_in_arena(p->arena, t->text);
    if (!text) return jinja_parse_full(p);
    jinja_text_chars(text);
    n->constant = (struct value){.type = V_TEXT, .text = text};
    return push_output(p, body, n);
}

/* Up to a tag named in `ends`, which stays the next token; `ends` may be empty. */
static enum status parse_until(struct parse *p, const char *const *ends, struct nodes *body) {
    for (;;) {
        struct node *n = NULL;
        switch (jinja_token_now(p)->kind) {
        case T_EOF:
            return ST_OK;
        case T_DATA:
            TRY(push_data(p, body));
            break;
        case T_VARIABLE_BEGIN:
            jinja_token_take(p);
            TRY(jinja_parse_tuple(p, TUPLE_FULL, &n));
            TRY(push_output(p, body, n));
            TRY(jinja_token_expect(p, T_VARIABLE_END));
            break;
        default:
            TRY(jinja_token_expect(p, T_BLOCK_BEGIN));
            if (is_end(p, ends)) return ST_OK;
            TRY(parse_statement(p, &n));
            TRY(jinja_nodes_push(p, body, n));
            TRY(jinja_token_expect(p, T_BLOCK_END));
            break;
        }
    }
}

/* The body of a statement, from the end of its opening tag; *end is the name that ended it. */
static enum status parse_body(struct parse *p, const char *const *ends, struct nodes *body,
                              struct str *end) {
    uint32_t line = jinja_token_now(p)->line;
    jinja_token_skip(p, T_COLON);
    TRY(jinja_token_expect(p, T_BLOCK_END));
    TRY(jinja_parse_enter(p, line));
    TRY(parse_until(p, ends, body));
    p->depth--;
    if (jinja_token_now(p)->kind == T_EOF)
        return jinja_parse_fail(p, line, "the template ends before '%s'", ends[0]);
    *end = jinja_token_take(p)->text;
    return ST_OK;
}

static enum status parse_simple_body(struct parse *p, const char *end, struct nodes *body) {
    const char *const ends[] = {end, NULL};
    struct str found;
    return parse_body(p, ends, body, &found);
}

/* ------------------------------------------------------------------ statements */

static enum status parse_if(struct parse *p, struct node *n) {
    static const char *const ends[] = {"endif", "else", "elif", NULL};
    struct str end = STR("elif");
    struct nodes *bodies = NULL;
    while (str_is(end, "elif")) {
        struct node *test;
        uint32_t count = n->branch.tests.count;
        if ((count & (count - 1)) == 0) {
            size_t cap = count ? (size_t)count * 2 : 1;
            struct nodes *grown = arena_zalloc_array(p->arena, cap, sizeof(*grown));
            if (!grown) return jinja_parse_full(p);
            if (count) memcpy(grown, bodies, count * sizeof(*grown));
            bodies = grown;
        }
        TRY(jinja_parse_tuple(p, TUPLE_NO_COND, &test));
        TRY(jinja_nodes_push(p, &n->branch.tests, test));
        TRY(parse_body(p, ends, &bodies[count], &end));
    }
    n->branch.bodies = bodies;
    return str_is(end, "else") ? parse_simple_body(p, "endif", &n->branch.otherwise) : ST_OK;
}

/* The loop filter sees the target in a scope of its own, so it needs its own name nodes. */
static enum status copy_target(struct parse *p, const struct node *target, struct node **out) {
    TRY(jinja_node_new(p, target->kind, target->line, out));
    **out = *target;
    if (target->kind != N_TUPLE) return ST_OK;
    (*out)->list = (struct nodes){0};
    for (uint32_t i = 0; i < target->list.count; i++) {
        struct node *item;
        TRY(copy_target(p, target->list.items[i], &item));
        TRY(jinja_nodes_push(p, &(*out)->list, item));
    }
    return ST_OK;
}

static enum status parse_for(struct parse *p, struct node *n) {
    static const char *const ends[] = {"endfor", "else", NULL};
    struct for_parts *parts = arena_zalloc_array(p->arena, 1, sizeof(*parts));
    if (!parts) return jinja_parse_full(p);
    n->loop = parts;
    TRY(jinja_parse_target(p, TUPLE_TARGET, &parts->target));
    if (!jinja_token_skip_name(p, "in")) return jinja_token_unexpected(p);
    TRY(jinja_parse_tuple(p, TUPLE_NO_COND, &parts->iter));
    if (jinja_token_skip_name(p, "if")) {
        TRY(jinja_parse_expression(p, &parts->test));
        TRY(copy_target(p, parts->target, &parts->test_target));
    }
    parts->recursive = jinja_token_skip_name(p, "recursive");
    struct str end;
    p->loops++;
    TRY(parse_body(p, ends, &parts->body, &end));
    p->loops--;
    return str_is(end, "else") ? parse_simple_body(p, "endfor", &parts->otherwise) : ST_OK;
}

static enum status parse_set(struct parse *p, struct node *n) {
    TRY(jinja_parse_target(p, TUPLE_NS_TARGET, &n->set.target));
    if (jinja_token_skip(p, T_ASSIGN)) return jinja_parse_tuple(p, TUPLE_FULL, &n->set.value);
    n->kind = N_SET_BLOCK;
    TRY(jinja_parse_filters(p, NULL, false, &n->set.value));
    return parse_simple_body(p, "endset", &n->set.body);
}

static enum status parse_with(struct parse *p, struct node *n) {
    while (jinja_token_now(p)->kind != T_BLOCK_END) {
        struct node *target, *value;
        if (n->with.targets.count) TRY(jinja_token_expect(p, T_COMMA));
        TRY(jinja_parse_target(p, TUPLE_TARGET, &target));
        TRY(jinja_nodes_push(p, &n->with.targets, target));
        TRY(jinja_token_expect(p, T_ASSIGN));
        TRY(jinja_parse_expression(p, &value));
        TRY(jinja_nodes_push(p, &n->with.values, value));
    }
    return parse_simple_body(p, "endwith", &n->with.body);
}

static enum status parse_signature(struct parse *p, struct macro *m) {
    TRY(jinja_token_expect(p, T_LPAREN));
    while (jinja_token_now(p)->kind != T_RPAREN) {
        struct node *param, *value;
        if (m->params.count) TRY(jinja_token_expect(p, T_COMMA));
        TRY(jinja_parse_target_name(p, &param));
        if (jinja_token_skip(p, T_ASSIGN)) {
            TRY(jinja_parse_expression(p, &value));
            TRY(jinja_nodes_push(p, &m->defaults, value));
        } else if (m->defaults.count) {
            return jinja_parse_fail(p, param->line,
                                    "non-default argument follows default argument");
        }
        for (uint32_t i = 0; i < m->params.count; i++)
            if (str_eq(m->params.items[i]->name.name, param->name.name))
                return jinja_parse_fail(p, param->line, "parameter '%.*s' appears twice",
                                        STR_ARG(param->name.name));
        TRY(jinja_nodes_push(p, &m->params, param));
    }
    return jinja_token_expect(p, T_RPAREN);
}

/* break and continue in a macro cannot mean a loop around the macro: the body runs where the macro
 * is called. */
static enum status parse_macro_body(struct parse *p, const char *end, struct nodes *body) {
    uint32_t loops = p->loops;
    p->loops = 0;
    TRY(parse_simple_body(p, end, body));
    p->loops = loops;
    return ST_OK;
}

static enum status parse_macro(struct parse *p, struct node *n) {
    struct macro *m = arena_zalloc_array(p->arena, 1, sizeof(*m));
    if (!m) return jinja_parse_full(p);
    n->macro.macro = m;
    TRY(jinja_parse_target_name(p, &n->macro.target));
    m->name = n->macro.target->name.name;
    TRY(parse_signature(p, m));
    return parse_macro_body(p, "endmacro", &m->body);
}

static enum status parse_call_block(struct parse *p, struct node *n) {
    struct macro *m = arena_zalloc_array(p->arena, 1, sizeof(*m));
    if (!m) return jinja_parse_full(p);
    n->macro.macro = m;
    if (jinja_token_now(p)->kind == T_LPAREN) TRY(parse_signature(p, m));
    TRY(jinja_parse_expression(p, &n->macro.target));
    if (n->macro.target->kind != N_CALL) return jinja_parse_fail(p, n->line, "expected a call");
    return parse_macro_body(p, "endcall", &m->body);
}

static enum status parse_filter_block(struct parse *p, struct node *n) {
    struct node *filter;
    TRY(jinja_parse_filters(p, NULL, true, &filter));
    TRY(jinja_nodes_push(p, &n->with.values, filter));
    return parse_simple_body(p, "endfilter", &n->with.body);
}

/* {% generation %} marks the text of a model for training. Rendered, it is a macro that is called
 * where it is defined. */
static enum status parse_generation(struct parse *p, struct node *n) {
    struct macro *m = arena_zalloc_array(p->arena, 1, sizeof(*m));
    if (!m) return jinja_parse_full(p);
    n->macro.macro = m;
    return parse_macro_body(p, "endgeneration", &m->body);
}

static enum status parse_print(struct parse *p, struct node *n) {
    while (jinja_token_now(p)->kind != T_BLOCK_END) {
        struct node *value;
        if (n->list.count) TRY(jinja_token_expect(p, T_COMMA));
        TRY(jinja_parse_expression(p, &value));
        TRY(jinja_nodes_push(p, &n->list, value));
    }
    return ST_OK;
}

static enum status parse_jump(struct parse *p, struct node *n) {
    if (!p->loops)
        return jinja_parse_fail(p, n->line, "'%s' outside a loop",
                                n->kind == N_BREAK ? "break" : "continue");
    return ST_OK;
}

static const struct {
    const char *name;
    enum node_kind kind;
    enum status (*parse)(struct parse *p, struct node *n);
} statements[] = {
    {"if", N_IF, parse_if},
    {"for", N_FOR, parse_for},
    {"set", N_SET, parse_set},
    {"with", N_WITH, parse_with},
    {"macro", N_MACRO, parse_macro},
    {"call", N_CALL_BLOCK, parse_call_block},
    {"filter", N_FILTER_BLOCK, parse_filter_block},
    {"generation", N_GENERATION, parse_generation},
    {"print", N_OUTPUT, parse_print},
    {"break", N_BREAK, parse_jump},
    {"continue", N_CONTINUE, parse_jump},
};

/* Tags of the language that reach for other files or for HTML: a chat template has neither. */
static const char *const refused[] = {"include", "import", "from",
                                      "extends", "block",  "autoescape"};

static enum status parse_statement(struct parse *p, struct node **out) {
    const struct token *t = jinja_token_now(p);
    if (t->kind != T_NAME) return jinja_parse_fail(p, t->line, "expected the name of a tag");
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (str_is(t->text, refused[i]))
            return jinja_parse_fail(p, t->line, "tag '%s' is not supported in chat templates",
                                    refused[i]);
    for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
        if (!str_is(t->text, statements[i].name)) continue;
        jinja_token_take(p);
        TRY(jinja_node_new(p, statements[i].kind, t->line, out));
        return statements[i].parse(p, *out);
    }
    return jinja_parse_fail(p, t->line, "unknown tag '%.*s'", STR_ARG(t->text));
}

enum status jinja_parse(struct parse *p, struct nodes *body) {
    static const char *const none[] = {NULL};
    return parse_until(p, none, body);
}

/* ------------------------------------------------------------------ the public pair */

static enum status build(struct parse *p, struct str source, struct template *t) {
    TRY(jinja_lex(p, source));
    TRY(jinja_parse(p, &t->body));
    return jinja_resolve(p, t);
}

enum status template_create(struct str source, struct template **out, struct err *err) {
    CHECK(out);
    if (source.len > SOURCE_BYTES_MAX)
        return err_set(err, ST_BAD, "a template of %zu bytes, at most %d are read", source.len,
                       SOURCE_BYTES_MAX);
    struct template *t = mem_zalloc(sizeof(*t));
    if (!t) return err_set(err, ST_NOMEM, "out of memory");
    struct parse p = {.err = err, .arena = arena_create(ARENA_BYTES_MAX)};
    t->arena = p.arena;
    enum status st = p.arena ? build(&p, source, t) : err_set(err, ST_NOMEM, "out of memory");
    if (st != ST_OK) {
        template_destroy(t);
        return st;
    }
    *out = t;
    return ST_OK;
}

void template_destroy(struct template *t) {
    if (!t) return;
    arena_destroy(t->arena);
    mem_free(t);
}
