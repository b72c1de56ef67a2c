/* jinja/exec.c - runs statements, loops and macros.
 *
 * Output goes to the end of the work buffer. A captured body (a macro, a set block) is what
 * was appended while it ran, taken off again as a text.
 */
#include <string.h>

#include "jinja/run.h"
#include "jinja/value.h"

/* ------------------------------------------------------------------ frames */

enum status jinja_frame_open(struct run *r, struct frame *parent, const struct scope *scope,
                             struct frame **out) {
    struct frame *f = jinja_run_alloc(r, 1, sizeof(*f));
    if (!f) return jinja_run_full(r);
    f->slots = jinja_run_alloc(r, scope->count, sizeof(struct value));
    if (!f->slots) return jinja_run_full(r);
    f->parent = parent;
    f->scope = scope;
    *out = f;
    return ST_OK;
}

static enum status find_variable(struct run *r, struct str name, struct value *out) {
    struct value *found;
    TRY(jinja_dict_find_str(r, r->vars, name, &found));
    const struct builtin *function = found ? NULL : jinja_global_find(name);
    if (found)
        *out = *found;
    else if (function)
        *out = (struct value){.type = V_FUNCTION, .function = function};
    else
        *out = jinja_value_missing();
    return ST_OK;
}

enum status jinja_frame_load(struct run *r, struct frame *f) {
    TRY(jinja_run_steps(r, f->scope->count / 8));
    for (uint32_t i = 0; i < f->scope->count; i++) {
        const struct slot *slot = &f->scope->slots[i];
        struct frame *outer = f;
        switch (slot->load) {
        case LOAD_NOTHING:
            break;
        case LOAD_VARIABLE:
            TRY(find_variable(r, slot->name, &f->slots[i]));
            break;
        case LOAD_OUTER:
            for (uint32_t hop = 0; hop < slot->outer_hops; hop++) outer = outer->parent;
            f->slots[i] = outer->slots[slot->outer_slot];
            break;
        case LOAD_MISSING:
            f->slots[i] = jinja_value_missing();
            break;
        }
    }
    return ST_OK;
}

static enum status open_inner(struct run *r, struct frame *f, const struct scope *scope,
                              struct frame **out) {
    TRY(jinja_frame_open(r, f, scope, out));
    return jinja_frame_load(r, *out);
}

/* ------------------------------------------------------------------ loops */

enum status jinja_loop_peek(struct run *r, struct loop *loop) {
    bool done = false;
    if (loop->after.type != V_MISSING) return ST_OK;
    TRY(jinja_iter_next(r, loop->iter, &loop->after, &done));
    if (done) loop->after = jinja_value_missing();
    return ST_OK;
}

/* A generator has no length: the rest of it is read to count. */
enum status jinja_loop_length(struct run *r, struct loop *loop, int64_t *length) {
    if (loop->length < 0 && !jinja_value_has_length(loop->iterable, &loop->length)) {
        struct value rest, again = {.type = V_ITER, .iter = loop->iter};
        TRY(jinja_iter_to_list(r, again, &rest));
        TRY(jinja_iter_open(r, rest, &loop->iter));
        loop->length = (int64_t)rest.list->count + loop->idx + 1;
        loop->length += loop->after.type != V_MISSING;
    }
    *length = loop->length;
    return ST_OK;
}

static enum status loop_counted(struct run *r, struct loop *loop, struct str name,
                                struct value *out) {
    int64_t length;
    TRY(jinja_loop_length(r, loop, &length));
    if (str_is(name, "revindex")) length -= loop->idx;
    if (str_is(name, "revindex0")) length -= loop->idx + 1;
    *out = jinja_value_int(length);
    return ST_OK;
}

static enum status loop_neighbour(struct run *r, struct loop *loop, struct str name,
                                  struct value *out) {
    if (str_is(name, "previtem")) {
        *out = loop->before;
        if (loop->idx == 0) return jinja_value_undefined(r, "there is no previous item", out);
        return ST_OK;
    }
    TRY(jinja_loop_peek(r, loop));
    if (str_is(name, "last")) {
        *out = jinja_value_bool(loop->after.type == V_MISSING);
        return ST_OK;
    }
    *out = loop->after;
    if (out->type == V_MISSING) return jinja_value_undefined(r, "there is no next item", out);
    return ST_OK;
}

enum status jinja_loop_attribute(struct run *r, struct loop *loop, struct str name,
                                 struct value *out) {
    if (str_is(name, "index")) *out = jinja_value_int(loop->idx + 1);
    if (str_is(name, "index0")) *out = jinja_value_int(loop->idx);
    if (str_is(name, "first")) *out = jinja_value_bool(loop->idx == 0);
    if (str_is(name, "depth")) *out = jinja_value_int(loop->depth + 1);
    if (str_is(name, "depth0")) *out = jinja_value_int(loop->depth);
    if (str_is(name, "length") || str_is(name, "revindex") || str_is(name, "revindex0"))
        return loop_counted(r, loop, name, out);
    if (str_is(name, "last") || str_is(name, "previtem") || str_is(name, "nextitem"))
        return loop_neighbour(r, loop, name, out);
    return ST_OK;
}

