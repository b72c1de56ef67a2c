/* jinja/scope.c - assigns every name of a template a frame and a slot.
 *
 * Blocks that open a scope (a loop, a macro, with, a captured body) get frames at run time;
 * `if` does not. A scope first collects all the names that its own statements use or set, in
 * the order of the source, and only then are the names inside it and the scopes below it
 * bound. That order is what decides between a variable of the caller and an unset one:
 *
 *   used before it is set        starts as the caller's variable
 *   set first, in a branch       starts as the outer scope's value, or the caller's variable
 *   set first, unconditionally   starts as the outer scope's value, or unset
 *   only used, known outside     has no slot here; it is the outer scope's
 *
 * These are jinja2's rules, down to a name that a later `set` at the top makes unset for a
 * macro called before it.
 *
 * Entry point: jinja_resolve().
 */
#include <string.h>

#include "base/arena.h"
#include "jinja/parse.h"
#include "jinja/run.h"

enum { NESTING_MAX = 1000 }; /* of nodes: a chain of operators nests without brackets */
static const uint64_t WORK_MAX = 200u << 20;

struct resolver {
    struct parse *p;
    struct scope *scope;
    uint32_t branches; /* `if`s open around the statement, within this scope */
    uint32_t depth;
    uint32_t loops;
    bool is_soft; /* inside a condition, where an unknown filter is an error only if reached */
};

typedef enum status node_fn(struct resolver *rs, struct node *n);

static enum status enter(struct resolver *rs, const struct node *n) {
    if (++rs->depth <= NESTING_MAX) return ST_OK;
    return jinja_parse_fail(rs->p, n->line, "nested over %d deep", NESTING_MAX);
}

/* ------------------------------------------------------------------ slots */

static enum status find_slot(struct resolver *rs, const struct scope *scope, struct str name,
                             uint32_t *slot) {
    *slot = UINT32_MAX;
    rs->p->work += scope->count + 1;
    if (rs->p->work > WORK_MAX) return jinja_parse_full(rs->p);
    for (uint32_t i = 0; i < scope->count; i++) {
        if (!str_eq(scope->slots[i].name, name)) continue;
        *slot = i;
        break;
    }
    return ST_OK;
}

/* Through the scopes from `scope` outwards; *slot is UINT32_MAX when none has the name. */
static enum status find_name(struct resolver *rs, const struct scope *scope, struct str name,
                             uint32_t *hops, uint32_t *slot) {
    *slot = UINT32_MAX;
    for (*hops = 0; scope; scope = scope->parent, ++*hops) {
        TRY(find_slot(rs, scope, name, slot));
        if (*slot != UINT32_MAX) break;
    }
    return ST_OK;
}

static enum status add_slot(struct resolver *rs, struct slot slot, uint32_t *idx) {
    struct scope *scope = rs->scope;
    if (scope->count == scope->cap) {
        uint32_t cap = scope->cap ? scope->cap * 2 : 8;
        struct slot *grown = arena_zalloc_array(rs->p->arena, cap, sizeof(*grown));
        if (!grown) return jinja_parse_full(rs->p);
        if (scope->count) memcpy(grown, scope->slots, scope->count * sizeof(*grown));
        scope->slots = grown;
        scope->cap = cap;
    }
    *idx = scope->count;
    scope->slots[scope->count++] = slot;
    return ST_OK;
}

static enum status declare_use(struct resolver *rs, struct str name) {
    uint32_t hops, slot;
    TRY(find_name(rs, rs->scope, name, &hops, &slot));
    if (slot != UINT32_MAX) return ST_OK;
    return add_slot(rs, (struct slot){.name = name, .load = LOAD_VARIABLE}, &slot);
}

static enum status declare_set(struct resolver *rs, struct str name) {
    uint32_t hops, slot;
    TRY(find_slot(rs, rs->scope, name, &slot));
    if (slot != UINT32_MAX) return ST_OK;
    struct slot made = {.name = name, .load = rs->branches ? LOAD_VARIABLE : LOAD_MISSING};
    TRY(find_name(rs, rs->scope->parent, name, &hops, &slot));
    if (slot != UINT32_MAX) {
        made.load = LOAD_OUTER;
        made.outer_hops = hops + 1;
        made.outer_slot = slot;
    }
    return add_slot(rs, made, &slot);
}

