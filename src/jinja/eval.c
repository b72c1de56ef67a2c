/* jinja/eval.c - evaluates expressions.
 *
 * Every node costs a step and a level of depth, so that no template can run for long or use
 * up the C stack.
 */
#include <string.h>

#include "jinja/run.h"
#include "jinja/value.h"

/* ------------------------------------------------------------------ names */

static struct value *slot_of(struct frame *f, const struct node *n) {
    for (uint32_t i = 0; i < n->name.hops; i++) f = f->parent;
    return &f->slots[n->name.slot];
}

static enum status eval_name(struct run *r, struct frame *f, const struct node *n,
                             struct value *out) {
    *out = *slot_of(f, n);
    if (out->type != V_MISSING) return ST_OK;
    struct value name;
    TRY(jinja_value_text(r, n->name.name, &name));
    return jinja_value_undefined_name(r, NULL, name, out);
}

static enum status assign_tuple(struct run *r, struct frame *f, const struct nodes *targets,
                                struct value v) {
    struct iter *it = NULL;
    struct value item;
    bool done;
    TRY(jinja_iter_open(r, v, &it));
    for (uint32_t i = 0; i < targets->count; i++) {
        TRY(jinja_iter_next(r, it, &item, &done));
        if (done)
            return jinja_run_fail(r, "not enough values to unpack (expected %u, got %u)",
                                  targets->count, i);
        TRY(jinja_assign(r, f, targets->items[i], item));
    }
    TRY(jinja_iter_next(r, it, &item, &done));
    if (!done) return jinja_run_fail(r, "too many values to unpack (expected %u)", targets->count);
    return ST_OK;
}

enum status jinja_assign(struct run *r, struct frame *f, const struct node *target,
                         struct value v) {
    if (target->kind == N_NAME) {
        *slot_of(f, target) = v;
        return ST_OK;
    }
    if (target->kind == N_TUPLE) return assign_tuple(r, f, &target->list, v);
    struct value *ns = slot_of(f, target);
    if (ns->type != V_NAMESPACE)
        return jinja_run_fail(r, "cannot assign attribute on non-namespace object");
    return jinja_dict_put(r, ns->dict, target->name.attribute, v);
}

/* ------------------------------------------------------------------ literals */

static enum status eval_list(struct run *r, struct frame *f, const struct node *n,
                             struct value *out) {
    TRY(jinja_value_of_list(r, n->list.count, out));
    if (n->kind == N_TUPLE) out->type = V_TUPLE;
    for (uint32_t i = 0; i < n->list.count; i++) {
        struct value item;
        TRY(jinja_eval(r, f, n->list.items[i], &item));
        TRY(jinja_list_push(r, out->list, item));
    }
    return ST_OK;
}

static enum status eval_dict(struct run *r, struct frame *f, const struct node *n,
                             struct value *out) {
    TRY(jinja_value_of_dict(r, out));
    for (uint32_t i = 0; i < n->list.count; i += 2) {
        struct value key, item;
        TRY(jinja_eval(r, f, n->list.items[i], &key));
        TRY(jinja_eval(r, f, n->list.items[i + 1], &item));
        TRY(jinja_dict_put(r, out->dict, key, item));
    }
    return ST_OK;
}

static enum status eval_concat(struct run *r, struct frame *f, const struct node *n,
                               struct value *out) {
    struct value parts;
    size_t mark = r->work.len;
    TRY(eval_list(r, f, n, &parts)); /* before any output: they use the buffer, too */
    for (size_t i = 0; i < parts.list->count; i++) TRY(jinja_put_str(r, parts.list->items[i]));
    return jinja_run_take(r, mark, out);
}

/* ------------------------------------------------------------------ operators */

static enum status compare_two(struct run *r, enum token_kind op, struct value a, struct value b,
                               bool *result) {
    static const char *const signs[] = {[T_LT] = "<", [T_LE] = "<=", [T_GT] = ">", [T_GE] = ">="};
    int order = 0;
    switch (op) {
    case T_EQ:
        return jinja_value_equal(r, a, b, result);
    case T_NE:
        TRY(jinja_value_equal(r, a, b, result));
        *result = !*result;
        return ST_OK;
    case T_IN:
        return jinja_value_contains(r, b, a, result);
    case T_NOT_IN:
        TRY(jinja_value_contains(r, b, a, result));
        *result = !*result;
        return ST_OK;
    default:
        TRY(jinja_value_order(r, a, b, signs[op], &order));
        *result = op == T_LT   ? order < 0
                  : op == T_LE ? order <= 0
                  : op == T_GT ? order > 0
                               : order >= 0;
        return ST_OK;
    }
}

/* a < b < c: each operand once, and none after the first comparison that fails. */
static enum status eval_compare(struct run *r, struct frame *f, const struct node *n,
                                struct value *out) {
    struct value left, right;
    bool result = true;
    TRY(jinja_eval(r, f, n->compare.operands.items[0], &left));
    for (uint32_t i = 1; result && i < n->compare.operands.count; i++) {
        TRY(jinja_eval(r, f, n->compare.operands.items[i], &right));
        TRY(compare_two(r, n->compare.ops[i - 1], left, right, &result));
        left = right;
    }
    *out = jinja_value_bool(result);
    return ST_OK;
}

