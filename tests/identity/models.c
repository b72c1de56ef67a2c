/* identity/models.c - see identity/models.h. */
#include "identity/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(TESTS_ARE_EMULATED)
enum { IS_SLOW = 1 };
#else
enum { IS_SLOW = 0 };
#endif

/* A model has at least ten runs: one for each policy. */
static const struct model_runs plans[] = {
    {"llama", 0, 20},      {"gemma3", 100, 20},      {"mistral", 200, 10}, {"mixtral", 300, 10},
    {"qwen3moe", 400, 10}, {"qwen2-window", 500, 6}, {"gemma2", 600, 6},   {"llama-q4_k", 700, 10},
};
static const struct model_runs few_plans[] = {
    {"llama", 5, 3}, {"gemma3", 104, 2}, {"qwen3moe", 406, 2}, {"llama-q4_k", 708, 1}};

uint32_t models_count(void) {
    return IS_SLOW ? sizeof(few_plans) / sizeof(few_plans[0]) : sizeof(plans) / sizeof(plans[0]);
}

const struct model_runs *models_at(uint32_t i) { return IS_SLOW ? &few_plans[i] : &plans[i]; }

bool models_are_few(void) { return IS_SLOW; }

bool models_want_all(void) {
    const char *which = getenv("JITNEY_IDENTITY");
    return which && strcmp(which, "full") == 0;
}

bool models_path(const char *name, char *out, size_t out_bytes) {
    char dir[4096];
    if (!path_join(dir, sizeof(dir), TEST_SOURCE_DIR "/golden/models", name)) return false;
    if (path_join(out, out_bytes, dir, "model.gguf") && file_exists(out)) return true;
    snprintf(out, out_bytes, "%s", dir);
    return file_exists(out);
}

bool models_real_path(char *out, size_t out_bytes) {
    static const char file[] = "models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
    const char *given = getenv("JITNEY_TEST_MODEL");
    const char *cache = getenv("JITNEY_CACHE"), *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (IS_SLOW) return false;
    if (given)
        snprintf(out, out_bytes, "%s", given);
    else if (cache)
        snprintf(out, out_bytes, "%s/%s", cache, file);
    else if (xdg)
        snprintf(out, out_bytes, "%s/jitney/%s", xdg, file);
    else
        snprintf(out, out_bytes, "%s/.cache/jitney/%s", home ? home : "", file);
    return file_exists(out);
}
