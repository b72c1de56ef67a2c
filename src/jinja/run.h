/* jinja/run.h - one rendering in progress; for this folder only.
 *
 * Text under construction (the output, the body of a macro, a joined string) grows at the end
 * of one work buffer used as a stack: note the length, append, then take what was appended as
 * a value. Errors end the render, so nothing has to be unwound.
 */
#ifndef JINJA_RUN_H
#define JINJA_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "jinja/ast.h"
#include "jinja/value.h"

struct template_limits;

struct frame {
    struct frame *parent;
    const struct scope *scope;
    struct value *slots;
};

struct run {
    const struct template_limits *limits;
    struct arena *arena;
    struct buf work;
    struct dict *vars;
    struct err *err;
    int64_t now_s;
    uint64_t steps;
    uint64_t look_at_steps; /* when to look at the clock again */
    bool has_looked;
    int64_t began_us; /* processor time of the thread at the first look */
    uint32_t depth;
    uint32_t line; /* of the node evaluated last, for error messages */
};

struct args {
    struct value *positional;
    size_t positional_count;
    struct str *keyword_names;
    struct value *keyword_values;
    size_t keyword_count;
};

enum { PARAMS_MAX = 6 };

/* One call of a builtin. `argv` holds the arguments in the order of the builtin's parameters,
 * V_MISSING where none was given; `args` what was given, for those that take any number. */
struct call {
    struct value self;
    struct value argv[PARAMS_MAX];
    const struct args *args;
};

/* A function written in C: a filter, a test, a method or a global function. `params` lists
 * names separated by blanks; a leading '/' means that they cannot be given by name, a leading
 * '*' that any arguments are accepted. */
struct builtin {
    const char *name;
    const char *params;
    uint32_t required;
    enum status (*fn)(struct run *r, struct call *call, struct value *out);
};

struct macro_value {
    const struct macro *macro;
    struct frame *frame; /* where it was defined */
};

/* What `for` keeps while it runs; the variable `loop` sees it. */
struct loop {
    const struct for_parts *parts;
    struct frame *outer;
    struct value iterable;
    struct iter *iter;
    struct value current, before, after; /* V_MISSING where there is none */
    struct value changed;                /* V_MISSING before the first loop.changed() */
    int64_t idx, length;                 /* length: -1 until needed */
    int64_t depth;
};