/* The code that opens the frame sets a parameter. */
static enum status declare_param(struct resolver *rs, struct str name, uint32_t *slot) {
    TRY(find_slot(rs, rs->scope, name, slot));
    if (*slot == UINT32_MAX) return add_slot(rs, (struct slot){.name = name}, slot);
    rs->scope->slots[*slot].load = LOAD_NOTHING;
    return ST_OK;
}

static enum status declare_param_target(struct resolver *rs, const struct node *target) {
    uint32_t slot;
    if (target->kind == N_NAME) return declare_param(rs, target->name.name, &slot);
    for (uint32_t i = 0; i < target->list.count; i++)
        TRY(declare_param_target(rs, target->list.items[i]));
    return ST_OK;
}

/* ------------------------------------------------------------------ walking */

static enum status walk_list(struct resolver *rs, const struct nodes *list, node_fn *fn) {
    for (uint32_t i = 0; i < list->count; i++) TRY(fn(rs, list->items[i]));
    return ST_OK;
}

static enum status walk_one(struct resolver *rs, struct node *n, node_fn *fn) {
    return n ? fn(rs, n) : ST_OK;
}

static enum status walk_args(struct resolver *rs, const struct call_args *args, node_fn *fn) {
    TRY(walk_list(rs, &args->positional, fn));
    TRY(walk_list(rs, &args->keyword_values, fn));
    TRY(walk_one(rs, args->rest, fn));
    return walk_one(rs, args->keyword_rest, fn);
}

/* The parts of an expression, and of output. */
static enum status walk_parts(struct resolver *rs, struct node *n, node_fn *fn) {
    switch (n->kind) {
    case N_OUTPUT:
    case N_LIST:
    case N_TUPLE:
    case N_DICT:
    case N_CONCAT:
        return walk_list(rs, &n->list, fn);
    case N_UNARY:
    case N_NOT:
    case N_BINARY:
    case N_AND:
    case N_OR:
    case N_ITEM:
        TRY(walk_one(rs, n->pair.a, fn));
        return walk_one(rs, n->pair.b, fn);
    case N_COMPARE:
        return walk_list(rs, &n->compare.operands, fn);
    case N_ATTRIBUTE:
        return fn(rs, n->attribute.of);
    case N_SLICE:
        TRY(fn(rs, n->slice.of));
        TRY(walk_one(rs, n->slice.start, fn));
        TRY(walk_one(rs, n->slice.stop, fn));
        return walk_one(rs, n->slice.step, fn);
    case N_CALL:
        TRY(fn(rs, n->call.of));
        return walk_args(rs, &n->call.args, fn);
    case N_FILTER:
    case N_TEST:
        TRY(walk_one(rs, n->filter.of, fn));
        return walk_args(rs, &n->filter.args, fn);
    case N_COND:
        TRY(fn(rs, n->cond.test));
        TRY(fn(rs, n->cond.then));
        return walk_one(rs, n->cond.otherwise, fn);
    default:
        return ST_OK;
    }
}

/* ------------------------------------------------------------------ first walk: collect */

static enum status collect(struct resolver *rs, struct node *n);

static enum status collect_branches(struct resolver *rs, struct node *n) {
    TRY(collect(rs, n->branch.tests.items[0]));
    rs->branches++;
    for (uint32_t i = 0; i < n->branch.tests.count; i++) {
        if (i) TRY(collect(rs, n->branch.tests.items[i]));
        TRY(walk_list(rs, &n->branch.bodies[i], collect));
    }
    TRY(walk_list(rs, &n->branch.otherwise, collect));
    rs->branches--;
    return ST_OK;
}

static enum status collect_kind(struct resolver *rs, struct node *n) {
    switch (n->kind) {
    case N_NAME:
        return n->is_store ? declare_set(rs, n->name.name) : declare_use(rs, n->name.name);
    case N_NAMESPACE_REF:
        return declare_use(rs, n->name.name);
    case N_IF:
        return collect_branches(rs, n);
    case N_FOR:
        return collect(rs, n->loop->iter);
    case N_SET:
        TRY(collect(rs, n->set.value));
        return collect(rs, n->set.target);
    case N_SET_BLOCK:
        return collect(rs, n->set.target);
    case N_MACRO:
    case N_CALL_BLOCK:
        return collect(rs, n->macro.target);
    case N_FILTER_BLOCK:
    case N_WITH:
        return walk_list(rs, &n->with.values, collect);
    default:
        return walk_parts(rs, n, collect);
    }
}

