/* Goal:   rounding a matrix survives the failure of any one allocation: a sentence that says so, or
 *         the same bytes on fewer threads.
 * Method: moments, GPTQ and the search of AWQ again and again, the first time with the first
 *         allocation failing, then the second, until a run needs no more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "fault/fail_alloc.h"
#include "quant/int_matrix.h"
#include "quant/moments.h"
#include "quant/round.h"

enum { ALLOCATIONS_MAX = 1000, ROWS = 3, COLS = 64, TOKENS = 80 };

struct result {
    uint8_t codes[ROWS * COLS];
    float scales[COLS];
};

static float number(int i) { return (float)(i * 7919 % 613) / 613.0f - 0.5f; }

static enum status round_all(struct moments *m, struct int_matrix *q, struct result *out,
                             struct err *err) {
    static const struct int_format format = {.bits = 4, .group_cols = 32, .has_order = true};
    static float w[ROWS * COLS], x[TOKENS * COLS];
    const float *matrix = w;
    const uint32_t rows = ROWS;
    const struct same_input in = {&matrix, &rows, 1, COLS, m};
    const struct gptq_options options = {.damp = 0.01, .threads = 2};
    for (int i = 0; i < ROWS * COLS; i++) w[i] = number(i);
    for (int i = 0; i < TOKENS * COLS; i++) x[i] = number(3 * i + i / 50);
    moments_add(m, x, TOKENS);
    moments_end(m);
    TRY(int_matrix_init(q, &format, ROWS, COLS, err));
    TRY(round_gptq(w, m, &options, q, err));
    memcpy(out->codes, q->codes, sizeof(out->codes));
    return awq_scales(&in, &format, out->scales, err);
}

static enum status run(struct result *out, struct err *err) {
    struct moments *m;
    struct int_matrix q = {.rows = 0};
    TRY(moments_create(COLS, &m, err));
    enum status st = round_all(m, &q, out, err);
    int_matrix_deinit(&q);
    moments_destroy(m);
    return st;
}

static void test_rounding_survives_any_failed_allocation(void **state) {
    (void)state;
    static struct result expected, result;
    struct err err = {0};
    long n = 0, failed = 0;
    assert_int_equal(run(&expected, &err), ST_OK);
    for (; n < ALLOCATIONS_MAX; n++) {
        err = (struct err){0};
        memset(&result, 0, sizeof(result));
        fail_alloc_at(n);
        enum status st = run(&result, &err);
        bool was_reached = fail_alloc_stop();
        if (st == ST_OK) assert_memory_equal(&result, &expected, sizeof(result));
        if (st == ST_OK && !was_reached) break;
        if (st == ST_OK) continue;
        failed++;
        assert_int_equal(st, ST_NOMEM);
        assert_non_null(strstr(err.text, "memory"));
    }
    assert_true(n > 10 && n < ALLOCATIONS_MAX);
    assert_true(failed > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
