/* Goal:   every number format gives the bits that the gguf package gives, and the integer form
 *         stands for the same numbers.
 * Method: committed blocks with the edges of float16 as scales, and the package's answers
 *         (tools/make_dtype_goldens.py, which reads jitney's own formats by itself); the 16-bit
 *         conversions against their definition, for every 16-bit number and every point halfway
 *         between two. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/cursor.h"
#include "base/file.h"
#include "base/mem.h"
#include "tensor/dtype.h"

enum { GOLDEN_BYTES_MAX = 1 << 20, BLOCK_ELEMS_MAX = 256, GROUPS_MAX = 16 };

struct golden {
    struct buf file;
    uint32_t block_count;
    struct str blocks;
    struct str values; /* float32 bits */
};

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static void golden_open(struct golden *g, enum dtype type) {
    const struct dtype_info *info = dtype_info(type);
    char path[512], name[32];
    struct err err = {0};
    struct buf text;
    buf_init(&text, sizeof(name));
    buf_printf(&text, "%s.bin", info->name);
    assert_true(path_join(path, sizeof(path), TEST_SOURCE_DIR "/golden/dtype", buf_text(&text)));
    buf_deinit(&text);
    buf_init(&g->file, GOLDEN_BYTES_MAX);
    if (file_read(path, &g->file, &err) != ST_OK) fail_msg("%s", err.text);
    struct cursor c = cursor_of(g->file.ptr, g->file.len);
    g->block_count = cursor_u32(&c);
    g->blocks = cursor_bytes(&c, (size_t)g->block_count * info->block_bytes);
    g->values = cursor_bytes(&c, (size_t)g->block_count * info->block_elems * 4);
    assert_false(c.failed);
    assert_int_equal(cursor_left(&c), 0);
    assert_true(g->block_count >= 19);
}

static void assert_same(enum dtype type, size_t i, float got, float want) {
    if (isnan(want) && isnan(got)) return;
    if (bits_of(got) != bits_of(want))
        fail_msg("%s element %zu: %08x, expected %08x", dtype_info(type)->name, i, bits_of(got),
                 bits_of(want));
}

static float value_at(const struct golden *g, size_t i) {
    float value;
    memcpy(&value, g->values.ptr + 4 * i, sizeof(value));
    return value;
}

static void test_every_format_dequantises_to_the_bits_of_the_gguf_package(void **state) {
    (void)state;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        struct golden g;
        golden_open(&g, (enum dtype)type);
        size_t elems = (size_t)g.block_count * dtype_info((enum dtype)type)->block_elems;
        float *got = mem_alloc_array(elems, sizeof(*got));
        assert_non_null(got);
        dtype_dequant((enum dtype)type, g.blocks.ptr, elems, got);
        for (size_t i = 0; i < elems; i++)
            assert_same((enum dtype)type, i, got[i], value_at(&g, i));
        mem_free(got);
        buf_deinit(&g.file);
    }
}

static void test_source_may_lie_at_an_odd_address(void **state) {
    (void)state;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        const struct dtype_info *info = dtype_info((enum dtype)type);
        struct golden g;
        golden_open(&g, (enum dtype)type);
        char *copy = mem_alloc(info->block_bytes + 1);
        float got[BLOCK_ELEMS_MAX];
        assert_non_null(copy);
        memcpy(copy + 1, g.blocks.ptr, info->block_bytes);
        dtype_dequant((enum dtype)type, copy + 1, info->block_elems, got);
        for (size_t i = 0; i < info->block_elems; i++)
            assert_same((enum dtype)type, i, got[i], value_at(&g, i));
        mem_free(copy);
        buf_deinit(&g.file);
    }
}

static void check_block_unpacks(enum dtype type, const struct golden *g, uint32_t block) {
    const struct dtype_info *info = dtype_info(type);
    int8_t q[BLOCK_ELEMS_MAX];
    float scale[GROUPS_MAX], min[GROUPS_MAX];
    for (int i = 0; i < GROUPS_MAX; i++) scale[i] = min[i] = 123.0f;
    dtype_unpack(type, g->blocks.ptr + (size_t)block * info->block_bytes, q, scale, min);
    for (uint32_t i = 0; i < info->block_elems; i++) {
        float value = scale[i / info->group_elems] * q[i];
        if (info->has_min)
            value += min[i / info->group_elems];
        else
            assert_int_equal(bits_of(min[i / info->group_elems]), 0);
        size_t elem = (size_t)block * info->block_elems + i;
        assert_same(type, elem, value, value_at(g, elem));
    }
    for (uint32_t i = info->block_elems / info->group_elems; i < GROUPS_MAX; i++)
        assert_true(scale[i] == 123.0f && min[i] == 123.0f);
}

static void test_unpacked_integers_stand_for_the_same_numbers(void **state) {
    (void)state;
    int checked = 0;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        if (!dtype_has_integers((enum dtype)type)) continue;
        struct golden g;
        golden_open(&g, (enum dtype)type);
        for (uint32_t b = 0; b < g.block_count; b++) check_block_unpacks((enum dtype)type, &g, b);
        buf_deinit(&g.file);
        checked++;
    }
    assert_int_equal(checked, 17);
}

static void test_sizes_are_whole_blocks_that_do_not_wrap(void **state) {
    (void)state;
    size_t bytes = 7;
    assert_true(dtype_bytes(DTYPE_Q4_K, 512, &bytes));
    assert_int_equal(bytes, 288);
    assert_true(dtype_bytes(DTYPE_F32, 0, &bytes));
    assert_int_equal(bytes, 0);
    bytes = 7;
    assert_false(dtype_bytes(DTYPE_Q4_K, 511, &bytes));
    assert_false(dtype_bytes(DTYPE_Q8_0, 33, &bytes));
    assert_false(dtype_bytes(DTYPE_F32, UINT64_MAX / 4 + 1, &bytes));
    assert_false(dtype_bytes(DTYPE_Q8_0, UINT64_MAX - 31, &bytes));
    assert_int_equal(bytes, 7);
    assert_true(dtype_bytes(DTYPE_Q4_0, UINT64_MAX - 31, &bytes)); /* smaller than it counts */
    assert_true(dtype_bytes(DTYPE_F32, UINT64_MAX / 4, &bytes));
}

