/* jinja/expr.c - parses expressions, loosest binding first:
 *
 *   a if b else c | or | and | not | == != < <= > >= in | + - | ~ | * / // % | ** |
 *   unary + - | literals, names, .attribute [item] (call) |filter  is test
 *
 * Entry points: jinja_parse_expression(), jinja_parse_tuple(), jinja_parse_target(),
 * jinja_parse_target_name(), jinja_parse_filters().
 */
#include <string.h>

#include "base/arena.h"
#include "jinja/parse.h"
#include "jinja/run.h"

static enum status new_pair(struct parse *p, enum node_kind kind, uint32_t line, struct node *a,
                            struct node *b, struct node **out) {
    TRY(jinja_node_new(p, kind, line, out));
    (*out)->pair.a = a;
    (*out)->pair.b = b;
    return ST_OK;
}

static enum status new_const(struct parse *p, uint32_t line, struct value v, struct node **out) {
    TRY(jinja_node_new(p, N_CONST, line, out));
    (*out)->constant = v;
    return ST_OK;
}

static enum status const_text(struct parse *p, struct str s, struct value *out) {
    struct text *text = jinja_text_in_arena(p->arena, s);
    if (!text) return jinja_parse_full(p);
    jinja_text_chars(text); /* constants are shared by threads: count now, not on first use */
    *out = (struct value){.type = V_TEXT, .text = text};
    return ST_OK;
}

/* ------------------------------------------------------------------ call arguments */

static enum status push_keyword(struct parse *p, struct call_args *args, struct str name,
                                struct node *value) {
    uint32_t count = args->keyword_values.count;
    if ((count & (count - 1)) == 0) {
        size_t cap = count ? (size_t)count * 2 : 1;
        struct str *grown = arena_zalloc_array(p->arena, cap, sizeof(*grown));
        if (!grown) return jinja_parse_full(p);
        if (count) memcpy(grown, args->keyword_names, count * sizeof(*grown));
        args->keyword_names = grown;
    }
    for (uint32_t i = 0; i < count; i++)
        if (str_eq(args->keyword_names[i], name))
            return jinja_parse_fail(p, value->line, "argument '%.*s' is given twice",
                                    STR_ARG(name));
    args->keyword_names[count] = name;
    return jinja_nodes_push(p, &args->keyword_values, value);
}

static enum status parse_one_arg(struct parse *p, struct call_args *args, uint32_t line) {
    struct node *value;
    bool is_named = jinja_token_now(p)->kind == T_NAME && jinja_token_now(p)[1].kind == T_ASSIGN;
    bool is_rest = jinja_token_now(p)->kind == T_MUL,
         is_keyword_rest = jinja_token_now(p)->kind == T_POW;
    bool is_plain = !is_named && !is_rest && !is_keyword_rest;
    bool misplaced = args->keyword_rest || (args->rest && (is_rest || is_plain)) ||
                     (is_plain && args->keyword_values.count);
    if (misplaced) return jinja_parse_fail(p, line, "invalid syntax for function call expression");
    if (is_named) {
        struct str name = jinja_token_take(p)->text;
        jinja_token_take(p);
        TRY(jinja_parse_expression(p, &value));
        return push_keyword(p, args, name, value);
    }
    if (!is_plain) jinja_token_take(p);
    TRY(jinja_parse_expression(p, &value));
    if (is_rest)
        args->rest = value;
    else if (is_keyword_rest)
        args->keyword_rest = value;
    else
        return jinja_nodes_push(p, &args->positional, value);
    return ST_OK;
}

static enum status parse_call_args(struct parse *p, struct call_args *args) {
    uint32_t line = jinja_token_now(p)->line;
    TRY(jinja_token_expect(p, T_LPAREN));
    for (bool needs_comma = false; jinja_token_now(p)->kind != T_RPAREN; needs_comma = true) {
        if (needs_comma) {
            TRY(jinja_token_expect(p, T_COMMA));
            if (jinja_token_now(p)->kind == T_RPAREN) break;
        }
        TRY(parse_one_arg(p, args, line));
    }
    return jinja_token_expect(p, T_RPAREN);
}

/* ------------------------------------------------------------------ filters and tests */