static enum status eval_logic(struct run *r, struct frame *f, const struct node *n,
                              struct value *out) {
    TRY(jinja_eval(r, f, n->pair.a, out));
    if (n->kind == N_NOT) {
        *out = jinja_value_bool(!jinja_value_is_true(*out));
        return ST_OK;
    }
    bool decided = jinja_value_is_true(*out) == (n->kind == N_OR);
    return decided ? ST_OK : jinja_eval(r, f, n->pair.b, out);
}

static enum status eval_binary(struct run *r, struct frame *f, const struct node *n,
                               struct value *out) {
    struct value a, b;
    TRY(jinja_eval(r, f, n->pair.a, &a));
    TRY(jinja_eval(r, f, n->pair.b, &b));
    r->line = n->line;
    if (n->kind == N_ITEM) return jinja_get_item(r, a, b, out);
    return jinja_op_binary(r, n->op, a, b, out);
}

static enum status eval_unary(struct run *r, struct frame *f, const struct node *n,
                              struct value *out) {
    struct value a;
    TRY(jinja_eval(r, f, n->pair.a, &a));
    return jinja_op_unary(r, n->op, a, out);
}

static enum status eval_cond(struct run *r, struct frame *f, const struct node *n,
                             struct value *out) {
    struct value test;
    TRY(jinja_eval(r, f, n->cond.test, &test));
    if (jinja_value_is_true(test)) return jinja_eval(r, f, n->cond.then, out);
    if (n->cond.otherwise) return jinja_eval(r, f, n->cond.otherwise, out);
    return jinja_value_undefined(r, "an inline if was false and has no else", out);
}

/* ------------------------------------------------------------------ looking inside */

static enum status eval_attribute(struct run *r, struct frame *f, const struct node *n,
                                  struct value *out) {
    struct value of;
    TRY(jinja_eval(r, f, n->attribute.of, &of));
    r->line = n->line;
    return jinja_get_attribute(r, of, n->attribute.name, out);
}

static enum status eval_slice(struct run *r, struct frame *f, const struct node *n,
                              struct value *out) {
    struct value of,
        bounds[3] = {jinja_value_missing(), jinja_value_missing(), jinja_value_missing()};
    TRY(jinja_eval(r, f, n->slice.of, &of));
    if (n->slice.start) TRY(jinja_eval(r, f, n->slice.start, &bounds[0]));
    if (n->slice.stop) TRY(jinja_eval(r, f, n->slice.stop, &bounds[1]));
    if (n->slice.step) TRY(jinja_eval(r, f, n->slice.step, &bounds[2]));
    r->line = n->line;
    return jinja_get_slice(r, of, bounds, out);
}

/* ------------------------------------------------------------------ calls */

static enum status add_rest(struct run *r, struct frame *f, const struct node *rest,
                            struct args *args) {
    struct value v, list;
    TRY(jinja_eval(r, f, rest, &v));
    TRY(jinja_iter_to_list(r, v, &list));
    size_t count = args->positional_count + list.list->count;
    struct value *all = jinja_run_alloc(r, count, sizeof(*all));
    if (!all) return jinja_run_full(r);
    memcpy(all, args->positional, args->positional_count * sizeof(*all));
    for (size_t i = 0; i < list.list->count; i++)
        all[args->positional_count + i] = list.list->items[i];
    args->positional = all;
    args->positional_count = count;
    return ST_OK;
}

static enum status add_keyword_rest(struct run *r, struct frame *f, const struct node *rest,
                                    struct args *args) {
    struct value v;
    TRY(jinja_eval(r, f, rest, &v));
    if (v.type != V_DICT) return jinja_run_fail(r, "argument after ** must be a mapping");
    size_t count = args->keyword_count + v.dict->count;
    struct value *values = jinja_run_alloc(r, count, sizeof(*values));
    struct str *names = jinja_run_alloc(r, count, sizeof(*names));
    if (!values || !names) return jinja_run_full(r);
    memcpy(values, args->keyword_values, args->keyword_count * sizeof(*values));
    memcpy(names, args->keyword_names, args->keyword_count * sizeof(*names));
    for (size_t i = 0; i < v.dict->count; i++) {
        if (v.dict->entries[i].key.type != V_TEXT)
            return jinja_run_fail(r, "keywords must be strings");
        struct str name = jinja_value_str(v.dict->entries[i].key);
        for (size_t k = 0; k < args->keyword_count; k++)
            if (str_eq(args->keyword_names[k], name))
                return jinja_run_fail(r, "got two values for argument '%.*s'", STR_ARG(name));
        names[args->keyword_count + i] = name;
        values[args->keyword_count + i] = v.dict->entries[i].value;
    }
    args->keyword_names = names;
    args->keyword_values = values;
    args->keyword_count = count;
    return ST_OK;
}

