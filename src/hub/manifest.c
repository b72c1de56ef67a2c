/* hub/manifest.c - see hub/manifest.h for the contract. */
#include "hub/manifest.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

enum { PATH_BYTES = 4096, TEXT_BYTES_MAX = 2 << 20, FILES_AT_FIRST = 16 };

const char MANIFEST_FILE[] = "jitney.json";

void manifest_init(struct manifest *m) { *m = (struct manifest){0}; }

void manifest_deinit(struct manifest *m) {
    mem_free(m->files);
    *m = (struct manifest){0};
}

bool manifest_path_ok(const char *path) {
    size_t len = strlen(path);
    if (len == 0 || len >= MANIFEST_PATH_BYTES) return false;
    bool at_start = true; /* of a part between slashes */
    for (const char *p = path; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7F || *p == '\\') return false;
        if (at_start && (*p == '/' || *p == '.')) return false;
        at_start = *p == '/';
    }
    return !at_start && strcmp(path, MANIFEST_FILE) != 0;
}

static struct manifest_file *find_file(const struct manifest *m, const char *path) {
    for (uint32_t i = 0; i < m->file_count; i++)
        if (strcmp(m->files[i].path, path) == 0) return &m->files[i];
    return NULL;
}

static enum status grow(struct manifest *m, struct err *err) {
    if (m->file_count < m->file_cap) return ST_OK;
    if (m->file_cap >= MANIFEST_FILES_MAX)
        return err_set(err, ST_BAD, "the model has more than %d files", (int)MANIFEST_FILES_MAX);
    uint32_t cap = m->file_cap ? m->file_cap * 2 : FILES_AT_FIRST;
    struct manifest_file *files = mem_realloc(m->files, cap * sizeof(*files));
    if (!files) return err_set(err, ST_NOMEM, "out of memory");
    m->files = files;
    m->file_cap = cap;
    return ST_OK;
}

enum status manifest_add(struct manifest *m, const char *path, uint64_t bytes, const char *sha256,
                         struct err *err) {
    if (!manifest_path_ok(path))
        return err_set(err, ST_BAD, "\"%s\" cannot be a file name in the cache", path);
    struct manifest_file *file = find_file(m, path);
    if (!file) {
        TRY(grow(m, err));
        file = &m->files[m->file_count++];
    }
    *file = (struct manifest_file){.bytes = bytes};
    snprintf(file->path, sizeof(file->path), "%s", path);
    snprintf(file->sha256, sizeof(file->sha256), "%s", sha256 ? sha256 : "");
    return ST_OK;
}

static bool copy_text(const struct json *v, char *out, size_t out_bytes) {
    struct str s = json_str(v);
    out[0] = 0;
    if (!s.ptr || s.len == 0) return true;
    if (s.len >= out_bytes || memchr(s.ptr, 0, s.len)) return false;
    memcpy(out, s.ptr, s.len);
    out[s.len] = 0;
    return true;
}

static enum status read_file_row(struct manifest *m, const struct json *row, struct err *err) {
    char path[MANIFEST_PATH_BYTES], sha256[SHA256_HEX_BYTES];
    int64_t bytes = json_int(json_get(row, "bytes"), -1);
    if (bytes < 0 || !copy_text(json_get(row, "path"), path, sizeof(path)) ||
        !copy_text(json_get(row, "sha256"), sha256, sizeof(sha256)))
        return err_set(err, ST_BAD,
                       "an entry of \"files\" lacks path, bytes or sha256, or they are too long");
    TRY(manifest_add(m, path, (uint64_t)bytes, sha256, err));
    find_file(m, path)->mtime_ns = json_int(json_get(row, "mtime_ns"), 0);
    return ST_OK;
}

static enum status read_doc(struct manifest *m, const struct json *doc, struct err *err) {
    bool ok = copy_text(json_get(doc, "name"), m->name, sizeof(m->name)) &&
              copy_text(json_get(doc, "source"), m->source, sizeof(m->source)) &&
              copy_text(json_get(doc, "arch"), m->arch, sizeof(m->arch)) &&
              copy_text(json_get(doc, "commit"), m->commit, sizeof(m->commit)) &&
              copy_text(json_get(doc, "entry"), m->entry, sizeof(m->entry));
    if (!ok || !m->name[0])
        return err_set(err, ST_BAD,
                       "name is missing, or name, source, commit, arch or entry is too long");
    const struct json *files = json_get(doc, "files");
    if (json_count(files) == 0) return err_set(err, ST_BAD, "\"files\" is empty");
    for (size_t i = 0; i < json_count(files); i++) TRY(read_file_row(m, json_at(files, i), err));
    if (m->entry[0] && !find_file(m, m->entry))
        return err_set(err, ST_BAD, "\"entry\" is not in \"files\"");
    return ST_OK;
}

