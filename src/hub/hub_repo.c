/* hub/hub_repo.c - see hub/hub_repo.h for the contract. */
#define _DEFAULT_SOURCE
#include "hub/hub_repo.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"

enum { PAGE_BYTES_MAX = 8 << 20, PAGES_MAX = 64, FILES_AT_FIRST = 64 };

/* Number formats in the order of preference: a good balance of size and quality first. */
static const char *const preferred[] = {
    "Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0",   "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q6_K", "Q8_0",
    "IQ4_NL", "IQ4_XS", "Q4_K", "Q3_K_M", "BF16",   "F16",    "FP16", "F32",  "Q3_K", "Q2_K",
};
enum { PREFERRED_COUNT = sizeof(preferred) / sizeof(preferred[0]) };

/* Files that a folder of safetensors needs besides the weights. */
static const char *const companions[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.json",
    "chat_template.jinja",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "model.safetensors.index.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
};

void hub_list_init(struct hub_list *list) { *list = (struct hub_list){0}; }

void hub_list_deinit(struct hub_list *list) {
    mem_free(list->files);
    *list = (struct hub_list){0};
}

/* --- reading the list ------------------------------------------------------------------- */

static bool is_sha256(struct str s) {
    if (s.len != SHA256_HEX_BYTES - 1) return false;
    for (size_t i = 0; i < s.len; i++)
        if (!strchr("0123456789abcdefABCDEF", s.ptr[i])) return false;
    return true;
}

static struct hub_file *add_file(struct hub_list *list) {
    if (list->count == list->cap) {
        uint32_t cap = list->cap ? list->cap * 2 : FILES_AT_FIRST;
        struct hub_file *files = mem_realloc(list->files, cap * sizeof(*files));
        if (!files) return NULL;
        list->files = files;
        list->cap = cap;
    }
    struct hub_file *file = &list->files[list->count++];
    *file = (struct hub_file){0};
    return file;
}

static enum status parse_row(struct hub_list *list, const struct json *row, struct err *err) {
    if (!str_is(json_str(json_get(row, "type")), "file")) return ST_OK;
    struct str path = json_str(json_get(row, "path"));
    const struct json *lfs = json_get(row, "lfs");
    int64_t bytes = json_int(json_get(json_kind(lfs) == JS_MAP ? lfs : row, "size"), -1);
    char name[MANIFEST_PATH_BYTES];
    if (bytes < 0 || path.len >= sizeof(name)) return ST_OK;
    snprintf(name, sizeof(name), "%.*s", STR_ARG(path));
    if (strlen(name) != path.len || !manifest_path_ok(name)) return ST_OK;
    if (list->count >= HUB_FILES_MAX)
        return err_set(err, ST_BAD, "the hub lists more than %d files", (int)HUB_FILES_MAX);
    struct hub_file *file = add_file(list);
    if (!file) return err_set(err, ST_NOMEM, "out of memory reading the hub's list");
    memcpy(file->path, name, sizeof(name));
    file->bytes = (uint64_t)bytes;
    struct str oid = json_str(json_get(lfs, "oid"));
    if (is_sha256(oid)) memcpy(file->sha256, oid.ptr, oid.len);
    /* The row of a large file has git's name for a pointer to it, not for its bytes. */
    struct str blob = json_str(json_get(row, "oid"));
    if (json_kind(lfs) != JS_MAP && git_hex_ok(blob)) memcpy(file->blob, blob.ptr, blob.len);
    return ST_OK;
}

enum status hub_list_parse(struct hub_list *list, struct str json, struct err *err) {
    struct json *doc;
    enum status st = json_parse(json, &json_limits_model_file, &doc, err);
    if (st != ST_OK) return err_prefix(err, st, "the hub's list of files");
    if (json_kind(doc) != JS_LIST)
        st = err_set(err, ST_BAD, "the hub's list of files is not a JSON list");
    for (size_t i = 0; st == ST_OK && i < json_count(doc); i++)
        st = parse_row(list, json_at(doc, i), err);
    json_destroy(doc);
    return st;
}

