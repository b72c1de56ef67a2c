/* Goal:   an encoder gives blocks that decode near the source, the same bytes with every
 *         instruction set, and finite numbers for any input that it accepts.
 * Method: a plain encoder in this file (the scale that just holds the largest number) is the
 *         reference that must be beaten; numbers that lie on a grid must come back; hostile blocks
 *         by hand; a seeded walk over many kinds of blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "quant/choose.h"
#include "quant/quant.h"

enum { ELEMS = 2048, BYTES = ELEMS * 4, SEED = 20261118 };

static const enum dtype quantised[] = {DTYPE_Q4_0,   DTYPE_Q4_1,  DTYPE_Q5_0, DTYPE_Q5_1,
                                       DTYPE_Q8_0,   DTYPE_Q4_K,  DTYPE_Q5_K, DTYPE_Q6_K,
                                       DTYPE_IQ4_NL, DTYPE_IQ4_XS};
enum { QUANTISED = sizeof(quantised) / sizeof(quantised[0]) };

static float uniform(uint64_t i) { return (float)rng_unit_at(SEED, 0, i); }

/* About normal: the sum of four uniform numbers. */
static void fill(float *x, uint64_t stream, float scale) {
    for (size_t i = 0; i < ELEMS; i++) {
        float sum = 0;
        for (uint64_t k = 0; k < 4; k++) sum += uniform(stream * ELEMS * 4 + i * 4 + k) - 0.5f;
        x[i] = sum * scale;
    }
}

static double error_of(enum dtype type, const float *x, const float *w, const void *bytes) {
    float y[ELEMS];
    double sum = 0;
    dtype_dequant(type, bytes, ELEMS, y);
    for (size_t i = 0; i < ELEMS; i++) {
        double e = (double)x[i] - (double)y[i];
        sum += (w ? (double)w[i] : 1.0) * e * e;
    }
    return sum;
}

/* How many codes the reference uses: of a type without minima as many on both sides of 0. */
static int levels_of(enum dtype type) {
    if (type == DTYPE_Q8_0) return 255;
    if (type == DTYPE_Q6_K) return 63;
    bool has_min = dtype_info(type)->has_min;
    bool is_5_bits = type == DTYPE_Q5_0 || type == DTYPE_Q5_1 || type == DTYPE_Q5_K;
    return (is_5_bits ? 31 : 15) + (has_min ? 1 : 0);
}

/* The reference: groups of 16 or 32, a scale in float32 that just holds the largest magnitude (or
 * the range, where there are minima), rounding to the nearest code. */
static double plain_error(enum dtype type, const float *x, const float *w) {
    const struct dtype_info *info = dtype_info(type);
    double sum = 0;
    for (size_t at = 0; at < ELEMS; at += info->group_elems) {
        float least = x[at], most = x[at];
        for (size_t i = at; i < at + info->group_elems; i++) {
            least = fminf(least, x[i]);
            most = fmaxf(most, x[i]);
        }
        float from = info->has_min ? fminf(least, 0) : -fmaxf(-least, most);
        float range = info->has_min ? most - from : 2 * -from;
        float scale = range / (float)(levels_of(type) - 1);
        for (size_t i = at; i < at + info->group_elems; i++) {
            float q = scale > 0 ? roundf((x[i] - from) / scale) : 0;
            double e = (double)x[i] - (double)(from + q * scale);
            sum += (w ? (double)w[i] : 1.0) * e * e;
        }
    }
    return sum;
}

static void test_an_encoder_beats_the_plain_one(void **state) {
    (void)state;
    float x[ELEMS], w[ELEMS];
    uint8_t bytes[BYTES];
    fill(x, 1, 0.1f);
    for (size_t i = 0; i < ELEMS; i++) w[i] = 0.1f + 4 * uniform(90000 + i);
    for (int t = 0; t < QUANTISED; t++) {
        for (int weighted = 0; weighted < 2; weighted++) {
            const float *importance = weighted ? w : NULL;
            quant_encode(quantised[t], x, importance, ELEMS, bytes);
            double got = error_of(quantised[t], x, importance, bytes);
            double plain = plain_error(quantised[t], x, importance);
            if (!(got < plain))
                fail_msg("%s: error %g, the plain encoder has %g", dtype_info(quantised[t])->name,
                         got, plain);
        }
    }
}

static void test_importance_moves_the_error_to_other_elements(void **state) {
    (void)state;
    float x[ELEMS], w[ELEMS];
    uint8_t with[BYTES], without[BYTES];
    fill(x, 2, 0.1f);
    for (size_t i = 0; i < ELEMS; i++) w[i] = i % 4 == 0 ? 100.0f : 0.01f;
    for (int t = 0; t < QUANTISED; t++) {
        quant_encode(quantised[t], x, w, ELEMS, with);
        quant_encode(quantised[t], x, NULL, ELEMS, without);
        double a = error_of(quantised[t], x, w, with), b = error_of(quantised[t], x, w, without);
        if (!(a < 0.9 * b)) fail_msg("%s: %g and %g", dtype_info(quantised[t])->name, a, b);
    }
}

