/* jinja/run.c - one rendering: its limits, its errors, and how builtins get arguments.
 *
 * Entry points: template_render(), and the functions declared in run.h under "Limits and
 * errors" and "Arguments of builtins".
 */
#include "jinja/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/json.h"
#include "jinja/template.h"

enum { STEPS_PER_LOOK = 1 << 14 }; /* between two looks at the clock */

/* A depth costs a few hundred bytes of C stack; a template of one of the big families nests
 * about 150 deep on a tool with a nested schema. */
const struct template_limits template_limits_default = {
    .depth_max = 1000,
    .steps_max = 20u << 20,
    .cpu_us_max = 2000000,
    .memory_max = 256u << 20,
    .range_max = 100000, /* what jinja2's sandbox allows */
};

/* ------------------------------------------------------------------ limits and errors */

enum status jinja_run_fail(struct run *r, const char *fmt, ...) {
    char text[ERR_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return err_set(r->err, ST_BAD, "line %u: %s", r->line, text);
}

/* The arena and the work buffer both know whether the limit or the heap stopped them. */
enum status jinja_run_full(struct run *r) {
    bool no_memory = buf_status(&r->work) == ST_NOMEM ||
                     (buf_status(&r->work) == ST_OK && arena_status(r->arena) == ST_NOMEM);
    if (no_memory) return err_set(r->err, ST_NOMEM, "out of memory");
    return err_set(r->err, ST_FULL, "line %u: the template needs more than %llu bytes of memory",
                   r->line, (unsigned long long)r->limits->memory_max);
}

/* Of this thread: a busy machine does not make a template fail. */
static int64_t cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void look_later(struct run *r) {
    r->look_at_steps = r->steps + STEPS_PER_LOOK;
    if (r->look_at_steps > r->limits->steps_max) r->look_at_steps = r->limits->steps_max + 1;
}

/* The time is counted from the first look on: most templates end before, and need no clock. */
static enum status check_limits(struct run *r) {
    const struct template_limits *l = r->limits;
    if (r->steps > l->steps_max)
        return err_set(r->err, ST_FULL, "line %u: the template takes more than %llu steps", r->line,
                       (unsigned long long)l->steps_max);
    const int64_t now_us = cpu_us();
    if (!r->has_looked) r->began_us = now_us;
    r->has_looked = true;
    if (now_us - r->began_us > l->cpu_us_max)
        return err_set(r->err, ST_FULL,
                       "line %u: the template takes more than %lld ms of processor time", r->line,
                       (long long)l->cpu_us_max / 1000);
    look_later(r);
    return ST_OK;
}

enum status jinja_run_steps(struct run *r, uint64_t count) {
    r->steps += count;
    return r->steps < r->look_at_steps ? ST_OK : check_limits(r);
}

/* A search can look at every byte of `part` at every place of `whole`. */
enum status jinja_run_search(struct run *r, struct str whole, struct str part) {
    uint64_t places = whole.len / 64 + 1;
    return jinja_run_steps(r, places + places * (part.len / 4));
}

enum status jinja_run_enter(struct run *r) {
    if (++r->depth <= r->limits->depth_max) return ST_OK;
    return err_set(r->err, ST_FULL, "line %u: the template nests more than %u deep", r->line,
                   r->limits->depth_max);
}

/* The caller fills the memory, which is work; the next step finds the limit exceeded. */
void *jinja_run_alloc(struct run *r, size_t count, size_t bytes) {
    void *ptr = arena_zalloc_array(r->arena, count, bytes);
    if (ptr) r->steps += count * bytes / 64;
    return ptr;
}

enum status jinja_run_take(struct run *r, size_t mark, struct value *out) {
    if (buf_status(&r->work) != ST_OK) return jinja_run_full(r);
    CHECK(mark <= r->work.len);
    struct str tail = {r->work.ptr ? r->work.ptr + mark : "", r->work.len - mark};
    TRY(jinja_value_text_copy(r, tail, out));
    r->work.len = mark;
    return ST_OK;
}

enum status jinja_run_fail_undefined(struct run *r, struct value v) {
    const struct undefined *u = v.undefined;
    if (!u) return jinja_run_fail(r, "an undefined value is used");
    if (u->hint.len) return jinja_run_fail(r, "%.*s", STR_ARG(u->hint));
    if (u->name.type == V_MISSING) return jinja_run_fail(r, "an undefined value is used");
    size_t mark = r->work.len;
    TRY(jinja_put_repr(r, u->name));
    struct str name = {r->work.ptr + mark, r->work.len - mark};
    if (!u->owner) return jinja_run_fail(r, "%.*s is undefined", STR_ARG(name));
    return jinja_run_fail(r, "'%s' has no attribute or element %.*s", u->owner, STR_ARG(name));
}

/* ------------------------------------------------------------------ arguments of builtins */

/* The next name of a list separated by blanks; empty at its end. */
static struct str next_param(const char **list) {
    while (**list == ' ') ++*list;
    const char *start = *list;
    while (**list && **list != ' ') ++*list;
    return (struct str){start, (size_t)(*list - start)};
}

static enum status bind_keywords(struct run *r, const struct builtin *def, const struct args *args,
                                 struct value argv[PARAMS_MAX]) {
    for (size_t k = 0; k < args->keyword_count; k++) {
        struct str name = args->keyword_names[k];
        const char *list = def->params;
        size_t i = 0;
        struct str param = next_param(&list);
        for (; param.len && !str_eq(param, name); i++) param = next_param(&list);
        if (!param.len)
            return jinja_run_fail(r, "%s() got an unexpected keyword argument '%.*s'", def->name,
                                  STR_ARG(name));
        if (argv[i].type != V_MISSING)
            return jinja_run_fail(r, "%s() got two values for argument '%.*s'", def->name,
                                  STR_ARG(name));
        argv[i] = args->keyword_values[k];
    }
    return ST_OK;
}

static size_t param_count(const char *list) {
    size_t count = 0;
    while (next_param(&list).len) count++;
    return count;
}

static enum status bind_args(struct run *r, const struct builtin *def, struct call *call) {
    const struct args *args = call->args;
    bool is_positional_only = def->params[0] == '/';
    size_t count = param_count(def->params + is_positional_only);
    CHECK(count <= PARAMS_MAX);
    if (args->positional_count > count)
        return jinja_run_fail(r, "%s() takes at most %zu argument(s), %zu given", def->name, count,
                              args->positional_count);
    for (size_t i = 0; i < args->positional_count; i++) call->argv[i] = args->positional[i];
    if (is_positional_only && args->keyword_count)
        return jinja_run_fail(r, "%s() takes no keyword arguments", def->name);
    TRY(bind_keywords(r, def, args, call->argv));
    for (size_t i = 0; i < def->required; i++)
        if (call->argv[i].type == V_MISSING)
            return jinja_run_fail(r, "%s() misses a required argument", def->name);
    return ST_OK;
}

/* A builtin may look at every byte of the texts that it is given. Those that also search or compare
 * charge for that themselves; elements of lists are charged as they are read. */
static enum status charge_texts(struct run *r, struct value self, const struct args *args) {
    size_t bytes = self.type == V_TEXT ? jinja_value_str(self).len : 0;
    for (size_t i = 0; i < args->positional_count; i++)
        if (args->positional[i].type == V_TEXT) bytes += jinja_value_str(args->positional[i]).len;
    for (size_t i = 0; i < args->keyword_count; i++)
        if (args->keyword_values[i].type == V_TEXT)
            bytes += jinja_value_str(args->keyword_values[i]).len;
    return jinja_run_steps(r, bytes / 64);
}

enum status jinja_builtin_call(struct run *r, const struct builtin *def, struct value self,
                               const struct args *args, struct value *out) {
    struct call call = {.self = self, .args = args};
    TRY(jinja_run_enter(r));
    TRY(charge_texts(r, self, args));
    if (def->params[0] != '*') TRY(bind_args(r, def, &call));
    TRY(def->fn(r, &call, out));
    r->depth--;
    return ST_OK;
}

const struct builtin *jinja_builtin_find(const struct builtin *list, size_t count,
                                         struct str name) {
    for (size_t i = 0; i < count; i++)
        if (str_is(name, list[i].name)) return &list[i];
    return NULL;
}

bool jinja_arg_given(const struct call *call, size_t i) {
    return call->argv[i].type != V_MISSING && call->argv[i].type != V_NONE;
}

bool jinja_arg_bool(const struct call *call, size_t i, bool fallback) {
    return call->argv[i].type == V_MISSING ? fallback : jinja_value_is_true(call->argv[i]);
}

enum status jinja_arg_int(struct run *r, const struct call *call, size_t i, int64_t fallback,
                          int64_t *out) {
    struct value v = call->argv[i];
    *out = fallback;
    if (v.type == V_MISSING || jinja_value_as_int(v, out)) return ST_OK;
    if (v.type == V_UNDEFINED) return jinja_run_fail_undefined(r, v);
    return jinja_run_fail(r, "'%s' object cannot be interpreted as an integer",
                          jinja_value_type_name(v));
}

enum status jinja_arg_text(struct run *r, const struct call *call, size_t i, struct str fallback,
                           struct str *out) {
    struct value v = call->argv[i];
    *out = fallback;
    if (v.type == V_MISSING) return ST_OK;
    if (v.type == V_UNDEFINED) return jinja_run_fail_undefined(r, v);
    if (v.type != V_TEXT)
        return jinja_run_fail(r, "expected a str, got '%s'", jinja_value_type_name(v));
    *out = jinja_value_str(v);
    return ST_OK;
}

/* ------------------------------------------------------------------ rendering */

static enum status render(struct run *r, const struct template *t, const struct json *vars) {
    struct value all;
    struct frame *root = NULL;
    enum flow flow = FLOW_ON;
    if (json_kind(vars) != JS_MAP) return jinja_run_fail(r, "the variables must be a JSON object");
    TRY(jinja_value_of_json(r, vars, &all));
    r->vars = all.dict;
    TRY(jinja_frame_open(r, NULL, t->scope, &root));
    TRY(jinja_frame_load(r, root));
    TRY(jinja_exec(r, root, &t->body, &flow));
    return buf_status(&r->work) == ST_OK ? ST_OK : jinja_run_full(r);
}

enum status template_render(const struct template *t, const struct json *vars, int64_t now_s,
                            const struct template_limits *limits, struct buf *out,
                            struct err *err) {
    CHECK(t && limits && out);
    struct run r = {.limits = limits, .err = err, .now_s = now_s, .line = 1};
    look_later(&r);
    r.arena = arena_create(limits->memory_max);
    if (!r.arena) return err_set(err, ST_NOMEM, "out of memory");
    buf_init(&r.work, limits->memory_max);
    enum status st = render(&r, t, vars);
    if (st == ST_OK) {
        buf_put_str(out, buf_str(&r.work));
        st = buf_status(out);
        if (st == ST_NOMEM) err_set(err, st, "out of memory");
        if (st == ST_FULL)
            err_set(err, st, "the template's result does not fit in %zu bytes", out->max);
    }
    buf_deinit(&r.work);
    arena_destroy(r.arena);
    return st;
}