static enum status collect(struct resolver *rs, struct node *n) {
    TRY(enter(rs, n));
    enum status st = collect_kind(rs, n);
    rs->depth--;
    return st;
}

/* ------------------------------------------------------------------ special names */

/* Which of caller, kwargs and varargs a macro's body uses before setting them. */
struct special {
    struct str name;
    bool used, hidden;
};

struct special_walk {
    struct resolver base; /* first, so that node_fn can be shared */
    struct special names[3];
};

static enum status find_specials(struct resolver *rs, struct node *n);

static void see_name(struct special_walk *walk, const struct node *n, bool is_store) {
    for (size_t i = 0; i < 3; i++) {
        struct special *s = &walk->names[i];
        if (!str_eq(s->name, n->name.name)) continue;
        if (is_store)
            s->hidden = true;
        else if (!s->hidden)
            s->used = true;
    }
}

static enum status find_in_macro(struct resolver *rs, struct node *n) {
    const struct macro *m = n->macro.macro;
    if (n->kind == N_CALL_BLOCK) TRY(find_specials(rs, n->macro.target));
    TRY(walk_list(rs, &m->params, find_specials));
    TRY(walk_list(rs, &m->defaults, find_specials));
    return walk_list(rs, &m->body, find_specials);
}

static enum status find_in_statement(struct resolver *rs, struct node *n) {
    switch (n->kind) {
    case N_NAME:
        see_name((struct special_walk *)rs, n, n->is_store);
        return ST_OK;
    case N_IF:
        for (uint32_t i = 0; i < n->branch.tests.count; i++) {
            TRY(find_specials(rs, n->branch.tests.items[i]));
            TRY(walk_list(rs, &n->branch.bodies[i], find_specials));
        }
        return walk_list(rs, &n->branch.otherwise, find_specials);
    case N_FOR:
        TRY(find_specials(rs, n->loop->target));
        TRY(find_specials(rs, n->loop->iter));
        TRY(walk_list(rs, &n->loop->body, find_specials));
        TRY(walk_list(rs, &n->loop->otherwise, find_specials));
        return walk_one(rs, n->loop->test, find_specials);
    case N_SET:
    case N_SET_BLOCK:
        TRY(find_specials(rs, n->set.target));
        TRY(walk_one(rs, n->set.value, find_specials));
        return walk_list(rs, &n->set.body, find_specials);
    case N_MACRO:
    case N_CALL_BLOCK:
    case N_GENERATION:
        return find_in_macro(rs, n);
    case N_FILTER_BLOCK:
    case N_WITH:
        TRY(walk_list(rs, &n->with.targets, find_specials));
        TRY(walk_list(rs, &n->with.values, find_specials));
        return walk_list(rs, &n->with.body, find_specials);
    default:
        return walk_parts(rs, n, find_specials);
    }
}

static enum status find_specials(struct resolver *rs, struct node *n) {
    if (++rs->p->work > WORK_MAX) return jinja_parse_full(rs->p);
    TRY(enter(rs, n));
    enum status st = find_in_statement(rs, n);
    rs->depth--;
    return st;
}

/* ------------------------------------------------------------------ second walk: bind */

static enum status bind(struct resolver *rs, struct node *n);

static enum status bind_name(struct resolver *rs, struct node *n) {
    if (n->is_store && rs->loops && str_is(n->name.name, "loop"))
        return jinja_parse_fail(rs->p, n->line, "cannot assign to the special variable 'loop'");
    TRY(find_name(rs, rs->scope, n->name.name, &n->name.hops, &n->name.slot));
    if (n->name.slot != UINT32_MAX) return ST_OK;
    n->name.hops = 0;
    struct slot slot = {.name = n->name.name, .load = LOAD_VARIABLE};
    return add_slot(rs, slot, &n->name.slot);
}

