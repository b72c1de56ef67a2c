/* model/rope.c - see model/rope.h for the contract.
 *
 * Plain: freq_i = theta^(-2i / dims). The scalings follow the papers as `transformers` has them:
 *   linear    every frequency divided by the factor
 *   dynamic   the base grows with the context, once it is longer than the original
 *   llama3    long waves divided by the factor, short ones kept, a ramp between
 *   yarn      the same by dimension index between two bounds; attention scaled by a logarithm
 *   longrope  a divisor per dimension from the file; attention scaled by a logarithm
 */
#include "model/rope.h"

#include <math.h>

#include "base/fmath.h"

static const double PI = 3.14159265358979323846;

/* `transformers` computes the base from the length of the current sequence; we use the longest
 * possible length, so that a token's numbers do not depend on later tokens. */
static double dynamic_theta(const struct rope_params *r, uint32_t ctx_tokens) {
    if (ctx_tokens <= r->original_ctx || r->rot_dims <= 2) return r->theta;
    double stretch = r->factor * ctx_tokens / r->original_ctx - (r->factor - 1);
    return r->theta * fm_pow_d(stretch, r->rot_dims / (r->rot_dims - 2.0));
}

static double llama3_freq(const struct rope_params *r, double freq) {
    double wave = 2 * PI / freq;
    double low_wave = r->original_ctx / r->low_freq_factor;
    double high_wave = r->original_ctx / r->high_freq_factor;
    if (wave < high_wave) return freq;
    if (wave > low_wave) return freq / r->factor;
    double smooth =
        (r->original_ctx / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * freq / r->factor + smooth * freq;
}

/* The dimension whose wave turns `turns` times within the original context. */
static double yarn_dim(const struct rope_params *r, double turns) {
    double waves = r->original_ctx / (turns * 2 * PI);
    return r->rot_dims * fm_log_d(waves) / (2 * fm_log_d(r->theta));
}

static double yarn_freq(const struct rope_params *r, uint32_t i, double freq) {
    double low = floor(yarn_dim(r, r->beta_fast));
    double high = ceil(yarn_dim(r, r->beta_slow));
    if (low < 0) low = 0;
    if (high > r->rot_dims - 1) high = r->rot_dims - 1;
    if (high == low) high += 0.001;
    double ramp = (i - low) / (high - low);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return freq / r->factor * ramp + freq * (1 - ramp);
}

static double attention_factor(const struct rope_params *r) {
    if (r->attn_factor > 0) return r->attn_factor;
    if (r->factor <= 1) return 1;
    if (r->scaling == SCALING_YARN) return 0.1 * fm_log_d(r->factor) + 1;
    if (r->scaling != SCALING_LONGROPE) return 1;
    return sqrt(1 + fm_log_d(r->factor) / fm_log_d(r->original_ctx));
}

void rope_freqs(const struct rope_params *r, const float *divisors, uint32_t ctx_tokens,
                float *freqs, float *factor) {
    double theta = r->scaling == SCALING_DYNAMIC ? dynamic_theta(r, ctx_tokens) : r->theta;
    for (uint32_t i = 0; i < r->rot_dims / 2; i++) {
        double freq = 1 / fm_pow_d(theta, 2.0 * i / r->rot_dims);
        if (r->scaling == SCALING_LINEAR) freq /= r->factor;
        if (r->scaling == SCALING_LLAMA3) freq = llama3_freq(r, freq);
        if (r->scaling == SCALING_YARN) freq = yarn_freq(r, i, freq);
        if (divisors) freq /= (double)divisors[i];
        freqs[i] = (float)freq;
    }
    *factor = (float)attention_factor(r);
}

void rope_divisors(const struct rope_params *r, float *divisors) {
    for (uint32_t i = 0; i < r->rot_dims / 2; i++) {
        double freq = 1 / fm_pow_d(r->theta, 2.0 * i / r->rot_dims);
        divisors[i] = (float)(freq / llama3_freq(r, freq));
    }
}
