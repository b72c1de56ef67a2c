/* hub/model_cache.c - see hub/model_cache.h for the contract.
 *
 * Entry points: model_cache_init, model_cache_resolve, model_cache_find, model_cache_suggest,
 * model_list_create.
 */
#include "hub/model_cache.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/tree.h"
#include "config/env.h"
#include "hub/known_models.h"

enum { PART_BYTES_MAX = 96, ROWS_AT_FIRST = 16, ROWS_MAX = 4096 };

const char MODEL_PARTIAL_SUFFIX[] = ".part";
static const char HUB_PREFIX[] = "hf:";

static enum status set_root(struct model_cache *c, const char *folder, const char *below,
                            struct err *err) {
    bool ok = path_join(c->root, sizeof(c->root), folder, below);
    size_t len = strlen(c->root);
    while (ok && len > 1 && c->root[len - 1] == '/') c->root[--len] = 0;
    return ok ? ST_OK : err_set(err, ST_MISSING, "%s: name too long for the cache folder", folder);
}

enum status model_cache_init(struct model_cache *c, const struct env_settings *env,
                             struct err *err) {
    if (env->cache_dir) return set_root(c, env->cache_dir, "", err);
    if (env->xdg_cache_home) return set_root(c, env->xdg_cache_home, "jitney", err);
    if (env->home) return set_root(c, env->home, ".cache/jitney", err);
    return err_set(err, ST_MISSING,
                   "no folder for the model cache; set HOME, XDG_CACHE_HOME or JITNEY_CACHE");
}

/* --- names ------------------------------------------------------------------------------ */

