/* format/hf.c - a Hugging Face folder: config.json and safetensors files.
 *
 * Which files hold the weights, in this order:
 *     model.safetensors, if there is one;
 *     the files that model.safetensors.index.json names;
 *     all model*.safetensors, by name; all *.safetensors, by name.
 * A folder that has config.json or tokenizer.json but no weights opens with no tensors, as a
 * GGUF with a vocabulary alone does; one that has weights only in a format that runs code when
 * it is read (pytorch_model.bin) is refused.
 *
 * The matrices of a folder that another tool quantised are put together (format/quant.h).
 *
 * Facts are the values of config.json, found by dotted path; null counts as absent.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "format/format_int.h"
#include "format/limits.h"
#include "format/quant.h"

enum { PATH_BYTES = 4096, KEY_BYTES = 512, NAME_BYTES = 256 };

static const char index_name[] = "model.safetensors.index.json";

struct hf {
    const struct json *config; /* borrowed from the model file; NULL if there is none */
    size_t key_cap;
};

struct file_name {
    char text[NAME_BYTES];
};

/* The files that were found in the folder. */
struct listing {
    struct file_name *names; /* heap; of the files to read */
    size_t count, cap;
    bool has_pickle; /* weights that are not read */
};

/* ---- Getting facts ---- */

static enum meta_type kind_of(const struct json *v) {
    switch (json_kind(v)) {
    case JS_BOOL:
        return META_BOOL;
    case JS_INT:
        return META_INT;
    case JS_REAL:
        return META_REAL;
    case JS_TEXT:
        return META_STR;
    case JS_LIST:
        return META_LIST;
    case JS_MAP:
        return META_MAP;
    case JS_NULL:
    case JS_NONE:
        break;
    }
    return META_NONE;
}

/* The type of the first item; a list of numbers that has both kinds is one of META_REAL. */
static enum meta_type item_kind_of(const struct json *list) {
    enum meta_type first = kind_of(json_at(list, 0));
    if (first != META_INT) return first;
    for (size_t i = 1; i < json_count(list); i++)
        if (kind_of(json_at(list, i)) == META_REAL) return META_REAL;
    return META_INT;
}

static void value_of(const struct json *v, struct meta_value *out) {
    *out = (struct meta_value){.kind = kind_of(v), .count = json_count(v), .node = v};
    out->truth = json_bool(v, false);
    out->text = json_str(v);
    if (out->kind == META_INT) {
        out->negative = json_int(v, 0) < 0;
        out->whole = (uint64_t)json_int(v, 0);
    }
    if (out->kind == META_REAL) out->real = json_num(v, 0);
    if (out->kind == META_LIST) out->item_kind = item_kind_of(v);
}

static bool hf_find(const struct model_file *f, struct str key, struct meta_value *out) {
    const struct hf *hf = f->self;
    char path[KEY_BYTES];
    if (key.len >= sizeof(path)) return false;
    memcpy(path, key.ptr, key.len);
    path[key.len] = 0;
    const struct json *v = json_path(hf->config, path);
    if (!v) return false;
    value_of(v, out);
    return true;
}

static void hf_item(const struct model_file *f, const struct meta_value *list, uint64_t i,
                    struct meta_value *out) {
    (void)f;
    value_of(json_at(list->node, (size_t)i), out);
}

/* ---- config.json ---- */

static enum status add_key(struct model_file *f, struct str key, struct err *err) {
    struct hf *hf = f->self;
    if (f->key_count == hf->key_cap) {
        size_t cap = hf->key_cap ? hf->key_cap * 2 : 64;
        struct str *keys = mem_realloc(f->keys, cap * sizeof(*keys));
        if (!keys) return no_memory(f->path, err);
        f->keys = keys;
        hf->key_cap = cap;
    }
    struct str copy = arena_dup(f->arena, key);
    if (!copy.ptr) return no_memory(f->path, err);
    f->keys[f->key_count++] = copy;
    return ST_OK;
}

/* The keys of `map`, those of the maps in it with a dotted prefix. Keys past KEY_BYTES, which
 * no getter can find, are left out. Recursion is bounded by `depth`. */
