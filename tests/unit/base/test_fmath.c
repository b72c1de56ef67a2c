/* Goal:   base/fmath keeps the error bounds that its header states, over the whole range.
 * Method: a walk over the bit patterns of float with a stride that is prime, and over seeded
 *         doubles, against the C library in the next wider type; named cases for the edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fmath.h"
#include "base/rng.h"

static float float_at(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* The distance from `exact` to `got` in units of the last place of a float near `exact`. */
static double ulps(float got, double exact) {
    if (isinf(exact) || fabs(exact) > FLT_MAX) return got == (float)exact ? 0.0 : HUGE_VAL;
    int exponent;
    frexp(fabs(exact) < FLT_MIN ? FLT_MIN : exact, &exponent);
    return fabs((double)got - exact) / ldexp(1.0, exponent - FLT_MANT_DIG);
}

static double ulps_d(double got, long double exact) {
    int exponent;
    frexpl(fabsl(exact) < DBL_MIN ? (long double)DBL_MIN : exact, &exponent);
    return (double)(fabsl((long double)got - exact) / ldexpl(1.0L, exponent - DBL_MANT_DIG));
}

static double exact_sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
static double exact_silu(double x) { return x / (1.0 + exp(-x)); }

struct fn_case {
    const char *name;
    float (*fn)(float);
    double (*exact)(double);
    double lo, hi; /* arguments outside are skipped: results there are denormal or not finite */
    double ulps_max;
};

static const struct fn_case fn_cases[] = {
    {"exp", fm_exp, exp, -87.3365402, 88.7228317, 1.01},
    {"log", fm_log, log, FLT_MIN, FLT_MAX, 1.0},
    {"tanh", fm_tanh, tanh, -FLT_MAX, FLT_MAX, 2.0},
    {"erf", fm_erf, erf, -FLT_MAX, FLT_MAX, 2.0},
    {"sigmoid", fm_sigmoid, exact_sigmoid, -87.0, FLT_MAX, 3.0},
    {"silu", fm_silu, exact_silu, -87.0, FLT_MAX, 3.0},
};

static void test_float_functions_are_within_their_ulps_everywhere(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof(fn_cases) / sizeof(fn_cases[0]); c++) {
        const struct fn_case *f = &fn_cases[c];
        double worst = 0.0;
        float worst_x = 0.0f;
        for (uint64_t bits = 0; bits < UINT32_MAX; bits += 2039) {
            float x = float_at((uint32_t)bits);
            if (!(x >= f->lo && x <= f->hi) || fabsf(x) < FLT_MIN) continue;
            double u = ulps(f->fn(x), f->exact(x));
            if (u > worst) worst = u, worst_x = x;
        }
        print_message("%-8s worst %.3f ulp at %.9g\n", f->name, worst, (double)worst_x);
        assert_true(worst <= f->ulps_max);
    }
}

/* Most patterns of float are very large or very small; this walk is dense where models are. */
static void test_float_functions_are_within_their_ulps_between_minus_and_plus_20(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof(fn_cases) / sizeof(fn_cases[0]); c++) {
        const struct fn_case *f = &fn_cases[c];
        double worst = 0.0;
        for (int i = -2000000; i <= 2000000; i++) {
            float x = (float)i * 1e-5f;
            if (x < f->lo) continue;
            double u = ulps(f->fn(x), f->exact(x));
            if (u > worst) worst = u;
        }
        print_message("%-8s worst %.3f ulp\n", f->name, worst);
        assert_true(worst <= f->ulps_max);
    }
}

static void test_gelus_are_near_their_definition(void **state) {
    (void)state;
    for (int i = -400000; i <= 400000; i++) {
        double x = (double)((float)i * 5e-5f);
        double by_erf = 0.5 * x * (1.0 + erf(x * sqrt(0.5)));
        double by_tanh =
            0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
        double slack = 4e-7 * fmax(fabs(x), 1e-3);
        assert_true(fabs((double)fm_gelu_erf((float)x) - by_erf) <= slack);
        assert_true(fabs((double)fm_gelu_tanh((float)x) - by_tanh) <= slack);
    }
}

