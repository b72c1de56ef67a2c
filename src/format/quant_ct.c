/* format/quant_ct.c - folders that compressed-tensors wrote, with llm-compressor for one.
 *
 * "pack-quantized" (W4A16, W8A16): a word holds 32 / bits codes, the first in its low bits, each
 * the number plus 2^(bits - 1):
 *     NAME.weight_packed      I32 [N][K / codes of a word]
 *     NAME.weight_shape       I64 [2]: N, K
 *     NAME.weight_scale       float [N][groups]
 *     NAME.weight_zero_point  I32 [N / codes of a word, rounded up][groups], words along the
 *                             outputs; only if not symmetric
 *     NAME.weight_g_idx       I32 [K], the group of each input; absent or -1: inputs are in order
 *
 * "int-quantized" (W8A8), symmetric:
 *     NAME.weight             I8 [N][K]
 *     NAME.weight_scale       float [N][1], [N][groups] or one number
 *
 * "float-quantized" (FP8), symmetric, with a scale for the matrix, each row or each block:
 *     NAME.weight             F8_E4M3 [N][K]
 *     NAME.weight_scale       float: one number, [N][1], or for a block_structure of [n, k]
 *                             [N / n, rounded up][K / k, rounded up]
 *
 * What the config says of activations is not used: jitney rounds them in its own way (tensor/q8.h).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "format/quant.h"

enum { BLOCK = 32, WORD_BITS = 32, SIZE_MAX_LOG = 24, WHY_BYTES = 160 };

struct settings {
    uint32_t bits;
    bool symmetric;
    int64_t group; /* -1: one for all inputs */
    bool is_float;
    struct f8_layout floats; /* is_float */
};

static bool same_settings(const struct settings *a, const struct settings *b) {
    const struct f8_layout *x = &a->floats, *y = &b->floats;
    return a->bits == b->bits && a->symmetric == b->symmetric && a->group == b->group &&
           a->is_float == b->is_float && x->scope == y->scope && x->block_rows == y->block_rows &&
           x->block_cols == y->block_cols;
}

/* Weights of type float. */
static enum status read_floats(const struct quant *q, struct str name, const struct json *weights,
                               struct settings *s) {
    struct str strategy = json_str(json_get(weights, "strategy"));
    s->is_float = true;
    s->group = -1;
    s->floats = (struct f8_layout){.suffix = ".weight_scale", .scope = F8_MATRIX};
    if (s->bits != 8)
        return quant_say(
            q, "quantization_config: weights of %.*s are \"float\" of %u bits, expected 8",
            STR_ARG(str_take(name, 40)), s->bits);
    if (!s->symmetric)
        return quant_say(q, "quantization_config: symmetric is false, expected true for weights of "
                            "type float");
    if (str_is(strategy, "tensor")) return ST_OK;
    s->floats.scope = F8_ROW;
    if (str_is(strategy, "channel")) return ST_OK;
    if (str_is(strategy, "block"))
        return f8_read_block(q, "block_structure", json_get(weights, "block_structure"),
                             &s->floats);
    return quant_say(q,
                     "quantization_config: weights of %.*s are \"float\" with strategy \"%.*s\", "
                     "expected tensor, channel or block",
                     STR_ARG(str_take(name, 40)), STR_ARG(str_take(strategy, 20)));
}

/* The weights of one of the config's groups. */
static enum status read_group(const struct quant *q, struct str name, const struct json *weights,
                              struct settings *s) {
    int64_t bits = json_int(json_get(weights, "num_bits"), 0);
    struct str type = json_str(json_get(weights, "type"));
    struct str strategy = json_str(json_get(weights, "strategy"));
    s->symmetric = json_bool(json_get(weights, "symmetric"), true);
    s->group = -1;
    s->bits = (uint32_t)bits;
    s->is_float = false;
    s->floats = (struct f8_layout){0};
    if (str_is(type, "float")) return read_floats(q, name, weights, s);
    if ((bits != 4 && bits != 8) || (type.len > 0 && !str_is(type, "int")))
        return quant_say(q,
                         "quantization_config: weights of %.*s are \"%.*s\" of %" PRId64
                         " bits, expected \"int\" of 4 or 8, or \"float\" of 8",
                         STR_ARG(str_take(name, 40)), STR_ARG(str_take(type, 20)), bits);
    if (str_is(strategy, "channel") || str_is(strategy, "tensor")) return ST_OK;
    s->group = json_int(json_get(weights, "group_size"), 0);
    if (s->group > 0 && s->group % BLOCK == 0 && s->group <= 1 << SIZE_MAX_LOG) return ST_OK;
    return quant_say(q,
                     "quantization_config: weights of %.*s have strategy \"%.*s\" and group_size "
                     "%" PRId64 ", expected channel, tensor, or groups of a multiple of %d",
                     STR_ARG(str_take(name, 40)), STR_ARG(str_take(strategy, 20)), s->group, BLOCK);
}

