/* Goal:   products have the bits of the definition in every table, for every number format,
 *         shape and thread count; and the definition is right.
 * Method: random weights as random file bytes with tame scales, and numbers at the ends of their
 *         ranges; all tables that run here compared bit for bit; the reference against a
 *         double-precision product with the dequantised weights; rows of a batch against the
 *         rows alone. */
#include <math.h>

#include "ops/matmul_rig.h"

static void test_every_format_and_shape_has_the_same_bits(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 64, 70};
    static const uint32_t outputs[] = {1, 15, 16, 17, 48};
    for (int type = 0; type < DTYPE_COUNT; type++) {
        uint32_t unit = dtype_info(type)->block_elems > 32 ? 256 : 32;
        for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            struct matmul_case c = {.type = type,
                                    .rows = rows[i],
                                    .n = {outputs[i % 5]},
                                    .k = unit * (1 + i % 3),
                                    .parts = 1,
                                    .seed = i};
            check_matmul(&c);
        }
    }
}

/* Sums come as near to the limits of 16 and 32 bits as they can. */
static void test_the_ends_of_every_range_have_the_same_bits(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 3, 4, 8, 15, 16, 37, 64};
    for (int type = DTYPE_Q4_0; type < DTYPE_COUNT; type++)
        for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            struct matmul_case c = {.type = type,
                                    .rows = rows[i],
                                    .n = {20 + i},
                                    .k = 256 * (1 + i % 3 * 2),
                                    .parts = 1,
                                    .edges = true,
                                    .seed = i};
            check_matmul(&c);
        }
}

static void test_plain_products_take_any_width(void **state) {
    (void)state;
    static const uint32_t widths[] = {1, 3, 31, 576};
    for (int type = DTYPE_F32; type <= DTYPE_BF16; type++)
        for (uint32_t i = 0; i < 4; i++) {
            struct matmul_case c = {
                .type = type, .rows = 6, .n = {33}, .k = widths[i], .parts = 1, .seed = i};
            check_matmul(&c);
        }
}

/* A product is that of a float matrix with the same numbers, bit for bit, whatever its width is. */
static void test_f8_products_are_those_of_the_floats_it_stands_for(void **state) {
    (void)state;
    static const uint32_t widths[] = {32, 96, 128, 160, 384, 544};
    for (uint32_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        struct matmul_case c = {
            .type = DTYPE_F8, .rows = 5, .n = {37}, .k = widths[i], .parts = 1, .seed = i};
        struct matmul_parts p;
        struct rig_steps steps;
        parts_init(&c, &p);
        struct rig r = matmul_rig(&c, &p, &steps);
        float *floats = mem_alloc_array((size_t)c.n[0] * c.k, sizeof(float));
        struct weight f8 = p.w[0];
        dtype_dequant(DTYPE_F8, f8.data, (size_t)c.n[0] * c.k, floats);
        check_matmul(&c);
        struct rig_result got = rig_run(&r, "auto", 2);
        p.w[0] = (struct weight){.type = DTYPE_F32,
                                 .rows = c.n[0],
                                 .cols = c.k,
                                 .experts = 1,
                                 .data = floats,
                                 .bytes = (size_t)c.n[0] * c.k * sizeof(float)};
        struct rig_result want = rig_run(&r, "auto", 2);
        for (uint32_t row = 0; row < c.rows; row++)
            assert_memory_equal(rig_row(&got, 1, row), rig_row(&want, 1, row),
                                c.n[0] * sizeof(float));
        rig_free(&got);
        rig_free(&want);
        p.w[0] = f8;
        mem_free(floats);
        parts_deinit(&p);
    }
}

static void test_parts_biases_and_sums_have_the_same_bits(void **state) {
    (void)state;
    static const enum dtype types[] = {DTYPE_Q4_1, DTYPE_Q8_0, DTYPE_F16, DTYPE_F8};
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t rows = 1; rows < 10; rows += 4) {
            struct matmul_case c = {.type = types[i],
                                    .rows = rows,
                                    .n = {40, 16, 23},
                                    .k = 576,
                                    .parts = 3,
                                    .bias = true,
                                    .add = true,
                                    .seed = i};
            check_matmul(&c);
        }
}