static enum status read_commit(struct hub_list *list, struct str json, struct err *err) {
    struct json *doc;
    enum status st = json_parse(json, &json_limits_model_file, &doc, err);
    if (st != ST_OK) return err_prefix(err, st, "the hub's description of the repository");
    struct str sha = json_str(json_get(doc, "sha"));
    if (git_hex_ok(sha))
        memcpy(list->commit, sha.ptr, sha.len);
    else
        st = err_set(err, ST_BAD,
                     "the hub's description of the repository has no commit (\"sha\": 40 "
                     "hexadecimal digits)");
    json_destroy(doc);
    return st;
}

static enum status fetch_commit(struct hub_list *list, struct fetch *fetch, const char *endpoint,
                                const char *repo, struct err *err) {
    char url[FETCH_URL_BYTES];
    int need = snprintf(url, sizeof(url), "%s/api/models/%s/revision/main", endpoint, repo);
    if (need < 0 || need >= (int)sizeof(url))
        return err_set(err, ST_BAD, "%s: address too long", endpoint);
    struct buf page;
    buf_init(&page, PAGE_BYTES_MAX);
    enum status st = fetch_text(fetch, url, &page, NULL, err);
    if (st == ST_OK) st = read_commit(list, buf_str(&page), err);
    buf_deinit(&page);
    return st;
}

enum status hub_list_fetch(struct hub_list *list, struct fetch *fetch, const char *endpoint,
                           const char *repo, struct err *err) {
    char url[FETCH_URL_BYTES], next[FETCH_URL_BYTES];
    TRY(fetch_commit(list, fetch, endpoint, repo, err));
    int need = snprintf(url, sizeof(url), "%s/api/models/%s/tree/%s?recursive=true", endpoint, repo,
                        list->commit);
    if (need < 0 || need >= (int)sizeof(url))
        return err_set(err, ST_BAD, "%s: address too long", endpoint);
    struct buf page;
    buf_init(&page, PAGE_BYTES_MAX);
    enum status st = ST_OK;
    for (int i = 0; st == ST_OK && url[0] && i < PAGES_MAX; i++) {
        buf_clear(&page);
        st = fetch_text(fetch, url, &page, next, err);
        if (st == ST_OK) st = hub_list_parse(list, buf_str(&page), err);
        if (st == ST_OK) memcpy(url, next, sizeof(url));
    }
    buf_deinit(&page);
    return st;
}

/* --- choosing --------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end) {
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && strcasecmp(text + len - end_len, end) == 0;
}

/* Where `part` begins in `text`, any case, or NULL. */
static const char *find_part(const char *text, const char *part) {
    size_t len = strlen(part);
    for (; *text; text++)
        if (strncasecmp(text, part, len) == 0) return text;
    return NULL;
}

/* "NAME-00002-of-00005.gguf": which piece of how many; false for a whole file. */
static bool split_of(const char *path, unsigned *piece, unsigned *count, size_t *stem_len) {
    enum { TAIL = sizeof("-00001-of-00001.gguf") - 1 };
    size_t len = strlen(path);
    if (len <= TAIL) return false;
    const char *tail = path + len - TAIL;
    int used = 0;
    if (sscanf(tail, "-%5u-of-%5u.gguf%n", piece, count, &used) != 2 || used != TAIL) return false;
    *stem_len = len - TAIL;
    return true;
}

/* Not image projectors, importance matrices or later pieces of a split file. */
static bool is_gguf_model(const struct hub_file *file) {
    unsigned piece, count;
    size_t stem_len;
    if (!ends_with(file->path, ".gguf")) return false;
    if (find_part(file->path, "mmproj") || find_part(file->path, "imatrix")) return false;
    return !split_of(file->path, &piece, &count, &stem_len) || piece == 1;
}

static uint32_t rank_of(const char *path) {
    for (uint32_t i = 0; i < PREFERRED_COUNT; i++)
        if (find_part(path, preferred[i])) return i;
    return PREFERRED_COUNT;
}

static bool is_better(const struct hub_file *a, const struct hub_file *b) {
    uint32_t a_rank = rank_of(a->path), b_rank = rank_of(b->path);
    if (a_rank != b_rank) return a_rank < b_rank;
    size_t a_len = strlen(a->path), b_len = strlen(b->path);
    return a_len != b_len ? a_len < b_len : strcmp(a->path, b->path) < 0;
}

static struct hub_file *best_gguf(struct hub_list *list, const char *pattern) {
    struct hub_file *best = NULL;
    for (uint32_t i = 0; i < list->count; i++) {
        struct hub_file *file = &list->files[i];
        if (!is_gguf_model(file) || (pattern && !find_part(file->path, pattern))) continue;
        if (!best || is_better(file, best)) best = file;
    }
    return best;
}

