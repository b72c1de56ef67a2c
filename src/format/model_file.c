/* format/model_file.c - opening, closing, tensors and neighbouring files; see the header.
 *
 * Entry points: model_file_open, model_file_close, the tensor_* functions, model_file_json,
 * model_file_text; for the readers, model_file_create, _map, _reserve, _add, _skip. The facts
 * are in format/meta.c.
 */
#include "format/model_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/utf8.h"
#include "format/format_int.h"
#include "format/limits.h"
#include "tensor/row_source.h"

enum { ARENA_BYTES_MAX = 256 << 20, PATH_BYTES = 4096 };

enum status no_memory(const char *path, struct err *err) {
    return err_set(err, ST_NOMEM, "%s: out of memory while opening the model", path);
}

struct model_file *model_file_create(const struct format *format, const char *path) {
    struct model_file *f = mem_zalloc(sizeof(*f));
    if (!f) return NULL;
    f->format = format;
    f->path = mem_dup(path, strlen(path));
    f->arena = arena_create(ARENA_BYTES_MAX);
    f->tensor_names = map_create(0);
    f->skipped = map_create(0);
    f->raw_names = map_create(0);
    if (f->path && f->arena && f->tensor_names && f->skipped && f->raw_names) return f;
    model_file_close(f);
    return NULL;
}

static void close_beside(struct model_file *f) {
    for (size_t i = 0; i < f->beside_count; i++) {
        mem_free(f->beside[i].name);
        mem_free(f->beside[i].text);
        json_destroy(f->beside[i].json);
    }
    mem_free(f->beside);
}

void model_file_close(struct model_file *f) {
    if (!f) return;
    f->format->close(f);
    close_beside(f);
    mem_free(f->keys);
    mem_free(f->skipped_why);
    map_destroy(f->skipped);
    map_destroy(f->tensor_names);
    mem_free(f->tensors);
    map_destroy(f->raw_names);
    mem_free(f->raws);
    for (uint32_t i = 0; i < f->map_count; i++) file_map_close(&f->maps[i]);
    mem_free(f->maps);
    arena_destroy(f->arena);
    mem_free(f->head);
    mem_free(f->path);
    mem_free(f);
}

static const struct format *find_format(const char *path) {
    for (const struct format *const *p = formats; *p; p++)
        if ((*p)->probe(path)) return *p;
    return NULL;
}

/* No reader accepts the path: it cannot be read, or it is not a model. */
static enum status refuse_path(const char *path, struct err *err) {
    if (!file_is_dir(path)) {
        struct file_map map;
        TRY(file_map_open(path, &map, err));
        file_map_close(&map);
    }
    return err_set(err, ST_BAD,
                   "%s: not a model: expected a GGUF file (its first bytes are GGUF) or a "
                   "Hugging Face folder (config.json and *.safetensors)",
                   path);
}

enum status model_file_open(const char *path, struct model_file **out, struct err *err) {
    CHECK(path);
    if (!file_exists(path)) return err_set(err, ST_MISSING, "%s: no such file or folder", path);
    const struct format *format = find_format(path);
    if (!format) return refuse_path(path, err);
    struct model_file *f = model_file_create(format, path);
    if (!f) return no_memory(path, err);
    enum status st = format->open(f, err);
    if (st == ST_OK)
        *out = f;
    else
        model_file_close(f);
    return st;
}

enum model_kind model_file_kind(const struct model_file *f) { return f->format->kind; }

const char *model_file_path(const struct model_file *f) { return f->path; }

uint32_t model_file_parts(const struct model_file *f) {
    return f->base ? model_file_parts(f->base) : f->map_count;
}

struct file_id model_file_part(const struct model_file *f, uint32_t i) {
    if (f->base) return model_file_part(f->base, i);
    CHECK(i < f->map_count);
    return f->maps[i].id;
}

