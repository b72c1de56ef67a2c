/* Goal:   a packed matrix holds the codes it was given, where the published layouts have them; NF4
 *         and its double quantisation choose the nearest of their tables.
 * Method: random codes with a marked zero point and scale for each group, put in bands, and looked
 *         up word by word; NF4 against a search through its table in double. Bytes of bitsandbytes
 *         are compared in tests/tools/test_quant_folders.py, whole folders in
 *         tests/e2e/test_cli_quantize_folder.py. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "quant/nf4.h"
#include "quant/pack.h"

enum { ROWS = 136, COLS = 96, GROUP = 32 };

static const uint8_t *part(const struct packed_matrix *m, const char *suffix) {
    for (uint32_t i = 0; i < m->part_count; i++)
        if (strcmp(m->parts[i].suffix, suffix) == 0) return m->data + m->parts[i].at;
    fail_msg("no part %s", suffix);
    return NULL;
}

static uint32_t word_at(const uint8_t *words, size_t i) {
    uint32_t word;
    memcpy(&word, words + 4 * i, sizeof(word));
    return word;
}

static float half_at(const uint8_t *halves, size_t i) {
    return f16_to_f32((uint16_t)(halves[2 * i] | halves[2 * i + 1] << 8));
}

static uint8_t code_of(uint32_t n, uint32_t k) { return (uint8_t)((n * 7 + k * 5 + n * k) % 16); }
static uint8_t zero_of(uint32_t n, uint32_t g) { return (uint8_t)(1 + (n + 3 * g) % 15); }
static float scale_of(uint32_t n, uint32_t g) { return (float)(n + 1) + (float)g / 4; }

static struct packed_matrix pack_codes(const struct pack_format *format, uint32_t band) {
    struct packed_matrix m;
    struct int_matrix ints;
    struct err err = {0};
    assert_int_equal(packed_init(&m, format, ROWS, COLS, &err), ST_OK);
    for (uint32_t first = 0; first < ROWS; first += band) {
        uint32_t rows = ROWS - first < band ? ROWS - first : band;
        assert_int_equal(int_matrix_init(&ints, &format->ints, rows, COLS, &err), ST_OK);
        for (uint32_t n = 0; n < rows; n++) {
            for (uint32_t k = 0; k < COLS; k++) ints.codes[n * COLS + k] = code_of(first + n, k);
            for (uint32_t g = 0; g < ints.groups; g++) {
                ints.zeros[n * ints.groups + g] = zero_of(first + n, g);
                ints.scales[n * ints.groups + g] = scale_of(first + n, g);
            }
        }
        for (uint32_t k = 0; k < COLS && ints.group_of; k++) ints.group_of[k] = k % 3;
        packed_put_ints(&m, &ints, first);
        int_matrix_deinit(&ints);
    }
    packed_finish(&m);
    return m;
}

static void test_gptq_has_words_along_the_inputs(void **state) {
    (void)state;
    for (int order = 0; order < 2; order++) {
        const struct pack_format format = {
            PACK_GPTQ, {.bits = 4, .group_cols = GROUP, .has_order = order}, DTYPE_F16};
        struct packed_matrix m = pack_codes(&format, order ? ROWS : PACK_BAND_ROWS);
        for (uint32_t n = 0; n < ROWS; n++) {
            for (uint32_t k = 0; k < COLS; k++) {
                uint32_t word = word_at(part(&m, ".qweight"), (size_t)(k / 8) * ROWS + n);
                assert_int_equal(word >> 4 * (k % 8) & 15, code_of(n, k));
                assert_int_equal(word_at(part(&m, ".g_idx"), k), order ? k % 3 : k / GROUP);
            }
            for (uint32_t g = 0; g < COLS / GROUP; g++) {
                uint32_t word = word_at(part(&m, ".qzeros"), (size_t)g * (ROWS / 8) + n / 8);
                assert_int_equal((word >> 4 * (n % 8) & 15) + 1, zero_of(n, g));
                assert_true(half_at(part(&m, ".scales"), (size_t)g * ROWS + n) == scale_of(n, g));
            }
        }
        packed_deinit(&m);
    }
}

static void test_awq_has_words_along_the_outputs(void **state) {
    (void)state;
    static const uint32_t output[8] = {0, 2, 4, 6, 1, 3, 5, 7}; /* at place i of a word */
    const struct pack_format format = {PACK_AWQ, {.bits = 4, .group_cols = GROUP}, DTYPE_F16};
    struct packed_matrix m = pack_codes(&format, PACK_BAND_ROWS);
    for (uint32_t n = 0; n < ROWS; n += 8)
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t own = n + output[i];
            for (uint32_t k = 0; k < COLS; k++) {
                uint32_t word = word_at(part(&m, ".qweight"), (size_t)k * (ROWS / 8) + n / 8);
                assert_int_equal(word >> 4 * i & 15, code_of(own, k));
            }
            for (uint32_t g = 0; g < COLS / GROUP; g++) {
                uint32_t word = word_at(part(&m, ".qzeros"), (size_t)g * (ROWS / 8) + n / 8);
                assert_int_equal(word >> 4 * i & 15, zero_of(own, g));
            }
        }
    packed_deinit(&m);
}

static void test_which_shapes_fit(void **state) {
    (void)state;
    struct pack_format format = {PACK_GPTQ, {.bits = 4, .group_cols = 64}, DTYPE_F16};
    assert_true(pack_fits(&format, 8, 128));
    assert_false(pack_fits(&format, 8, 96));
    assert_false(pack_fits(&format, 12, 128));
    format.method = PACK_NF4;
    assert_true(pack_fits(&format, 3, 96));
    assert_false(pack_fits(&format, 8, 100));
    assert_false(pack_fits(&format, 8, (uint64_t)1 << 25));
    assert_false(pack_fits(&format, (uint64_t)1 << 25, 32));
}

