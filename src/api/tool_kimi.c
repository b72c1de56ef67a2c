/* api/tool_kimi.c - calls as Kimi's models write them:
 *
 *   <|tool_calls_section_begin|>
 *   <|tool_call_begin|>functions.NAME:INDEX<|tool_call_argument_begin|>{..}<|tool_call_end|> ..
 *   <|tool_calls_section_end|>
 *
 * without the line ends. The index counts the calls of the conversation; it is read over, and so is
 * the lack of it, of "functions." or of the section. */
#include "api/tool_tags_int.h"
#include "base/json.h"

#define SECTION_BEGIN "<|tool_calls_section_begin|>"
#define SECTION_END "<|tool_calls_section_end|>"
#define CALL_BEGIN "<|tool_call_begin|>"
#define CALL_END "<|tool_call_end|>"
#define ARGS_BEGIN "<|tool_call_argument_begin|>"

static const char *const open_marks[] = {SECTION_BEGIN, CALL_BEGIN, SECTION_END, NULL};
static const char *const call_mark[] = {CALL_BEGIN, NULL};
static const char *const args_mark[] = {ARGS_BEGIN, NULL};
static const char *const close_marks[] = {CALL_END, SECTION_END, NULL};

static struct str without_index(struct str id) {
    size_t len = id.len;
    while (len && id.ptr[len - 1] >= '0' && id.ptr[len - 1] <= '9') len--;
    return len && len < id.len && id.ptr[len - 1] == ':' ? str_take(id, len - 1) : id;
}

static bool on_head(struct tool_parser *p) {
    const struct str id = str_trim(buf_str(&p->scan.name)), prefix = STR("functions.");
    const struct str names[] = {
        without_index(str_starts(id, prefix) ? str_skip(id, prefix.len) : id),
        without_index(id),
        id,
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!tool_name_is_known(p, names[i])) continue;
        tool_set_name(p, names[i]);
        return tool_section_begin_args(p);
    }
    return tool_give_up_mark(p);
}

static const struct tool_section section = {
    .open = open_marks,
    .call = call_mark,
    .sep = args_mark,
    .close = close_marks,
    .on_head = on_head,
};

static bool step(struct tool_parser *p, char c) { return tool_section_step(p, c, &section); }

/* The index is any number: which one it is depends on the conversation. The mark is a special token
 * for some tokenizers and text for others. */
static void put_args(const struct json *function, struct str at, bool strict, struct buf *out) {
    const struct json *schema = json_get(function, "parameters");
    buf_put_text(out,
                 "{\"sequence\":[{\"pattern\":\"[0-9]{1,4}\"},{\"any\":[{\"text\":\"" ARGS_BEGIN
                 "\"},{\"token\":\"" ARGS_BEGIN "\"}]},{\"schema\":");
    if (json_kind(schema) == JS_MAP)
        json_put(schema, out);
    else
        buf_put_text(out, "{\"type\":\"object\"}");
    buf_put_text(out, ",\"spaced\":true,\"at\":");
    buf_put_json_string(out, at);
    buf_put_text(out, strict ? "}]}" : ",\"relax\":\"object\"}]}");
}

static const char *const marks[] = {SECTION_BEGIN, SECTION_END, CALL_BEGIN,
                                    CALL_END,      ARGS_BEGIN,  NULL};
static const char *const openings[] = {SECTION_BEGIN, CALL_BEGIN, NULL};
static const char *const signs[] = {SECTION_BEGIN, NULL};

static const struct tool_shape shapes[] = {{.begin = SECTION_BEGIN,
                                            .before_name = CALL_BEGIN "functions.",
                                            .after_name = ":",
                                            .after_args = CALL_END,
                                            .between = "",
                                            .end = SECTION_END,
                                            .trigger = SECTION_BEGIN,
                                            .put_args = put_args}};

const struct tool_form tool_form_kimi = {
    .name = "kimi",
    .signs = signs,
    .specials = marks,
    .openings = openings,
    .shapes = shapes,
    .opener = '<',
    .step = step,
};