static void test_formats_are_found_by_name_in_any_case(void **state) {
    (void)state;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        enum dtype found = DTYPE_COUNT;
        assert_true(dtype_find(str_of(dtype_info((enum dtype)type)->name), &found));
        assert_int_equal(found, type);
    }
    enum dtype found = DTYPE_COUNT;
    assert_true(dtype_find(STR("iq4_xs"), &found));
    assert_int_equal(found, DTYPE_IQ4_XS);
    assert_false(dtype_find(STR("Q4"), &found));
    assert_false(dtype_find(STR("Q4_KK"), &found));
    assert_false(dtype_find(STR(""), &found));
    assert_false(dtype_is_quantised(DTYPE_BF16));
    assert_true(dtype_is_quantised(DTYPE_IQ4_NL) && dtype_has_integers(DTYPE_IQ4_NL));
    assert_true(dtype_is_quantised(DTYPE_F8) && !dtype_has_integers(DTYPE_F8));
}

/* The number that 1 + exponent_bits + fraction_bits bits stand for, by definition. */
static double by_definition(uint16_t half, int exponent_bits, int fraction_bits) {
    int bias = (1 << (exponent_bits - 1)) - 1, all_ones = (1 << exponent_bits) - 1;
    int exponent = half >> fraction_bits & all_ones, fraction = half & ((1 << fraction_bits) - 1);
    double sign = half & 0x8000 ? -1.0 : 1.0;
    if (exponent == all_ones) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

static void test_every_16_bit_number_becomes_what_it_stands_for(void **state) {
    (void)state;
    for (uint32_t half = 0; half < 0x10000; half++) {
        double f16 = by_definition((uint16_t)half, 5, 10);
        double bf16 = by_definition((uint16_t)half, 8, 7);
        float got_f16 = f16_to_f32((uint16_t)half), got_bf16 = bf16_to_f32((uint16_t)half);
        if (isnan(f16))
            assert_true(isnan(got_f16));
        else
            assert_int_equal(bits_of(got_f16), bits_of((float)f16));
        if (isnan(bf16))
            assert_true(isnan(got_bf16));
        else
            assert_int_equal(bits_of(got_bf16), bits_of((float)bf16));
    }
}

/* Rounding is right everywhere if each 16-bit number comes back, the point halfway to the next
 * goes to the even one, and the float32 numbers beside that point go to the nearer one. */
static void check_rounding(float (*to)(uint16_t), uint16_t (*from)(float), uint16_t infinity) {
    for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
        for (uint32_t half = 0; half < infinity; half++) {
            uint16_t here = (uint16_t)(half | sign), next = (uint16_t)(here + 1);
            assert_int_equal(from(to(here)), here);
            /* The step to infinity is as wide as the one before it. */
            float up = next == (infinity | sign)
                           ? to(here) + (to(here) - to((uint16_t)(here - 1))) / 2
                           : (float)(((double)to(here) + (double)to(next)) / 2);
            uint32_t bits = bits_of(up);
            float nearer, farther;
            memcpy(&nearer, &(uint32_t){bits - 1}, sizeof(nearer));
            memcpy(&farther, &(uint32_t){bits + 1}, sizeof(farther));
            assert_int_equal(from(up), here & 1 ? next : here);
            assert_int_equal(from(nearer), here);
            assert_int_equal(from(farther), next);
        }
        assert_int_equal(from(sign ? -INFINITY : INFINITY), infinity | sign);
    }
}

static void test_16_bit_rounding_is_to_nearest_ties_to_even(void **state) {
    (void)state;
    check_rounding(f16_to_f32, f16_from_f32, 0x7C00);
    check_rounding(bf16_to_f32, bf16_from_f32, 0x7F80);
    assert_int_equal(f16_from_f32(0x1p-30f), 0);
    assert_int_equal(f16_from_f32(-0x1p-149f), 0x8000);
    assert_int_equal(f16_from_f32(1e30f), 0x7C00);
}

static void test_not_a_number_stays_not_a_number(void **state) {
    (void)state;
    for (uint32_t payload = 1; payload < 0x800000; payload = payload * 3 + 1) {
        float nan;
        memcpy(&nan, &(uint32_t){0x7F800000 | payload}, sizeof(nan));
        assert_true(isnan(f16_to_f32(f16_from_f32(nan))));
        assert_true(isnan(bf16_to_f32(bf16_from_f32(nan))));
        assert_true(isnan(f16_to_f32(f16_from_f32(-nan))));
        assert_true(isnan(bf16_to_f32(bf16_from_f32(-nan))));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_format_dequantises_to_the_bits_of_the_gguf_package),
        cmocka_unit_test(test_source_may_lie_at_an_odd_address),
        cmocka_unit_test(test_unpacked_integers_stand_for_the_same_numbers),
        cmocka_unit_test(test_sizes_are_whole_blocks_that_do_not_wrap),
        cmocka_unit_test(test_formats_are_found_by_name_in_any_case),
        cmocka_unit_test(test_every_16_bit_number_becomes_what_it_stands_for),
        cmocka_unit_test(test_16_bit_rounding_is_to_nearest_ties_to_even),
        cmocka_unit_test(test_not_a_number_stays_not_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
