/* Goal:   an int4 cache holds keys and values with the error that graph/kv_space.h allows.
 * Method: seeded random rows of several sizes and widths through every table, whose bits are the
 *         same; what the cache holds beside the rows, transformed. */
#include <math.h>

#include "kernels/cpu/kernels_ref.h"
#include "graph/key_smoothing.h"
#include "ops/int4_rig.h"
#include "ops/ops_rig.h"

/* The squared error of numbers in a group, over that of half a step at which all would have a
 * code; with the offset rounded, no number is more than one and a half such halves away. */
static double int4_group_error(const float *x, const float *got, uint32_t count, float unit) {
    float lo = x[0], hi = x[0];
    double error = 0;
    for (uint32_t i = 0; i < count; i++) {
        lo = fminf(lo, x[i]);
        hi = fmaxf(hi, x[i]);
        error += (double)(x[i] - got[i]) * (double)(x[i] - got[i]);
    }
    float steps = fmaxf(fmaxf((hi - lo) / 30, hi / 22), -lo / 23) / unit;
    assert_true(steps <= 16.001f);
    double half = (double)unit * fmax(1.0, ceil((double)steps - 1e-3));
    error /= half * half * count;
    assert_true(error <= 2.25);
    return error;
}

/* Returns the mean of the groups' errors. */
static double check_int4_row(const float *x, uint32_t dim, const uint8_t *tile, uint32_t token,
                             bool is_value) {
    float transformed[64], got[64];
    memcpy(transformed, x, dim * sizeof(float));
    ref_kv_hadamard(transformed, dim);
    read_int4(tile, dim, token, is_value, got);
    float unit = int4_unit(tile[kv_scales_offset(KV_I4, dim) + token]);
    double error = 0;
    for (uint32_t d = 0; d < dim; d += kv_group_dims(dim)) {
        uint32_t count = dim - d < kv_group_dims(dim) ? dim - d : kv_group_dims(dim);
        error += int4_group_error(transformed + d, got + d, count, unit) * count;
    }
    float back = 0, all = 0; /* the transform keeps lengths and is its own inverse */
    for (uint32_t d = 0; d < dim; d++) {
        back += transformed[d] * transformed[d];
        all += x[d] * x[d];
    }
    assert_true(fabsf(back - all) <= 1e-5f * all);
    ref_kv_hadamard(transformed, dim);
    for (uint32_t d = 0; d < dim; d++)
        assert_true(fabsf(transformed[d] - x[d]) <= 1e-6f * sqrtf(all));
    return error / dim;
}

static void test_an_int4_cache_holds_turned_numbers_within_their_steps(void **state) {
    (void)state;
    enum { HEADS = 2, ROWS = 21 };
    static const float spreads[] = {1e-4f, 1e-2f, 1.0f, 300.0f, 8000.0f};
    static const uint32_t dims[] = {40, 64, 20, 33, 48};
    for (int i = 0; i < 5; i++) {
        struct rig_steps steps;
        struct kv_tiles kv = {.type = KV_I4,
                              .layers = 1,
                              .heads = HEADS,
                              .head_dim = dims[i],
                              .tile_count = 2,
                              .tiles_per_block = 1};
        struct rig r = {.seed = 170,
                        .spread = spreads[i],
                        .value_count = 2,
                        .step = rig_one_seq(&steps, ROWS, 0),
                        .kv = &kv};
        kv.base = mem_alloc_aligned(64, rig_kv_bytes(&kv));
        memset(kv.base, 0xFF, rig_kv_bytes(&kv));
        r.values[0] = r.values[1] = (struct rig_value){ROWS_TOKENS, VALUE_F32, HEADS * dims[i], 0};
        r.op.kind = OP_KV_WRITE;
        r.op.kv_write = (struct op_kv_write){.k = rig_operand(&r, 0), .v = rig_operand(&r, 1)};
        struct rig_result got = rig_check(&r, "kv_write int4");
        struct kv_tiles left = kv;
        left.base = got.kv;
        double error = 0;
        for (uint32_t row = 0; row < ROWS; row++)
            for (uint32_t h = 0; h < HEADS; h++) {
                const uint8_t *k = kv_tile(&left, 0, row / KV_TILE_TOKENS, h);
                const uint8_t *v = k + kv_side_bytes(KV_I4, dims[i]);
                error += check_int4_row(rig_row(&got, 0, row) + h * dims[i], dims[i], k,
                                        row % KV_TILE_TOKENS, false);
                error += check_int4_row(rig_row(&got, 1, row) + h * dims[i], dims[i], v,
                                        row % KV_TILE_TOKENS, true);
            }
        assert_true(error / (2 * ROWS * HEADS) < 1.0 / 3);
        rig_free(&got);
        mem_free(kv.base);
    }
}

/* The squared error of products of a stored key of 64 numbers with queries whose second moments are
 * R * R^T: the squared length of R^T * error. */
static double product_error(const float *key, const double *r, const float *feedback) {
    enum { DIM = 64 };
    static uint8_t tile[KV_TILE_TOKENS * DIM];
    float x[DIM], room[DIM], got[DIM];
    double all = 0;
    memcpy(x, key, sizeof(x));
    ref_kv_store_int4(x, room, feedback, DIM, false, tile, 3);
    read_int4(tile, DIM, 3, false, got);
    for (uint32_t i = 0; i < DIM; i++) {
        double sum = 0;
        for (uint32_t d = i; d < DIM; d++) sum += r[d * DIM + i] * (double)(key[d] - got[d]);
        all += sum * sum;
    }
    return all;
}

static void test_feedback_makes_errors_of_products_smaller(void **state) {
    (void)state;
    enum { DIM = 64, KEYS = 50 };
    static double r[DIM * DIM];
    static float feedback[DIM * DIM];
    double with = 0, without = 0;
    assert_int_equal(kv_feedback_stride(DIM), DIM);
    for (uint32_t d = 0; d < DIM; d++) {
        for (uint32_t i = 0; i < d; i++) r[d * DIM + i] = 0.25 * (2 * rng_unit_at(93, d, i) - 1);
        r[d * DIM + d] = 0.5 + rng_unit_at(93, d, d);
    }
    for (uint32_t d = 0; d < DIM; d++)
        for (uint32_t i = 0; i < d; i++)
            feedback[d * DIM + i] = (float)(r[d * DIM + i] / r[i * DIM + i]);
    for (uint32_t n = 0; n < KEYS; n++) {
        float key[DIM];
        for (uint32_t d = 0; d < DIM; d++) key[d] = (float)rng_unit_at(94, n, d) * 2 - 1;
        with += product_error(key, r, feedback);
        without += product_error(key, r, NULL);
    }
    assert_true(with < 0.8 * without);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_int4_cache_holds_turned_numbers_within_their_steps),
        cmocka_unit_test(test_feedback_makes_errors_of_products_smaller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