/* ---- NF4 ---- */

static uint32_t nearest(const float *table, uint32_t count, double x) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        if (fabs((double)table[i] - x) < fabs((double)table[best] - x)) best = i;
    return best;
}

static void test_nf4_takes_the_nearest_number_of_its_table(void **state) {
    (void)state;
    struct rng rng = {.seed = 3};
    for (size_t count = 2; count <= NF4_BLOCK; count += 2) {
        float x[NF4_BLOCK], absmax;
        uint8_t codes[NF4_BLOCK / 2];
        double most = 0;
        for (size_t i = 0; i < count; i++) {
            x[i] = (float)(rng_unit(&rng) * 2 - 1) * 0.3f;
            most = fabs((double)x[i]) > most ? fabs((double)x[i]) : most;
        }
        nf4_encode(x, count, codes, &absmax);
        assert_true((double)absmax == most);
        for (size_t i = 0; i < count; i++) {
            uint32_t code = i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
            assert_int_equal(code, nearest(nf4_table, NF4_TABLE, (double)x[i] / most));
        }
    }
}

static void test_a_block_of_zeros_is_zero(void **state) {
    (void)state;
    const float x[NF4_BLOCK] = {0};
    uint8_t codes[NF4_BLOCK / 2];
    float absmax = 1;
    nf4_encode(x, NF4_BLOCK, codes, &absmax);
    assert_true(absmax == 0);
    for (int i = 0; i < NF4_BLOCK / 2; i++) assert_int_equal(codes[i], 0x77);
    assert_true(nf4_table[7] == 0);
}

static void test_the_table_of_scales_rises_and_is_denser_near_zero(void **state) {
    (void)state;
    float table[NESTED_TABLE];
    nested_table(table);
    for (int i = 1; i < NESTED_TABLE; i++) assert_true(table[i] > table[i - 1]);
    assert_true(table[NESTED_TABLE - 1] == 1.0f);
    assert_true(table[127] == 0.0f);
    assert_true(table[0] == -0x1.fc6666p-1f);
    assert_true(table[128] == 0x1.27476ep-21f);
    assert_true(table[254] == 0x1.fc6666p-1f);
}

/* bitsandbytes rounds to one of 65,536 steps first, so a code may be the second nearest by as much
 * as a step. */
static void test_scales_are_near_what_their_codes_stand_for(void **state) {
    (void)state;
    enum { SCALES = 700 };
    static const size_t counts[] = {1, 2, 255, 256, 257, SCALES};
    struct rng rng = {.seed = 4};
    float absmax[SCALES], table[NESTED_TABLE], outer[3];
    uint8_t codes[SCALES];
    nested_table(table);
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        double sum = 0;
        for (size_t i = 0; i < counts[c]; i++) {
            absmax[i] = (float)rng_unit(&rng) + 0.1f;
            sum += (double)absmax[i];
        }
        float mean = nested_encode(absmax, counts[c], codes, outer);
        assert_true(mean == (float)(sum / (double)counts[c]));
        for (size_t i = 0; i < counts[c]; i++) {
            double left = (double)(absmax[i] - mean), most = (double)outer[i / NESTED_BLOCK];
            if (most == 0) continue; /* one scale is its own mean */
            uint32_t best = nearest(table, NESTED_TABLE, left / most);
            double far = fabs((double)table[codes[i]] - left / most);
            assert_true(far <= fabs((double)table[best] - left / most) + 1.0 / 65535);
        }
    }
}

static void test_nf4_in_bands_is_nf4_at_once(void **state) {
    (void)state;
    const struct pack_format format = {.method = PACK_NF4, .plain = DTYPE_BF16};
    struct packed_matrix a, b;
    struct err err = {0};
    struct rng rng = {.seed = 5};
    float *w = mem_alloc_array(ROWS * COLS, sizeof(w[0]));
    for (size_t i = 0; i < ROWS * COLS; i++) w[i] = (float)(rng_unit(&rng) - 0.5);
    assert_int_equal(packed_init(&a, &format, ROWS, COLS, &err), ST_OK);
    assert_int_equal(packed_init(&b, &format, ROWS, COLS, &err), ST_OK);
    packed_put_floats(&a, w, 0, ROWS);
    for (uint32_t row = 0; row < ROWS; row += PACK_BAND_ROWS)
        packed_put_floats(&b, w + (size_t)row * COLS, row,
                          ROWS - row < PACK_BAND_ROWS ? ROWS - row : PACK_BAND_ROWS);
    packed_finish(&a);
    packed_finish(&b);
    const struct packed_part *last = &a.parts[a.part_count - 1];
    assert_memory_equal(a.data, b.data, last->at + last->bytes);
    /* It is the last part, and not a C string. */
    const char *text = (const char *)part(&a, ".weight.quant_state.bitsandbytes__nf4");
    const char said[] = "\"dtype\": \"bfloat16\", \"shape\": [136, 96]";
    assert_non_null(memmem(text, (size_t)((const char *)a.data + last->at + last->bytes - text),
                           said, sizeof(said) - 1));
    packed_deinit(&a);
    packed_deinit(&b);
    mem_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gptq_has_words_along_the_inputs),
        cmocka_unit_test(test_awq_has_words_along_the_outputs),
        cmocka_unit_test(test_which_shapes_fit),
        cmocka_unit_test(test_nf4_takes_the_nearest_number_of_its_table),
        cmocka_unit_test(test_a_block_of_zeros_is_zero),
        cmocka_unit_test(test_the_table_of_scales_rises_and_is_denser_near_zero),
        cmocka_unit_test(test_scales_are_near_what_their_codes_stand_for),
        cmocka_unit_test(test_nf4_in_bands_is_nf4_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