static enum status read_settings(const struct quant *q, struct settings *s) {
    struct json_iter it = json_iter_first(json_get(q->config, "config_groups"));
    bool first = true;
    for (; json_iter_ok(&it); json_iter_next(&it), first = false) {
        struct settings one;
        TRY(read_group(q, it.key, json_get(it.value, "weights"), &one));
        if (!first && !same_settings(&one, s))
            return quant_say(q,
                             "quantization_config: the weights of %.*s differ from those of the "
                             "group before it, expected the same for all matrices",
                             STR_ARG(str_take(it.key, 40)));
        *s = one;
    }
    return first ? quant_say(q, "quantization_config: config_groups is missing or empty, expected "
                                "at least one group with weights")
                 : ST_OK;
}

/* ---- packed ---- */

static uint64_t number_at(const struct raw_tensor *t, uint32_t i) {
    uint64_t value = 0;
    for (int b = 0; b < 8; b++) value |= (uint64_t)t->data[8 * i + (uint32_t)b] << (8 * b);
    return value;
}

/* The words and the shape that is written beside them. */
static enum status read_sizes(const struct quant *q, const struct settings *s, struct str stem,
                              const struct raw_tensor *codes, struct int_rows *r) {
    const struct raw_tensor *shape = quant_raw(q, stem, ".weight_shape");
    if (!shape) return quant_say_missing(q, stem, ".weight_shape", ".weight_packed");
    TRY(quant_check_raw(q, shape, "I64", 2, 0, "for rows and columns"));
    uint64_t rows = number_at(shape, 0), cols = number_at(shape, 1);
    if (rows == 0 || rows > 1u << SIZE_MAX_LOG || cols == 0 || cols > 1u << SIZE_MAX_LOG ||
        cols % BLOCK != 0)
        return quant_say(q,
                         "tensor %.*s holds (%" PRIu64 ", %" PRIu64 "), expected at most %u rows "
                         "and a multiple of %d columns",
                         STR_ARG(shape->name), rows, cols, 1u << SIZE_MAX_LOG, BLOCK);
    r->bits = s->bits;
    r->rows = (uint32_t)rows;
    r->cols = (uint32_t)cols;
    return quant_check_raw(q, codes, "I32", rows, cols * s->bits / WORD_BITS,
                           "as its weight_shape and num_bits say. Correct quantization_config, or "
                           "fetch the folder again");
}

static enum status take_parts(const struct quant *q, const struct settings *s, struct str stem,
                              struct int_rows *r) {
    char why[WHY_BYTES];
    const struct tensor_info *scales = quant_part(q, stem, ".weight_scale");
    const struct raw_tensor *zeros = quant_raw(q, stem, ".weight_zero_point");
    if (!scales) return quant_say_missing(q, stem, ".weight_scale", ".weight_packed");
    if (!s->symmetric && !zeros)
        return quant_say_missing(q, stem, ".weight_zero_point", ".weight_packed");
    snprintf(why, sizeof(why),
             "for %u inputs and %u outputs at group_size %" PRId64
             ". Correct quantization_config, or fetch the folder again",
             r->cols, r->rows, s->group);
    TRY(quant_check_part(q, scales, r->rows, r->groups, why));
    r->scales = scales->data;
    r->scale_type = scales->type;
    r->zero = 1u << (s->bits - 1);
    r->base.parts[1] = (struct row_part){scales->data, scales->bytes};
    if (s->symmetric) return ST_OK;
    uint32_t per_word = WORD_BITS / s->bits;
    TRY(quant_check_raw(q, zeros, "I32", (r->rows + per_word - 1) / per_word, r->groups, why));
    r->zeros = zeros->data;
    r->base.parts[2] = (struct row_part){zeros->data, zeros->bytes};
    return ST_OK;
}