enum status model_file_map(struct model_file *f, const char *path, struct str *bytes,
                           struct err *err) {
    if (f->map_count == f->map_cap) {
        uint32_t cap = f->map_cap ? f->map_cap * 2 : 1;
        CHECK(cap <= 2 * LIMIT_PARTS);
        struct file_map *maps = mem_realloc(f->maps, cap * sizeof(*maps));
        if (!maps) return no_memory(path, err);
        f->maps = maps;
        f->map_cap = cap;
    }
    struct file_map *map = &f->maps[f->map_count];
    TRY(file_map_open(path, map, err));
    f->map_count++;
    *bytes = (struct str){map->ptr ? (const char *)map->ptr : "", map->len};
    return ST_OK;
}

enum status model_file_reserve(struct model_file *f, const char *path, size_t count,
                               struct err *err) {
    size_t cap, bytes;
    if (!size_add(f->tensor_count, count, &cap) || cap > LIMIT_TENSORS)
        return err_set(err, ST_BAD,
                       "%s: %zu tensors in addition to %zu; a model may have at most %d", path,
                       count, f->tensor_count, LIMIT_TENSORS);
    if (cap <= f->tensor_cap) return ST_OK;
    if (!size_mul(cap, sizeof(f->tensors[0]), &bytes)) return no_memory(path, err);
    struct tensor_info *tensors = mem_realloc(f->tensors, bytes);
    if (!tensors) return no_memory(path, err);
    f->tensors = tensors;
    f->tensor_cap = cap;
    return ST_OK;
}

static enum status refuse_twin(const char *path, struct str name, struct err *err) {
    return err_set(err, ST_BAD, "%s: tensor %.*s: is there twice, expected each name once", path,
                   STR_ARG(name));
}

static bool has_name(const struct model_file *f, struct str name) {
    uint32_t idx;
    return map_find(f->tensor_names, name, &idx) || map_find(f->skipped, name, &idx) ||
           map_find(f->raw_names, name, &idx);
}

enum status model_file_add(struct model_file *f, const char *path, const struct tensor_info *t,
                           struct err *err) {
    CHECK(f->tensor_count < f->tensor_cap);
    if (has_name(f, t->name)) return refuse_twin(path, t->name, err);
    if (map_put(f->tensor_names, t->name, (uint32_t)f->tensor_count) != ST_OK)
        return no_memory(path, err);
    f->tensors[f->tensor_count++] = *t;
    return ST_OK;
}

enum status model_file_skip(struct model_file *f, const char *path, struct str name,
                            const char *why, struct err *err) {
    if (has_name(f, name)) return refuse_twin(path, name, err);
    if (f->skipped_count == f->skipped_cap) {
        size_t cap = f->skipped_cap ? f->skipped_cap * 2 : 8;
        if (cap > LIMIT_TENSORS)
            return err_set(err, ST_BAD, "%s: more than %d tensors", path, LIMIT_TENSORS);
        const char **bigger = mem_realloc(f->skipped_why, cap * sizeof(*bigger));
        if (!bigger) return no_memory(path, err);
        f->skipped_why = bigger;
        f->skipped_cap = cap;
    }
    struct str copy = arena_dup(f->arena, str_of(why));
    if (!copy.ptr || map_put(f->skipped, name, (uint32_t)f->skipped_count) != ST_OK)
        return no_memory(path, err);
    f->skipped_why[f->skipped_count++] = copy.ptr;
    return ST_OK;
}

enum status model_file_add_raw(struct model_file *f, const char *path, const struct raw_tensor *t,
                               struct err *err) {
    if (has_name(f, t->name)) return refuse_twin(path, t->name, err);
    if (f->raw_count == f->raw_cap) {
        size_t cap = f->raw_cap ? f->raw_cap * 2 : 64;
        if (cap > 2 * (size_t)LIMIT_TENSORS)
            return err_set(err, ST_BAD, "%s: more than %d tensors", path, LIMIT_TENSORS);
        struct raw_tensor *raws = mem_realloc(f->raws, cap * sizeof(*raws));
        if (!raws) return no_memory(path, err);
        f->raws = raws;
        f->raw_cap = cap;
    }
    if (map_put(f->raw_names, t->name, (uint32_t)f->raw_count) != ST_OK)
        return no_memory(path, err);
    f->raws[f->raw_count++] = *t;
    return ST_OK;
}