/* The targets of `with` and the parameters of macros may be called anything. */
static enum status bind_param(struct resolver *rs, struct node *n) {
    uint32_t loops = rs->loops;
    rs->loops = 0;
    TRY(bind(rs, n));
    rs->loops = loops;
    return ST_OK;
}

/* Open a scope below the current one; `saved` takes what close_scope() restores. */
static enum status open_scope(struct resolver *rs, struct scope **scope, struct resolver *saved) {
    *saved = *rs;
    *scope = arena_zalloc_array(rs->p->arena, 1, sizeof(**scope));
    if (!*scope) return jinja_parse_full(rs->p);
    (*scope)->parent = rs->scope;
    rs->scope = *scope;
    rs->branches = 0;
    rs->is_soft = false;
    return ST_OK;
}

static void close_scope(struct resolver *rs, const struct resolver *saved) { *rs = *saved; }

static enum status bind_body(struct resolver *rs, const struct nodes *body) {
    TRY(walk_list(rs, body, collect));
    return walk_list(rs, body, bind);
}

static enum status bind_for(struct resolver *rs, struct for_parts *parts) {
    struct resolver saved;
    TRY(bind(rs, parts->iter));
    rs->loops++;
    TRY(open_scope(rs, &parts->scope, &saved));
    TRY(declare_param(rs, STR("loop"), &parts->loop_slot));
    TRY(declare_param_target(rs, parts->target));
    TRY(walk_list(rs, &parts->body, collect));
    TRY(bind(rs, parts->target));
    TRY(walk_list(rs, &parts->body, bind));
    close_scope(rs, &saved);
    if (parts->test) {
        TRY(open_scope(rs, &parts->test_scope, &saved));
        TRY(declare_param_target(rs, parts->test_target));
        TRY(collect(rs, parts->test));
        TRY(bind(rs, parts->test_target));
        TRY(bind(rs, parts->test));
        close_scope(rs, &saved);
    }
    TRY(open_scope(rs, &parts->otherwise_scope, &saved));
    TRY(bind_body(rs, &parts->otherwise));
    close_scope(rs, &saved);
    rs->loops--;
    return ST_OK;
}

static bool has_param(const struct macro *m, const char *name, bool *has_default) {
    for (uint32_t i = 0; i < m->params.count; i++) {
        if (!str_is(m->params.items[i]->name.name, name)) continue;
        *has_default = i >= m->params.count - m->defaults.count;
        return true;
    }
    return false;
}

static enum status declare_specials(struct resolver *rs, struct macro *m, uint32_t line) {
    struct special_walk walk = {
        .base = *rs,
        .names = {{.name = STR("caller")}, {.name = STR("kwargs")}, {.name = STR("varargs")}}};
    TRY(walk_list(&walk.base, &m->body, find_specials));
    bool has_default = false;
    if (walk.names[0].used && has_param(m, "caller", &has_default)) {
        if (!has_default)
            return jinja_parse_fail(rs->p, line, "parameter 'caller' needs a default value");
    } else if (walk.names[0].used) {
        m->takes_caller = true;
        TRY(declare_param(rs, STR("caller"), &m->caller_slot));
    }
    m->takes_kwargs = walk.names[1].used && !has_param(m, "kwargs", &has_default);
    if (m->takes_kwargs) TRY(declare_param(rs, STR("kwargs"), &m->kwargs_slot));
    m->takes_varargs = walk.names[2].used && !has_param(m, "varargs", &has_default);
    if (m->takes_varargs) TRY(declare_param(rs, STR("varargs"), &m->varargs_slot));
    return ST_OK;
}

static enum status bind_macro(struct resolver *rs, struct macro *m, uint32_t line) {
    struct resolver saved;
    TRY(open_scope(rs, &m->scope, &saved));
    for (uint32_t i = 0; i < m->params.count; i++)
        TRY(declare_param_target(rs, m->params.items[i]));
    TRY(declare_specials(rs, m, line));
    TRY(walk_list(rs, &m->defaults, collect));
    TRY(walk_list(rs, &m->body, collect));
    TRY(walk_list(rs, &m->params, bind_param));
    TRY(walk_list(rs, &m->defaults, bind));
    TRY(walk_list(rs, &m->body, bind));
    close_scope(rs, &saved);
    return ST_OK;
}