static enum status eval_args(struct run *r, struct frame *f, const struct call_args *from,
                             struct args *args) {
    args->positional_count = from->positional.count;
    args->keyword_count = from->keyword_values.count;
    args->positional = jinja_run_alloc(r, args->positional_count, sizeof(struct value));
    args->keyword_names = jinja_run_alloc(r, args->keyword_count, sizeof(struct str));
    args->keyword_values = jinja_run_alloc(r, args->keyword_count, sizeof(struct value));
    if (!args->positional || !args->keyword_names || !args->keyword_values)
        return jinja_run_full(r);
    for (size_t i = 0; i < args->positional_count; i++)
        TRY(jinja_eval(r, f, from->positional.items[i], &args->positional[i]));
    for (size_t i = 0; i < args->keyword_count; i++) {
        args->keyword_names[i] = from->keyword_names[i];
        TRY(jinja_eval(r, f, from->keyword_values.items[i], &args->keyword_values[i]));
    }
    if (from->rest) TRY(add_rest(r, f, from->rest, args));
    if (from->keyword_rest) TRY(add_keyword_rest(r, f, from->keyword_rest, args));
    return ST_OK;
}

static enum status add_caller(struct run *r, struct value caller, struct args *args) {
    size_t count = args->keyword_count + 1;
    struct str *names = jinja_run_alloc(r, count, sizeof(*names));
    struct value *values = jinja_run_alloc(r, count, sizeof(*values));
    if (!names || !values) return jinja_run_full(r);
    memcpy(names, args->keyword_names, (count - 1) * sizeof(*names));
    memcpy(values, args->keyword_values, (count - 1) * sizeof(*values));
    names[count - 1] = STR("caller");
    values[count - 1] = caller;
    args->keyword_names = names;
    args->keyword_values = values;
    args->keyword_count = count;
    return ST_OK;
}

enum status jinja_eval_call(struct run *r, struct frame *f, const struct node *n,
                            struct value caller, struct value *out) {
    struct value callee;
    struct args args;
    TRY(jinja_eval(r, f, n->call.of, &callee));
    TRY(eval_args(r, f, &n->call.args, &args));
    if (caller.type != V_MISSING) TRY(add_caller(r, caller, &args));
    r->line = n->line;
    return jinja_call_value(r, callee, &args, out);
}

enum status jinja_eval_filter(struct run *r, struct frame *f, const struct node *n,
                              struct value body, struct value *out) {
    struct value of = body;
    struct args args;
    bool is_chain = body.type != V_MISSING && n->filter.of;
    if (is_chain) { /* the first filter of the chain gets the block's text */
        TRY(jinja_run_enter(r));
        TRY(jinja_eval_filter(r, f, n->filter.of, body, &of));
        r->depth--;
    } else if (n->filter.of) {
        TRY(jinja_eval(r, f, n->filter.of, &of));
    }
    r->line = n->line;
    if (!n->filter.def)
        return jinja_run_fail(r, "no %s named '%.*s'", n->kind == N_FILTER ? "filter" : "test",
                              STR_ARG(n->filter.name));
    TRY(eval_args(r, f, &n->filter.args, &args));
    r->line = n->line;
    return jinja_builtin_call(r, n->filter.def, of, &args, out);
}

static enum status eval_kind(struct run *r, struct frame *f, const struct node *n,
                             struct value *out) {
    switch (n->kind) {
    case N_CONST:
        *out = n->constant;
        return ST_OK;
    case N_NAME:
        return eval_name(r, f, n, out);
    case N_LIST:
    case N_TUPLE:
        return eval_list(r, f, n, out);
    case N_DICT:
        return eval_dict(r, f, n, out);
    case N_UNARY:
        return eval_unary(r, f, n, out);
    case N_NOT:
    case N_AND:
    case N_OR:
        return eval_logic(r, f, n, out);
    case N_BINARY:
    case N_ITEM:
        return eval_binary(r, f, n, out);
    case N_CONCAT:
        return eval_concat(r, f, n, out);
    case N_COMPARE:
        return eval_compare(r, f, n, out);
    case N_ATTRIBUTE:
        return eval_attribute(r, f, n, out);
    case N_SLICE:
        return eval_slice(r, f, n, out);
    case N_CALL:
        return jinja_eval_call(r, f, n, jinja_value_missing(), out);
    case N_FILTER:
    case N_TEST:
        return jinja_eval_filter(r, f, n, jinja_value_missing(), out);
    case N_COND:
        return eval_cond(r, f, n, out);
    default:
        return jinja_run_fail(r, "not an expression");
    }
}

enum status jinja_eval(struct run *r, struct frame *f, const struct node *n, struct value *out) {
    TRY(jinja_run_enter(r));
    TRY(jinja_run_steps(r, 1));
    r->line = n->line;
    TRY(eval_kind(r, f, n, out));
    r->depth--;
    return ST_OK;
}
