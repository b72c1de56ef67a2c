/* format/quant_gptq.c - folders that GPTQ and AWQ tools wrote.
 *
 * GPTQ, of 4 or 8 bits; a word holds 32 / bits codes, the first in its low bits:
 *     NAME.qweight  I32 [K / codes of a word][N], words along the inputs
 *     NAME.qzeros   I32 [groups][N / codes of a word], words along the outputs: the zero point less
 *                   one (checkpoint_format "gptq", also without one), or the zero point ("gptq_v2")
 *     NAME.scales   float [groups][N]
 *     NAME.g_idx    I32 [K], the group of each input; absent: inputs are in order
 *
 * AWQ ("gemm"), of 4 bits:
 *     NAME.qweight  I32 [K][N / 8], words along the outputs; the codes of outputs 0 2 4 6 1 3 5 7
 *     NAME.qzeros   I32 [groups][N / 8], likewise
 *     NAME.scales   float [groups][N]
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "format/quant.h"

enum { BLOCK = 32, WORD_BITS = 32, SIZE_MAX_LOG = 24, WHY_BYTES = 160 };

/* What the config says of all matrices. */
struct settings {
    uint32_t bits;
    int64_t group; /* -1: one for all inputs */
    uint32_t zero_add;
    bool has_order, is_awq;
};

/* The value of the first of two keys that is there. */
static enum status read_number(const struct quant *q, const char *key, const char *older,
                               int64_t *out) {
    if (quant_int(q, key, out) || quant_int(q, older, out)) return ST_OK;
    return quant_say(q, "quantization_config: %s is missing, expected a whole number", key);
}

static enum status read_settings(const struct quant *q, struct settings *s) {
    int64_t bits;
    TRY(read_number(q, "bits", "w_bit", &bits));
    TRY(read_number(q, "group_size", "q_group_size", &s->group));
    if (bits != 4 && (bits != 8 || s->is_awq))
        return quant_say(q, "quantization_config: bits is %" PRId64 ", expected %s", bits,
                         s->is_awq ? "4" : "4 or 8");
    if (s->group != -1 && (s->group <= 0 || s->group % BLOCK != 0 || s->group > 1 << SIZE_MAX_LOG))
        return quant_say(q,
                         "quantization_config: group_size is %" PRId64 ", expected -1 or a "
                         "multiple of %d",
                         s->group, BLOCK);
    s->bits = (uint32_t)bits;
    return ST_OK;
}

/* The number of inputs and outputs of a matrix, from its codes and scales. */
static enum status read_sizes(const struct quant *q, const struct settings *s,
                              const struct raw_tensor *codes, struct int_rows *r) {
    uint64_t per_word = WORD_BITS / s->bits;
    if (strcmp(codes->format, "I32") != 0 || codes->dim_count != 2)
        return quant_say(q, "tensor %.*s is %s in %u dims, expected I32 in 2", STR_ARG(codes->name),
                         codes->format, codes->dim_count);
    for (int i = 0; i < 2; i++)
        if (codes->dims[i] == 0 || codes->dims[i] > 1u << SIZE_MAX_LOG)
            return quant_say(q, "tensor %.*s: dim %d is %" PRIu64 ", expected 1 to %u",
                             STR_ARG(codes->name), i, codes->dims[i], 1u << SIZE_MAX_LOG);
    r->bits = s->bits;
    r->cols = (uint32_t)(codes->dims[0] * (s->is_awq ? 1 : per_word));
    r->rows = (uint32_t)(codes->dims[1] * (s->is_awq ? per_word : 1));
    if (r->cols % BLOCK == 0 && r->rows % per_word == 0) return ST_OK;
    return quant_say(q,
                     "tensor %.*s: %u inputs and %u outputs, expected a multiple of %d inputs and "
                     "of %" PRIu64 " outputs",
                     STR_ARG(codes->name), r->cols, r->rows, BLOCK, per_word);
}

