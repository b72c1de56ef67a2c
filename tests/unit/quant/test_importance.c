/* Goal:   the importance of a column is the mean square of what was added for it.
 * Method: rows in parts, of several matrices in turn, against a plain sum; more matrices than the
 *         first block of memory holds; numbers that are not finite. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "quant/importance.h"

enum { SEED = 5, COLS = 96, PART = 32, MATRICES = 150, ROWS = 20 };

static struct str name_of(int i, char out[32]) {
    snprintf(out, 32, "blk.%d.weight", i);
    return str_of(out);
}

static void add_row(struct importance *m, struct str name, const float *row) {
    for (uint32_t col = 0; col < COLS; col += PART) {
        const struct importance_part part = {
            .name = name, .cols = COLS, .col = col, .count = PART, .x = row + col};
        importance_add(m, &part);
    }
}

static void test_means_of_many_matrices(void **state) {
    (void)state;
    static double sums[MATRICES][COLS];
    struct importance *m;
    struct err err = {0};
    struct rng rng = {.seed = SEED};
    float row[COLS];
    char text[32];
    assert_int_equal(importance_create(&m, &err), ST_OK);
    memset(sums, 0, sizeof(sums));
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < MATRICES; i++) {
            for (int c = 0; c < COLS; c++) {
                row[c] = (float)(rng_unit(&rng) * (c + 1) - 0.5);
                sums[i][c] += (double)row[c] * (double)row[c];
            }
            add_row(m, name_of(i, text), row); /* the name is copied */
        }
    }
    assert_int_equal(importance_status(m, &err), ST_OK);
    assert_int_equal(importance_count(m), MATRICES);
    for (int i = 0; i < MATRICES; i++) {
        const float *means = importance_find(m, name_of(i, text), COLS);
        assert_non_null(means);
        for (int c = 0; c < COLS; c++)
            assert_true(fabs((double)means[c] / (sums[i][c] / ROWS) - 1) < 1e-6);
    }
    assert_null(importance_find(m, STR("blk.0.weigh"), COLS));
    assert_null(importance_find(m, STR("blk.0.weight"), COLS + 1));
    importance_destroy(m);
}

static void test_numbers_that_are_not_finite_count_as_zero(void **state) {
    (void)state;
    struct importance *m;
    struct err err = {0};
    const float row[2] = {NAN, 3.0f}, other[2] = {2.0f, -INFINITY};
    assert_int_equal(importance_create(&m, &err), ST_OK);
    const struct importance_part a = {.name = STR("m"), .cols = 2, .count = 2, .x = row};
    const struct importance_part b = {.name = STR("m"), .cols = 2, .count = 2, .x = other};
    importance_add(m, &a);
    importance_add(m, &b);
    const float *means = importance_find(m, STR("m"), 2);
    assert_true(means[0] == 2.0f && means[1] == 4.5f);
    importance_destroy(m);
}

int main(void) {
    printf("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_means_of_many_matrices),
        cmocka_unit_test(test_numbers_that_are_not_finite_count_as_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