enum status manifest_read(struct manifest *m, const char *folder, struct err *err) {
    char path[PATH_BYTES];
    if (!path_join(path, sizeof(path), folder, MANIFEST_FILE))
        return err_set(err, ST_BAD, "%s: name too long", folder);
    struct buf text;
    buf_init(&text, TEXT_BYTES_MAX);
    struct json *doc = NULL;
    enum status st = file_read(path, &text, err);
    if (st == ST_OK) {
        st = json_parse(buf_str(&text), &json_limits_request, &doc, err);
        if (st == ST_OK) st = read_doc(m, doc, err);
        if (st != ST_OK) err_prefix(err, st, path);
    }
    json_destroy(doc);
    buf_deinit(&text);
    return st;
}

static bool stat_file(const char *folder, const char *name, struct stat *info) {
    char path[PATH_BYTES];
    return path_join(path, sizeof(path), folder, name) && stat(path, info) == 0 &&
           S_ISREG(info->st_mode);
}

static int64_t mtime_of(const struct stat *info) {
    return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

static void put_text_key(struct buf *b, const char *key, const char *value) {
    buf_printf(b, "  \"%s\": ", key);
    buf_put_json_string(b, str_of(value));
    buf_put_text(b, ",\n");
}

static void put_file_row(struct buf *b, const struct manifest_file *file, bool last) {
    buf_put_text(b, "    {\"path\": ");
    buf_put_json_string(b, str_of(file->path));
    buf_printf(b, ", \"bytes\": %llu, \"sha256\": \"%s\", \"mtime_ns\": %lld}%s\n",
               (unsigned long long)file->bytes, file->sha256, (long long)file->mtime_ns,
               last ? "" : ",");
}

enum status manifest_write(struct manifest *m, const char *folder, struct err *err) {
    char path[PATH_BYTES];
    if (!path_join(path, sizeof(path), folder, MANIFEST_FILE))
        return err_set(err, ST_CREATE, "%s: name too long", folder);
    for (uint32_t i = 0; i < m->file_count; i++) {
        struct stat info;
        if (!stat_file(folder, m->files[i].path, &info))
            return err_set(err, ST_IO, "%s/%s: file is missing", folder, m->files[i].path);
        m->files[i].mtime_ns = mtime_of(&info);
    }
    struct buf b;
    buf_init(&b, TEXT_BYTES_MAX);
    buf_put_text(&b, "{\n");
    put_text_key(&b, "name", m->name);
    put_text_key(&b, "source", m->source);
    if (m->commit[0]) put_text_key(&b, "commit", m->commit);
    put_text_key(&b, "arch", m->arch);
    put_text_key(&b, "entry", m->entry);
    buf_put_text(&b, "  \"files\": [\n");
    for (uint32_t i = 0; i < m->file_count; i++)
        put_file_row(&b, &m->files[i], i + 1 == m->file_count);
    buf_put_text(&b, "  ]\n}\n");
    enum status st = buf_status(&b);
    st = st == ST_OK ? file_write_atomic(path, buf_str(&b), err)
                     : err_set(err, st, "%s: out of memory", path);
    buf_deinit(&b);
    return st;
}

uint64_t manifest_bytes(const struct manifest *m) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < m->file_count; i++) sum += m->files[i].bytes;
    return sum;
}

enum status manifest_check(const struct manifest *m, const char *folder, bool *touched,
                           struct err *err) {
    *touched = false;
    for (uint32_t i = 0; i < m->file_count; i++) {
        const struct manifest_file *file = &m->files[i];
        struct stat info;
        if (!stat_file(folder, file->path, &info))
            return err_set(err, ST_BAD, "%s/%s: file is missing", folder, file->path);
        if ((uint64_t)info.st_size != file->bytes)
            return err_set(err, ST_BAD, "%s/%s: has %lld bytes, expected %llu", folder, file->path,
                           (long long)info.st_size, (unsigned long long)file->bytes);
        if (mtime_of(&info) != file->mtime_ns) *touched = true;
    }
    return ST_OK;
}

enum status manifest_verify(const struct manifest *m, const char *folder, struct err *err) {
    for (uint32_t i = 0; i < m->file_count; i++) {
        char path[PATH_BYTES], found[SHA256_HEX_BYTES];
        if (!path_join(path, sizeof(path), folder, m->files[i].path))
            return err_set(err, ST_BAD, "%s: name too long", folder);
        TRY(sha256_file(path, found, err));
        if (strcmp(found, m->files[i].sha256) != 0)
            return err_set(err, ST_BAD, "%s: SHA-256 is %s, expected %s", path, found,
                           m->files[i].sha256);
    }
    return ST_OK;
}