static enum status loop_step(struct run *r, struct loop *loop, bool *done) {
    *done = false;
    loop->before = loop->current;
    if (loop->after.type != V_MISSING) {
        loop->current = loop->after;
        loop->after = jinja_value_missing();
    } else {
        TRY(jinja_iter_next(r, loop->iter, &loop->current, done));
    }
    loop->idx++;
    return ST_OK;
}

static enum status run_loop(struct run *r, struct frame *inner, struct loop *loop, bool *any) {
    const struct for_parts *parts = loop->parts;
    for (;;) {
        bool done;
        enum flow flow = FLOW_ON;
        TRY(loop_step(r, loop, &done));
        if (done) return ST_OK;
        inner->slots[parts->loop_slot] = (struct value){.type = V_LOOP, .loop = loop};
        TRY(jinja_assign(r, inner, parts->target, loop->current));
        TRY(jinja_frame_load(r, inner));
        /* As in jinja2, `else` runs if no iteration reached the end of its body. */
        TRY(jinja_exec(r, inner, &parts->body, &flow));
        if (flow == FLOW_BREAK) return ST_OK;
        if (flow == FLOW_ON) *any = true;
    }
}

enum status jinja_exec_loop(struct run *r, struct frame *f, const struct for_parts *parts,
                            struct value iterable, int64_t depth, enum flow *flow) {
    struct frame *inner = NULL;
    bool any = false;
    struct loop *loop = jinja_run_alloc(r, 1, sizeof(*loop));
    if (!loop) return jinja_run_full(r);
    *loop = (struct loop){.parts = parts, .outer = f, .iterable = iterable, .depth = depth};
    loop->idx = loop->length = -1;
    TRY(jinja_frame_open(r, f, parts->scope, &inner));
    if (parts->test) {
        TRY(jinja_iter_filtered(r, iterable, parts, f, &loop->iter));
        loop->iterable = (struct value){.type = V_ITER, .iter = loop->iter};
    } else {
        TRY(jinja_iter_open(r, iterable, &loop->iter));
    }
    TRY(run_loop(r, inner, loop, &any));
    if (any || !parts->otherwise.count) return ST_OK;
    TRY(open_inner(r, f, parts->otherwise_scope, &inner));
    return jinja_exec(r, inner, &parts->otherwise, flow);
}

enum status jinja_call_loop(struct run *r, struct loop *loop, const struct args *args,
                            struct value *out) {
    if (!loop->parts->recursive)
        return jinja_run_fail(r,
                              "the loop must have the 'recursive' marker to be called recursively");
    if (args->positional_count != 1 || args->keyword_count)
        return jinja_run_fail(r, "loop() takes one argument");
    size_t mark = r->work.len;
    enum flow flow = FLOW_ON;
    TRY(jinja_run_enter(r));
    TRY(jinja_exec_loop(r, loop->outer, loop->parts, args->positional[0], loop->depth + 1, &flow));
    r->depth--;
    return jinja_run_take(r, mark, out);
}

/* ------------------------------------------------------------------ macros */

static bool take_keyword(const struct args *args, struct str name, bool *taken, struct value *out) {
    for (size_t i = 0; i < args->keyword_count; i++) {
        if (taken[i] || !str_eq(args->keyword_names[i], name)) continue;
        taken[i] = true;
        *out = args->keyword_values[i];
        return true;
    }
    return false;
}

static enum status bind_params(struct run *r, const struct macro *m, const struct args *args,
                               bool *taken, struct frame *f) {
    for (uint32_t i = 0; i < m->params.count; i++) {
        const struct node *param = m->params.items[i];
        struct value v = jinja_value_missing();
        if (i < args->positional_count)
            v = args->positional[i];
        else
            take_keyword(args, param->name.name, taken, &v);
        f->slots[param->name.slot] = v;
    }
    if (!m->takes_caller) return ST_OK;
    struct value caller;
    if (!take_keyword(args, STR("caller"), taken, &caller) || caller.type == V_NONE)
        TRY(jinja_value_undefined(r, "no caller defined", &caller));
    f->slots[m->caller_slot] = caller;
    return ST_OK;
}

