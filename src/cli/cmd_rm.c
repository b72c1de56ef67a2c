/* cli/cmd_rm.c - `jitney rm`: remove models from the cache. */
#include "base/buf.h"
#include "base/file.h"
#include "base/size_text.h"
#include "cli/cli.h"
#include "config/env.h"
#include "hub/model_cache.h"
#include "engine/weight_cache.h"

static const struct flag flags[] = {{0}};

static enum status report(const char *name, uint64_t freed_bytes, struct err *err) {
    char size[SIZE_TEXT_BYTES];
    struct buf line;
    buf_init(&line, MODEL_PATH_BYTES);
    buf_printf(&line, "%s removed, %s freed\n", name, size_text(freed_bytes, size));
    enum status st = out_write(buf_str(&line), err);
    buf_deinit(&line);
    return st;
}

/* The path that a server opens; false if the model is not cached whole, and then no server has
 * cached its weights. */
static bool find_path(const struct model_cache *c, const char *name, char path[MODEL_PATH_BYTES]) {
    char folder[MODEL_PATH_BYTES];
    struct manifest m;
    manifest_init(&m);
    bool is_whole = model_cache_find(c, name, &m, NULL) == ST_OK &&
                    model_cache_folder(c, name, "", folder, NULL) == ST_OK &&
                    path_join(path, MODEL_PATH_BYTES, folder, m.entry);
    manifest_deinit(&m);
    return is_whole;
}

/* First the weights that servers have cached for the model's path, then the model. */
static enum status remove_one(const struct model_cache *c, const char *name, uint64_t *freed_bytes,
                              struct err *err) {
    char images[MODEL_PATH_BYTES], path[MODEL_PATH_BYTES];
    if (find_path(c, name, path) && model_cache_images(c, images))
        TRY(weight_cache_forget(images, path, freed_bytes, err));
    return model_cache_remove(c, name, freed_bytes, err);
}

static enum exit_code run(const struct args *args, struct err *err) {
    struct env_settings env;
    struct model_cache cache;
    env_read(&env);
    if (args_operands(args) == 0)
        return usage_set(err, "rm: no model; give a name that `jitney list` shows");
    enum status st = model_cache_init(&cache, &env, err);
    for (uint32_t i = 0; st == ST_OK && i < args_operands(args); i++) {
        uint64_t freed_bytes = 0;
        st = remove_one(&cache, args_operand(args, i), &freed_bytes, err);
        if (st == ST_OK) st = report(args_operand(args, i), freed_bytes, err);
    }
    if (st == ST_OK) st = out_flush(err);
    return exit_of(st);
}

const struct command cmd_rm = {
    .name = "rm",
    .summary = "Remove models from the cache",
    .operands = "NAME...",
    .about = "Removes each model, the weights that servers have cached for it, and what an "
             "interrupted download left. Only models in the cache are removed: a path is never "
             "taken for a name.",
    .groups = {flags},
    .operands_max = 64,
    .run = run,
};