static bool is_alnum(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* One part of a name. The suffix of partial models is reserved. */
static bool part_ok(struct str s) {
    if (s.len == 0 || s.len > PART_BYTES_MAX || !is_alnum(s.ptr[0])) return false;
    for (size_t i = 0; i < s.len; i++)
        if (!is_alnum(s.ptr[i]) && !strchr("._-", s.ptr[i])) return false;
    return !str_ends(s, str_of(MODEL_PARTIAL_SUFFIX));
}

bool model_name_ok(const char *name) {
    const char *colon = strchr(name, ':');
    if (colon && !part_ok(str_of(colon + 1))) return false;
    struct str front = colon ? (struct str){name, (size_t)(colon - name)} : str_of(name);
    const char *slash = memchr(front.ptr, '/', front.len);
    if (!slash) return part_ok(front);
    size_t org_bytes = (size_t)(slash - front.ptr);
    return part_ok(str_take(front, org_bytes)) && part_ok(str_skip(front, org_bytes + 1));
}

enum status model_cache_folder(const struct model_cache *c, const char *name, const char *suffix,
                               char path[MODEL_PATH_BYTES], struct err *err) {
    CHECK(c->root[0]);
    CHECK(model_name_ok(name));
    int root_bytes = snprintf(path, MODEL_PATH_BYTES, "%s/models/", c->root);
    if (root_bytes < 0 || root_bytes >= MODEL_PATH_BYTES)
        return err_set(err, ST_CREATE, "%s: name too long", c->root);
    size_t room = MODEL_PATH_BYTES - (size_t)root_bytes;
    int need = snprintf(path + root_bytes, room, "%s%s", name, suffix);
    if (need < 0 || (size_t)need >= room)
        return err_set(err, ST_CREATE, "%s: name too long", c->root);
    for (char *p = path + root_bytes; *p; p++)
        if (*p == '/') *p = '+';
    return ST_OK;
}

/* --- finding ---------------------------------------------------------------------------- */

bool model_cache_images(const struct model_cache *c, char path[MODEL_PATH_BYTES]) {
    return c->root[0] && path_join(path, MODEL_PATH_BYTES, c->root, "images");
}

enum status model_cache_find(const struct model_cache *c, const char *name, struct manifest *out,
                             struct err *err) {
    char folder[MODEL_PATH_BYTES];
    if (!c->root[0]) return err_set(err, ST_MISSING, "there is no model cache");
    if (!model_name_ok(name)) return err_set(err, ST_MISSING, "%s: not a valid model name", name);
    TRY(model_cache_folder(c, name, "", folder, err));
    return manifest_read(out, folder, err);
}

static bool looks_like_path(const char *model) {
    return strchr(model, '/') || str_ends(str_of(model), STR(".gguf"));
}

static enum status give_path(const char *path, char out[MODEL_PATH_BYTES], struct err *err) {
    int need = snprintf(out, MODEL_PATH_BYTES, "%s", path);
    if (need < MODEL_PATH_BYTES) return ST_OK;
    return err_set(err, ST_MISSING, "%.100s...: name too long", path);
}

/* The path of a cached model, after checking that its files are unchanged. */
static enum status cached_path(const struct model_cache *c, const char *name,
                               const struct manifest *m, char path[MODEL_PATH_BYTES],
                               struct err *err) {
    char folder[MODEL_PATH_BYTES];
    bool touched;
    struct err why = {0};
    TRY(model_cache_folder(c, name, "", folder, err));
    if (manifest_check(m, folder, &touched, &why) != ST_OK)
        return err_set(err, ST_BAD, "%s; `jitney pull %s` fetches it again", why.text, name);
    if (!m->entry[0]) return give_path(folder, path, err);
    if (path_join(path, MODEL_PATH_BYTES, folder, m->entry)) return ST_OK;
    return err_set(err, ST_MISSING, "%s: name too long", folder);
}

static enum status refuse_missing(const struct model_cache *c, const char *model, struct err *err) {
    if (known_model_find(model))
        return err_set(err, ST_MISSING, "model %s is not in the cache; `jitney pull %s` fetches it",
                       model, model);
    bool path = model[0] == '/' || model[0] == '.' || model[0] == '~' || !model_name_ok(model) ||
                str_ends(str_of(model), STR(".gguf"));
    if (path) return err_set(err, ST_MISSING, "%s: no such file or folder", model);
    char hint[MODEL_NAME_BYTES];
    model_cache_suggest(c, model, hint);
    if (strchr(model, '/'))
        return err_set(err, ST_MISSING,
                       "model %s is neither a folder nor in the cache%s `jitney pull %s` fetches "
                       "it from the Hugging Face hub",
                       model, hint[0] ? hint : ";", model);
    return err_set(err, ST_MISSING,
                   "unknown model %s%s `jitney list` shows the names; `jitney pull %s` fetches a "
                   "default model",
                   model, hint[0] ? hint : ";", known_models[0].name);
}

enum status model_cache_resolve(const struct model_cache *c, const char *model,
                                char path[MODEL_PATH_BYTES], struct err *err) {
    if (looks_like_path(model) && file_exists(model)) return give_path(model, path, err);
    const char *name = model;
    if (str_starts(str_of(model), str_of(HUB_PREFIX))) name += sizeof(HUB_PREFIX) - 1;
    struct manifest m;
    manifest_init(&m);
    enum status st = model_cache_find(c, name, &m, err);
    if (st == ST_OK) st = cached_path(c, name, &m, path, err);
    manifest_deinit(&m);
    if (st != ST_MISSING) return st;
    if (file_exists(model)) return give_path(model, path, err);
    return refuse_missing(c, name, err);
}

void model_cache_suggest(const struct model_cache *c, const char *name,
                         char out[MODEL_NAME_BYTES]) {
    out[0] = 0;
    struct model_list list;
    if (model_list_create(c, &list, NULL) != ST_OK) return;
    size_t len = strlen(name);
    uint32_t best = 1 + (uint32_t)(len / 4); /* further away is not a typing error */
    for (uint32_t i = 0; i < list.count; i++) {
        const char *candidate = list.rows[i].name;
        uint32_t distance = str_distance(str_of(name), str_of(candidate));
        bool begins = len >= 3 && strncmp(candidate, name, len) == 0;
        if (begins) distance = 1;
        if (distance > best || (distance == best && out[0])) continue;
        best = distance;
        snprintf(out, MODEL_NAME_BYTES, ", did you mean %.200s?", candidate);
    }
    model_list_destroy(&list);
}

/* --- listing ---------------------------------------------------------------------------- */

const char *model_state_name(enum model_state state) {
    static const char *const names[] = {"cached", "partial", "damaged", "not fetched"};
    CHECK((size_t)state < sizeof(names) / sizeof(names[0]));
    return names[state];
}

static struct model_row *add_row(struct model_list *list) {
    if (list->count == list->cap) {
        uint32_t cap = list->cap ? list->cap * 2 : ROWS_AT_FIRST;
        struct model_row *rows =
            cap <= ROWS_MAX ? mem_realloc(list->rows, cap * sizeof(*rows)) : NULL;
        if (!rows) return NULL;
        list->rows = rows;
        list->cap = cap;
    }
    struct model_row *row = &list->rows[list->count++];
    *row = (struct model_row){.format = ""};
    return row;
}

static void describe_cached(const struct model_cache *c, struct model_row *row) {
    struct manifest m;
    manifest_init(&m);
    enum status st = model_cache_find(c, row->name, &m, NULL);
    bool touched;
    if (st == ST_OK) st = manifest_check(&m, row->path, &touched, NULL);
    row->state = st == ST_OK ? MODEL_CACHED : MODEL_DAMAGED;
    if (m.file_count) row->format = m.entry[0] ? "gguf" : "folder";
    snprintf(row->arch, sizeof(row->arch), "%s", m.arch);
    snprintf(row->source, sizeof(row->source), "%s", m.source);
    row->bytes = tree_bytes(row->path);
    char entry[MODEL_PATH_BYTES];
    if (m.entry[0] && path_join(entry, sizeof(entry), row->path, m.entry))
        memcpy(row->path, entry, sizeof(entry));
    manifest_deinit(&m);
}

/* The model's name from its folder's; false: not a model. */
static bool name_of_folder(const char *folder, char name[MODEL_NAME_BYTES], bool *partial) {
    struct str s = str_of(folder);
    *partial = str_ends(s, str_of(MODEL_PARTIAL_SUFFIX));
    if (*partial) s.len -= sizeof(MODEL_PARTIAL_SUFFIX) - 1;
    if (s.len >= MODEL_NAME_BYTES) return false;
    memcpy(name, s.ptr, s.len);
    name[s.len] = 0;
    char *plus = strchr(name, '+');
    if (plus) *plus = '/';
    return model_name_ok(name);
}

static enum status add_folder(const struct model_cache *c, const char *folder,
                              struct model_list *list, struct err *err) {
    char name[MODEL_NAME_BYTES];
    bool partial;
    if (!name_of_folder(folder, name, &partial)) return ST_OK;
    struct model_row *row = add_row(list);
    if (!row) return err_set(err, ST_NOMEM, "out of memory listing the cache");
    memcpy(row->name, name, sizeof(name));
    TRY(model_cache_folder(c, name, partial ? MODEL_PARTIAL_SUFFIX : "", row->path, err));
    if (!file_is_dir(row->path)) {
        list->count--;
        return ST_OK;
    }
    row->state = MODEL_PARTIAL;
    row->bytes = partial ? tree_bytes(row->path) : 0;
    if (!partial) describe_cached(c, row);
    return ST_OK;
}

static enum status add_folders(const struct model_cache *c, struct model_list *list,
                               struct err *err) {
    char models[MODEL_PATH_BYTES];
    if (!c->root[0] || !path_join(models, sizeof(models), c->root, "models")) return ST_OK;
    DIR *dir = opendir(models);
    if (!dir && errno == ENOENT) return ST_OK;
    if (!dir) return err_set(err, ST_IO, "%s: cannot read: %s", models, strerror(errno));
    enum status st = ST_OK;
    struct dirent *entry;
    while (st == ST_OK && (entry = readdir(dir))) st = add_folder(c, entry->d_name, list, err);
    closedir(dir);
    return st;
}

static bool is_listed(const struct model_list *list, const char *name) {
    for (uint32_t i = 0; i < list->count; i++)
        if (strcmp(list->rows[i].name, name) == 0) return true;
    return false;
}

static enum status add_known(struct model_list *list, struct err *err) {
    for (const struct known_model *m = known_models; m->name; m++) {
        if (is_listed(list, m->name)) continue;
        struct model_row *row = add_row(list);
        if (!row) return err_set(err, ST_NOMEM, "out of memory listing the cache");
        row->state = MODEL_KNOWN;
        row->bytes = known_model_bytes(m);
        row->format = m->entry[0] ? "gguf" : "folder";
        snprintf(row->name, sizeof(row->name), "%s", m->name);
        snprintf(row->source, sizeof(row->source), "pypi:%s==%s", m->package, m->version);
    }
    return ST_OK;
}

static int by_state_and_name(const void *a, const void *b) {
    const struct model_row *x = a, *y = b;
    bool x_known = x->state == MODEL_KNOWN, y_known = y->state == MODEL_KNOWN;
    if (x_known != y_known) return x_known ? 1 : -1;
    int order = strcmp(x->name, y->name);
    return order ? order : (int)x->state - (int)y->state;
}

enum status model_list_create(const struct model_cache *c, struct model_list *out,
                              struct err *err) {
    *out = (struct model_list){0};
    enum status st = add_folders(c, out, err);
    if (st == ST_OK) st = add_known(out, err);
    if (st == ST_OK && out->count)
        qsort(out->rows, out->count, sizeof(out->rows[0]), by_state_and_name);
    if (st != ST_OK) model_list_destroy(out);
    return st;
}

void model_list_destroy(struct model_list *list) {
    mem_free(list->rows);
    *list = (struct model_list){0};
}