/* A filter's or test's name may have dots. */
static enum status parse_dotted(struct parse *p, struct str *out) {
    struct str name = jinja_token_now(p)->text;
    TRY(jinja_token_expect(p, T_NAME));
    if (jinja_token_now(p)->kind == T_DOT)
        return jinja_parse_fail(p, jinja_token_now(p)->line, "unknown filter or test '%.*s.'",
                                STR_ARG(name));
    *out = name;
    return ST_OK;
}

enum status jinja_parse_filters(struct parse *p, struct node *of, bool starts_inline,
                                struct node **out) {
    *out = of;
    while (starts_inline || jinja_token_now(p)->kind == T_PIPE) {
        if (!starts_inline) jinja_token_take(p);
        starts_inline = false;
        struct node *n = NULL;
        TRY(jinja_node_new(p, N_FILTER, jinja_token_now(p)->line, &n));
        TRY(parse_dotted(p, &n->filter.name));
        if (jinja_token_now(p)->kind == T_LPAREN) TRY(parse_call_args(p, &n->filter.args));
        n->filter.of = *out;
        n->filter.def = jinja_filter_find(n->filter.name);
        *out = n;
    }
    return ST_OK;
}

static enum status parse_primary(struct parse *p, bool with_namespace, struct node **out);
static enum status parse_postfix(struct parse *p, struct node *n, struct node **out);

static bool starts_test_argument(const struct parse *p) {
    switch (jinja_token_now(p)->kind) {
    case T_NAME:
        return !jinja_token_is_name(p, "else") && !jinja_token_is_name(p, "or") &&
               !jinja_token_is_name(p, "and");
    case T_STRING:
    case T_INT:
    case T_FLOAT:
    case T_LBRACKET:
    case T_LBRACE:
        return true;
    default:
        return false;
    }
}

static enum status parse_test(struct parse *p, struct node *of, struct node **out) {
    uint32_t line = jinja_token_take(p)->line;
    bool negated = jinja_token_skip_name(p, "not");
    struct node *n = NULL;
    TRY(jinja_node_new(p, N_TEST, line, &n));
    TRY(parse_dotted(p, &n->filter.name));
    n->filter.of = of;
    n->filter.def = jinja_test_find(n->filter.name);
    if (jinja_token_now(p)->kind == T_LPAREN) {
        TRY(parse_call_args(p, &n->filter.args));
    } else if (starts_test_argument(p)) {
        if (jinja_token_is_name(p, "is"))
            return jinja_parse_fail(p, line, "tests with 'is' cannot be chained");
        struct node *arg;
        TRY(parse_primary(p, false, &arg));
        TRY(parse_postfix(p, arg, &arg));
        TRY(jinja_nodes_push(p, &n->filter.args.positional, arg));
    }
    *out = n;
    return negated ? new_pair(p, N_NOT, line, n, NULL, out) : ST_OK;
}

/* ------------------------------------------------------------------ what follows a value */

/* One part of a subscript: an index or a slice. */
static enum status parse_subscript(struct parse *p, struct node *of, struct node **out,
                                   bool *is_slice) {
    uint32_t line = jinja_token_now(p)->line;
    struct node *parts[3] = {0};
    *is_slice = false;
    if (jinja_token_now(p)->kind != T_COLON) {
        TRY(jinja_parse_expression(p, &parts[0]));
        if (jinja_token_now(p)->kind != T_COLON) {
            *out = parts[0];
            return ST_OK;
        }
    }
    *is_slice = true;
    jinja_token_take(p);
    for (int i = 1; i <= 2; i++) {
        enum token_kind kind = jinja_token_now(p)->kind;
        if (kind != T_COLON && kind != T_RBRACKET && kind != T_COMMA)
            TRY(jinja_parse_expression(p, &parts[i]));
        if (i == 1 && !jinja_token_skip(p, T_COLON)) break;
    }
    TRY(jinja_node_new(p, N_SLICE, line, out));
    (*out)->slice.of = of;
    (*out)->slice.start = parts[0];
    (*out)->slice.stop = parts[1];
    (*out)->slice.step = parts[2];
    return ST_OK;
}

