/* jinja/ast.h - a parsed template as a tree of nodes; for this folder only.
 *
 * Every name has a place: so many frames outwards, that slot. All of it lives in one arena
 * that the template owns, and is read-only once template_create() returns.
 */
#ifndef JINJA_AST_H
#define JINJA_AST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "jinja/token.h"
#include "jinja/value.h"

enum node_kind {
    /* statements */
    N_OUTPUT,
    N_IF,
    N_FOR,
    N_SET,
    N_SET_BLOCK,
    N_MACRO,
    N_CALL_BLOCK,
    N_FILTER_BLOCK,
    N_WITH,
    N_GENERATION,
    N_BREAK,
    N_CONTINUE,
    /* expressions */
    N_CONST,
    N_NAME,
    N_NAMESPACE_REF, /* `ns.attribute` as the target of a set */
    N_LIST,
    N_TUPLE,
    N_DICT, /* keys and values in turn */
    N_UNARY,
    N_NOT,
    N_BINARY,
    N_AND,
    N_OR,
    N_CONCAT,
    N_COMPARE,
    N_ATTRIBUTE,
    N_ITEM,
    N_SLICE,
    N_CALL,
    N_FILTER,
    N_TEST,
    N_COND,
};

struct nodes {
    struct node **items;
    uint32_t count, cap;
};

struct call_args {
    struct nodes positional;
    struct nodes keyword_values;
    struct str *keyword_names;        /* as many as keyword_values */
    struct node *rest, *keyword_rest; /* *rest, **keyword_rest; or NULL */
};

/* How a slot gets its value when its frame is entered. */
enum load_kind { LOAD_NOTHING, LOAD_VARIABLE, LOAD_OUTER, LOAD_MISSING };

struct slot {
    struct str name;
    enum load_kind load;
    uint32_t outer_hops, outer_slot;
};

struct scope {
    struct scope *parent;
    struct slot *slots;
    uint32_t count, cap;
};

struct macro {
    struct str name;       /* empty for the body of a call block */
    struct nodes params;   /* N_NAME */
    struct nodes defaults; /* of the last parameters */
    struct nodes body;
    struct scope *scope;
    bool takes_caller, takes_kwargs, takes_varargs; /* beyond what params name */
    uint32_t caller_slot, kwargs_slot, varargs_slot;
};

struct for_parts {
    struct node *target, *iter, *test; /* test may be NULL */
    struct nodes body, otherwise;
    struct scope *scope, *test_scope, *otherwise_scope;
    struct node *test_target; /* the target again, placed in test_scope */
    uint32_t loop_slot;
    bool recursive;
};

struct node {
    enum node_kind kind;
    uint32_t line;
    enum token_kind op; /* N_UNARY and N_BINARY */
    bool is_store;      /* N_NAME: a target, not a use */
    union {
        struct nodes list; /* N_OUTPUT, N_LIST, N_TUPLE, N_DICT, N_CONCAT */
        struct value constant;
        struct {
            struct str name;
            uint32_t hops, slot;
            struct value attribute; /* N_NAMESPACE_REF */
        } name;
        struct {
            struct node *a, *b;
        } pair; /* N_UNARY, N_NOT (a); N_BINARY, N_AND, N_OR, N_ITEM */
        struct {
            struct nodes operands;
            enum token_kind *ops; /* one fewer */
        } compare;
        struct {
            struct node *of;
            struct value name;
        } attribute;
        struct {
            struct node *of, *start, *stop, *step; /* NULL where left out */
        } slice;
        struct {
            struct node *of;
            struct call_args args;
        } call;
        struct {
            struct node *of; /* NULL: the text of a block */
            struct str name;
            const struct builtin *def; /* NULL: unknown, an error once it is reached */
            struct call_args args;
        } filter; /* N_FILTER, N_TEST */
        struct {
            struct node *test, *then, *otherwise; /* otherwise may be NULL */
        } cond;
        struct {
            struct nodes tests;
            struct nodes *bodies; /* as many as tests */
            struct nodes otherwise;
        } branch;
        struct for_parts *loop;
        struct {
            struct node *target, *value; /* value: N_SET; or the filter, or NULL */
            struct nodes body;
            struct scope *scope;
        } set;
        struct {
            struct macro *macro;
            struct node *target; /* N_MACRO: the name; N_CALL_BLOCK: the call */
        } macro;                 /* and N_GENERATION, without a target */
        struct {
            struct nodes targets, values, body; /* N_FILTER_BLOCK: values[0] is the filter */
            struct scope *scope;
        } with; /* N_WITH, N_FILTER_BLOCK */
    };
};

struct template {
    struct arena *arena;
    struct nodes body;
    struct scope *scope;
};

#endif
