/* format/quant_fp8.c - folders whose matrices are e4m3 (tensor/fp8.h) with float scales.
 *
 *     NAME.weight            F8_E4M3 [N][K]
 *     NAME.weight_scale      float: the matrix is code * scale
 *     NAME.weight_scale_inv  the same by another name: nothing is inverted
 *
 *     quant_method             config                               scales
 *     fp8                      weight_block_size [rows, columns]    .weight_scale_inv, one for each
 *                              (DeepSeek, Qwen, transformers)       block, smaller at the ends
 *     fp8                      weight_block_size null or absent     one number, by either name
 *     fbgemm_fp8                                                    .weight_scale [N][1] or [N]
 *     modelopt                 quant_algo FP8                       .weight_scale, one number
 *                              FP8_PER_CHANNEL_PER_TOKEN            .weight_scale [N] or [N][1]
 *     compressed-tensors: quant_ct.c
 *
 * Matrices that the config leaves out are there in 16 bits under the same names. Scales of
 * activations and of the KV cache are not used: jitney rounds both in its own way.
 */
#include <stdio.h>
#include <string.h>

#include "format/quant.h"

/* Every matrix of e4m3; `name`: the method. */
static enum status add_all(struct quant *q, const char *name, const struct f8_layout *layout) {
    bool any = false;
    for (size_t i = 0; i < q->f->raw_count; i++) {
        const struct raw_tensor *codes = &q->f->raws[i];
        struct f8_layout own = *layout;
        struct str stem;
        if (!is_e4m3(codes) || !quant_stem(codes->name, ".weight", &stem)) continue;
        if (layout->other_suffix && !quant_part(q, stem, layout->suffix) &&
            quant_part(q, stem, layout->other_suffix))
            own.suffix = layout->other_suffix;
        TRY(f8_rows_add(q, stem, &own, codes));
        any = true;
    }
    if (any || q->f->tensor_count == 0) return ST_OK;
    return quant_say(q,
                     "quantization_config says %s, but no tensor is NAME.weight of F8_E4M3. Remove "
                     "it from config.json if the weights are not quantised",
                     name);
}

enum status quant_fp8(struct quant *q) {
    struct f8_layout layout = {
        .suffix = ".weight_scale", .other_suffix = ".weight_scale_inv", .scope = F8_MATRIX};
    const struct json *size = json_get(q->config, "weight_block_size");
    struct str fmt = json_str(json_get(q->config, "fmt"));
    if (fmt.len > 0 && !str_is(fmt, "e4m3"))
        return quant_say(q, "quantization_config: fmt is \"%.*s\", expected e4m3",
                         STR_ARG(str_take(fmt, 40)));
    if (json_kind(size) == JS_NULL || !size) return add_all(q, "fp8", &layout);
    layout = (struct f8_layout){.suffix = ".weight_scale_inv"};
    TRY(f8_read_block(q, "weight_block_size", size, &layout));
    return add_all(q, "fp8", &layout);
}

enum status quant_fbgemm(struct quant *q) {
    const struct f8_layout layout = {.suffix = ".weight_scale", .scope = F8_ROW};
    return add_all(q, "fbgemm_fp8", &layout);
}

/* In hf_quant_config.json the keys are those of "quantization". */
enum status quant_modelopt(struct quant *q) {
    struct f8_layout layout = {.suffix = ".weight_scale", .scope = F8_MATRIX};
    const struct json *nested = json_get(q->config, "quantization");
    struct str algo =
        json_str(json_get(json_kind(nested) == JS_MAP ? nested : q->config, "quant_algo"));
    if (str_is(algo, "FP8_PER_CHANNEL_PER_TOKEN"))
        layout.scope = F8_ROW;
    else if (!str_is(algo, "FP8"))
        return quant_say(q,
                         "quantization_config: quant_algo is \"%.*s\", expected FP8 or "
                         "FP8_PER_CHANNEL_PER_TOKEN",
                         STR_ARG(str_take(algo, 40)));
    return add_all(q, "modelopt", &layout);
}