/* Numbers that the type can hold come back as they were, or nearly: codes that use their whole
 * range have one best scale. */
static void test_numbers_on_the_grid_come_back(void **state) {
    (void)state;
    float x[ELEMS];
    uint8_t bytes[BYTES];
    for (int t = 0; t < QUANTISED; t++) {
        const struct dtype_info *info = dtype_info(quantised[t]);
        if (info->block_elems > 32 || quantised[t] == DTYPE_IQ4_NL) continue;
        int levels = levels_of(quantised[t]), lo = info->has_min ? 0 : -(levels / 2);
        for (size_t i = 0; i < ELEMS; i++) {
            size_t k = i % 32; /* the ends of the range are there in each block */
            int q = k == 0   ? lo
                    : k == 1 ? lo + levels - 1
                             : lo + (int)(uniform(5 * i) * (float)levels);
            x[i] = 0.25f * (float)q + (info->has_min ? -1.0f : 0.0f);
        }
        quant_encode(quantised[t], x, NULL, ELEMS, bytes);
        double e = error_of(quantised[t], x, NULL, bytes);
        if (e > 1e-9) fail_msg("%s: error %g on its own grid", info->name, e);
    }
}

static void assert_same_everywhere(enum dtype type, const float *x, const float *w) {
    uint8_t first[BYTES], other[BYTES];
    size_t len;
    assert_true(dtype_bytes(type, ELEMS, &len));
    quant_isa_at(0)->encode(type, x, w, ELEMS, first);
    for (uint32_t i = 1; quant_isa_at(i); i++) {
        quant_isa_at(i)->encode(type, x, w, ELEMS, other);
        if (memcmp(first, other, len) != 0)
            fail_msg("%s: %s and %s differ", dtype_info(type)->name, quant_isa_at(0)->name,
                     quant_isa_at(i)->name);
    }
    float y[ELEMS];
    dtype_dequant(type, first, ELEMS, y);
    for (size_t i = 0; i < ELEMS; i++)
        if (!isfinite(y[i])) fail_msg("%s: element %zu is not finite", dtype_info(type)->name, i);
}

/* One block of 256 each of what is hard: zeros, one number, tiny, huge, a constant, an outlier. */
static void fill_hostile(float *x) {
    fill(x, 3, 1.0f);
    for (size_t i = 0; i < 256; i++) {
        x[i] = i % 2 ? -0.0f : 0.0f;
        x[256 + i] = i == 77 ? -3.0f : 0.0f;
        x[512 + i] *= 1e-9f;
        x[768 + i] = i % 3 == 0 ? -F16_MAX : F16_MAX;
        x[1024 + i] = -0.7f;
        x[1280 + i] = i == 9 ? F16_MAX : x[1280 + i] * 1e-3f;
        x[1536 + i] = i < 128 ? 2.5f : FLT_MIN / 4;
    }
}

static void test_hostile_blocks_stay_finite_and_the_same_everywhere(void **state) {
    (void)state;
    float x[ELEMS], w[ELEMS];
    size_t bad;
    fill_hostile(x);
    for (size_t i = 0; i < ELEMS; i++)
        w[i] = i % 5 == 0 ? 0.0f : i % 7 == 0 ? FLT_MAX : i % 256 < 32 ? 0.0f : 1e-30f;
    for (int t = 0; t < QUANTISED; t++) {
        assert_true(quant_can_hold(quantised[t], x, ELEMS, &bad));
        assert_same_everywhere(quantised[t], x, NULL);
        assert_same_everywhere(quantised[t], x, w);
    }
}

static void test_zeros_decode_as_zeros_and_a_lone_number_is_kept(void **state) {
    (void)state;
    float x[ELEMS], y[ELEMS];
    uint8_t bytes[BYTES];
    fill_hostile(x);
    for (int t = 0; t < QUANTISED; t++) {
        quant_encode(quantised[t], x, NULL, ELEMS, bytes);
        dtype_dequant(quantised[t], bytes, ELEMS, y);
        for (size_t i = 0; i < 256; i++) assert_true(y[i] == 0);
        if (!(fabsf(y[256 + 77] + 3.0f) < 0.02f))
            fail_msg("%s: -3 became %g", dtype_info(quantised[t])->name, (double)y[256 + 77]);
    }
}

static void test_a_seeded_walk_gives_the_same_bytes_everywhere(void **state) {
    (void)state;
    enum { ROUNDS = 12 };
    float x[ELEMS], w[ELEMS];
    for (uint64_t round = 0; round < ROUNDS; round++) {
        fill(x, 10 + round, ldexpf(1.0f, (int)(round * 3) - 24));
        for (size_t i = 0; i < ELEMS; i++) {
            float u = uniform(round * 31 + i * 3);
            if (u < 0.02f) x[i] *= 30;
            w[i] = u * u * u;
        }
        for (int t = 0; t < QUANTISED; t++) {
            assert_same_everywhere(quantised[t], x, NULL);
            assert_same_everywhere(quantised[t], x, w);
        }
    }
}

