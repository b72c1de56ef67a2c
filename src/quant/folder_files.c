/* quant/folder_files.c - see quant/folder_files.h for the contract. */
#include "quant/folder_files.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/file.h"
#include "base/folder_out.h"
#include "base/json.h"
#include "format/limits.h"
#include "format/model_file.h"
#include "format/view.h"
#include "quant/folder.h"

enum { CONFIG_BYTES_MAX = 16 << 20, PATH_BYTES = 4096 };

static const char pooling_name[] = FOLDER_OUT_INNER "/config.json";

static enum status write_file(struct folder_out *out, const char *name, struct str text,
                              struct err *err) {
    char path[FILE_OUT_PATH_BYTES];
    struct file_out file = {.fd = -1};
    TRY(folder_out_path(out, name, path, err));
    enum status st = file_out_open(path, false, &file, err);
    if (st == ST_OK) st = file_out_write(&file, text.ptr, text.len, err);
    if (st == ST_OK) st = file_out_publish(&file, err);
    file_out_close(&file);
    return st;
}

/* ---- config.json ---- */

/* Modules that have a matrix and are not packed; `what` is in front of the list. */
static void put_kept_modules(const struct folder_writer *w, const char *what, struct buf *out) {
    buf_put_text(out, what);
    buf_put_text(out, "[\"lm_head\"");
    for (size_t i = 0; i < folder_writer_count(w); i++) {
        const struct folder_tensor *t = folder_writer_at(w, i);
        struct str name = t->from->name;
        if (t->is_packed || t->layer < 0 || t->from->dim_count != 2 ||
            !str_ends(name, STR(".weight")))
            continue;
        buf_put_char(out, ',');
        buf_put_json_string(out, str_take(name, name.len - strlen(".weight")));
    }
    buf_put_char(out, ']');
}

static void put_gptq(const struct folder_writer *w, struct buf *out) {
    const struct int_format *ints = &folder_writer_format(w)->ints;
    buf_printf(out,
               "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":%u,\"desc_act\":%s,"
               "\"sym\":%s,\"true_sequential\":true,\"lm_head\":false,"
               "\"checkpoint_format\":\"gptq\",\"pack_dtype\":\"int32\"}",
               ints->group_cols, ints->has_order ? "true" : "false",
               ints->is_symmetric ? "true" : "false");
}

static void put_awq(const struct folder_writer *w, struct buf *out) {
    buf_printf(out,
               "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":%u,\"zero_point\":true,"
               "\"version\":\"gemm\"",
               folder_writer_format(w)->ints.group_cols);
    put_kept_modules(w, ",\"modules_to_not_convert\":", out);
    buf_put_char(out, '}');
}

static void put_int8(const struct folder_writer *w, struct buf *out) {
    buf_put_text(out, "{\"quant_method\":\"compressed-tensors\",\"format\":\"int-quantized\","
                      "\"quantization_status\":\"compressed\",\"config_groups\":{\"group_0\":{"
                      "\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":8,\"type\":\"int\","
                      "\"symmetric\":true,\"strategy\":\"channel\",\"dynamic\":false},"
                      "\"input_activations\":{\"num_bits\":8,\"type\":\"int\",\"symmetric\":true,"
                      "\"strategy\":\"token\",\"dynamic\":true}}}");
    put_kept_modules(w, ",\"ignore\":", out);
    buf_put_char(out, '}');
}

static void put_nf4(const struct folder_writer *w, struct buf *out) {
    buf_printf(out,
               "{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true,\"load_in_8bit\":false,"
               "\"bnb_4bit_quant_type\":\"nf4\",\"bnb_4bit_use_double_quant\":true,"
               "\"bnb_4bit_compute_dtype\":\"%s\",\"bnb_4bit_quant_storage\":\"uint8\"",
               folder_writer_format(w)->plain == DTYPE_BF16 ? "bfloat16" : "float16");
    put_kept_modules(w, ",\"llm_int8_skip_modules\":", out);
    buf_put_char(out, '}');
}

static enum status make_quantisation(const struct folder_writer *w, struct json **out,
                                     struct err *err) {
    struct buf text;
    buf_init(&text, CONFIG_BYTES_MAX);
    switch (folder_writer_format(w)->method) {
    case PACK_GPTQ:
        put_gptq(w, &text);
        break;
    case PACK_AWQ:
        put_awq(w, &text);
        break;
    case PACK_INT8:
        put_int8(w, &text);
        break;
    case PACK_NF4:
        put_nf4(w, &text);
        break;
    }
    enum status st = buf_status(&text);
    if (st != ST_OK) err_set(err, st, "out of memory for config.json");
    if (st == ST_OK) st = json_parse(buf_str(&text), &json_limits_model_file, out, err);
    buf_deinit(&text);
    return st;
}