static enum status bind_rest(struct run *r, const struct macro *m, const struct args *args,
                             const bool *taken, struct frame *f) {
    struct value rest;
    TRY(jinja_value_of_dict(r, &rest));
    for (size_t i = 0; i < args->keyword_count; i++) {
        struct value key;
        if (taken[i]) continue;
        if (!m->takes_kwargs)
            return jinja_run_fail(r, "macro '%.*s' takes no keyword argument '%.*s'",
                                  STR_ARG(m->name), STR_ARG(args->keyword_names[i]));
        TRY(jinja_value_text(r, args->keyword_names[i], &key));
        TRY(jinja_dict_put(r, rest.dict, key, args->keyword_values[i]));
    }
    if (m->takes_kwargs) f->slots[m->kwargs_slot] = rest;
    size_t extra = 0;
    if (args->positional_count > m->params.count) extra = args->positional_count - m->params.count;
    if (extra && !m->takes_varargs)
        return jinja_run_fail(r, "macro '%.*s' takes not more than %u argument(s)",
                              STR_ARG(m->name), m->params.count);
    if (!m->takes_varargs) return ST_OK;
    const struct value *first = extra ? args->positional + m->params.count : NULL;
    return jinja_value_of_tuple(r, first, extra, &f->slots[m->varargs_slot]);
}

/* Defaults are evaluated inside, in order: a later one may use an earlier parameter. */
static enum status fill_defaults(struct run *r, const struct macro *m, struct frame *f) {
    uint32_t first = m->params.count - m->defaults.count;
    for (uint32_t i = 0; i < m->params.count; i++) {
        const struct node *param = m->params.items[i];
        struct value v = f->slots[param->name.slot];
        if (v.type != V_MISSING) continue;
        if (i >= first) {
            TRY(jinja_eval(r, f, m->defaults.items[i - first], &v));
        } else {
            struct value name;
            TRY(jinja_value_text(r, param->name.name, &name));
            TRY(jinja_value_undefined_name(r, NULL, name, &v));
        }
        f->slots[param->name.slot] = v;
    }
    return ST_OK;
}

enum status jinja_call_macro(struct run *r, const struct macro_value *mv, const struct args *args,
                             struct value *out) {
    const struct macro *m = mv->macro;
    struct frame *f = NULL;
    enum flow flow = FLOW_ON;
    TRY(jinja_run_enter(r));
    TRY(jinja_frame_open(r, mv->frame, m->scope, &f));
    bool *taken = jinja_run_alloc(r, args->keyword_count, sizeof(*taken));
    if (!taken) return jinja_run_full(r);
    TRY(bind_params(r, m, args, taken, f));
    TRY(bind_rest(r, m, args, taken, f));
    TRY(jinja_frame_load(r, f));
    TRY(fill_defaults(r, m, f));
    size_t mark = r->work.len;
    TRY(jinja_exec(r, f, &m->body, &flow));
    TRY(jinja_run_take(r, mark, out));
    r->depth--;
    return ST_OK;
}

static enum status macro_value(struct run *r, struct frame *f, const struct macro *m,
                               struct value *out) {
    struct macro_value *mv = jinja_run_alloc(r, 1, sizeof(*mv));
    if (!mv) return jinja_run_full(r);
    *mv = (struct macro_value){m, f};
    *out = (struct value){.type = V_MACRO, .macro = mv};
    return ST_OK;
}

static enum status call_joiner(struct run *r, struct joiner *j, struct value *out) {
    if (!j->used) {
        j->used = true;
        return jinja_value_text(r, STR(""), out);
    }
    *out = j->separator;
    return ST_OK;
}

enum status jinja_call_value(struct run *r, struct value callee, const struct args *args,
                             struct value *out) {
    switch (callee.type) {
    case V_UNDEFINED:
        return jinja_run_fail_undefined(r, callee);
    case V_MACRO:
        return jinja_call_macro(r, callee.macro, args, out);
    case V_FUNCTION:
        return jinja_builtin_call(r, callee.function, jinja_value_missing(), args, out);
    case V_METHOD:
        return jinja_builtin_call(r, callee.method->def, callee.method->self, args, out);
    case V_LOOP:
        return jinja_call_loop(r, callee.loop, args, out);
    case V_JOINER:
        if (args->positional_count || args->keyword_count)
            return jinja_run_fail(r, "a joiner takes no arguments");
        return call_joiner(r, callee.joiner, out);
    default:
        return jinja_run_fail(r, "'%s' object is not callable", jinja_value_type_name(callee));
    }
}

/* ------------------------------------------------------------------ statements */

static enum status exec_output(struct run *r, struct frame *f, const struct node *n) {
    for (uint32_t i = 0; i < n->list.count; i++) {
        struct value v;
        TRY(jinja_eval(r, f, n->list.items[i], &v));
        TRY(jinja_put_str(r, v));
    }
    return ST_OK;
}