/* Scales and zero points must be there for the groups that codes and config make. */
static enum status take_parts(const struct quant *q, const struct settings *s, struct str stem,
                              struct int_rows *r) {
    char why[WHY_BYTES];
    const struct raw_tensor *zeros = quant_raw(q, stem, ".qzeros");
    const struct tensor_info *scales = quant_part(q, stem, ".scales");
    if (!zeros) return quant_say_missing(q, stem, ".qzeros", ".qweight");
    if (!scales) return quant_say_missing(q, stem, ".scales", ".qweight");
    snprintf(why, sizeof(why),
             "for %u inputs and %u outputs at bits %u and group_size %" PRId64
             ". Correct quantization_config, or fetch the folder again",
             r->cols, r->rows, s->bits, s->group);
    TRY(quant_check_part(q, scales, r->groups, r->rows, why));
    TRY(quant_check_raw(q, zeros, "I32", r->groups, r->rows * s->bits / WORD_BITS, why));
    r->scales = scales->data;
    r->scale_type = scales->type;
    r->zeros = zeros->data;
    r->base.parts[1] = (struct row_part){scales->data, scales->bytes};
    r->base.parts[2] = (struct row_part){zeros->data, zeros->bytes};
    return ST_OK;
}

static enum status take_order(const struct quant *q, const struct settings *s, struct str stem,
                              const struct int_rows *r, const struct raw_tensor **g_idx) {
    *g_idx = s->is_awq ? NULL : quant_raw(q, stem, ".g_idx");
    if (!*g_idx && s->has_order) return quant_say_missing(q, stem, ".g_idx", ".qweight");
    if (!*g_idx) return ST_OK;
    return quant_check_raw(q, *g_idx, "I32", r->cols, 0, "for the inputs of its qweight");
}

static enum status add_matrix(struct quant *q, const struct settings *s, struct str stem,
                              const struct raw_tensor *codes) {
    const struct raw_tensor *g_idx;
    struct int_rows *r = arena_zalloc_array(q->f->arena, 1, sizeof(*r));
    if (!r) return quant_no_memory(q);
    TRY(read_sizes(q, s, codes, r));
    r->layout = s->is_awq ? INT_AWQ : INT_DOWN;
    r->codes = codes->data;
    r->zero_add = s->zero_add;
    r->group_cols = s->group == -1 ? r->cols : (uint32_t)s->group;
    r->groups = (r->cols + r->group_cols - 1) / r->group_cols;
    r->base.parts[0] = (struct row_part){codes->data, codes->bytes};
    TRY(take_parts(q, s, stem, r));
    TRY(take_order(q, s, stem, r, &g_idx));
    return int_rows_add(q, stem, r, g_idx);
}

static enum status add_matrices(struct quant *q, const struct settings *s) {
    bool any = false;
    for (size_t i = 0; i < q->f->raw_count; i++) {
        const struct raw_tensor *codes = &q->f->raws[i];
        struct str stem;
        if (!quant_stem(codes->name, ".qweight", &stem)) continue;
        TRY(add_matrix(q, s, stem, codes));
        any = true;
    }
    if (any || q->f->tensor_count == 0) return ST_OK;
    return quant_say(q,
                     "quantization_config says %s, but no tensor's name ends in .qweight. Remove "
                     "it from config.json if the weights are not quantised",
                     s->is_awq ? "awq" : "gptq");
}

/* ---- what the configs may ask for that is not read ---- */

static enum status check_format(const struct quant *q, struct str format, uint32_t *zero_add) {
    *zero_add = str_is(format, "gptq_v2") ? 0 : 1;
    if (format.len == 0 || str_is(format, "gptq") || str_is(format, "gptq_v2")) return ST_OK;
    return quant_say(q,
                     "quantization_config: checkpoint_format is \"%.*s\", expected gptq or "
                     "gptq_v2. Use a folder in one of these",
                     STR_ARG(str_take(format, 40)));
}

enum status quant_gptq(struct quant *q) {
    struct settings s = {.has_order = json_bool(json_get(q->config, "desc_act"), false)};
    struct str format = json_str(json_get(q->config, "checkpoint_format"));
    if (format.len == 0) format = json_str(json_get(q->config, "format"));
    TRY(read_settings(q, &s));
    TRY(check_format(q, format, &s.zero_add));
    if (json_count(json_get(q->config, "dynamic")) > 0)
        return quant_say(q, "quantization_config: dynamic has rules for single matrices, which are "
                            "not read; expected one bits and group_size for all");
    return add_matrices(q, &s);
}

enum status quant_awq(struct quant *q) {
    struct settings s = {.is_awq = true};
    struct str version = json_str(json_get(q->config, "version"));
    TRY(read_settings(q, &s));
    if (version.len > 0 && !str_is(version, "gemm") && !str_is(version, "GEMM"))
        return quant_say(q,
                         "quantization_config: version is \"%.*s\", expected gemm. Use a folder in "
                         "that packing",
                         STR_ARG(str_take(version, 40)));
    return add_matrices(q, &s);
}