static enum status parse_brackets(struct parse *p, struct node *of, struct node **out) {
    uint32_t line = jinja_token_take(p)->line;
    struct node *part = NULL, *tuple;
    bool is_slice = false, any_slice = false;
    TRY(jinja_node_new(p, N_TUPLE, line, &tuple));
    while (jinja_token_now(p)->kind != T_RBRACKET) {
        if (tuple->list.count) TRY(jinja_token_expect(p, T_COMMA));
        TRY(parse_subscript(p, of, &part, &is_slice));
        any_slice = any_slice || is_slice;
        TRY(jinja_nodes_push(p, &tuple->list, part));
    }
    TRY(jinja_token_expect(p, T_RBRACKET));
    if (tuple->list.count == 1) {
        *out = part;
        return is_slice ? ST_OK : new_pair(p, N_ITEM, line, of, part, out);
    }
    if (any_slice) return jinja_parse_fail(p, line, "a slice in more than one dimension");
    return new_pair(p, N_ITEM, line, of, tuple, out);
}

static enum status parse_dot(struct parse *p, struct node *of, struct node **out) {
    uint32_t line = jinja_token_take(p)->line;
    const struct token *name = jinja_token_take(p);
    if (name->kind == T_INT) {
        struct node *index;
        TRY(new_const(p, name->line, jinja_value_int(name->integer), &index));
        return new_pair(p, N_ITEM, line, of, index, out);
    }
    if (name->kind != T_NAME)
        return jinja_parse_fail(p, name->line, "expected a name or number after '.'");
    TRY(jinja_node_new(p, N_ATTRIBUTE, line, out));
    (*out)->attribute.of = of;
    return const_text(p, name->text, &(*out)->attribute.name);
}

static enum status parse_call(struct parse *p, struct node *of, struct node **out) {
    struct node *n = NULL;
    TRY(jinja_node_new(p, N_CALL, jinja_token_now(p)->line, &n));
    n->call.of = of;
    TRY(parse_call_args(p, &n->call.args));
    *out = n;
    return ST_OK;
}

static enum status parse_postfix(struct parse *p, struct node *n, struct node **out) {
    *out = n;
    for (;;) {
        enum token_kind kind = jinja_token_now(p)->kind;
        if (kind == T_DOT)
            TRY(parse_dot(p, *out, out));
        else if (kind == T_LBRACKET)
            TRY(parse_brackets(p, *out, out));
        else if (kind == T_LPAREN)
            TRY(parse_call(p, *out, out));
        else
            return ST_OK;
    }
}

static enum status parse_filter_expr(struct parse *p, struct node *n, struct node **out) {
    *out = n;
    for (;;) {
        if (jinja_token_now(p)->kind == T_PIPE)
            TRY(jinja_parse_filters(p, *out, false, out));
        else if (jinja_token_is_name(p, "is"))
            TRY(parse_test(p, *out, out));
        else if (jinja_token_now(p)->kind == T_LPAREN)
            TRY(parse_call(p, *out, out));
        else
            return ST_OK;
    }
}

/* ------------------------------------------------------------------ literals and names */

static enum status parse_list(struct parse *p, struct node **out) {
    struct node *n, *item;
    TRY(jinja_node_new(p, N_LIST, jinja_token_take(p)->line, &n));
    while (jinja_token_now(p)->kind != T_RBRACKET) {
        if (n->list.count) TRY(jinja_token_expect(p, T_COMMA));
        if (jinja_token_now(p)->kind == T_RBRACKET) break;
        TRY(jinja_parse_expression(p, &item));
        TRY(jinja_nodes_push(p, &n->list, item));
    }
    *out = n;
    return jinja_token_expect(p, T_RBRACKET);
}

static enum status parse_dict(struct parse *p, struct node **out) {
    struct node *n, *item;
    TRY(jinja_node_new(p, N_DICT, jinja_token_take(p)->line, &n));
    while (jinja_token_now(p)->kind != T_RBRACE) {
        if (n->list.count) TRY(jinja_token_expect(p, T_COMMA));
        if (jinja_token_now(p)->kind == T_RBRACE) break;
        TRY(jinja_parse_expression(p, &item));
        TRY(jinja_nodes_push(p, &n->list, item));
        TRY(jinja_token_expect(p, T_COLON));
        TRY(jinja_parse_expression(p, &item));
        TRY(jinja_nodes_push(p, &n->list, item));
    }
    *out = n;
    return jinja_token_expect(p, T_RBRACE);
}

