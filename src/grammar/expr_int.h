/* grammar/expr_int.h - how the pool stores expressions; for expr.c and expr_step.c only. */
#ifndef GRAMMAR_EXPR_INT_H
#define GRAMMAR_EXPR_INT_H

#include "grammar/expr.h"

enum expr_kind {
    EX_NONE,
    EX_EMPTY,
    EX_SET,      /* a: index of its byte_set                                                  */
    EX_LITERAL,  /* a: offset in `bytes`, b: length, at least 2                               */
    EX_CONCAT,   /* a, then b; a is never a concatenation                                     */
    EX_OR,       /* a: offset in `lists`, b: count; sorted, no two alike                      */
    EX_AND,      /* the same                                                                  */
    EX_NOT,      /* a                                                                         */
    EX_REPEAT,   /* a, b times to c times                                                     */
    EX_MULTIPLE, /* a: unit, b: remainder so far, c: scale, d: 0 or 1 + digits after the point */
};

enum expr_life { LIFE_UNKNOWN, LIFE_ALIVE, LIFE_DEAD };

struct expr {
    uint8_t kind;        /* enum expr_kind */
    bool matches_empty;  /* the empty text matches */
    bool is_boolean;     /* it contains EX_AND, EX_NOT or EX_MULTIPLE: it may match nothing */
    bool has_multiple;   /* it contains EX_MULTIPLE: too many states to keep rows of */
    bool is_finite;      /* only a finite number of texts match */
    uint8_t life;        /* enum expr_life */
    uint32_t min_len;    /* no text that matches is shorter */
    uint32_t found_by;   /* the last search that found it */
    uint16_t height;     /* bounds recursion */
    uint32_t a, b, c, d; /* as its kind says */
    expr_id *row;        /* by byte: 1 + expr_step, 0 not known; NULL before the first */
};

struct expr_pool {
    struct budget *budget;
    struct expr *exprs;
    uint32_t count, cap;
    uint32_t *slots; /* hash table: 1 + number of an expression, 0 free; at most half full */
    uint32_t slot_count;
    struct byte_set *sets;
    uint32_t set_count, set_cap;
    uint32_t *lists; /* members of EX_OR and EX_AND */
    uint32_t list_count, list_cap;
    uint32_t search_count;
    char *bytes; /* texts of EX_LITERAL */
    uint32_t byte_count, byte_cap;
    expr_id *scratch; /* of a list that is being joined */
    uint32_t scratch_cap;
};

/* The expression of these fields: a known one or a new one. */
expr_id expr_intern(struct expr_pool *p, struct expr e);
/* Fill the hash table again. */
void expr_index(struct expr_pool *p);
expr_id expr_multiple_at(struct expr_pool *p, struct expr e); /* EX_MULTIPLE with its state */

#endif
