/* api/request.c - see api/request.h for the contract. */
#include "api/request.h"

#include <string.h>

#include "api/codec.h"
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"

void api_request_init(struct api_request *r, const struct codec *codec) {
    *r = (struct api_request){.codec = codec, .n = 1, .sample = sample_params_default()};
    r->sample.temperature = 1.0f;
    r->sample.penalty_window = -1; /* OpenAI's penalties cover the whole text */
}

/* ---- freeing the body ---- */

/* Move `count` texts into memory of their own. A text that was not given stays so. */
static enum status copy_texts(struct str *const *texts, uint32_t count, char **out,
                              uint64_t *bytes) {
    size_t total = 0;
    for (uint32_t i = 0; i < count; i++) total += texts[i]->len;
    char *at = mem_alloc(total + 1);
    if (!at) return ST_NOMEM;
    *out = at;
    *bytes += total;
    for (uint32_t i = 0; i < count; i++) {
        if (!texts[i]->ptr) continue;
        memcpy(at, texts[i]->ptr, texts[i]->len);
        texts[i]->ptr = at;
        at += texts[i]->len;
    }
    return ST_OK;
}

static enum status copy_short(struct api_request *r) {
    enum { SINGLE_TEXTS = 6 };
    struct str *texts[SINGLE_TEXTS + API_STOPS_MAX] = {
        &r->model, &r->tool_name,        &r->cache_salt,
        &r->user,  &r->keeping.previous, &r->keeping.conversation};
    for (uint32_t i = 0; i < r->stop_count; i++) texts[SINGLE_TEXTS + i] = &r->stops[i];
    return copy_texts(texts, SINGLE_TEXTS + r->stop_count, &r->texts, &r->held_bytes);
}

static enum status copy_prompts(struct api_request *r) {
    struct str *texts[API_INPUTS_MAX];
    CHECK(r->prompt_count <= API_INPUTS_MAX);
    for (uint32_t i = 0; i < r->prompt_count; i++) {
        texts[i] = &r->prompts[i].text;
        r->prompt_bytes += r->prompts[i].count * sizeof(r->prompts[i].ids[0]);
    }
    if (r->prompt_count == 0) return ST_OK;
    return copy_texts(texts, r->prompt_count, &r->prompt_texts, &r->prompt_bytes);
}

/* "a" or "a.b" of one map into another. */
static enum status copy_field(const struct json *from, const char *path, struct json *to) {
    struct str key = str_of(path), rest = {0};
    const struct json *v = json_path(from, path);
    const char *dot = strchr(path, '.');
    if (!v) return ST_OK;
    if (!dot) return json_set(to, key, json_pin(v));
    rest = str_skip(key, (size_t)(dot - path) + 1);
    key = str_take(key, (size_t)(dot - path));
    struct json *inner = json_map_create();
    if (json_set(inner, rest, json_pin(v)) != ST_OK) {
        json_destroy(inner);
        return ST_NOMEM;
    }
    return json_set(to, key, inner);
}

static enum status repeated_fields(const struct api_request *r, struct json **out) {
    *out = NULL;
    if (!r->codec || !r->codec->repeated) return ST_OK;
    struct json *map = json_map_create();
    enum status st = map ? ST_OK : ST_NOMEM;
    for (const char *const *path = r->codec->repeated; *path && st == ST_OK; path++)
        st = copy_field(r->doc, *path, map);
    if (st != ST_OK) json_destroy(map);
    if (st == ST_OK) *out = map;
    return st;
}

enum status api_request_drop_body(struct api_request *r) {
    struct json *rest;
    CHECK(!r->texts);
    TRY(repeated_fields(r, &rest));
    enum status st = copy_short(r);
    if (st == ST_OK) st = copy_prompts(r);
    if (st != ST_OK) {
        json_destroy(rest);
        return st;
    }
    json_destroy(r->doc);
    r->doc = rest;
    r->held_bytes += json_memory(rest) + json_memory(r->tools) + r->keeping.metadata.len;
    r->prompt_bytes += json_memory(r->messages) + json_memory(r->template_kwargs);
    r->prompt_bytes += r->grammar.source.len + r->speculation.prediction.len;
    return ST_OK;
}

static void drop_prompts(struct api_request *r) {
    for (uint32_t i = 0; i < r->prompt_count; i++) {
        mem_free(r->prompts[i].ids);
        r->prompts[i] = (struct api_prompt){0};
    }
    mem_free(r->prompt_texts);
    r->prompt_texts = NULL;
}

void api_request_drop_messages(struct api_request *r) {
    json_destroy(r->messages);
    json_destroy(r->template_kwargs);
    r->messages = r->template_kwargs = NULL;
    buf_deinit(&r->grammar.source);
    buf_deinit(&r->speculation.prediction);
    if (r->echo) return; /* the answer begins with the prompt */
    drop_prompts(r);
    r->prompt_bytes = 0;
}

uint64_t api_request_bytes(const struct api_request *r) { return r->held_bytes + r->prompt_bytes; }

void api_request_deinit(struct api_request *r) {
    api_request_drop_messages(r);
    drop_prompts(r);
    mem_free(r->prompts);
    mem_free(r->texts);
    mem_free(r->bias);
    json_destroy(r->tools);
    mem_free(r->tool_facts);
    buf_deinit(&r->keeping.metadata);
    json_destroy(r->doc);
    *r = (struct api_request){0};
}

enum status api_request_set_kwarg(struct api_request *r, struct str name, struct json *value) {
    if (!r->template_kwargs) r->template_kwargs = json_map_create();
    return json_set(r->template_kwargs, name, value);
}

/* The field that needs a store, or NULL. */
static const char *kept_field(const struct api_keeping *k) {
    if (k->background) return "background";
    if (k->previous.len) return "previous_response_id";
    if (k->conversation.len) return "conversation";
    return k->store ? "store" : NULL;
}

enum status api_keeping_refuse(const struct api_request *r, struct api_error *e) {
    const char *field = kept_field(&r->keeping);
    if (!field) return ST_OK;
    return api_refuse(e, 400, field, "unsupported_parameter",
                      "'%s' is not supported by this server: it was started without --data-dir, so "
                      "it stores no answers.",
                      field);
}