static void test_edges_of_exp_and_log(void **state) {
    (void)state;
    assert_true(fm_exp(0.0f) == 1.0f);
    assert_true(fm_exp(-0.0f) == 1.0f);
    assert_true(fm_exp(HUGE_VALF) == HUGE_VALF);
    assert_true(fm_exp(-HUGE_VALF) == 0.0f);
    assert_true(fm_exp(88.7228394f) == HUGE_VALF);
    assert_true(fm_exp(88.7228317f) < HUGE_VALF);
    assert_true(fm_exp(-87.3365402f) >= FLT_MIN);
    assert_true(fm_exp(-87.3365479f) == 0.0f);
    assert_true(fm_exp(FLT_MAX) == HUGE_VALF);
    assert_true(fm_exp(-FLT_MAX) == 0.0f);
    assert_true(isnan(fm_exp(NAN)));
    assert_true(fm_log(1.0f) == 0.0f);
    assert_true(fm_log(0.0f) == -HUGE_VALF);
    assert_true(fm_log(HUGE_VALF) == HUGE_VALF);
    assert_true(isnan(fm_log(-1.0f)));
    assert_true(isnan(fm_log(NAN)));
    assert_true(fm_exp_d(0.0) == 1.0);
    assert_true(fm_exp_d(710.0) == HUGE_VAL);
    assert_true(fm_exp_d(-709.0) == 0.0);
    assert_true(fm_exp_d(-HUGE_VAL) == 0.0);
    assert_true(isnan(fm_exp_d((double)NAN)));
    assert_true(fm_log_d(1.0) == 0.0);
    assert_true(fm_log_d(0.0) == -HUGE_VAL);
    assert_true(fm_log_d(HUGE_VAL) == HUGE_VAL);
    assert_true(isnan(fm_log_d(-2.0)));
}

static void test_edges_of_the_others(void **state) {
    (void)state;
    assert_true(fm_tanh(HUGE_VALF) == 1.0f);
    assert_true(fm_tanh(-HUGE_VALF) == -1.0f);
    assert_true(signbit(fm_tanh(-0.0f)));
    assert_true(isnan(fm_tanh(NAN)));
    assert_true(fm_erf(HUGE_VALF) == 1.0f);
    assert_true(fm_erf(-5.0f) == -1.0f);
    assert_true(isnan(fm_erf(NAN)));
    assert_true(fm_sigmoid(HUGE_VALF) == 1.0f);
    assert_true(fm_sigmoid(-HUGE_VALF) == 0.0f);
    assert_true(fm_silu(-100.0f) == 0.0f);
    assert_true(fm_gelu_erf(-20.0f) == 0.0f);
    assert_true(fm_gelu_tanh(30.0f) == 30.0f);
}

static void test_double_exp_and_log_are_within_one_ulp(void **state) {
    (void)state;
    struct rng r = {.seed = 1};
    double worst_exp = 0.0, worst_log = 0.0;
    for (int i = 0; i < 1000000; i++) {
        double x = (rng_unit(&r) - 0.5) * (i % 2 ? 1416.0 : 2.0);
        worst_exp = fmax(worst_exp, ulps_d(fm_exp_d(x), expl((long double)x)));
        double y = i % 2 ? exp(x) : 0.5 + rng_unit(&r);
        worst_log = fmax(worst_log, ulps_d(fm_log_d(y), logl((long double)y)));
    }
    print_message("exp_d worst %.3f ulp, log_d worst %.3f ulp\n", worst_exp, worst_log);
    assert_true(worst_exp <= 1.0);
    assert_true(worst_log <= 1.0);
}

static void test_pow_makes_rope_frequencies(void **state) {
    (void)state;
    const double bases[] = {10000.0, 500000.0, 1e6, 1e7};
    for (size_t b = 0; b < 4; b++)
        for (int i = 0; i < 256; i++) {
            double e = -(double)i / 256.0;
            long double exact = powl((long double)bases[b], (long double)e);
            long double bound =
                2e-16L * (1.0L + fabsl((long double)e * logl((long double)bases[b])));
            assert_true(fabsl((long double)fm_pow_d(bases[b], e) / exact - 1.0L) <= bound);
        }
}

