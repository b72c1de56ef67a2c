/* fuzz/use_tools.h - a model's answer as an adversary would have it, searched for tool calls.
 *
 * The first byte seeds the cuts; if it is odd, every name is a tool's. The events of one piece, of
 * single bytes and of pieces of changing length must be the same. Without a call the text stays as
 * it is. Text and arguments together are never longer than the answer, except for the {} of calls
 * without arguments; forms whose arguments become JSON may write six bytes for one (\u0001).
 */
#ifndef FUZZ_USE_TOOLS_H
#define FUZZ_USE_TOOLS_H

#include <stddef.h>
#include <stdint.h>

#include "unit/api/tool_events.h"
#include "unit/json_lib.h"

enum { USE_TOOLS_WHOLE = 0, USE_TOOLS_BYTES = 1 };

/* `cut`: USE_TOOLS_WHOLE, USE_TOOLS_BYTES, or the seed of the pieces' lengths. */
static inline void use_tools_push(const struct tool_form *form, const struct json *tools,
                                  struct str text, uint32_t cut, struct tool_events *ev) {
    struct tool_parser *p;
    struct tool_callbacks callbacks;
    uint32_t seed = cut;
    tool_events_init(ev, &callbacks);
    CHECK(tool_parser_create(form, tools, &p) == ST_OK);
    while (text.len) {
        seed = seed * 1664525u + 1013904223u;
        size_t len = cut == USE_TOOLS_WHOLE ? text.len : 1 + (seed >> 16) % 13;
        struct str piece = str_take(text, cut == USE_TOOLS_BYTES ? 1 : len);
        CHECK(tool_parser_push(p, piece, &callbacks) == ST_OK);
        text = str_skip(text, piece.len);
    }
    CHECK(tool_parser_finish(p, &callbacks) == ST_OK);
    tool_parser_destroy(p);
}

static const char use_tools_request[] =
    "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{"
    "\"a\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"},"
    "\"o\":{\"type\":\"object\"},\"s\":{\"type\":[\"string\",\"null\"]}}}}},"
    "{\"function\":{\"name\":\"add\"}}]";

static inline bool use_tools_rewrites(const struct tool_form *form) {
    const struct tool_shape *shape = form->shapes;
    for (; shape->sign; shape++)
        if (shape->put_args) return true;
    return shape->put_args != NULL;
}

static inline void use_tools(const struct tool_form *form, const uint8_t *data, size_t size) {
    if (size < 1) return;
    struct json *tools = json_of(data[0] & 1 ? "" : use_tools_request);
    struct str text = {(const char *)data + 1, size - 1};

    struct tool_events whole, bytes, pieces;
    use_tools_push(form, tools, text, USE_TOOLS_WHOLE, &whole);
    use_tools_push(form, tools, text, USE_TOOLS_BYTES, &bytes);
    use_tools_push(form, tools, text, 2 + (uint32_t)data[0], &pieces);
    CHECK(str_eq(tool_events_line(&whole), tool_events_line(&bytes)));
    CHECK(str_eq(tool_events_line(&whole), tool_events_line(&pieces)));
    size_t factor = use_tools_rewrites(form) ? 6 : 1;
    CHECK(whole.line.len <= factor * text.len + 5 * (size_t)whole.calls);
    if (whole.calls == 0) CHECK(str_eq(tool_events_line(&whole), text));
    buf_deinit(&whole.line);
    buf_deinit(&bytes.line);
    buf_deinit(&pieces.line);
    json_destroy(tools);
}

#endif