static enum status exec_if(struct run *r, struct frame *f, const struct node *n, enum flow *flow) {
    for (uint32_t i = 0; i < n->branch.tests.count; i++) {
        struct value test;
        TRY(jinja_eval(r, f, n->branch.tests.items[i], &test));
        if (jinja_value_is_true(test)) return jinja_exec(r, f, &n->branch.bodies[i], flow);
    }
    return jinja_exec(r, f, &n->branch.otherwise, flow);
}

/* Run a body and take its output off the work buffer. A jump out of it drops the output. */
static enum status capture(struct run *r, struct frame *inner, const struct nodes *body,
                           struct value *out, enum flow *flow) {
    size_t mark = r->work.len;
    TRY(jinja_exec(r, inner, body, flow));
    return jinja_run_take(r, mark, out);
}

static enum status exec_set(struct run *r, struct frame *f, const struct node *n, enum flow *flow) {
    struct value v;
    if (n->kind == N_SET) {
        TRY(jinja_eval(r, f, n->set.value, &v));
        return jinja_assign(r, f, n->set.target, v);
    }
    struct frame *inner = NULL;
    TRY(open_inner(r, f, n->set.scope, &inner));
    TRY(capture(r, inner, &n->set.body, &v, flow));
    if (*flow != FLOW_ON) return ST_OK;
    if (n->set.value) TRY(jinja_eval_filter(r, inner, n->set.value, v, &v));
    return jinja_assign(r, f, n->set.target, v);
}

static enum status exec_filter_block(struct run *r, struct frame *f, const struct node *n,
                                     enum flow *flow) {
    struct frame *inner = NULL;
    struct value v;
    TRY(open_inner(r, f, n->with.scope, &inner));
    TRY(capture(r, inner, &n->with.body, &v, flow));
    if (*flow != FLOW_ON) return ST_OK;
    TRY(jinja_eval_filter(r, inner, n->with.values.items[0], v, &v));
    return jinja_put_str(r, v);
}

static enum status exec_with(struct run *r, struct frame *f, const struct node *n,
                             enum flow *flow) {
    struct frame *inner = NULL;
    TRY(open_inner(r, f, n->with.scope, &inner));
    for (uint32_t i = 0; i < n->with.targets.count; i++) {
        struct value v;
        TRY(jinja_eval(r, f, n->with.values.items[i], &v));
        TRY(jinja_assign(r, inner, n->with.targets.items[i], v));
    }
    return jinja_exec(r, inner, &n->with.body, flow);
}

static enum status exec_call_block(struct run *r, struct frame *f, const struct node *n) {
    struct value caller, result;
    TRY(macro_value(r, f, n->macro.macro, &caller));
    TRY(jinja_eval_call(r, f, n->macro.target, caller, &result));
    return jinja_put_str(r, result);
}

static enum status exec_generation(struct run *r, struct frame *f, const struct node *n) {
    const struct macro_value body = {n->macro.macro, f};
    const struct args none = {0};
    struct value result;
    TRY(jinja_call_macro(r, &body, &none, &result));
    return jinja_put_str(r, result);
}

static enum status exec_for(struct run *r, struct frame *f, const struct node *n, enum flow *flow) {
    struct value iterable;
    TRY(jinja_eval(r, f, n->loop->iter, &iterable));
    r->line = n->line;
    return jinja_exec_loop(r, f, n->loop, iterable, 0, flow);
}

static enum status exec_one(struct run *r, struct frame *f, const struct node *n, enum flow *flow) {
    struct value v;
    switch (n->kind) {
    case N_OUTPUT:
        return exec_output(r, f, n);
    case N_IF:
        return exec_if(r, f, n, flow);
    case N_FOR:
        return exec_for(r, f, n, flow);
    case N_SET:
    case N_SET_BLOCK:
        return exec_set(r, f, n, flow);
    case N_MACRO:
        TRY(macro_value(r, f, n->macro.macro, &v));
        return jinja_assign(r, f, n->macro.target, v);
    case N_CALL_BLOCK:
        return exec_call_block(r, f, n);
    case N_FILTER_BLOCK:
        return exec_filter_block(r, f, n, flow);
    case N_WITH:
        return exec_with(r, f, n, flow);
    case N_GENERATION:
        return exec_generation(r, f, n);
    case N_BREAK:
        *flow = FLOW_BREAK;
        return ST_OK;
    case N_CONTINUE:
        *flow = FLOW_CONTINUE;
        return ST_OK;
    default:
        return jinja_run_fail(r, "not a statement");
    }
}

enum status jinja_exec(struct run *r, struct frame *f, const struct nodes *body, enum flow *flow) {
    TRY(jinja_run_enter(r));
    for (uint32_t i = 0; i < body->count && *flow == FLOW_ON; i++) {
        TRY(jinja_run_steps(r, 1));
        r->line = body->items[i]->line;
        TRY(exec_one(r, f, body->items[i], flow));
    }
    r->depth--;
    return ST_OK;
}