static void test_plain_types_round_to_nearest(void **state) {
    (void)state;
    const float x[4] = {1.0f, 1.00048828125f, -3.0e-8f, 65504.0f};
    uint16_t half[4];
    float same[4];
    quant_encode(DTYPE_F16, x, NULL, 4, half);
    for (int i = 0; i < 4; i++) assert_int_equal(half[i], f16_from_f32(x[i]));
    quant_encode(DTYPE_BF16, x, NULL, 4, half);
    for (int i = 0; i < 4; i++) assert_int_equal(half[i], bf16_from_f32(x[i]));
    quant_encode(DTYPE_F32, x, NULL, 4, same);
    assert_memory_equal(same, x, sizeof(x));
}

static void test_numbers_beyond_the_type_are_found(void **state) {
    (void)state;
    size_t bad = 99;
    const float ok[3] = {0, -F16_MAX, F16_MAX};
    const float large[3] = {0, 1, 70000.0f}, nan_second[3] = {0, NAN, 1};
    const float infinite[3] = {-INFINITY, 0, 0};
    assert_true(quant_can_hold(DTYPE_Q4_K, ok, 3, &bad));
    assert_false(quant_can_hold(DTYPE_Q4_K, large, 3, &bad));
    assert_int_equal(bad, 2);
    assert_true(quant_can_hold(DTYPE_BF16, large, 3, &bad));
    assert_false(quant_can_hold(DTYPE_F16, nan_second, 3, &bad));
    assert_int_equal(bad, 1);
    assert_false(quant_can_hold(DTYPE_F32, infinite, 3, &bad));
    assert_int_equal(bad, 0);
    assert_true(quant_has_encoder(DTYPE_IQ4_XS));
    assert_false(quant_has_encoder(DTYPE_Q2_K));
}

static void test_types_are_chosen_by_name_and_width(void **state) {
    (void)state;
    const uint64_t matrix[2] = {8, 256}, vector[1] = {256}, row[2] = {1, 256};
    assert_true(choose_converts(STR("blk.0.attn_q.weight"), matrix, 2));
    assert_false(choose_converts(STR("blk.0.attn_q.weight"), row, 2));
    assert_false(choose_converts(STR("blk.0.attn_q.bias"), matrix, 2));
    assert_false(choose_converts(STR("blk.0.attn_norm.weight"), matrix, 2));
    assert_false(choose_converts(STR("output_norm.weight"), vector, 1));
    assert_false(choose_converts(STR("blk.0.ffn_gate_inp.weight"), matrix, 2));
    assert_int_equal(choose_fallback(DTYPE_Q4_K, 576), DTYPE_Q5_0);
    assert_int_equal(choose_fallback(DTYPE_Q5_K, 576), DTYPE_Q5_1);
    assert_int_equal(choose_fallback(DTYPE_Q6_K, 576), DTYPE_Q8_0);
    assert_int_equal(choose_fallback(DTYPE_IQ4_XS, 576), DTYPE_IQ4_NL);
    assert_int_equal(choose_fallback(DTYPE_Q4_K, 512), DTYPE_Q4_K);
    assert_int_equal(choose_fallback(DTYPE_Q4_0, 40), DTYPE_F16);
    struct str embedding = STR("token_embd.weight"), output = STR("output.weight");
    assert_int_equal(choose_type(DTYPE_Q4_K, output, 512, true), DTYPE_Q6_K);
    assert_int_equal(choose_type(DTYPE_Q4_K, embedding, 512, true), DTYPE_Q4_K);
    assert_int_equal(choose_type(DTYPE_Q4_0, embedding, 576, false), DTYPE_Q8_0);
    assert_int_equal(choose_type(DTYPE_Q8_0, embedding, 512, false), DTYPE_Q8_0);
    assert_int_equal(choose_type(DTYPE_F16, embedding, 512, false), DTYPE_F16);
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (quant_has_encoder((enum dtype)t)) assert_true(choose_file_type((enum dtype)t) <= 32);
}

int main(void) {
    printf("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_encoder_beats_the_plain_one),
        cmocka_unit_test(test_importance_moves_the_error_to_other_elements),
        cmocka_unit_test(test_numbers_on_the_grid_come_back),
        cmocka_unit_test(test_hostile_blocks_stay_finite_and_the_same_everywhere),
        cmocka_unit_test(test_zeros_decode_as_zeros_and_a_lone_number_is_kept),
        cmocka_unit_test(test_a_seeded_walk_gives_the_same_bytes_everywhere),
        cmocka_unit_test(test_plain_types_round_to_nearest),
        cmocka_unit_test(test_numbers_beyond_the_type_are_found),
        cmocka_unit_test(test_types_are_chosen_by_name_and_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