/* Mark a GGUF file, and the other pieces if it is the first of a split one. */
static enum status want_gguf(struct hub_list *list, struct hub_file *first, struct err *err) {
    unsigned piece, count = 1, found = 1, other_count;
    size_t stem_len, other_stem;
    first->wanted = true;
    if (!split_of(first->path, &piece, &count, &stem_len)) return ST_OK;
    for (uint32_t i = 0; i < list->count; i++) {
        struct hub_file *file = &list->files[i];
        if (file == first || !split_of(file->path, &piece, &other_count, &other_stem)) continue;
        bool same = other_stem == stem_len && other_count == count &&
                    strncmp(file->path, first->path, stem_len) == 0;
        if (!same) continue;
        file->wanted = true;
        found++;
    }
    if (found == count) return ST_OK;
    return err_set(err, ST_MISSING, "%s: the repository has %u of its %u pieces", first->path,
                   found, count);
}

static bool is_companion(const char *path) {
    for (size_t i = 0; i < sizeof(companions) / sizeof(companions[0]); i++)
        if (strcmp(path, companions[i]) == 0) return true;
    return false;
}

static bool is_weights(const char *path) {
    return !strchr(path, '/') && ends_with(path, ".safetensors");
}

/* Weights are model*.safetensors; repositories that have them in a second layout give the second
 * one another name. */
static bool want_folder(struct hub_list *list) {
    bool config = false, weights = false, standard = false;
    for (uint32_t i = 0; i < list->count; i++) {
        const char *path = list->files[i].path;
        if (strcmp(path, "config.json") == 0) config = true;
        if (is_weights(path) && strncmp(path, "model", 5) == 0) standard = true;
        if (is_weights(path)) weights = true;
    }
    if (!config || !weights) return false;
    for (uint32_t i = 0; i < list->count; i++) {
        struct hub_file *file = &list->files[i];
        bool chosen = is_weights(file->path) && (!standard || !strncmp(file->path, "model", 5));
        file->wanted = chosen || is_companion(file->path);
    }
    return true;
}

static enum status refuse_no_match(const struct hub_list *list, const char *repo,
                                   const char *pattern, struct err *err) {
    char names[300] = "";
    size_t len = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        if (!is_gguf_model(&list->files[i])) continue;
        int need = snprintf(names + len, sizeof(names) - len, "%s%s", len ? ", " : "",
                            list->files[i].path);
        if (need < 0 || (size_t)need >= sizeof(names) - len) break;
        len += (size_t)need;
    }
    if (!names[0])
        return err_set(err, ST_MISSING,
                       "%s has neither a GGUF file nor safetensors with a config.json", repo);
    return err_set(err, ST_MISSING, "%s has no GGUF file with \"%s\" in its name; it has: %s", repo,
                   pattern, names);
}

enum status hub_choose(struct hub_list *list, const char *repo, const char *pattern,
                       char entry[MANIFEST_PATH_BYTES], struct err *err) {
    entry[0] = 0;
    bool want_tensors = pattern && strcasecmp(pattern, "safetensors") == 0;
    struct hub_file *best = want_tensors ? NULL : best_gguf(list, pattern);
    if (best) {
        snprintf(entry, MANIFEST_PATH_BYTES, "%s", best->path);
        return want_gguf(list, best, err);
    }
    if ((!pattern || want_tensors) && want_folder(list)) return ST_OK;
    return refuse_no_match(list, repo, pattern ? pattern : "", err);
}

bool hub_file_url(const char *endpoint, const char *repo, const char *commit, const char *path,
                  char url[FETCH_URL_BYTES]) {
    int used = snprintf(url, FETCH_URL_BYTES, "%s/%s/resolve/%s/", endpoint, repo, commit);
    if (used < 0 || used >= FETCH_URL_BYTES) return false;
    size_t len = (size_t)used;
    for (const char *p = path; *p; p++) {
        if (len + 4 > FETCH_URL_BYTES) return false;
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                     (*p >= '0' && *p <= '9') || strchr("/._-~", *p);
        if (plain)
            url[len++] = *p;
        else
            len += (size_t)snprintf(url + len, 4, "%%%02X", (unsigned char)*p);
    }
    url[len] = 0;
    return true;
}
