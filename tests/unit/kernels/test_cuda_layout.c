/* Goal:   keys and values of a tile of the CUDA device's cache have a place each, inside the tile,
 *         and so have the codes of a quantised matrix.
 * Method: the functions of kernels/cuda/layout.h, which the kernels use, on the host; all tokens
 *         and dimensions of every format; all codes of matrices of a few tiles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "kernels/cuda/layout.h"

enum { DIM_MAX = 256, ROWS = 3 * CUDA_TILE_ROWS, COLS_MAX = 160 };
static const uint32_t dims[] = {8, 24, 32, 64, 80, 96, 128, 256};
static const enum kv_type types[] = {KV_F16, KV_F32, KV_I8, KV_F8};

static void check_side(enum kv_type type, uint32_t dim, bool is_value) {
    static uint8_t seen[CUDA_TILE_TOKENS * DIM_MAX];
    size_t places = cuda_kv_side_bytes(type, dim) / cuda_kv_elem_bytes(type);
    memset(seen, 0, sizeof(seen));
    for (uint32_t token = 0; token < CUDA_TILE_TOKENS; token++)
        for (uint32_t d = 0; d < dim; d++) {
            size_t at = is_value ? cuda_v_index(type, token, d, dim) : cuda_k_index(token, d);
            assert_in_range(at, 0, places - 1);
            assert_in_range(at, 0, (size_t)CUDA_TILE_TOKENS * dim - 1); /* scales come behind */
            assert_int_equal(seen[at]++, 0);
        }
}

static void test_every_number_of_a_tile_has_its_own_place(void **state) {
    (void)state;
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
        for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
            check_side(types[t], dims[i], false);
            check_side(types[t], dims[i], true);
        }
}

/* Tensor cores read 8 tokens of 8 dimensions as 128 bytes in a row. */
static void test_values_lie_as_keys_where_tensor_cores_attend(void **state) {
    (void)state;
    for (uint32_t token = 0; token < CUDA_TILE_TOKENS; token++)
        for (uint32_t d = 0; d < 128; d++)
            assert_int_equal(cuda_v_index(KV_F16, token, d, 128), cuda_k_index(token, d));
    for (uint32_t token = 0; token < CUDA_TILE_TOKENS; token++)
        for (uint32_t d = 0; d < 64; d++)
            assert_int_equal(cuda_v_index(KV_F8, token, d, 64), d * CUDA_TILE_TOKENS + token);
    assert_int_equal(cuda_v_index(KV_F16, 9, 64, 128) * 2 % 128, 16);
    assert_int_equal(cuda_v_index(KV_I8, 3, 5, 128), 3 * 128 + 5);
    assert_int_equal(cuda_v_index(KV_F16, 3, 5, 96), 3 * 96 + 5);
}

/* A code of 4 bits: its byte and half; 32 of a row are 16 bytes. */
static void check_halves(enum cuda_code code, uint32_t cols) {
    static uint8_t halves[2][ROWS * COLS_MAX / 2];
    memset(halves, 0, sizeof(halves));
    for (uint32_t row = 0; row < ROWS; row++)
        for (uint32_t k = 0; k < cols; k++) {
            size_t byte = cuda_code4_index(code, row, k, cols);
            assert_in_range(byte, 0, (size_t)ROWS * cols / 2 - 1);
            assert_int_equal(halves[cuda_code4_is_high(code, k)][byte]++, 0);
        }
}

static void test_every_code_has_its_own_place(void **state) {
    static uint8_t whole[ROWS * COLS_MAX];
    (void)state;
    for (uint32_t cols = 32; cols <= COLS_MAX; cols += 32) {
        memset(whole, 0, sizeof(whole));
        for (uint32_t row = 0; row < ROWS; row++)
            for (uint32_t k = 0; k < cols; k++) {
                size_t at = cuda_code_index(row, k, cols);
                assert_in_range(at, 0, (size_t)ROWS * cols - 1);
                assert_int_equal(whole[at]++, 0);
            }
        for (enum cuda_code code = CUDA_CODE_4; code <= CUDA_CODE_4_PLACE; code++)
            check_halves(code, cols);
    }
}

/* As kernels take them from a word: a code and the one 16 behind it are the halves of a byte. */
static void test_numbers_of_4_bits_share_a_byte_with_those_16_behind_them(void **state) {
    (void)state;
    for (enum cuda_code code = CUDA_CODE_4; code <= CUDA_CODE_4_SIGNED; code++)
        for (uint32_t k = 0; k < 64; k++) {
            size_t group = cuda_code4_index(code, 5, k / 32 * 32, 64);
            assert_int_equal(cuda_code4_index(code, 5, k, 64), group + k % 16);
            assert_int_equal(cuda_code4_is_high(code, k), k % 32 >= 16);
        }
}

/* Four neighbours are 16 bits of a word, the four that are 16 behind them its other 16 bits. */
static void test_places_lie_in_fours(void **state) {
    enum cuda_code code = CUDA_CODE_4_PLACE;
    (void)state;
    for (uint32_t k = 0; k < 64; k++) {
        size_t group = cuda_code4_index(code, 5, k / 32 * 32, 64);
        size_t digit = 2 * (cuda_code4_index(code, 5, k, 64) - group) + cuda_code4_is_high(code, k);
        assert_int_equal(digit, k % 16 / 4 * 8 + k % 32 / 16 * 4 + k % 4);
    }
}

/* Blocks of a product of quantised weights share its tiles out. */
static void test_shares_touch_and_are_even(void **state) {
    (void)state;
    for (uint32_t blocks = 1; blocks <= 140; blocks++)
        for (uint32_t count = blocks; count < 1000; count += 7) {
            uint32_t end = 0;
            for (uint32_t b = 0; b < blocks; b++) {
                struct cuda_share s = cuda_share_of(count, blocks, b);
                assert_int_equal(s.first, end);
                assert_in_range(s.end - s.first, count / blocks, (count + blocks - 1) / blocks);
                end = s.end;
            }
            assert_int_equal(end, count);
        }
}

static uint32_t largest_share(uint32_t count, uint32_t blocks) {
    uint32_t most = 0;
    for (uint32_t b = 0; b < blocks; b++) {
        struct cuda_share s = cuda_share_of(count, blocks, b);
        if (s.end - s.first > most) most = s.end - s.first;
    }
    return most;
}

/* Gates and ups of 8B: 448 pairs. */
static void test_pairs_are_parted_where_that_makes_the_largest_share_smaller(void **state) {
    (void)state;
    assert_int_equal(largest_share(448, 132), 4);
    assert_int_equal(largest_share(896, 132), 7);
    assert_true(cuda_parts_pairs(448, 132));
    assert_false(cuda_parts_pairs(132, 132));
    for (uint32_t blocks = 1; blocks <= 140; blocks++)
        for (uint32_t pairs = blocks; pairs < 500; pairs += 3)
            assert_int_equal(cuda_parts_pairs(pairs, blocks),
                             largest_share(2 * pairs, blocks) < 2 * largest_share(pairs, blocks));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number_of_a_tile_has_its_own_place),
        cmocka_unit_test(test_values_lie_as_keys_where_tensor_cores_attend),
        cmocka_unit_test(test_every_code_has_its_own_place),
        cmocka_unit_test(test_numbers_of_4_bits_share_a_byte_with_those_16_behind_them),
        cmocka_unit_test(test_places_lie_in_fours),
        cmocka_unit_test(test_shares_touch_and_are_even),
        cmocka_unit_test(test_pairs_are_parted_where_that_makes_the_largest_share_smaller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
