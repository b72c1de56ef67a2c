/* Goal:   whole numbers with scales and zero points stand for the matrix as well as their grid can.
 * Method: every format and odd shapes on random numbers: a number is off by half a step at most, a
 *         scale is a number of f16, zero points are those of the format; then numbers at the edge:
 *         all zero, one sign only, tiny, huge. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "quant/int_matrix.h"
#include "quant/round.h"
#include "tensor/dtype.h"

enum { SEED = 11, ROWS = 5, COLS = 400 };

static const struct int_format formats[] = {
    {.bits = 4, .group_cols = 32, .is_symmetric = true},
    {.bits = 4, .group_cols = 64},
    {.bits = 4, .group_cols = 128, .has_order = true},
    {.bits = 4, .group_cols = 0},
    {.bits = 8, .group_cols = 0, .is_symmetric = true},
    {.bits = 8, .group_cols = 32},
    {.bits = 8, .group_cols = 128, .is_symmetric = true, .has_order = true},
};
enum { FORMATS = sizeof(formats) / sizeof(formats[0]) };

static void check_row(const struct int_matrix *m, uint32_t row, const float *w) {
    float out[COLS];
    int_matrix_row(m, row, out);
    float most = m->format.bits == 4 ? 15.0f : 255.0f;
    for (uint32_t k = 0; k < m->cols; k++) {
        size_t g = (size_t)row * m->groups + int_matrix_group(m, k);
        float scale = m->scales[g];
        assert_true(isfinite(scale) && scale > 0);
        assert_true(f16_to_f32(f16_from_f32(scale)) == scale);
        assert_true(m->zeros[g] <= most && m->codes[(size_t)row * m->cols + k] <= most);
        if (m->format.is_symmetric) assert_true(m->zeros[g] == (most + 1) / 2);
        /* The largest number of a symmetric group lies half a step above the last code, the ends of
         * another one may be half a step outside because the zero point is whole, and the scale is
         * rounded to 11 bits, or to a multiple of 2^-24 where it is small. */
        float slack = most * (scale / 2048 + 0x1p-25f);
        assert_true(fabsf(out[k] - w[k]) <= 0.5f * scale * 1.0001f + slack);
    }
}

static void check_matrix(const struct int_format *format, uint32_t rows, const float *w) {
    struct int_matrix m;
    struct err err = {0};
    assert_int_equal(int_matrix_init(&m, format, rows, COLS, &err), ST_OK);
    round_nearest(w, &m);
    for (uint32_t row = 0; row < rows; row++) check_row(&m, row, w + (size_t)row * COLS);
    int_matrix_deinit(&m);
}

static void test_numbers_are_off_by_half_a_step_at_most(void **state) {
    (void)state;
    static float w[ROWS * COLS];
    struct rng rng = {.seed = SEED};
    for (int round = 0; round < 20; round++) {
        double spread = pow(10.0, rng_unit(&rng) * 6 - 4), shift = rng_unit(&rng) - 0.5;
        for (int i = 0; i < ROWS * COLS; i++)
            w[i] = (float)((rng_unit(&rng) - 0.5 + shift) * spread);
        for (int f = 0; f < FORMATS; f++) check_matrix(&formats[f], ROWS, w);
    }
}

static void fill(float *w, float a, float b) {
    for (int i = 0; i < COLS; i++) w[i] = i % 3 == 0 ? a : b;
}

static void test_groups_at_the_edge(void **state) {
    (void)state;
    static float w[COLS];
    static const float pairs[][2] = {
        {0, 0}, {1, 2}, {-1, -2}, {0, -5}, {3e-7f, -2e-7f}, {60000, -60000.f}, {1e-3f, 60000.f}};
    for (size_t p = 0; p < sizeof(pairs) / sizeof(pairs[0]); p++) {
        fill(w, pairs[p][0], pairs[p][1]);
        for (int f = 0; f < FORMATS; f++) check_matrix(&formats[f], 1, w);
    }
    fill(w, 1e30f, -1e-30f); /* beyond what a scale of f16 can span: clamped, not wrapped */
    struct int_matrix m;
    struct err err = {0};
    float out[COLS];
    assert_int_equal(int_matrix_init(&m, &formats[0], 1, COLS, &err), ST_OK);
    round_nearest(w, &m);
    int_matrix_row(&m, 0, out);
    assert_true(out[0] == 7 * 65504.0f && out[1] == 0.0f);
    int_matrix_deinit(&m);
}

static void test_a_short_last_group_has_a_scale_of_its_own(void **state) {
    (void)state;
    static float w[COLS];
    struct int_matrix m;
    struct err err = {0};
    for (int i = 0; i < COLS; i++) w[i] = i < 384 ? 1.0f : 0.001f;
    assert_int_equal(int_matrix_init(&m, &formats[2], 1, COLS, &err), ST_OK);
    assert_int_equal(m.groups, 4);
    round_nearest(w, &m);
    assert_int_equal(m.group_of[383], 2);
    assert_int_equal(m.group_of[384], 3);
    assert_true(m.scales[3] < m.scales[2] / 100);
    int_matrix_deinit(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_off_by_half_a_step_at_most),
        cmocka_unit_test(test_groups_at_the_edge),
        cmocka_unit_test(test_a_short_last_group_has_a_scale_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