/* Neighbouring literals are one string. */
static enum status parse_strings(struct parse *p, struct node **out) {
    const struct token *first = jinja_token_take(p);
    struct value v;
    size_t total = first->text.len, count = 0;
    while (jinja_token_now(p)[count].kind == T_STRING)
        total += jinja_token_now(p)[count++].text.len;
    if (!count) {
        TRY(const_text(p, first->text, &v));
        return new_const(p, first->line, v, out);
    }
    char *joined = arena_alloc(p->arena, total);
    if (!joined) return jinja_parse_full(p);
    size_t len = 0;
    for (const struct token *t = first; t <= first + count; t++) {
        memcpy(joined + len, t->text.ptr, t->text.len);
        len += t->text.len;
    }
    p->pos += count;
    TRY(const_text(p, (struct str){joined, len}, &v));
    return new_const(p, first->line, v, out);
}

static bool literal_name(struct str name, struct value *out) {
    if (str_is(name, "true") || str_is(name, "True"))
        *out = jinja_value_bool(true);
    else if (str_is(name, "false") || str_is(name, "False"))
        *out = jinja_value_bool(false);
    else if (str_is(name, "none") || str_is(name, "None"))
        *out = jinja_value_none();
    else
        return false;
    return true;
}

static enum status parse_name(struct parse *p, bool with_namespace, struct node **out) {
    const struct token *t = jinja_token_take(p);
    struct value literal;
    if (literal_name(t->text, &literal)) return new_const(p, t->line, literal, out);
    bool is_ref = with_namespace && jinja_token_now(p)->kind == T_DOT;
    TRY(jinja_node_new(p, is_ref ? N_NAMESPACE_REF : N_NAME, t->line, out));
    (*out)->name.name = t->text;
    if (!is_ref) return ST_OK;
    jinja_token_take(p);
    struct str attribute = jinja_token_now(p)->text;
    TRY(jinja_token_expect(p, T_NAME));
    return const_text(p, attribute, &(*out)->name.attribute);
}

static enum status parse_primary(struct parse *p, bool with_namespace, struct node **out) {
    const struct token *t = jinja_token_now(p);
    switch (t->kind) {
    case T_NAME:
        return parse_name(p, with_namespace, out);
    case T_STRING:
        return parse_strings(p, out);
    case T_INT:
        jinja_token_take(p);
        return new_const(p, t->line, jinja_value_int(t->integer), out);
    case T_FLOAT:
        jinja_token_take(p);
        return new_const(p, t->line, jinja_value_float(t->real), out);
    case T_LPAREN:
        jinja_token_take(p);
        TRY(jinja_parse_tuple(p, TUPLE_PARENS, out));
        return jinja_token_expect(p, T_RPAREN);
    case T_LBRACKET:
        return parse_list(p, out);
    case T_LBRACE:
        return parse_dict(p, out);
    default:
        return jinja_token_unexpected(p);
    }
}

/* ------------------------------------------------------------------ operators */

static enum status parse_unary(struct parse *p, bool with_filter, struct node **out) {
    const struct token *t = jinja_token_now(p);
    TRY(jinja_parse_enter(p, t->line));
    struct node *n = NULL;
    if (t->kind == T_SUB || t->kind == T_ADD) {
        jinja_token_take(p);
        TRY(parse_unary(p, false, &n));
        TRY(new_pair(p, N_UNARY, t->line, n, NULL, &n));
        n->op = t->kind;
    } else {
        TRY(parse_primary(p, false, &n));
    }
    TRY(parse_postfix(p, n, &n));
    if (with_filter) TRY(parse_filter_expr(p, n, &n));
    *out = n;
    p->depth--;
    return ST_OK;
}

static enum status binary(struct parse *p, enum token_kind op, struct node *b, struct node **a) {
    TRY(new_pair(p, N_BINARY, b->line, *a, b, a));
    (*a)->op = op;
    return ST_OK;
}

