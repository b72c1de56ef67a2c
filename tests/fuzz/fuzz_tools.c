/* fuzz/fuzz_tools.c - a model's answer as an adversary would have it, searched for tool calls.
 *
 * The first byte chooses the form and whether names are limited, the second seeds the cuts. The
 * events of one piece, of single bytes and of pieces of changing length must be the same. Text and
 * arguments together are never longer than the answer, except for the {} of calls without
 * arguments.
 */
#include <stddef.h>
#include <stdint.h>

#include "unit/api/tool_events.h"
#include "unit/json_lib.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void push_pieces(const struct tool_form *form, const struct json *tools, struct str text,
                        uint32_t cut, struct tool_events *ev) {
    struct tool_parser *p;
    struct tool_callbacks callbacks;
    tool_events_init(ev, &callbacks);
    CHECK(tool_parser_create(form, tools, &p) == ST_OK);
    while (text.len) {
        cut = cut * 1664525u + 1013904223u;
        struct str piece = str_take(text, 1 + (cut >> 16) % 13);
        CHECK(tool_parser_push(p, piece, &callbacks) == ST_OK);
        text = str_skip(text, piece.len);
    }
    CHECK(tool_parser_finish(p, &callbacks) == ST_OK);
    tool_parser_destroy(p);
}

static void push_whole(const struct tool_form *form, const struct json *tools, struct str text,
                       struct tool_events *ev) {
    struct tool_parser *p;
    struct tool_callbacks callbacks;
    tool_events_init(ev, &callbacks);
    CHECK(tool_parser_create(form, tools, &p) == ST_OK);
    CHECK(tool_parser_push(p, text, &callbacks) == ST_OK);
    CHECK(tool_parser_finish(p, &callbacks) == ST_OK);
    tool_parser_destroy(p);
}

static void push_bytes(const struct tool_form *form, const struct json *tools, struct str text,
                       struct tool_events *ev) {
    struct tool_parser *p;
    struct tool_callbacks callbacks;
    tool_events_init(ev, &callbacks);
    CHECK(tool_parser_create(form, tools, &p) == ST_OK);
    for (; text.len; text = str_skip(text, 1))
        CHECK(tool_parser_push(p, str_take(text, 1), &callbacks) == ST_OK);
    CHECK(tool_parser_finish(p, &callbacks) == ST_OK);
    tool_parser_destroy(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    const struct tool_form *form = tool_forms[data[0] % 4];
    const char *names = "[{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"add\"}}]";
    struct json *tools = json_of(data[0] & 4 ? "" : names);
    struct str text = {(const char *)data + 2, size - 2};

    struct tool_events whole, bytes, pieces;
    push_whole(form, tools, text, &whole);
    push_bytes(form, tools, text, &bytes);
    push_pieces(form, tools, text, data[1], &pieces);
    CHECK(str_eq(tool_events_line(&whole), tool_events_line(&bytes)));
    CHECK(str_eq(tool_events_line(&whole), tool_events_line(&pieces)));
    CHECK(whole.line.len <= text.len + 5 * (size_t)whole.calls);
    if (whole.calls == 0) CHECK(str_eq(tool_events_line(&whole), text));
    buf_deinit(&whole.line);
    buf_deinit(&bytes.line);
    buf_deinit(&pieces.line);
    json_destroy(tools);
    return 0;
}
