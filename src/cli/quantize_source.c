/* cli/quantize_source.c - see cli/quantize_source.h for the contract. */
#include "cli/quantize_source.h"

#include "format/model_file.h"
#include "model/model.h"
#include "quant/folder.h"

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

enum status quantize_source_check(const struct model_file *f, struct err *err) {
    const struct model_options options = {.ctx_tokens = 0};
    struct model *m;
    if (model_file_kind(f) != MODEL_HF || tensor_count(f) == 0) return ST_OK;
    if (model_file_problem(f) || tensor_find(f, "fc.weight")) return ST_OK;
    TRY(model_open(f, &options, &m, err));
    enum status st = check_layers(m, f, err);
    model_close(m);
    return st;
}