static enum status add_keys(struct model_file *f, const char *prefix, const struct json *map,
                            uint32_t depth, struct err *err) {
    struct json_iter it = json_iter_first(map);
    for (; json_iter_ok(&it); json_iter_next(&it)) {
        char key[KEY_BYTES];
        int len = snprintf(key, sizeof(key), "%s%s%.*s", prefix, *prefix ? "." : "",
                           (int)it.key.len, it.key.ptr);
        if (len <= 0 || len >= KEY_BYTES) continue;
        if (json_kind(it.value) == JS_MAP && json_count(it.value) && depth < LIMIT_CONFIG_DEPTH)
            TRY(add_keys(f, key, it.value, depth + 1, err));
        else
            TRY(add_key(f, str_of(key), err));
    }
    return ST_OK;
}

static enum status read_config(struct model_file *f, struct err *err) {
    struct hf *hf = f->self;
    TRY(model_file_json(f, "config.json", &hf->config, err));
    if (!hf->config) return ST_OK;
    if (json_kind(hf->config) != JS_MAP)
        return err_set(err, ST_BAD, "%s/config.json: expected a JSON map", f->path);
    return add_keys(f, "", hf->config, 0, err);
}

/* ---- Which files ---- */

static bool is_pickle(struct str name) {
    return str_ends(name, STR(".bin")) || str_ends(name, STR(".pt")) ||
           str_ends(name, STR(".pth")) || str_ends(name, STR(".ckpt"));
}

static enum status list_name(const char *path, struct listing *l, struct str name,
                             struct err *err) {
    if (is_pickle(name)) l->has_pickle = true;
    if (!str_ends(name, STR(".safetensors")) || name.ptr[0] == '.') return ST_OK;
    if (name.len >= NAME_BYTES) return err_set(err, ST_BAD, "%s: a file name too long", path);
    if (l->count == LIMIT_PARTS)
        return err_set(err, ST_BAD, "%s: more than %d safetensors files", path, LIMIT_PARTS);
    if (l->count == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 8;
        struct file_name *names = mem_realloc(l->names, cap * sizeof(*names));
        if (!names) return no_memory(path, err);
        l->names = names;
        l->cap = cap;
    }
    struct file_name *slot = &l->names[l->count++];
    memcpy(slot->text, name.ptr, name.len);
    slot->text[name.len] = 0;
    return ST_OK;
}

static int name_cmp(const void *a, const void *b) {
    return strcmp(((const struct file_name *)a)->text, ((const struct file_name *)b)->text);
}

/* If names begin with "model", the other files are not used; the order is that of the names. */
static void settle_names(struct listing *l) {
    size_t kept = 0;
    for (size_t i = 0; i < l->count; i++)
        if (str_starts(str_of(l->names[i].text), STR("model"))) l->names[kept++] = l->names[i];
    if (kept) l->count = kept;
    if (l->count) qsort(l->names, l->count, sizeof(l->names[0]), name_cmp);
}

static enum status list_folder(const char *path, struct listing *l, struct err *err) {
    DIR *dir = opendir(path);
    if (!dir) return err_set(err, ST_IO, "%s: cannot open: %s", path, strerror(errno));
    enum status st = ST_OK;
    for (struct dirent *e = readdir(dir); e && st == ST_OK; e = readdir(dir))
        st = list_name(path, l, str_of(e->d_name), err);
    closedir(dir);
    if (st == ST_OK) settle_names(l);
    return st;
}

/* A name in the index must be a file of this folder, not a path to another folder. */
static bool is_plain_name(struct str name) {
    return name_is_sound(name, NAME_BYTES - 1) && name.ptr[0] != '.' &&
           !memchr(name.ptr, '/', name.len) && str_ends(name, STR(".safetensors"));
}

/* List the files that the index names, each once, and note in `order` which is which. */
static enum status list_index(const char *path, const struct json *weights, struct map *order,
                              struct listing *l, struct err *err) {
    struct json_iter it = json_iter_first(weights);
    for (; json_iter_ok(&it); json_iter_next(&it)) {
        struct str name = json_str(it.value);
        uint32_t idx;
        if (!is_plain_name(name))
            return err_set(err, ST_BAD,
                           "%s/%s: weight_map: %.*s: expected the name of a safetensors file in "
                           "this folder",
                           path, index_name, STR_ARG(str_take(it.key, 100)));
        if (map_find(order, name, &idx)) continue;
        if (map_put(order, name, (uint32_t)l->count) != ST_OK) return no_memory(path, err);
        TRY(list_name(path, l, name, err));
    }
    return ST_OK;
}

/* ---- Reading the files ---- */