static enum status bind_with(struct resolver *rs, struct node *n) {
    struct resolver saved;
    if (n->kind == N_WITH) TRY(walk_list(rs, &n->with.values, bind));
    TRY(open_scope(rs, &n->with.scope, &saved));
    for (uint32_t i = 0; i < n->with.targets.count; i++)
        TRY(declare_param_target(rs, n->with.targets.items[i]));
    TRY(walk_list(rs, &n->with.body, collect));
    TRY(walk_list(rs, &n->with.targets, bind_param));
    if (n->kind == N_FILTER_BLOCK) {
        TRY(walk_list(rs, &n->with.values, collect));
        TRY(walk_list(rs, &n->with.values, bind));
    }
    TRY(walk_list(rs, &n->with.body, bind));
    close_scope(rs, &saved);
    return ST_OK;
}

static enum status bind_set_block(struct resolver *rs, struct node *n) {
    struct resolver saved;
    TRY(open_scope(rs, &n->set.scope, &saved));
    TRY(bind_body(rs, &n->set.body));
    if (n->set.value) {
        TRY(collect(rs, n->set.value));
        TRY(bind(rs, n->set.value));
    }
    close_scope(rs, &saved);
    return bind(rs, n->set.target);
}

static enum status bind_branches(struct resolver *rs, struct node *n) {
    bool was_soft = rs->is_soft;
    rs->is_soft = true;
    for (uint32_t i = 0; i < n->branch.tests.count; i++) {
        TRY(bind(rs, n->branch.tests.items[i]));
        TRY(walk_list(rs, &n->branch.bodies[i], bind));
    }
    TRY(walk_list(rs, &n->branch.otherwise, bind));
    rs->is_soft = was_soft;
    return ST_OK;
}

static enum status bind_cond(struct resolver *rs, struct node *n) {
    bool was_soft = rs->is_soft;
    rs->is_soft = true;
    TRY(walk_parts(rs, n, bind));
    rs->is_soft = was_soft;
    return ST_OK;
}

static enum status bind_filter(struct resolver *rs, struct node *n) {
    if (!n->filter.def && !rs->is_soft)
        return jinja_parse_fail(rs->p, n->line, "no %s named '%.*s'",
                                n->kind == N_FILTER ? "filter" : "test", STR_ARG(n->filter.name));
    return walk_parts(rs, n, bind);
}

static enum status bind_kind(struct resolver *rs, struct node *n) {
    switch (n->kind) {
    case N_NAME:
    case N_NAMESPACE_REF:
        return bind_name(rs, n);
    case N_IF:
        return bind_branches(rs, n);
    case N_FOR:
        return bind_for(rs, n->loop);
    case N_SET:
        TRY(bind(rs, n->set.value));
        return bind(rs, n->set.target);
    case N_SET_BLOCK:
        return bind_set_block(rs, n);
    case N_MACRO:
        TRY(bind_macro(rs, n->macro.macro, n->line));
        return bind_param(rs, n->macro.target);
    case N_CALL_BLOCK:
        TRY(bind_macro(rs, n->macro.macro, n->line));
        return bind(rs, n->macro.target);
    case N_GENERATION:
        return bind_macro(rs, n->macro.macro, n->line);
    case N_FILTER_BLOCK:
    case N_WITH:
        return bind_with(rs, n);
    case N_COND:
        return bind_cond(rs, n);
    case N_FILTER:
    case N_TEST:
        return bind_filter(rs, n);
    default:
        return walk_parts(rs, n, bind);
    }
}

static enum status bind(struct resolver *rs, struct node *n) {
    TRY(enter(rs, n));
    enum status st = bind_kind(rs, n);
    rs->depth--;
    return st;
}

enum status jinja_resolve(struct parse *p, struct template *t) {
    struct resolver rs = {.p = p};
    t->scope = arena_zalloc_array(p->arena, 1, sizeof(*t->scope));
    if (!t->scope) return jinja_parse_full(p);
    rs.scope = t->scope;
    return bind_body(&rs, &t->body);
}
