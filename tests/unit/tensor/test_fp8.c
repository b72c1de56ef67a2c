/* Goal:   a float becomes the nearest number of eight bits, by the rules of tensor/fp8.h, and every
 *         number of the format comes back as it was.
 * Method: the format written out with ldexp; every code there and back; every point halfway between
 *         two neighbours, and the floats next to it; what is beyond the largest, and NaN. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "tensor/dtype.h"
#include "tensor/fp8.h"

enum { LARGEST = 0x7e, SIGN = 0x80 };

static float number_of(int code) {
    int exponent = code >> 3 & 15, mantissa = code & 7;
    double size = exponent > 0 ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return (float)(code & SIGN ? -size : size);
}

static void test_every_code_comes_back(void **state) {
    (void)state;
    assert_true(number_of(LARGEST) == FP8_MAX);
    for (int code = 0; code <= LARGEST; code++)
        for (int sign = 0; sign <= SIGN; sign += SIGN) {
            float number = fp8_to_f32((uint8_t)(code | sign));
            assert_true(number == number_of(code | sign));
            assert_int_equal(!!signbit(number), !!sign);
            assert_int_equal(fp8_from_f32(number), code | sign);
        }
    assert_true(fp8_to_f32(0x7f) == 480.0f);
    assert_true(fp8_to_f32(0xff) == -480.0f);
}

static void test_halves_have_the_same_numbers(void **state) {
    (void)state;
    for (int code = 0; code <= UINT8_MAX; code++)
        assert_true(f16_to_f32(fp8_half_bits((uint8_t)code)) * FP8_HALF_FACTOR ==
                    fp8_to_f32((uint8_t)code));
}

static void expect(float value, int code) {
    assert_int_equal(fp8_from_f32(value), code);
    assert_int_equal(fp8_from_f32(-value), code | SIGN);
}

static void test_a_float_becomes_the_nearest_and_the_even_one_at_a_tie(void **state) {
    (void)state;
    for (int code = 0; code < LARGEST; code++) {
        float low = number_of(code), high = number_of(code + 1), middle = (low + high) / 2;
        expect(nextafterf(low, high), code);
        expect(nextafterf(middle, low), code);
        expect(middle, code % 2 ? code + 1 : code);
        expect(nextafterf(middle, high), code + 1);
        expect(nextafterf(high, low), code + 1);
    }
}

static void test_what_has_no_number_gets_the_one_that_the_rules_say(void **state) {
    (void)state;
    static const float large[] = {448.5f, 464.0f, 465.0f, 480.0f, 1e9f, 3e38f, INFINITY};
    static const float small[] = {0.0f, 1e-45f, 1e-30f, 0x1p-11f, 0x1p-10f};
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) expect(large[i], LARGEST);
    for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); i++) expect(small[i], 0);
    assert_int_equal(fp8_from_f32(NAN), 0);
    assert_int_equal(fp8_from_f32(-NAN), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_comes_back),
        cmocka_unit_test(test_halves_have_the_same_numbers),
        cmocka_unit_test(test_a_float_becomes_the_nearest_and_the_even_one_at_a_tie),
        cmocka_unit_test(test_what_has_no_number_gets_the_one_that_the_rules_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
