/* grammar/rules.h - context-free rules whose terminals are expressions: the compiled form.
 *
 * A rule is a number. It reads an expression and goes on, calls another rule and goes on, is a
 * choice of rules, or ends. A compiler builds them from the end of a text to its beginning, since
 * each names what follows; recursion goes through rules_open, which reserves a choice that
 * rules_close fills in.
 *
 * Lifetime: create, build, rules_finish once, read, destroy. Thread: its owner.
 * Memory: charged to the budget; after it has failed every function returns RULE_FAIL.
 */
#ifndef GRAMMAR_RULES_H
#define GRAMMAR_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "grammar/expr.h"

struct budget;

typedef uint32_t rule_id;
enum {
    RULE_END = 0,  /* the caller goes on */
    RULE_FAIL = 1, /* nothing satisfies it */
};

enum rule_kind {
    RULE_IS_END,
    RULE_READS,  /* a: expression, b: next rule */
    RULE_CALLS,  /* a: rule, b: next rule       */
    RULE_CHOICE, /* a: offset in lists, b: count */
    /* a: rule, b: next rule. The items that the rule of RULE_UNIQUE reads differ from each other;
     * RULE_ITEM is one of them. The others are the same where items are of a finite set. */
    RULE_UNIQUE,
    RULE_ITEM,
    RULE_UNIQUE_FEW,
    RULE_ITEM_FEW,
};

struct rule {
    uint8_t kind;
    bool alive; /* some text satisfies it; after rules_finish */
    uint32_t a, b;
};

struct rules {
    struct budget *budget;
    struct expr_pool *exprs;
    struct rule *list;
    uint32_t count, cap;
    uint32_t *choices;
    uint32_t choice_count, choice_cap;
};

bool rules_init(struct rules *r, struct expr_pool *exprs, struct budget *budget);
void rules_deinit(struct rules *r);

rule_id rules_read(struct rules *r, expr_id e, rule_id next);
rule_id rules_call(struct rules *r, rule_id callee, rule_id next);
/* kind: RULE_UNIQUE or one of those behind it. */
rule_id rules_unique(struct rules *r, enum rule_kind kind, rule_id body, rule_id next);
rule_id rules_choice(struct rules *r, const rule_id *list, uint32_t count);
rule_id rules_either(struct rules *r, rule_id a, rule_id b);
rule_id rules_open(struct rules *r);
void rules_close(struct rules *r, rule_id open, rule_id body);

/* Find out which rules some text satisfies; matching leaves the others out. */
void rules_finish(struct rules *r);

#endif
