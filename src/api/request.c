/* api/request.c - see api/request.h for the contract. */
#include "api/request.h"

#include "base/json.h"
#include "base/mem.h"

void api_request_init(struct api_request *r, const struct codec *codec) {
    *r = (struct api_request){.codec = codec, .n = 1, .sample = sample_params_default()};
    r->sample.temperature = 1.0f;
    r->sample.penalty_window = -1; /* OpenAI's penalties cover the whole text */
}

void api_request_drop_messages(struct api_request *r) {
    json_destroy(r->messages);
    json_destroy(r->template_kwargs);
    r->messages = r->template_kwargs = NULL;
}

void api_request_deinit(struct api_request *r) {
    for (uint32_t i = 0; i < r->prompt_count; i++) mem_free(r->prompts[i].ids);
    mem_free(r->prompts);
    mem_free(r->bias);
    api_request_drop_messages(r);
    json_destroy(r->tools);
    json_destroy(r->doc);
    *r = (struct api_request){0};
}

enum status api_request_set_kwarg(struct api_request *r, struct str name, struct json *value) {
    if (!r->template_kwargs) r->template_kwargs = json_map_create();
    return json_set(r->template_kwargs, name, value);
}
