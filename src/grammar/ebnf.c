/* grammar/ebnf.c - named rules: which are regular, which begin with themselves, and their form. */
#include "grammar/ebnf.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/map.h"
#include "base/mem.h"
#include "grammar/compile.h"

static struct budget *budget_of(struct ebnf *e) { return &e->c->g->budget; }

enum status ebnf_refuse(struct ebnf *e, uint32_t line, const char *fmt, ...) {
    char path[32], text[ERR_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    snprintf(path, sizeof(path), "line %u", line);
    return refuse(e->c, path, "%s", text);
}

static node_id put(struct ebnf *e, struct ebnf_node node) {
    struct budget *b = budget_of(e);
    if (!budget_tick(b)) return NODE_NONE;
    if (!budget_grow(b, (void **)&e->nodes, &e->node_cap, e->node_count + 1, sizeof(node)))
        return NODE_NONE;
    e->nodes[e->node_count] = node;
    return e->node_count++;
}

enum status ebnf_init(struct ebnf *e, struct compiler *c) {
    *e = (struct ebnf){.c = c, .ignored = EXPR_EMPTY};
    e->by_name = map_create(32);
    if (!e->by_name) return budget_of(e)->status = ST_NOMEM;
    put(e, (struct ebnf_node){.kind = NODE_SEQUENCE});
    return budget_of(e)->status;
}

void ebnf_deinit(struct ebnf *e) {
    map_destroy(e->by_name);
    mem_free(e->nodes);
    mem_free(e->names);
    budget_of(e)->bytes -= e->node_cap * sizeof(*e->nodes) + e->name_cap * sizeof(*e->names);
}

node_id ebnf_expr(struct ebnf *e, expr_id expr) {
    return put(e, (struct ebnf_node){.kind = NODE_EXPR, .a = expr});
}

static uint32_t name_index(struct ebnf *e, struct str name, uint32_t line) {
    struct budget *b = budget_of(e);
    uint32_t at = 0;
    if (map_find(e->by_name, name, &at)) return at;
    if (!budget_grow(b, (void **)&e->names, &e->name_cap, e->name_count + 1, sizeof(*e->names)))
        return UINT32_MAX;
    e->names[e->name_count] = (struct ebnf_name){.text = name, .line = line};
    if (map_put(e->by_name, name, e->name_count) != ST_OK) b->status = ST_NOMEM;
    return e->name_count++;
}

node_id ebnf_name(struct ebnf *e, struct str name, uint32_t line) {
    uint32_t at = name_index(e, name, line);
    if (at == UINT32_MAX) return NODE_NONE;
    return put(e, (struct ebnf_node){.kind = NODE_NAME, .a = at});
}

node_id ebnf_group(struct ebnf *e, enum node_kind kind) {
    return put(e, (struct ebnf_node){.kind = kind});
}

void ebnf_append(struct ebnf *e, node_id group, node_id last, node_id child) {
    if (budget_of(e)->status != ST_OK) return;
    if (last == NODE_NONE)
        e->nodes[group].first = child;
    else
        e->nodes[last].next = child;
    e->nodes[group].a++;
}

node_id ebnf_repeat(struct ebnf *e, node_id child, uint32_t min, uint32_t max) {
    return put(e, (struct ebnf_node){.kind = NODE_REPEAT, .first = child, .a = min, .b = max});
}

enum status ebnf_define(struct ebnf *e, struct str name, node_id body, uint32_t line,
                        bool is_terminal) {
    uint32_t at = name_index(e, name, line);
    if (budget_of(e)->status != ST_OK) return budget_of(e)->status;
    struct ebnf_name *n = &e->names[at];
    if (n->body != NODE_NONE)
        return ebnf_refuse(e, line, "rule \"%.*s\" is already defined on line %u", STR_ARG(name),
                           n->line);
    n->body = body;
    n->line = line;
    n->is_terminal = is_terminal;
    return ST_OK;
}

/* Whether every name below the node satisfies `test`. Recursion: the depth of the source. */
static bool all_names(const struct ebnf *e, node_id at, bool (*test)(const struct ebnf_name *)) {
    const struct ebnf_node *n = &e->nodes[at];
    if (n->kind == NODE_NAME) return test(&e->names[n->a]);
    if (n->kind == NODE_EXPR) return true;
    for (node_id child = n->first; child != NODE_NONE; child = e->nodes[child].next)
        if (!all_names(e, child, test)) return false;
    return true;
}

static bool is_regular(const struct ebnf_name *n) { return n->is_regular; }

/* What may follow a terminal of a rule. */
static expr_id with_ignored(struct ebnf *e, expr_id expr, bool in_terminal) {
    return in_terminal ? expr : expr_concat(e->c->g->exprs, expr, e->ignored);
}

/* The expression of a node whose names are all regular. Recursion: the depth of the source. */
static expr_id expr_of(struct ebnf *e, node_id at, bool in_terminal) {
    struct expr_pool *p = e->c->g->exprs;
    const struct ebnf_node n = e->nodes[at];
    expr_id all = n.kind == NODE_CHOICE ? EXPR_NONE : EXPR_EMPTY;
    if (n.kind == NODE_EXPR) return with_ignored(e, n.a, in_terminal);
    if (n.kind == NODE_NAME)
        return e->names[n.a].is_terminal ? with_ignored(e, e->names[n.a].expr, in_terminal)
                                         : e->names[n.a].expr;
    if (n.kind == NODE_REPEAT) return expr_repeat(p, expr_of(e, n.first, in_terminal), n.a, n.b);
    for (node_id child = n.first; child != NODE_NONE; child = e->nodes[child].next) {
        expr_id one = expr_of(e, child, in_terminal);
        all = n.kind == NODE_CHOICE ? expr_or(p, all, one) : expr_concat(p, all, one);
    }
    return all;
}

/* Regular rules, from those without names upwards; terminals alone, or all. */
static void find_regular(struct ebnf *e, bool only_terminals) {
    bool changed = true;
    while (changed && budget_tick(budget_of(e))) {
        changed = false;
        for (uint32_t i = 0; i < e->name_count; i++) {
            struct ebnf_name *n = &e->names[i];
            if (n->is_regular || (only_terminals && !n->is_terminal)) continue;
            if (!all_names(e, n->body, is_regular)) continue;
            n->expr = expr_of(e, n->body, n->is_terminal);
            n->is_regular = true;
            n->matches_empty = expr_matches_empty(e->c->g->exprs, n->expr);
            changed = true;
        }
    }
}

/* Whether the node may match the empty text, as far as names are known. */
static bool may_be_empty(const struct ebnf *e, node_id at) {
    const struct ebnf_node *n = &e->nodes[at];
    if (n->kind == NODE_EXPR) return expr_matches_empty(e->c->g->exprs, n->a);
    if (n->kind == NODE_NAME) return e->names[n->a].matches_empty;
    if (n->kind == NODE_REPEAT) return n->a == 0 || may_be_empty(e, n->first);
    for (node_id child = n->first; child != NODE_NONE; child = e->nodes[child].next)
        if (may_be_empty(e, child) == (n->kind == NODE_CHOICE)) return n->kind == NODE_CHOICE;
    return n->kind == NODE_SEQUENCE;
}

static void find_empty(struct ebnf *e) {
    bool changed = true;
    while (changed && budget_tick(budget_of(e))) {
        changed = false;
        for (uint32_t i = 0; i < e->name_count; i++) {
            struct ebnf_name *n = &e->names[i];
            if (n->matches_empty || !may_be_empty(e, n->body)) continue;
            n->matches_empty = changed = true;
        }
    }
}

static enum status check_beginning(struct ebnf *e, node_id at, uint32_t depth);

/* A rule that is met again before anything was read begins with itself. */
static enum status check_name(struct ebnf *e, uint32_t at, uint32_t depth) {
    struct ebnf_name *n = &e->names[at];
    if (n->is_regular || n->is_checked) return ST_OK;
    if (n->is_open)
        return ebnf_refuse(e, n->line,
                           "rule \"%.*s\" begins with itself (left recursion); write it as a "
                           "repetition",
                           STR_ARG(n->text));
    if (depth > EBNF_DEPTH_MAX * 4) return ebnf_refuse(e, n->line, "rules nest too deeply");
    n->is_open = true;
    enum status st = check_beginning(e, n->body, depth + 1);
    e->names[at].is_open = false;
    e->names[at].is_checked = true;
    return st;
}

/* Recursion is bounded by the depth that check_name counts, and the depth of the source. */
static enum status check_beginning(struct ebnf *e, node_id at, uint32_t depth) {
    const struct ebnf_node *n = &e->nodes[at];
    if (!budget_tick(budget_of(e))) return budget_of(e)->status;
    if (n->kind == NODE_EXPR) return ST_OK;
    if (n->kind == NODE_NAME) return check_name(e, n->a, depth);
    for (node_id child = n->first; child != NODE_NONE; child = e->nodes[child].next) {
        TRY(check_beginning(e, child, depth));
        if (n->kind == NODE_SEQUENCE && !may_be_empty(e, child)) return ST_OK;
    }
    return ST_OK;
}

static rule_id build(struct ebnf *e, node_id at, rule_id next);

static rule_id build_sequence(struct ebnf *e, const struct ebnf_node *n, rule_id next) {
    node_id children[SEQUENCE_MAX];
    uint32_t count = 0;
    for (node_id child = n->first; child != NODE_NONE; child = e->nodes[child].next)
        children[count++] = child;
    while (count > 0) next = build(e, children[--count], next);
    return next;
}

static rule_id build_repeat(struct ebnf *e, const struct ebnf_node *n, rule_id next) {
    struct rules *r = &e->c->g->rules;
    const struct ebnf_node repeat = *n;
    rule_id rest = next;
    if (repeat.b == EXPR_NO_MAX) {
        rest = rules_open(r);
        rules_close(r, rest, rules_either(r, build(e, repeat.first, rest), next));
    } else {
        for (uint32_t i = repeat.a; i < repeat.b && budget_of(e)->status == ST_OK; i++)
            rest = rules_either(r, build(e, repeat.first, rest), next);
    }
    for (uint32_t i = 0; i < repeat.a && budget_of(e)->status == ST_OK; i++)
        rest = build(e, repeat.first, rest);
    return rest;
}

/* The node, then `next`. Recursion: the depth of the source. */
static rule_id build(struct ebnf *e, node_id at, rule_id next) {
    struct rules *r = &e->c->g->rules;
    const struct ebnf_node n = e->nodes[at];
    if (all_names(e, at, is_regular)) return rules_read(r, expr_of(e, at, false), next);
    if (n.kind == NODE_NAME) return rules_call(r, e->names[n.a].rule, next);
    if (n.kind == NODE_REPEAT) return build_repeat(e, &n, next);
    if (n.kind == NODE_SEQUENCE) return build_sequence(e, &n, next);
    rule_id all = RULE_FAIL;
    for (node_id child = n.first; child != NODE_NONE; child = e->nodes[child].next)
        all = rules_either(r, all, build(e, child, next));
    return all;
}

static enum status check_names(struct ebnf *e, const char *root) {
    uint32_t at = 0;
    if (!map_find(e->by_name, str_of(root), &at))
        return ebnf_refuse(e, 1, "there is no rule \"%s\"", root);
    for (uint32_t i = 0; i < e->name_count; i++)
        if (e->names[i].body == NODE_NONE)
            return ebnf_refuse(e, e->names[i].line, "rule \"%.*s\" is not defined",
                               STR_ARG(e->names[i].text));
    return ST_OK;
}

static enum status check_terminals(struct ebnf *e) {
    for (uint32_t i = 0; i < e->name_count; i++)
        if (e->names[i].is_terminal && !e->names[i].is_regular)
            return ebnf_refuse(e, e->names[i].line, "terminal \"%.*s\" contains itself or a rule",
                               STR_ARG(e->names[i].text));
    for (uint32_t i = 0; i < e->name_count; i++) TRY(check_name(e, i, 0));
    return ST_OK;
}

enum status ebnf_finish(struct ebnf *e, const char *root) {
    struct grammar *g = e->c->g;
    struct rules *r = &g->rules;
    uint32_t at = 0;
    if (g->budget.status != ST_OK) return g->budget.status;
    TRY(check_names(e, root));
    find_regular(e, true);
    if (map_find(e->by_name, STR("%ignore"), &at) && e->names[at].is_regular)
        e->ignored = e->names[at].expr;
    find_regular(e, false);
    find_empty(e);
    TRY(check_terminals(e));
    for (uint32_t i = 0; i < e->name_count; i++)
        if (!e->names[i].is_regular) e->names[i].rule = rules_open(r);
    for (uint32_t i = 0; i < e->name_count && g->budget.status == ST_OK; i++)
        if (!e->names[i].is_regular)
            rules_close(r, e->names[i].rule, build(e, e->names[i].body, RULE_END));
    map_find(e->by_name, str_of(root), &at);
    const struct ebnf_name *n = &e->names[at];
    rule_id body = n->is_regular
                       ? rules_read(r, with_ignored(e, n->expr, !n->is_terminal), RULE_END)
                       : n->rule;
    g->root = rules_read(r, e->ignored, body);
    return g->budget.status;
}