/* The source's config with the numbers of the new folder. */
static enum status change_config(const struct folder_writer *w, struct json *config,
                                 struct err *err) {
    struct json *quantisation;
    enum dtype plain = folder_writer_format(w)->plain;
    const char *key = json_get(config, "dtype") ? "dtype" : "torch_dtype";
    TRY(make_quantisation(w, &quantisation, err));
    struct json *type = json_text_create(str_of(plain == DTYPE_BF16 ? "bfloat16" : "float16"));
    enum status st = json_set(config, STR("quantization_config"), quantisation);
    if (st == ST_OK)
        st = json_set(config, str_of(key), type);
    else
        json_destroy(type);
    return st == ST_OK ? st : err_set(err, st, "out of memory for config.json");
}

static enum status write_config(struct model_file *f, const struct folder_writer *w,
                                struct folder_out *out, struct err *err) {
    bool found;
    struct str text;
    struct json *config;
    struct buf changed;
    TRY(model_file_text(f, "config.json", &found, &text, err));
    if (!found) return err_set(err, ST_BAD, "%s: has no config.json", model_file_path(f));
    TRY(json_parse(text, &json_limits_model_file, &config, err));
    buf_init(&changed, CONFIG_BYTES_MAX);
    enum status st = change_config(w, config, err);
    if (st == ST_OK) {
        json_put(config, &changed);
        buf_put_char(&changed, '\n');
        st = buf_status(&changed);
        if (st != ST_OK) err_set(err, st, "out of memory for config.json");
    }
    if (st == ST_OK) st = write_file(out, "config.json", buf_str(&changed), err);
    buf_deinit(&changed);
    json_destroy(config);
    return st;
}

/* ---- the others ---- */

static bool is_copied(struct str name) {
    static const char *const kinds[] = {".json", ".jinja", ".txt", ".model", ".md"};
    static const char *const others[] = {"config.json", "quantize_config.json", "quant_config.json",
                                         "model.safetensors.index.json", "jitney.json"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (str_is(name, others[i])) return false;
    if (name.len == 0 || name.ptr[0] == '.' || str_ends(name, STR(".index.json"))) return false;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (str_ends(name, str_of(kinds[i]))) return true;
    return str_starts(name, STR("LICENSE"));
}

static enum status copy_file(const char *folder, const char *name, struct folder_out *out,
                             struct err *err) {
    char path[PATH_BYTES];
    struct buf text;
    if (!path_join(path, sizeof(path), folder, name))
        return err_set(err, ST_BAD, "%s/%s: name too long", folder, name);
    if (!file_is_regular(path)) return ST_OK;
    buf_init(&text, LIMIT_BESIDE_BYTES);
    enum status st = file_read(path, &text, err);
    if (st == ST_OK) st = write_file(out, name, buf_str(&text), err);
    buf_deinit(&text);
    return st;
}

static enum status copy_files(const char *folder, struct folder_out *out, struct err *err) {
    DIR *dir = opendir(folder);
    if (!dir) return err_set(err, ST_IO, "%s: cannot open: %s", folder, strerror(errno));
    enum status st = ST_OK;
    for (struct dirent *e = readdir(dir); e && st == ST_OK; e = readdir(dir))
        if (is_copied(str_of(e->d_name))) st = copy_file(folder, e->d_name, out, err);
    closedir(dir);
    return st;
}

/* Which vector of an encoder is its embedding. */
static enum status copy_pooling(const char *folder, struct folder_out *out, struct err *err) {
    char path[PATH_BYTES];
    if (!path_join(path, sizeof(path), folder, pooling_name) || !file_is_regular(path))
        return ST_OK;
    TRY(folder_out_make_inner(out, err));
    return copy_file(folder, pooling_name, out, err);
}

enum status folder_files_write(struct model_file *f, const struct folder_writer *w,
                               struct folder_out *out, struct err *err) {
    TRY(write_config(f, w, out, err));
    if (file_is_dir(model_file_path(f))) {
        TRY(copy_files(model_file_path(f), out, err));
        return copy_pooling(model_file_path(f), out, err);
    }
    for (size_t i = 0; i < view_text_count(f); i++) {
        struct view_text t = view_text_at(f, i);
        if (strcmp(t.name, "config.json") != 0) TRY(write_file(out, t.name, t.text, err));
    }
    return ST_OK;
}
