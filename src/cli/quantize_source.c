/* cli/quantize_source.c - see cli/quantize_source.h for the contract. */
#include "cli/quantize_source.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/model_args.h"
#include "format/model_file.h"
#include "model/model.h"
#include "quant/folder.h"
#include "translate/translate.h"

/* ---- the folder ---- */

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

/* ---- the report ---- */

static enum status check_drawing(const char *path, struct err *err) {
    char dir[MODEL_PATH_BYTES] = ".";
    const char *slash = strrchr(path, '/');
    if (slash) snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path) + 1, path);
    if (file_exists(path) || access(dir, W_OK | X_OK) == 0) return ST_OK;
    return err_set(err, ST_CREATE, "%s: cannot create: %s", path, strerror(errno));
}

enum status quantize_source_check_report(const struct args *args, struct err *err) {
    const char *text = args_text(args, "file"), *svg = args_text(args, "svg");
    if (strcmp(text, "-") != 0 && access(text, R_OK) != 0)
        return err_set(err, errno == ENOENT ? ST_MISSING : ST_IO, "%s: cannot open: %s", text,
                       strerror(errno));
    if (file_is_dir(text)) return err_set(err, ST_BAD, "%s: is a folder, expected a text", text);
    return svg ? check_drawing(svg, err) : ST_OK;
}

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