static enum status read_files(struct model_file *f, const struct listing *l, struct err *err) {
    for (size_t i = 0; i < l->count; i++) {
        char path[PATH_BYTES];
        struct str bytes;
        if (!path_join(path, sizeof(path), f->path, l->names[i].text))
            return err_set(err, ST_BAD, "%s: name too long", f->path);
        TRY(model_file_map(f, path, &bytes, err));
        TRY(safetensors_add(f, path, bytes, err));
    }
    return ST_OK;
}

static bool lies_in(const struct tensor_info *t, const struct file_map *map) {
    return (uintptr_t)t->data >= (uintptr_t)map->ptr &&
           (uintptr_t)t->data < (uintptr_t)map->ptr + map->len;
}

/* Is every tensor of the index in the file that it names? */
static enum status check_index(const struct model_file *f, const struct json *weights,
                               const struct map *order, struct err *err) {
    struct json_iter it = json_iter_first(weights);
    for (; json_iter_ok(&it); json_iter_next(&it)) {
        uint32_t idx = 0, file;
        bool known = map_find(order, json_str(it.value), &file);
        CHECK(known);
        if (map_find(f->skipped, it.key, &idx) || map_find(f->raw_names, it.key, &idx)) continue;
        if (map_find(f->tensor_names, it.key, &idx) && lies_in(&f->tensors[idx], &f->maps[file]))
            continue;
        return err_set(err, ST_BAD, "%s/%s: tensor %.*s: is not in %.*s, where the index has it",
                       f->path, index_name, STR_ARG(str_take(it.key, 200)),
                       STR_ARG(json_str(it.value)));
    }
    return ST_OK;
}

static enum status open_indexed(struct model_file *f, const struct json *index, struct err *err) {
    const struct json *weights = json_get(index, "weight_map");
    if (json_kind(weights) != JS_MAP || json_count(weights) > LIMIT_TENSORS)
        return err_set(err, ST_BAD, "%s/%s: expected a weight_map of at most %d tensors", f->path,
                       index_name, LIMIT_TENSORS);
    struct listing l = {0};
    struct map *order = map_create(0);
    enum status st = order ? list_index(f->path, weights, order, &l, err) : no_memory(f->path, err);
    if (st == ST_OK) st = read_files(f, &l, err);
    if (st == ST_OK) st = check_index(f, weights, order, err);
    map_destroy(order);
    mem_free(l.names);
    return st;
}

static enum status open_listed(struct model_file *f, struct err *err) {
    struct listing l = {0};
    enum status st = list_folder(f->path, &l, err);
    if (st == ST_OK && l.count == 0 && l.has_pickle)
        st = err_set(err, ST_BAD,
                     "%s: its weights are in a PyTorch file (.bin, .pt, .pth, .ckpt), which is not "
                     "read because reading one runs code; expected model.safetensors",
                     f->path);
    if (st == ST_OK) st = read_files(f, &l, err);
    mem_free(l.names);
    return st;
}

static bool has_file(const struct model_file *f, const char *name) {
    char path[PATH_BYTES];
    return path_join(path, sizeof(path), f->path, name) && file_exists(path);
}

static enum status open_weights(struct model_file *f, struct err *err) {
    if (has_file(f, "model.safetensors")) {
        struct file_name name = {"model.safetensors"};
        return read_files(f, &(struct listing){.names = &name, .count = 1}, err);
    }
    const struct json *index;
    TRY(model_file_json(f, index_name, &index, err));
    return index ? open_indexed(f, index, err) : open_listed(f, err);
}

enum status hf_read_texts(struct model_file *f, struct err *err) {
    f->self = mem_zalloc(sizeof(struct hf));
    return f->self ? read_config(f, err) : no_memory(f->path, err);
}

static enum status hf_open(struct model_file *f, struct err *err) {
    if (!has_file(f, "config.json") && !has_file(f, "tokenizer.json"))
        return err_set(err, ST_BAD,
                       "%s: not a model folder: expected config.json in it, or the path of a GGUF "
                       "file",
                       f->path);
    TRY(hf_read_texts(f, err));
    const struct hf *hf = f->self;
    TRY(open_weights(f, err));
    return quant_apply(f, hf->config, err);
}

static void hf_close(struct model_file *f) { mem_free(f->self); }

static bool hf_probe(const char *path) { return file_is_dir(path); }

const struct format format_hf = {
    .name = "hf",
    .kind = MODEL_HF,
    .probe = hf_probe,
    .open = hf_open,
    .close = hf_close,
    .find = hf_find,
    .item = hf_item,
};
