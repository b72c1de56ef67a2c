/* Goal:   each way of stretching rope gives the frequencies that its paper defines, at the sizes
 *         of published models, where every branch of it is taken.
 * Method: the formulas written a second time with the C library's functions, as `transformers`
 *         words them; equal to a part in a million. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "model/rope.h"

enum { DIMS_MAX = 128 };

static const double TWO_PI = 6.283185307179586;

static void close_to(double got, double expected, uint32_t i) {
    if (!(fabs(got - expected) <= 1e-6 * fabs(expected)))
        fail_msg("frequency %u is %.9g, expected %.9g", i, got, expected);
}

static double plain(const struct rope_params *r, uint32_t i) {
    return pow(r->theta, -2.0 * i / r->rot_dims);
}

/* Llama 3.1: 8192 to 131072. */
static double llama3(const struct rope_params *r, uint32_t i) {
    double freq = plain(r, i), wave = TWO_PI / freq, ctx = r->original_ctx;
    if (wave < ctx / r->high_freq_factor) return freq;
    if (wave > ctx / r->low_freq_factor) return freq / r->factor;
    double s = (ctx / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1 - s) / r->factor * freq + s * freq;
}

/* Where the two ramps of YaRN begin and end, by dimension. */
static double correction(const struct rope_params *r, double turns) {
    return r->rot_dims * log(r->original_ctx / (turns * TWO_PI)) / (2 * log(r->theta));
}

static double yarn(const struct rope_params *r, uint32_t i) {
    double low = fmax(floor(correction(r, r->beta_fast)), 0);
    double high = fmin(ceil(correction(r, r->beta_slow)), r->rot_dims - 1);
    double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
    return plain(r, i) / r->factor * ramp + plain(r, i) * (1 - ramp);
}

static struct rope_params params(enum rope_scaling scaling, double theta, double factor,
                                 uint32_t original_ctx) {
    return (struct rope_params){.scaling = scaling,
                                .rot_dims = DIMS_MAX,
                                .theta = theta,
                                .factor = factor,
                                .low_freq_factor = 1,
                                .high_freq_factor = 4,
                                .beta_fast = 32,
                                .beta_slow = 1,
                                .original_ctx = original_ctx};
}

static void test_llama3_keeps_short_waves_and_stretches_long_ones(void **state) {
    (void)state;
    struct rope_params r = params(SCALING_LLAMA3, 500000, 8, 8192);
    float freqs[DIMS_MAX / 2], factor;
    rope_freqs(&r, NULL, 131072, freqs, &factor);
    for (uint32_t i = 0; i < DIMS_MAX / 2; i++) close_to((double)freqs[i], llama3(&r, i), i);
    assert_true(factor == 1);
    close_to((double)freqs[1], plain(&r, 1), 1);
    close_to((double)freqs[63], plain(&r, 63) / 8, 63);
}

static void test_yarn_ramps_between_two_dimensions(void **state) {
    (void)state;
    struct rope_params r = params(SCALING_YARN, 1000000, 4, 32768); /* as Qwen 2.5 has it */
    float freqs[DIMS_MAX / 2], factor;
    assert_true(floor(correction(&r, r.beta_fast)) > 0);
    rope_freqs(&r, NULL, 131072, freqs, &factor);
    for (uint32_t i = 0; i < DIMS_MAX / 2; i++) close_to((double)freqs[i], yarn(&r, i), i);
    close_to((double)factor, 0.1 * log(4) + 1, 0);
    r.attn_factor = 1.5;
    rope_freqs(&r, NULL, 131072, freqs, &factor);
    assert_true(factor == 1.5f);
}

static void test_linear_and_dynamic_by_their_formulas(void **state) {
    (void)state;
    struct rope_params r = params(SCALING_LINEAR, 10000, 4, 4096);
    float freqs[DIMS_MAX / 2], factor;
    rope_freqs(&r, NULL, 16384, freqs, &factor);
    for (uint32_t i = 0; i < DIMS_MAX / 2; i++) close_to((double)freqs[i], plain(&r, i) / 4, i);
    r.scaling = SCALING_DYNAMIC;
    rope_freqs(&r, NULL, 4096, freqs, &factor); /* no longer than it was made for */
    for (uint32_t i = 0; i < DIMS_MAX / 2; i++) close_to((double)freqs[i], plain(&r, i), i);
    rope_freqs(&r, NULL, 16384, freqs, &factor);
    struct rope_params grown = r;
    grown.theta *= pow(4.0 * 16384 / 4096 - 3, DIMS_MAX / (DIMS_MAX - 2.0));
    for (uint32_t i = 0; i < DIMS_MAX / 2; i++) close_to((double)freqs[i], plain(&grown, i), i);
}

static void test_longrope_divides_by_the_list_and_scales_by_a_logarithm(void **state) {
    (void)state;
    struct rope_params r = params(SCALING_LONGROPE, 10000, 32, 4096); /* Phi-3 mini, 128k */
    float freqs[DIMS_MAX / 2], divisors[DIMS_MAX / 2], factor;
    for (uint32_t i = 0; i < DIMS_MAX / 2; i++) divisors[i] = 1.0f + (float)i / 4;
    rope_freqs(&r, divisors, 131072, freqs, &factor);
    for (uint32_t i = 0; i < DIMS_MAX / 2; i++)
        close_to((double)freqs[i], plain(&r, i) / (1 + i / 4.0), i);
    close_to((double)factor, sqrt(1 + log(32) / log(4096)), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama3_keeps_short_waves_and_stretches_long_ones),
        cmocka_unit_test(test_yarn_ramps_between_two_dimensions),
        cmocka_unit_test(test_linear_and_dynamic_by_their_formulas),
        cmocka_unit_test(test_longrope_divides_by_the_list_and_scales_by_a_logarithm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