/* The names are put anew, as a map forgets nothing. */
enum status model_file_drop_parts(struct model_file *f, struct err *err) {
    size_t kept = 0;
    while (kept < f->tensor_count && !f->tensors[kept].is_part) kept++;
    if (kept == f->tensor_count) return ST_OK;
    struct map *names = map_create(0);
    kept = 0;
    if (!names) return no_memory(f->path, err);
    map_destroy(f->tensor_names);
    f->tensor_names = names;
    for (size_t i = 0; i < f->tensor_count; i++) {
        if (f->tensors[i].is_part) continue;
        if (map_put(names, f->tensors[i].name, (uint32_t)kept) != ST_OK)
            return no_memory(f->path, err);
        f->tensors[kept++] = f->tensors[i];
    }
    f->tensor_count = kept;
    return ST_OK;
}

bool name_is_sound(struct str name, size_t bytes_max) {
    if (name.len == 0 || name.len > bytes_max) return false;
    for (size_t i = 0; i < name.len; i++)
        if ((unsigned char)name.ptr[i] < 0x20 || name.ptr[i] == 0x7F) return false;
    return utf8_is_valid(name);
}

static int extent_cmp(const void *a, const void *b) {
    const struct extent *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

enum status extents_sort(const char *path, struct extent *extents, size_t count, struct err *err) {
    if (count == 0) return ST_OK;
    qsort(extents, count, sizeof(extents[0]), extent_cmp);
    for (size_t i = 1; i < count; i++) {
        const struct extent *a = &extents[i - 1], *b = &extents[i];
        if (b->start >= a->end) continue;
        return err_set(err, ST_BAD,
                       "%s: tensor %.*s: its bytes overlap those of %.*s, expected them apart",
                       path, STR_ARG(b->name), STR_ARG(a->name));
    }
    return ST_OK;
}

size_t tensor_count(const struct model_file *f) { return f->tensor_count; }

const struct tensor_info *tensor_at(const struct model_file *f, size_t i) {
    CHECK(i < f->tensor_count);
    return &f->tensors[i];
}

const struct tensor_info *tensor_find(const struct model_file *f, const char *name) {
    uint32_t idx;
    return map_find(f->tensor_names, str_of(name), &idx) ? &f->tensors[idx] : NULL;
}

const char *tensor_skipped(const struct model_file *f, const char *name) {
    uint32_t idx;
    if (map_find(f->raw_names, str_of(name), &idx)) return f->raws[idx].format;
    return map_find(f->skipped, str_of(name), &idx) ? f->skipped_why[idx] : NULL;
}

const char *model_file_problem(const struct model_file *f) { return f->problem; }

enum status model_file_check(const struct model_file *f, bool in_use, struct err *err) {
    if (f->base) return model_file_check(f->base, in_use, err);
    for (uint32_t i = 0; i < f->map_count; i++) {
        const struct file_map *map = &f->maps[i];
        enum status st = file_map_check(map, err);
        if (st != ST_OK) return err_prefix(err, st, f->path);
        if (in_use && file_map_is_cut(map))
            return err_set(err, ST_IO,
                           "%s: a file of the model is shorter than when it was opened; restore it "
                           "and start again",
                           f->path);
    }
    return ST_OK;
}

void model_file_release(const struct model_file *f, const void *ptr, size_t bytes) {
    if (f->base) model_file_release(f->base, ptr, bytes);
    for (uint32_t i = 0; i < f->map_count; i++)
        file_map_release(&f->maps[i], ptr, bytes); /* ignores bytes outside the map */
}

void tensor_release(const struct model_file *f, const struct tensor_info *t) {
    if (t->data) model_file_release(f, t->data, t->bytes);
    for (int i = 0; t->source && i < ROW_PARTS_MAX; i++)
        if (t->source->parts[i].bytes)
            model_file_release(f, t->source->parts[i].ptr, t->source->parts[i].bytes);
    for (uint32_t i = 0; t->source && i < t->source->more_count; i++)
        model_file_release(f, t->source->more[i].ptr, t->source->more[i].bytes);
}

/* The entry for `name`, created if it is missing; NULL: out of memory. */
static struct beside *beside_of(struct model_file *f, const char *name) {
    for (size_t i = 0; i < f->beside_count; i++)
        if (strcmp(f->beside[i].name, name) == 0) return &f->beside[i];
    struct beside *more = mem_realloc(f->beside, (f->beside_count + 1) * sizeof(*more));
    if (!more) return NULL;
    f->beside = more;
    char *copy = mem_dup(name, strlen(name));
    if (!copy) return NULL;
    more[f->beside_count] = (struct beside){.name = copy};
    return &more[f->beside_count++];
}

/* Map the file `name` of the folder; *found is false if there is none. */
static enum status map_beside(const struct model_file *f, const char *name, char *path, bool *found,
                              struct file_map *map, struct err *err) {
    *found = false;
    if (!path_join(path, PATH_BYTES, f->path, name))
        return err_set(err, ST_BAD, "%s: path too long with %s appended", f->path, name);
    if (!file_exists(path)) return ST_OK;
    TRY(file_map_open(path, map, err));
    *found = true;
    if (map->len <= LIMIT_BESIDE_BYTES) return ST_OK;
    err_set(err, ST_BAD, "%s: %zu bytes, at most %d are read", path, map->len, LIMIT_BESIDE_BYTES);
    file_map_close(map);
    return ST_BAD;
}

enum status model_file_put_text(struct model_file *f, const char *name, struct str text,
                                struct err *err) {
    struct beside *b = beside_of(f, name);
    if (!b) return no_memory(f->path, err);
    CHECK(!b->text);
    b->text = mem_dup(text.ptr, text.len);
    b->text_len = text.len;
    return b->text ? ST_OK : no_memory(f->path, err);
}

/* The document of a view, whose texts are all in memory. */
static enum status parse_text(const struct model_file *f, struct beside *b, struct err *err) {
    if (!b->text) return ST_OK;
    enum status st =
        json_parse((struct str){b->text, b->text_len}, &json_limits_model_file, &b->json, err);
    return st == ST_OK ? st : err_prefix(err, st, f->path);
}

static struct str map_text(const struct file_map *map) {
    return (struct str){map->ptr ? (const char *)map->ptr : "", map->len};
}

enum status model_file_json(struct model_file *f, const char *name, const struct json **out,
                            struct err *err) {
    *out = NULL;
    if (f->format->kind != MODEL_HF) return ST_OK;
    struct beside *b = beside_of(f, name);
    if (!b) return no_memory(f->path, err);
    if (!b->json && f->base) TRY(parse_text(f, b, err));
    if (!b->json && !f->base) {
        char path[PATH_BYTES];
        struct file_map map;
        bool found;
        TRY(map_beside(f, name, path, &found, &map, err));
        if (!found) return ST_OK;
        enum status st = json_parse(map_text(&map), &json_limits_model_file, &b->json, err);
        if (st == ST_OK) st = file_map_check(&map, err);
        file_map_close(&map);
        if (st != ST_OK) return err_prefix(err, st, path);
    }
    *out = b->json;
    return ST_OK;
}

enum status model_file_text(struct model_file *f, const char *name, bool *found, struct str *out,
                            struct err *err) {
    *found = false;
    if (f->format->kind != MODEL_HF) return ST_OK;
    struct beside *b = beside_of(f, name);
    if (!b) return no_memory(f->path, err);
    if (!b->text && f->base) return ST_OK;
    if (!b->text) {
        char path[PATH_BYTES];
        struct file_map map;
        TRY(map_beside(f, name, path, found, &map, err));
        if (!*found) return ST_OK;
        /* A copy, so that an edit of the file cannot change text that is in use. */
        b->text = mem_dup(map.ptr, map.len);
        b->text_len = map.len;
        file_map_close(&map);
        if (!b->text) return no_memory(path, err);
    }
    *found = true;
    *out = (struct str){b->text, b->text_len};
    return ST_OK;
}