/* As a file has it whose values are kept in more bits than its queries and keys. */
static void test_parts_of_different_formats_have_the_same_bits(void **state) {
    (void)state;
    static const enum dtype types[][3] = {{DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_Q2_K},
                                          {DTYPE_Q5_K, DTYPE_IQ4_NL, DTYPE_Q8_0},
                                          {DTYPE_IQ4_XS, DTYPE_Q4_0, DTYPE_Q3_K},
                                          {DTYPE_F16, DTYPE_F32, DTYPE_BF16},
                                          {DTYPE_F8, DTYPE_BF16, DTYPE_F8}};
    static const uint32_t rows[] = {1, 5, 16, 40, 77};
    for (uint32_t i = 0; i < 25; i++) {
        struct matmul_case c = {.type = types[i / 5][0],
                                .types = types[i / 5],
                                .rows = rows[i % 5],
                                .n = {40, 16, 23},
                                .k = 512,
                                .parts = 3,
                                .add = i % 2,
                                .seed = i};
        check_matmul(&c);
    }
}

/* Few rows, rows enough to be claimed in several blocks of live ones, and none that is live. */
static void test_skipped_rows_are_left_alone(void **state) {
    (void)state;
    static const struct {
        uint32_t rows, skip;
    } cases[] = {{11, 3}, {100, 3}, {130, 2}, {5, 1}, {70, 1}};
    static const enum dtype types[] = {DTYPE_Q4_0, DTYPE_Q6_K, DTYPE_F16};
    for (uint32_t i = 0; i < 15; i++) {
        struct matmul_case c = {.type = types[i / 5],
                                .rows = cases[i % 5].rows,
                                .n = {20, 180},
                                .k = 256,
                                .parts = 2,
                                .skip = cases[i % 5].skip};
        check_matmul(&c);
    }
}

static void test_a_row_of_a_batch_equals_the_row_alone(void **state) {
    (void)state;
    static const enum dtype types[] = {DTYPE_Q4_1, DTYPE_Q6_K, DTYPE_F32, DTYPE_F8};
    for (uint32_t i = 0; i < 4; i++) {
        struct matmul_case c = {.type = types[i], .rows = 67, .n = {32}, .k = 256, .parts = 1};
        for (int isa = 0; isa < RIG_ISAS; isa++) {
            if (!rig_isa_runs(rig_isas[isa])) continue;
            for (uint32_t row = 0; row < 67; row += 11) check_matmul_row(&c, rig_isas[isa], row);
        }
    }
}

static void test_the_reference_is_the_product_with_the_dequantised_weights(void **state) {
    (void)state;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        struct matmul_case c = {
            .type = type, .rows = 3, .n = {17}, .k = 512, .parts = 1, .seed = 9};
        check_matmul_value(&c);
    }
}

static void test_expert_products_have_the_same_bits(void **state) {
    (void)state;
    static const enum dtype types[] = {DTYPE_Q8_0, DTYPE_BF16,   DTYPE_Q4_K,   DTYPE_Q5_K,
                                       DTYPE_Q6_K, DTYPE_IQ4_NL, DTYPE_IQ4_XS, DTYPE_F8};
    for (uint32_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        for (uint32_t rows = i < 2 ? 1 : 9; rows < 100; rows = rows * 4 + 1)
            for (int per_expert = 0; per_expert < 2; per_expert++) {
                struct matmul_case c = {.type = types[i],
                                        .rows = rows,
                                        .n = {24, 24},
                                        .k = 768,
                                        .parts = 2,
                                        .experts = 5,
                                        .used = 3,
                                        .src_per_expert = per_expert,
                                        .seed = i};
                check_expert_matmul(&c);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_format_and_shape_has_the_same_bits),
        cmocka_unit_test(test_the_ends_of_every_range_have_the_same_bits),
        cmocka_unit_test(test_plain_products_take_any_width),
        cmocka_unit_test(test_f8_products_are_those_of_the_floats_it_stands_for),
        cmocka_unit_test(test_parts_biases_and_sums_have_the_same_bits),
        cmocka_unit_test(test_parts_of_different_formats_have_the_same_bits),
        cmocka_unit_test(test_skipped_rows_are_left_alone),
        cmocka_unit_test(test_a_row_of_a_batch_equals_the_row_alone),
        cmocka_unit_test(test_the_reference_is_the_product_with_the_dequantised_weights),
        cmocka_unit_test(test_expert_products_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
