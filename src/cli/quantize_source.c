/* cli/quantize_source.c - see cli/quantize_source.h for the contract. */
#include "cli/quantize_source.h"

#include "cli/cli.h"
#include "format/model_file.h"
#include "kernels/devices.h"
#include "model/model.h"
#include "quant/folder.h"
#include "translate/translate.h"

/* ---- the model ---- */

/* "model.layers.": what the names of layers begin with. */
static struct str layer_prefix(const struct model *m) {
    for (int i = 0; i < MAT_COUNT; i++) {
        struct str name = m->layers[0].mat[i].name;
        if (!m->layers[0].mat[i].data) continue;
        for (size_t at = 0; at < name.len; at++)
            if (name.ptr[at] == '.' && str_starts(str_skip(name, at + 1), STR("0.")))
                return str_take(name, at + 1);
    }
    return STR("");
}

static enum status check_layers(const struct model *m, const struct model_file *f,
                                struct err *err) {
    struct str prefix = layer_prefix(m);
    for (size_t i = 0; i < tensor_count(f) && prefix.len > 0; i++) {
        struct str name = tensor_at(f, i)->name;
        int32_t layer = folder_layer_of(name);
        if (!str_starts(name, prefix) || layer < (int32_t)m->hp.layers) continue;
        return err_set(err, ST_BAD,
                       "%s: tensor %.*s is of layer %d (the first is 0), but num_hidden_layers of "
                       "config.json is %u",
                       model_file_path(f), STR_ARG(name), layer, m->hp.layers);
    }
    return ST_OK;
}

/* The model is needed to predict a text. */
static enum status check_runs(const struct args *args, const struct model *m, struct err *err) {
    const struct device_options options = {
        .name = args_text(args, "device"), .threads = 1, .isa = args_text(args, "isa")};
    struct device device;
    if (model_is_encoder(m))
        return err_set(err, ST_BAD,
                       "%s: is an encoder, which predicts no text, so it cannot be calibrated or "
                       "compared; leave out --calibrate, --report and --max-kl",
                       model_file_path(m->file));
    TRY(device_open(&options, &device, err));
    device.close(device.self);
    return ST_OK;
}

enum status quantize_source_check(const struct args *args, const struct model_file *f, bool runs,
                                  struct err *err) {
    const struct model_options options = {.ctx_tokens = 0};
    bool is_folder = model_file_kind(f) == MODEL_HF;
    struct model *m;
    if (tensor_count(f) == 0 || (!runs && !is_folder)) return ST_OK;
    if (model_file_problem(f) || tensor_find(f, "fc.weight")) return ST_OK;
    TRY(model_open(f, &options, &m, err));
    enum status st = is_folder ? check_layers(m, f, err) : ST_OK;
    if (st == ST_OK && runs) st = check_runs(args, m, err);
    model_close(m);
    return st;
}

/* ---- the other kind of file ---- */

enum status quantize_source_check_view(const struct args *args, const struct model_file *view,
                                       struct err *err) {
    for (size_t i = 0; i < tensor_count(view) && args_text(args, "svg"); i++)
        if (translate_moves_rows(tensor_at(view, i)))
            return err_set(err, ST_BAD,
                           "quantize: --svg: a GGUF file and a folder of this model have the rows "
                           "of query and key matrices in different orders, so layers cannot be "
                           "exchanged between the two; leave --svg out, or write the folder as a "
                           "GGUF file with --type F16 first and quantise that");
    return ST_OK;
}
