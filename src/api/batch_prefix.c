/* api/batch_prefix.c - see api/batch_prefix.h for the contract.
 *
 * Chat templates write the tools and the system message first, so these are the prefix that lines
 * have in common. The members have different names in each API, and no body has two of the same
 * kind.
 */
#include "api/batch_prefix.h"

#include <xxhash.h>

#include "api/batch_lines.h"
#include "base/json.h"

static uint64_t mix(uint64_t hash, struct str text) {
    return text.len ? XXH3_64bits_withSeed(text.ptr, text.len, hash) : hash;
}

/* All texts and keys of a value, in their order. Recursion goes as deep as the document. */
static uint64_t mix_value(uint64_t hash, const struct json *v) {
    hash = mix(hash, json_str(v));
    if (json_kind(v) == JS_LIST)
        for (size_t i = 0; i < json_count(v); i++) hash = mix_value(hash, json_at(v, i));
    for (struct json_iter it = json_iter_first(v); json_iter_ok(&it); json_iter_next(&it))
        hash = mix_value(mix(hash, it.key), it.value);
    return hash;
}

/* The first text in a value: a string, the content of a message, a part of a content. */
static struct str first_text(const struct json *v) {
    for (uint32_t depth = 0; v && depth < 8; depth++) {
        if (json_kind(v) == JS_TEXT) return json_str(v);
        if (json_kind(v) == JS_LIST) {
            v = json_at(v, 0);
            continue;
        }
        const struct json *content = json_get(v, "content");
        v = content ? content : json_get(v, "text");
    }
    return STR("");
}

static bool is_system(const struct json *message) {
    struct str role = json_str(json_get(message, "role"));
    return str_is(role, "system") || str_is(role, "developer");
}

uint64_t batch_prefix_of(const struct json *body) {
    static const char *const prompts[] = {"messages", "input", "prompt"};
    const struct json *system = json_get(body, "system"), *prompt = NULL;
    uint64_t hash = mix_value(0, json_get(body, "tools"));
    if (!system) system = json_get(body, "instructions");
    for (size_t i = 0; i < sizeof(prompts) / sizeof(prompts[0]) && !prompt; i++)
        prompt = json_get(body, prompts[i]);
    if (!system && is_system(json_at(prompt, 0))) system = json_get(json_at(prompt, 0), "content");
    if (system) return mix_value(hash, system);
    return mix(hash, str_take(first_text(prompt), BATCH_PREFIX_BYTES));
}

uint64_t batch_id_hash(struct str custom_id) { return XXH3_64bits(custom_id.ptr, custom_id.len); }