static enum status parse_pow(struct parse *p, struct node **out) {
    struct node *right;
    TRY(parse_unary(p, true, out));
    while (jinja_token_skip(p, T_POW)) {
        TRY(parse_unary(p, true, &right));
        TRY(binary(p, T_POW, right, out));
    }
    return ST_OK;
}

static enum status parse_product(struct parse *p, struct node **out) {
    struct node *right;
    TRY(parse_pow(p, out));
    for (;;) {
        enum token_kind op = jinja_token_now(p)->kind;
        if (op != T_MUL && op != T_DIV && op != T_FLOORDIV && op != T_MOD) return ST_OK;
        jinja_token_take(p);
        TRY(parse_pow(p, &right));
        TRY(binary(p, op, right, out));
    }
}

static enum status parse_concat(struct parse *p, struct node **out) {
    struct node *n, *part;
    uint32_t line = jinja_token_now(p)->line;
    TRY(parse_product(p, out));
    if (jinja_token_now(p)->kind != T_TILDE) return ST_OK;
    TRY(jinja_node_new(p, N_CONCAT, line, &n));
    TRY(jinja_nodes_push(p, &n->list, *out));
    while (jinja_token_skip(p, T_TILDE)) {
        TRY(parse_product(p, &part));
        TRY(jinja_nodes_push(p, &n->list, part));
    }
    *out = n;
    return ST_OK;
}

static enum status parse_sum(struct parse *p, struct node **out) {
    struct node *right;
    TRY(parse_concat(p, out));
    for (;;) {
        enum token_kind op = jinja_token_now(p)->kind;
        if (op != T_ADD && op != T_SUB) return ST_OK;
        jinja_token_take(p);
        TRY(parse_concat(p, &right));
        TRY(binary(p, op, right, out));
    }
}

/* Take the comparison operator at the next tokens; T_EOF: there is none. */
static enum token_kind take_comparison(struct parse *p) {
    const struct token *t = jinja_token_now(p);
    if (t->kind >= T_EQ && t->kind <= T_GE) return jinja_token_take(p)->kind;
    if (jinja_token_skip_name(p, "in")) return T_IN;
    bool is_not_in =
        jinja_token_is_name(p, "not") && t[1].kind == T_NAME && str_is(t[1].text, "in");
    if (!is_not_in) return T_EOF;
    p->pos += 2;
    return T_NOT_IN;
}

/* `ops` grows whenever its length is a power of two. The operand is already in its list. */
static enum status push_comparison(struct parse *p, struct node *n, enum token_kind op) {
    uint32_t count = n->compare.operands.count - 2;
    if ((count & (count - 1)) == 0) {
        size_t cap = count ? (size_t)count * 2 : 1;
        enum token_kind *grown = arena_zalloc_array(p->arena, cap, sizeof(*grown));
        if (!grown) return jinja_parse_full(p);
        if (count) memcpy(grown, n->compare.ops, count * sizeof(*grown));
        n->compare.ops = grown;
    }
    n->compare.ops[count] = op;
    return ST_OK;
}

static enum status parse_compare(struct parse *p, struct node **out) {
    struct node *n = NULL, *operand;
    TRY(parse_sum(p, out));
    for (;;) {
        uint32_t line = jinja_token_now(p)->line;
        enum token_kind op = take_comparison(p);
        if (op == T_EOF) break;
        if (!n) {
            TRY(jinja_node_new(p, N_COMPARE, line, &n));
            TRY(jinja_nodes_push(p, &n->compare.operands, *out));
        }
        TRY(parse_sum(p, &operand));
        TRY(jinja_nodes_push(p, &n->compare.operands, operand));
        TRY(push_comparison(p, n, op));
    }
    if (n) *out = n;
    return ST_OK;
}

static enum status parse_not(struct parse *p, struct node **out) {
    uint32_t line = jinja_token_now(p)->line;
    if (!jinja_token_skip_name(p, "not")) return parse_compare(p, out);
    TRY(jinja_parse_enter(p, line));
    struct node *n = NULL;
    TRY(parse_not(p, &n));
    p->depth--;
    return new_pair(p, N_NOT, line, n, NULL, out);
}

