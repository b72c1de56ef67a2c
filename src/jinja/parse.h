/* jinja/parse.h - from source to tree, in three passes; for this folder only.
 *
 * jinja_lex() cuts the source into tokens, jinja_parse() builds the nodes, and
 * jinja_resolve() gives every name its place.
 *
 * Lifetime: one template_create(). Memory: the template's arena.
 */
#ifndef JINJA_PARSE_H
#define JINJA_PARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "jinja/ast.h"
#include "jinja/token.h"

/* The state of parsing; shared by the lexer, the parser and the scope pass. */
struct parse {
    struct arena *arena;
    struct err *err;
    struct tokens tokens;
    size_t pos;
    uint32_t depth;
    uint32_t loops; /* open loops, which a break could end */
    uint64_t work;  /* names compared by the scope pass, against a limit */
};

enum status jinja_parse_fail(struct parse *p, uint32_t line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
enum status jinja_parse_full(struct parse *p);
enum status jinja_parse_enter(struct parse *p, uint32_t line); /* pairs with p->depth-- */

enum status jinja_lex(struct parse *p, struct str source);
enum status jinja_parse(struct parse *p, struct nodes *body);
enum status jinja_resolve(struct parse *p, struct template *t);

/* Between parse.c (statements) and expr.c (expressions). */
enum tuple_mode { TUPLE_FULL, TUPLE_NO_COND, TUPLE_PARENS, TUPLE_TARGET, TUPLE_NS_TARGET };

const struct token *jinja_token_now(const struct parse *p);
const struct token *jinja_token_take(struct parse *p);
bool jinja_token_is_name(const struct parse *p, const char *name);
bool jinja_token_skip(struct parse *p, enum token_kind kind);
bool jinja_token_skip_name(struct parse *p, const char *name);
enum status jinja_token_expect(struct parse *p, enum token_kind kind);
enum status jinja_token_unexpected(struct parse *p);
enum status jinja_node_new(struct parse *p, enum node_kind kind, uint32_t line, struct node **out);
enum status jinja_nodes_push(struct parse *p, struct nodes *list, struct node *node);
enum status jinja_parse_expression(struct parse *p, struct node **out);
enum status jinja_parse_tuple(struct parse *p, enum tuple_mode mode, struct node **out);
enum status jinja_parse_target(struct parse *p, enum tuple_mode mode, struct node **out);
enum status jinja_parse_target_name(struct parse *p, struct node **out);
enum status jinja_parse_filters(struct parse *p, struct node *of, bool starts_inline,
                                struct node **out);

#endif