/* Limits and errors. */
enum status jinja_run_fail(struct run *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
enum status jinja_run_fail_undefined(struct run *r, struct value v);
enum status jinja_run_steps(struct run *r, uint64_t count); /* charges work against steps_max */
enum status jinja_run_search(struct run *r, struct str whole,
                             struct str part); /* charges a search */
enum status jinja_run_enter(struct run *r);    /* pairs with r->depth-- */
void *jinja_run_alloc(struct run *r, size_t count,
                      size_t bytes); /* zeroed; NULL: return jinja_run_full() */
enum status jinja_run_full(struct run *r);
enum status jinja_run_take(struct run *r, size_t mark,
                           struct value *out); /* work[mark..] as a text */

/* Arguments of builtins. */
enum status jinja_builtin_call(struct run *r, const struct builtin *def, struct value self,
                               const struct args *args, struct value *out);
const struct builtin *jinja_builtin_find(const struct builtin *list, size_t count, struct str name);
enum status jinja_arg_int(struct run *r, const struct call *call, size_t i, int64_t fallback,
                          int64_t *out);
enum status jinja_arg_text(struct run *r, const struct call *call, size_t i, struct str fallback,
                           struct str *out);
bool jinja_arg_bool(const struct call *call, size_t i, bool fallback);
bool jinja_arg_given(const struct call *call, size_t i); /* and not None */

const struct builtin *jinja_filter_find(struct str name);
const struct builtin *jinja_test_find(struct str name);
const struct builtin *jinja_global_find(struct str name);
const struct builtin *jinja_method_find(struct value self, struct str name);

/* Iterating. Whatever Python iterates over: texts by character, dicts by key. */
enum status jinja_iter_open(struct run *r, struct value v, struct iter **out);
enum status jinja_iter_next(struct run *r, struct iter *it, struct value *out, bool *done);
bool jinja_value_is_iterable(struct value v);
enum status jinja_iter_to_list(struct run *r, struct value v, struct value *out);
enum status jinja_iter_reversed(struct run *r, struct value v, struct value *out, bool *possible);
enum status jinja_iter_map(struct run *r, struct value v, const struct args *args,
                           struct value *out);
struct select_mode {
    bool by_attribute, keep_false;
};
enum status jinja_iter_select(struct run *r, struct value v, const struct args *args,
                              struct select_mode mode, struct value *out);
enum status jinja_iter_unique(struct run *r, struct value v, bool case_sensitive,
                              struct value attribute, struct value *out);
enum status jinja_iter_batch(struct run *r, struct value v, int64_t size, struct value fill,
                             struct value *out);
enum status jinja_iter_filtered(struct run *r, struct value v, const struct for_parts *parts,
                                struct frame *outer, struct iter **out);
enum status jinja_iter_of_lists(struct run *r, struct value list, struct value *out);

/* Looking inside values. */
enum status jinja_get_attribute(struct run *r, struct value of, struct value name,
                                struct value *out);
enum status jinja_get_own_attribute(struct run *r, struct value of, struct str name,
                                    struct value *out);
enum status jinja_get_item(struct run *r, struct value of, struct value key, struct value *out);
enum status jinja_get_slice(struct run *r, struct value of, const struct value bounds[3],
                            struct value *out);
/* A dotted path ("function.name"), or a number; *out keeps undefined parts undefined. */
enum status jinja_get_path(struct run *r, struct value of, struct value path, struct value fallback,
                           struct value *out);
enum status jinja_loop_attribute(struct run *r, struct loop *loop, struct str name,
                                 struct value *out);
enum status jinja_loop_peek(struct run *r, struct loop *loop);
enum status jinja_loop_length(struct run *r, struct loop *loop, int64_t *length);

/* Computing. */
enum status jinja_op_unary(struct run *r, enum token_kind op, struct value a, struct value *out);
enum status jinja_op_binary(struct run *r, enum token_kind op, struct value a, struct value b,
                            struct value *out);
enum status jinja_op_percent(struct run *r, struct value format, struct value args,
                             struct value *out);
enum status jinja_format_braces(struct run *r, struct value format, const struct args *args,
                                struct value *out);
enum status jinja_format_value(struct run *r, struct value v,
                               struct str spec); /* to the work buffer */
enum status jinja_put_escaped(struct run *r, struct value v);
enum status jinja_value_escaped(struct run *r, struct value v, struct value *out);
enum status jinja_to_json(struct run *r, struct call *call, struct value *out);
enum status jinja_put_time(struct run *r, struct str format);
bool jinja_parse_python_float(struct str s, double *out);
/* Text as int() reads it. false if it is not one; *too_big when only int64 is too small. */
bool jinja_parse_python_int(struct str s, int64_t base, int64_t *out, bool *too_big);
enum status jinja_sort_values(struct run *r, struct list *values, const struct list *keys,
                              bool reverse);

/* Running nodes. */
enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };
enum status jinja_eval(struct run *r, struct frame *f, const struct node *n, struct value *out);
/* `caller` (V_MISSING: none) is passed on as a keyword; `body` is what a block gives to the
 * first filter of its chain. */
enum status jinja_eval_call(struct run *r, struct frame *f, const struct node *n,
                            struct value caller, struct value *out);
enum status jinja_eval_filter(struct run *r, struct frame *f, const struct node *n,
                              struct value body, struct value *out);
enum status jinja_exec(struct run *r, struct frame *f, const struct nodes *body, enum flow *flow);
enum status jinja_frame_open(struct run *r, struct frame *parent, const struct scope *scope,
                             struct frame **out);
/* Set every slot as its scope says. */
enum status jinja_frame_load(struct run *r, struct frame *f);
enum status jinja_assign(struct run *r, struct frame *f, const struct node *target, struct value v);
enum status jinja_call_value(struct run *r, struct value callee, const struct args *args,
                             struct value *out);
enum status jinja_call_macro(struct run *r, const struct macro_value *m, const struct args *args,
                             struct value *out);
enum status jinja_call_loop(struct run *r, struct loop *loop, const struct args *args,
                            struct value *out);
enum status jinja_exec_loop(struct run *r, struct frame *f, const struct for_parts *parts,
                            struct value iterable, int64_t depth, enum flow *flow);

#endif