static enum status take_order(const struct quant *q, struct str stem, const struct int_rows *r,
                              const struct raw_tensor **g_idx) {
    static const uint8_t none[4] = {0xFF, 0xFF, 0xFF, 0xFF};
    *g_idx = quant_raw(q, stem, ".weight_g_idx");
    if (!*g_idx) return ST_OK;
    TRY(quant_check_raw(q, *g_idx, "I32", r->cols, 0, "for the inputs of its weight_packed"));
    if (memcmp((*g_idx)->data, none, sizeof(none)) == 0) *g_idx = NULL;
    return ST_OK;
}

static enum status add_packed(struct quant *q, const struct settings *s, struct str stem,
                              const struct raw_tensor *codes) {
    const struct raw_tensor *g_idx;
    struct int_rows *r = arena_zalloc_array(q->f->arena, 1, sizeof(*r));
    if (!r) return quant_no_memory(q);
    TRY(read_sizes(q, s, stem, codes, r));
    r->layout = INT_ALONG;
    r->codes = codes->data;
    r->group_cols = s->group == -1 ? r->cols : (uint32_t)s->group;
    r->groups = (r->cols + r->group_cols - 1) / r->group_cols;
    r->base.parts[0] = (struct row_part){codes->data, codes->bytes};
    TRY(take_parts(q, s, stem, r));
    TRY(take_order(q, stem, r, &g_idx));
    return int_rows_add(q, stem, r, g_idx);
}

/* ---- bytes ---- */

static enum status add_bytes(struct quant *q, const struct settings *s, struct str stem,
                             const struct raw_tensor *codes) {
    const struct tensor_info *scales = quant_part(q, stem, ".weight_scale");
    if (!scales) return quant_say_missing(q, stem, ".weight_scale", ".weight");
    if (!s->symmetric)
        return quant_say(q, "quantization_config: symmetric is false, expected true for "
                            "int-quantized weights. Use a symmetric folder");
    struct byte_rows *r = arena_zalloc_array(q->f->arena, 1, sizeof(*r));
    if (!r) return quant_no_memory(q);
    uint64_t count = 1;
    for (uint32_t i = 0; i < scales->dim_count; i++) count *= scales->dims[i];
    r->scales = scales->data;
    r->scale_type = scales->type;
    r->scale_count = count;
    r->unit = 1.0f;
    r->group_cols = s->group == -1 ? 0 : (uint32_t)s->group;
    r->base.parts[1] = (struct row_part){scales->data, scales->bytes};
    return byte_rows_add(q, stem, r, codes, scales->name);
}

enum status quant_ct(struct quant *q) {
    struct settings s = {0};
    bool any = false;
    TRY(read_settings(q, &s));
    for (size_t i = 0; i < q->f->raw_count; i++) {
        const struct raw_tensor *codes = &q->f->raws[i];
        struct str stem;
        bool is_bytes = quant_stem(codes->name, ".weight", &stem);
        if (s.is_float && is_bytes && is_e4m3(codes))
            TRY(f8_rows_add(q, stem, &s.floats, codes));
        else if (!s.is_float && is_bytes && strcmp(codes->format, "I8") == 0)
            TRY(add_bytes(q, &s, stem, codes));
        else if (!s.is_float && quant_stem(codes->name, ".weight_packed", &stem))
            TRY(add_packed(q, &s, stem, codes));
        else
            continue;
        any = true;
    }
    if (any || q->f->tensor_count == 0) return ST_OK;
    return quant_say(q,
                     "quantization_config says compressed-tensors with %s, but no tensor is %s. "
                     "Remove it from config.json if the weights are not quantised",
                     s.is_float ? "weights of type float" : "integer weights",
                     s.is_float ? "NAME.weight of F8_E4M3"
                                : "NAME.weight_packed or NAME.weight of I8");
}
