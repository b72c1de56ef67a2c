/* Goal:   a row's scale is the least power of two that brings its numbers into e4m3's range, and
 *         what is scaled by it loses nothing but e4m3's rounding.
 * Method: kernels/cuda/fp8_scale.h on the host: the edges at 448, small and large rows, and random
 *         rows whose codes are compared with their numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>

#include "base/rng.h"
#include "kernels/cuda/fp8_scale.h"
#include "tensor/fp8.h"

static void test_the_largest_number_is_at_most_448_and_above_224(void **state) {
    (void)state;
    for (int power = -30; power <= 30; power++)
        for (uint32_t i = 0; i < 1000; i++) {
            float most = ldexpf(1.0f + (float)i / 1000.0f, power);
            float scaled = most / cuda_fp8_scale(most);
            assert_true(scaled <= FP8_MAX);
            assert_true(scaled > FP8_MAX / 2);
        }
}

static void test_448_has_the_scale_one_and_the_next_number_has_two(void **state) {
    (void)state;
    assert_true(cuda_fp8_scale(448.0f) == 1.0f);
    assert_true(cuda_fp8_scale(-448.0f) == 1.0f);
    assert_true(cuda_fp8_scale(nextafterf(448.0f, 1000.0f)) == 2.0f);
    assert_true(cuda_fp8_scale(224.0f) == 0.5f);
}

static void test_scales_end_at_two_to_the_forty(void **state) {
    (void)state;
    const float least = ldexpf(1.0f, -40), largest = ldexpf(1.0f, 40);
    assert_true(cuda_fp8_scale(0.0f) == least);
    assert_true(cuda_fp8_scale(FLT_MIN) == least);
    assert_true(cuda_fp8_scale(FLT_MAX) == largest);
    assert_true(cuda_fp8_scale(INFINITY) == largest);
}

static void test_the_inverse_undoes_the_scale(void **state) {
    (void)state;
    const float some[] = {0.0f, 1e-30f, 3e-5f, 0.7f, 1.0f, 447.0f, 449.0f, 1e9f, FLT_MAX};
    for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++)
        assert_true(cuda_fp8_scale(some[i]) * cuda_fp8_inverse(some[i]) == 1.0f);
}

static void test_a_number_comes_back_within_a_sixteenth(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 10000; i++) {
        float most = ldexpf(1.0f, (int)(i % 40) - 20) * (1.0f + (float)rng_unit_at(1, 0, i));
        float x = most * (float)(2 * rng_unit_at(2, 0, i) - 1);
        float back = fp8_to_f32(fp8_from_f32(x * cuda_fp8_inverse(most))) * cuda_fp8_scale(most);
        float least = cuda_fp8_scale(most) * 0x1p-10f; /* half of the smallest step */
        assert_true(fabsf(back - x) <= fmaxf(fabsf(x) / 16, least));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_largest_number_is_at_most_448_and_above_224),
        cmocka_unit_test(test_448_has_the_scale_one_and_the_next_number_has_two),
        cmocka_unit_test(test_scales_end_at_two_to_the_forty),
        cmocka_unit_test(test_the_inverse_undoes_the_scale),
        cmocka_unit_test(test_a_number_comes_back_within_a_sixteenth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
