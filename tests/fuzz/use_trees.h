/* fuzz/use_trees.h - what every decoded conversation must look like, whatever the bytes were. */
#ifndef FUZZ_USE_TREES_H
#define FUZZ_USE_TREES_H

#include "api/request.h"
#include "base/check.h"
#include "base/json.h"

/* Every message has a role and one text, every call a function with a name and arguments. */
static inline void use_check_messages(const struct json *messages) {
    for (size_t i = 0; i < json_count(messages); i++) {
        const struct json *m = json_at(messages, i), *calls = json_get(m, "tool_calls");
        CHECK(json_kind(json_get(m, "role")) == JS_TEXT);
        CHECK(json_kind(json_get(m, "content")) == JS_TEXT);
        for (size_t k = 0; k < json_count(calls); k++) {
            const struct json *function = json_get(json_at(calls, k), "function");
            CHECK(json_kind(json_get(function, "name")) == JS_TEXT);
            enum json_kind kind = json_kind(json_get(function, "arguments"));
            CHECK(kind == JS_MAP || kind == JS_TEXT);
        }
    }
}

static inline void use_check_trees(const struct api_request *r) {
    CHECK(json_kind(r->messages) == (r->is_chat ? JS_LIST : JS_NONE));
    CHECK(!r->tools || json_count(r->tools) > 0);
    CHECK(!r->template_kwargs || json_kind(r->template_kwargs) == JS_MAP);
    use_check_messages(r->messages);
}

#endif