static void check_sincos(double x, double *worst) {
    double s, c;
    fm_sincos_d(x, &s, &c);
    long double es = fabsl((long double)s - sinl((long double)x));
    long double ec = fabsl((long double)c - cosl((long double)x));
    *worst = fmax(*worst, (double)fmaxl(es, ec));
}

static void test_sincos_is_accurate_up_to_1e8(void **state) {
    (void)state;
    struct rng r = {.seed = 2};
    double worst = 0.0;
    for (int i = 0; i < 500000; i++) {
        double scale = i % 3 == 0 ? 2e8 : i % 3 == 1 ? 1e4 : 8.0;
        check_sincos((rng_unit(&r) - 0.5) * scale, &worst);
    }
    /* Next to multiples of pi/2, where the reduced argument nearly cancels. */
    for (int64_t k = 1; k < 63000000; k += 4999)
        check_sincos((double)k * 1.5707963267948966, &worst);
    print_message("sincos worst error %.3g\n", worst);
    assert_true(worst <= 2e-16);
    double s, c;
    fm_sincos_d(0.0, &s, &c);
    assert_true(s == 0.0 && c == 1.0);
    fm_sincos_d(HUGE_VAL, &s, &c);
    assert_true(isnan(s) && isnan(c));
}

static void test_sum_exp_is_near_the_sum_and_skips_nan(void **state) {
    (void)state;
    float x[] = {1.0f, -HUGE_VALF, NAN, 3.0f, -2.5f};
    double expected = exp(-2.0) + 1.0 + exp(-5.5);
    assert_true(fabs(fm_sum_exp(x, 5, 3.0f) - expected) < 1e-7);
    assert_true(fm_sum_exp(x, 0, 3.0f) == 0.0);
    enum { MANY = 5000 };
    float many[MANY];
    struct rng r = {.seed = 5};
    expected = 0.0;
    for (int i = 0; i < MANY; i++) {
        many[i] = (float)(rng_unit(&r) * 30.0 - 30.0);
        expected += exp((double)many[i] - 1.0);
    }
    assert_true(fabs(fm_sum_exp(many, MANY, 1.0f) / expected - 1.0) < 1e-7);
}

/* A few results as bits: they may never change, on any machine. */
static void test_results_are_the_same_bits_everywhere(void **state) {
    (void)state;
    uint64_t hash = 14695981039346656037u;
    struct rng r = {.seed = 3};
    for (int i = 0; i < 100000; i++) {
        float x = (float)(rng_unit(&r) * 40.0 - 20.0);
        double s, c;
        fm_sincos_d((double)x * 1000.0, &s, &c);
        double all[] = {(double)fm_exp(x),
                        (double)fm_log(fabsf(x)),
                        (double)fm_tanh(x),
                        (double)fm_erf(x),
                        (double)fm_gelu_tanh(x),
                        (double)fm_gelu_erf(x),
                        (double)fm_silu(x),
                        fm_exp_d((double)x),
                        fm_log_d(fabs((double)x)),
                        s,
                        c,
                        (double)fm_sigmoid(x)};
        unsigned char bytes[sizeof(all)];
        memcpy(bytes, all, sizeof(all));
        for (size_t b = 0; b < sizeof(bytes); b++) hash = (hash ^ bytes[b]) * 1099511628211u;
    }
    assert_int_equal(hash, 0x3b35360a9250f8d1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float_functions_are_within_their_ulps_everywhere),
        cmocka_unit_test(test_float_functions_are_within_their_ulps_between_minus_and_plus_20),
        cmocka_unit_test(test_gelus_are_near_their_definition),
        cmocka_unit_test(test_edges_of_exp_and_log),
        cmocka_unit_test(test_edges_of_the_others),
        cmocka_unit_test(test_double_exp_and_log_are_within_one_ulp),
        cmocka_unit_test(test_pow_makes_rope_frequencies),
        cmocka_unit_test(test_sincos_is_accurate_up_to_1e8),
        cmocka_unit_test(test_sum_exp_is_near_the_sum_and_skips_nan),
        cmocka_unit_test(test_results_are_the_same_bits_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