static enum status parse_and(struct parse *p, struct node **out) {
    struct node *right;
    TRY(parse_not(p, out));
    while (jinja_token_skip_name(p, "and")) {
        TRY(parse_not(p, &right));
        TRY(new_pair(p, N_AND, right->line, *out, right, out));
    }
    return ST_OK;
}

static enum status parse_or(struct parse *p, struct node **out) {
    struct node *right;
    TRY(parse_and(p, out));
    while (jinja_token_skip_name(p, "or")) {
        TRY(parse_and(p, &right));
        TRY(new_pair(p, N_OR, right->line, *out, right, out));
    }
    return ST_OK;
}

enum status jinja_parse_expression(struct parse *p, struct node **out) {
    TRY(jinja_parse_enter(p, jinja_token_now(p)->line));
    TRY(parse_or(p, out));
    while (jinja_token_is_name(p, "if")) {
        struct node *n = NULL;
        TRY(jinja_node_new(p, N_COND, jinja_token_take(p)->line, &n));
        n->cond.then = *out;
        TRY(parse_or(p, &n->cond.test));
        if (jinja_token_skip_name(p, "else")) TRY(jinja_parse_expression(p, &n->cond.otherwise));
        *out = n;
    }
    p->depth--;
    return ST_OK;
}

/* ------------------------------------------------------------------ tuples and targets */

static bool is_tuple_end(const struct parse *p) {
    enum token_kind kind = jinja_token_now(p)->kind;
    return kind == T_VARIABLE_END || kind == T_BLOCK_END || kind == T_RPAREN;
}

static enum status parse_tuple_item(struct parse *p, enum tuple_mode mode, struct node **out) {
    switch (mode) {
    case TUPLE_TARGET:
        return parse_primary(p, false, out);
    case TUPLE_NS_TARGET:
        return parse_primary(p, true, out);
    case TUPLE_NO_COND:
        TRY(jinja_parse_enter(p, jinja_token_now(p)->line));
        TRY(parse_or(p, out));
        p->depth--;
        return ST_OK;
    default:
        return jinja_parse_expression(p, out);
    }
}

enum status jinja_parse_tuple(struct parse *p, enum tuple_mode mode, struct node **out) {
    struct node *tuple, *item;
    bool is_tuple = false;
    TRY(jinja_node_new(p, N_TUPLE, jinja_token_now(p)->line, &tuple));
    TRY(jinja_parse_enter(p, tuple->line));
    for (;;) {
        if (tuple->list.count) TRY(jinja_token_expect(p, T_COMMA));
        if (is_tuple_end(p)) break;
        TRY(parse_tuple_item(p, mode, &item));
        TRY(jinja_nodes_push(p, &tuple->list, item));
        if (jinja_token_now(p)->kind != T_COMMA) break;
        is_tuple = true;
    }
    p->depth--;
    *out = tuple;
    if (is_tuple) return ST_OK;
    if (tuple->list.count) {
        *out = tuple->list.items[0];
        return ST_OK;
    }
    return mode == TUPLE_PARENS ? ST_OK : jinja_token_unexpected(p);
}

/* Nesting is bounded by the parser's depth. */
static enum status mark_target(struct parse *p, struct node *n) {
    if (n->kind == N_NAME) {
        n->is_store = true;
        return ST_OK;
    }
    if (n->kind == N_NAMESPACE_REF) return ST_OK;
    if (n->kind != N_TUPLE) return jinja_parse_fail(p, n->line, "cannot assign to this expression");
    for (uint32_t i = 0; i < n->list.count; i++) TRY(mark_target(p, n->list.items[i]));
    return ST_OK;
}

enum status jinja_parse_target(struct parse *p, enum tuple_mode mode, struct node **out) {
    TRY(jinja_parse_tuple(p, mode, out));
    return mark_target(p, *out);
}

enum status jinja_parse_target_name(struct parse *p, struct node **out) {
    const struct token *t = jinja_token_now(p);
    TRY(jinja_token_expect(p, T_NAME));
    struct value literal;
    if (literal_name(t->text, &literal))
        return jinja_parse_fail(p, t->line, "cannot assign to '%.*s'", STR_ARG(t->text));
    TRY(jinja_node_new(p, N_NAME, t->line, out));
    (*out)->name.name = t->text;
    (*out)->is_store = true;
    return ST_OK;
}
