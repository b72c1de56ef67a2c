/* jinja/tests.c - the tests that may follow `is`. */
#include "jinja/methods.h"
#include "jinja/run.h"
#include "jinja/value.h"

static enum status answer(bool truth, struct value *out) {
    *out = jinja_value_bool(truth);
    return ST_OK;
}

#define TYPE_TEST(name, condition)                                                                 \
    static enum status name(struct run *r, struct call *call, struct value *out) {                 \
        (void)r;                                                                                   \
        struct value v = call->self;                                                               \
        return answer(condition, out);                                                             \
    }

TYPE_TEST(test_boolean, v.type == V_BOOL)
TYPE_TEST(test_defined, v.type != V_UNDEFINED)
TYPE_TEST(test_undefined, v.type == V_UNDEFINED)
TYPE_TEST(test_none, v.type == V_NONE)
TYPE_TEST(test_true, v.type == V_BOOL && v.truth)
TYPE_TEST(test_false, v.type == V_BOOL && !v.truth)
TYPE_TEST(test_integer, v.type == V_INT)
TYPE_TEST(test_float, v.type == V_FLOAT)
TYPE_TEST(test_number, jinja_value_is_number(v))
TYPE_TEST(test_string, v.type == V_TEXT)
TYPE_TEST(test_mapping, jinja_value_is_mapping(v))
TYPE_TEST(test_iterable, jinja_value_is_iterable(v))
TYPE_TEST(test_escaped, v.type == V_TEXT && v.text->markup)
TYPE_TEST(test_callable, v.type == V_MACRO || v.type == V_FUNCTION || v.type == V_METHOD ||
                             v.type == V_LOOP || v.type == V_JOINER || v.type == V_UNDEFINED)
TYPE_TEST(test_sequence, v.type == V_TEXT || v.type == V_LIST || v.type == V_TUPLE ||
                             v.type == V_DICT || v.type == V_RANGE || v.type == V_UNDEFINED)

/* What cannot be a key cannot be looked up in the list of names. */
static enum status is_known(struct run *r, struct value v,
                            const struct builtin *(*find)(struct str name), struct value *out) {
    uint64_t hash;
    TRY(jinja_value_hash(r, v, &hash));
    return answer(v.type == V_TEXT && find(jinja_value_str(v)), out);
}

static enum status test_filter(struct run *r, struct call *call, struct value *out) {
    return is_known(r, call->self, jinja_filter_find, out);
}
static enum status test_test(struct run *r, struct call *call, struct value *out) {
    return is_known(r, call->self, jinja_test_find, out);
}

static enum status test_sameas(struct run *r, struct call *call, struct value *out) {
    struct value v = call->self;
    if (v.type == V_TEXT) TRY(jinja_run_steps(r, jinja_value_str(v).len / 64));
    return answer(jinja_value_same(v, call->argv[0]), out);
}

static enum status test_eq(struct run *r, struct call *call, struct value *out) {
    bool equal;
    TRY(jinja_value_equal(r, call->self, call->argv[0], &equal));
    return answer(equal, out);
}

static enum status test_ne(struct run *r, struct call *call, struct value *out) {
    bool equal;
    TRY(jinja_value_equal(r, call->self, call->argv[0], &equal));
    return answer(!equal, out);
}

#define ORDER_TEST(name, op)                                                                       \
    static enum status name(struct run *r, struct call *call, struct value *out) {                 \
        int order;                                                                                 \
        TRY(jinja_value_order(r, call->self, call->argv[0], #op, &order));                         \
        return answer(order op 0, out);                                                            \
    }

ORDER_TEST(test_lt, <)
ORDER_TEST(test_le, <=)
ORDER_TEST(test_gt, >)
ORDER_TEST(test_ge, >=)

static enum status test_in(struct run *r, struct call *call, struct value *out) {
    bool found;
    TRY(jinja_value_contains(r, call->argv[0], call->self, &found));
    return answer(found, out);
}

static enum status is_remainder(struct run *r, struct value v, struct value divisor, int64_t wanted,
                                struct value *out) {
    struct value rest;
    bool equal;
    TRY(jinja_op_binary(r, T_MOD, v, divisor, &rest));
    TRY(jinja_value_equal(r, rest, jinja_value_int(wanted), &equal));
    return answer(equal, out);
}

static enum status test_divisibleby(struct run *r, struct call *call, struct value *out) {
    return is_remainder(r, call->self, call->argv[0], 0, out);
}
static enum status test_even(struct run *r, struct call *call, struct value *out) {
    return is_remainder(r, call->self, jinja_value_int(2), 0, out);
}
static enum status test_odd(struct run *r, struct call *call, struct value *out) {
    return is_remainder(r, call->self, jinja_value_int(2), 1, out);
}

static enum status test_lower(struct run *r, struct call *call, struct value *out) {
    TRY(jinja_value_to_text(r, call->self, &call->self));
    return jinja_str_islower(r, call, out);
}
static enum status test_upper(struct run *r, struct call *call, struct value *out) {
    TRY(jinja_value_to_text(r, call->self, &call->self));
    return jinja_str_isupper(r, call, out);
}

static const struct builtin tests[] = {
    {"!=", "/other", 1, test_ne},
    {"<", "/other", 1, test_lt},
    {"<=", "/other", 1, test_le},
    {"==", "/other", 1, test_eq},
    {">", "/other", 1, test_gt},
    {">=", "/other", 1, test_ge},
    {"boolean", "", 0, test_boolean},
    {"callable", "", 0, test_callable},
    {"defined", "", 0, test_defined},
    {"divisibleby", "num", 1, test_divisibleby},
    {"eq", "/other", 1, test_eq},
    {"equalto", "/other", 1, test_eq},
    {"escaped", "", 0, test_escaped},
    {"even", "", 0, test_even},
    {"false", "", 0, test_false},
    {"filter", "", 0, test_filter},
    {"float", "", 0, test_float},
    {"ge", "/other", 1, test_ge},
    {"greaterthan", "/other", 1, test_gt},
    {"gt", "/other", 1, test_gt},
    {"in", "seq", 1, test_in},
    {"integer", "", 0, test_integer},
    {"iterable", "", 0, test_iterable},
    {"le", "/other", 1, test_le},
    {"lessthan", "/other", 1, test_lt},
    {"lower", "", 0, test_lower},
    {"lt", "/other", 1, test_lt},
    {"mapping", "", 0, test_mapping},
    {"ne", "/other", 1, test_ne},
    {"none", "", 0, test_none},
    {"number", "", 0, test_number},
    {"odd", "", 0, test_odd},
    {"sameas", "other", 1, test_sameas},
    {"sequence", "", 0, test_sequence},
    {"string", "", 0, test_string},
    {"test", "", 0, test_test},
    {"true", "", 0, test_true},
    {"undefined", "", 0, test_undefined},
    {"upper", "", 0, test_upper},
};

const struct builtin *jinja_test_find(struct str name) {
    return jinja_builtin_find(tests, sizeof(tests) / sizeof(tests[0]), name);
}
