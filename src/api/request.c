/* api/request.c - see api/request.h for the contract. */
#include "api/request.h"

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"

void api_request_init(struct api_request *r, const struct codec *codec) {
    *r = (struct api_request){.codec = codec, .n = 1, .sample = sample_params_default()};
    r->sample.temperature = 1.0f;
    r->sample.penalty_window = -1; /* OpenAI's penalties see the whole text */
}

void api_request_deinit(struct api_request *r) {
    for (uint32_t i = 0; i < r->prompt_count; i++) mem_free(r->prompts[i].ids);
    for (uint32_t i = 0; i < r->kept_count; i++) mem_free(r->kept[i]);
    mem_free(r->prompts);
    mem_free(r->bias);
    json_destroy(r->doc);
    *r = (struct api_request){0};
}

enum status api_request_keep(struct api_request *r, struct buf *made, struct str *out) {
    CHECK(r->kept_count < API_KEPT_MAX);
    enum status st = buf_status(made);
    size_t len = 0;
    char *bytes = buf_take(made, &len);
    if (!bytes) return st == ST_OK ? ST_NOMEM : st;
    r->kept[r->kept_count++] = bytes;
    *out = (struct str){bytes, len};
    return ST_OK;
}

enum status api_request_add_kwarg(struct api_request *r, struct str name, struct str value) {
    struct buf made;
    struct str before = r->template_kwargs;
    buf_init(&made, API_MADE_BYTES_MAX);
    if (before.len) buf_put_str(&made, str_take(before, before.len - 1)); /* all but the bracket */
    buf_put_char(&made, before.len ? ',' : '{');
    buf_put_json_string(&made, name);
    buf_put_char(&made, ':');
    buf_put_str(&made, value);
    buf_put_char(&made, '}');
    enum status st = api_request_keep(r, &made, &r->template_kwargs);
    buf_deinit(&made);
    return st;
}
