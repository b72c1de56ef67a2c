/* grammar/ebnf.h - grammars of named rules, as GBNF and Lark write them: a tree, then rules.
 *
 * A reader of a notation makes nodes and defines names with them; ebnf_finish compiles them. Rules
 * that do not contain themselves are regular and become one expression each.
 *
 * Lifetime: init, build, finish, deinit. Thread: its owner.
 * Memory: charged to the grammar's budget; after it has failed nodes are NODE_NONE.
 */
#ifndef GRAMMAR_EBNF_H
#define GRAMMAR_EBNF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "grammar/expr.h"

struct compiler;
struct map;

typedef uint32_t node_id;
enum { NODE_NONE = 0 };

enum node_kind { NODE_EXPR, NODE_NAME, NODE_SEQUENCE, NODE_CHOICE, NODE_REPEAT };

struct ebnf_node {
    enum node_kind kind;
    node_id first, next; /* children of a sequence, choice or repeat; the next of the same parent */
    uint32_t a, b;       /* expression; index of a name; numbers of a repeat */
};

struct ebnf_name {
    struct str text;  /* borrowed from the source */
    node_id body;     /* NODE_NONE: used, not defined */
    uint32_t line;    /* of its definition, else of its first use */
    bool is_terminal; /* Lark: nothing is ignored inside it */
    bool is_regular, matches_empty, is_open, is_checked;
    expr_id expr;  /* of a regular one */
    uint32_t rule; /* of another one */
};

struct ebnf {
    struct compiler *c;
    struct ebnf_node *nodes;
    uint32_t node_count, node_cap;
    struct ebnf_name *names;
    uint32_t name_count, name_cap;
    struct map *by_name;
    expr_id ignored; /* may stand behind every terminal of a rule; EXPR_EMPTY */
};

enum { REPEAT_MAX = 10000, SEQUENCE_MAX = 1000, EBNF_DEPTH_MAX = 100 };

enum status ebnf_init(struct ebnf *e, struct compiler *c);
void ebnf_deinit(struct ebnf *e);

node_id ebnf_expr(struct ebnf *e, expr_id expr);
node_id ebnf_name(struct ebnf *e, struct str name, uint32_t line);
node_id ebnf_group(struct ebnf *e, enum node_kind kind); /* a sequence or choice without children */
/* `last` is the child that was added before, or NODE_NONE. */
void ebnf_append(struct ebnf *e, node_id group, node_id last, node_id child);
node_id ebnf_repeat(struct ebnf *e, node_id child, uint32_t min, uint32_t max);
enum status ebnf_define(struct ebnf *e, struct str name, node_id body, uint32_t line,
                        bool is_terminal);

/* Compile the rule `root` to the grammar's root. */
enum status ebnf_finish(struct ebnf *e, const char *root);

/* Refuse at a line; returns ST_BAD. */
enum status ebnf_refuse(struct ebnf *e, uint32_t line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
