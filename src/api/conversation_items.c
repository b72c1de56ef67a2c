/* api/conversation_items.c - see api/conversation_items.h for the contract. responses_output_items
 * is in codec_openai_responses.c, which writes the same items in the response object. */
#include "api/conversation_items.h"

#include <stdio.h>
#include <string.h>

#include "api/fields.h"
#include "api/request.h"
#include "base/json.h"

enum {
    NO_ITEM = -2,
    CALL_ID_MAX = 512, /* as of the rows input[].call_id and input[].name */
    NAME_MAX_BYTES = 256,
};

/* One item while it is stored. */
struct storing {
    const struct json *item;
    struct str seed;
    size_t idx;
    const char *param; /* of the list */
    struct buf *out;
    struct api_error *e;
};

static bool is_absent(const struct json *v) {
    return json_kind(v) == JS_NONE || json_kind(v) == JS_NULL;
}

/* ---- members ---- */

static enum status refuse_member(const struct storing *s, const char *key, uint32_t kinds) {
    const struct json *v = json_get(s->item, key);
    if (is_absent(v)) return api_refuse_missing(s->e, "%s[%zu].%s", s->param, s->idx, key);
    return api_refuse_kind(s->e, v, kinds, "%s[%zu].%s", s->param, s->idx, key);
}

/* `max` 0: any length; otherwise 1 to `max` bytes. */
static enum status put_text_member(const struct storing *s, const char *key, size_t max) {
    const struct json *v = json_get(s->item, key);
    char param[API_PARAM_BYTES];
    if (json_kind(v) != JS_TEXT) return refuse_member(s, key, FIELD_TEXT);
    if (max && (json_str(v).len < 1 || json_str(v).len > max)) {
        snprintf(param, sizeof(param), "%s[%zu].%s", s->param, s->idx, key);
        return api_refuse(s->e, 400, param, "invalid_value",
                          "Invalid '%s': the string is %zu bytes long; expected 1 to %zu.", param,
                          json_str(v).len, max);
    }
    buf_printf(s->out, ",\"%s\":", key);
    json_put(v, s->out);
    return ST_OK;
}

/* The item's own id, or one of the seed and its index. */
static void put_head(const struct storing *s, const char *prefix, const char *type) {
    struct str id = json_str(json_get(s->item, "id")),
               status = json_str(json_get(s->item, "status"));
    const bool is_known = str_is(status, "in_progress") || str_is(status, "incomplete");
    buf_put_text(s->out, "{\"id\":");
    if (id.len) {
        buf_put_json_string(s->out, id);
    } else {
        buf_printf(s->out, "\"%s_", prefix);
        buf_put_json_inner(s->out, s->seed);
        buf_printf(s->out, "_%zu\"", s->idx);
    }
    buf_printf(s->out, ",\"type\":\"%s\",\"status\":\"%s\"", type,
               is_known ? status.ptr : "completed");
}

/* ---- parts of a content ---- */

static bool is_text_part(struct str type) {
    return str_is(type, "input_text") || str_is(type, "output_text") || str_is(type, "text") ||
           str_is(type, "refusal");
}

static enum status check_part(const struct storing *s, const struct json *part, const char *key,
                              size_t i) {
    struct str type = json_str(json_get(part, "type"));
    if (json_kind(part) != JS_MAP)
        return api_refuse_kind(s->e, part, FIELD_MAP, "%s[%zu].%s[%zu]", s->param, s->idx, key, i);
    if (!is_text_part(type))
        return api_refuse_unsupported(s->e,
                                      "The models served here read text only, no images or files",
                                      "%s[%zu].%s[%zu].type", s->param, s->idx, key, i);
    const char *member = str_is(type, "refusal") ? "refusal" : "text";
    if (json_kind(json_get(part, member)) == JS_TEXT) return ST_OK;
    return api_refuse_missing(s->e, "%s[%zu].%s[%zu].%s", s->param, s->idx, key, i, member);
}

/* A message's content as a list of parts; a string is one part. */
static enum status put_content(const struct storing *s, bool is_assistant) {
    const struct json *content = json_get(s->item, "content");
    buf_put_text(s->out, ",\"content\":");
    if (json_kind(content) == JS_TEXT) {
        buf_put_text(s->out, is_assistant ? "[{\"type\":\"output_text\",\"text\":"
                                          : "[{\"type\":\"input_text\",\"text\":");
        json_put(content, s->out);
        buf_put_text(s->out, is_assistant ? ",\"annotations\":[]}]" : "}]");
        return ST_OK;
    }
    if (json_kind(content) != JS_LIST) return refuse_member(s, "content", FIELD_TEXT | FIELD_LIST);
    for (size_t i = 0; i < json_count(content); i++)
        TRY(check_part(s, json_at(content, i), "content", i));
    json_put(content, s->out);
    return ST_OK;
}

/* ---- items ---- */

static enum status store_message(const struct storing *s) {
    struct str role = json_str(json_get(s->item, "role"));
    const bool is_assistant = str_is(role, "assistant");
    if (!is_assistant && !str_is(role, "user") && !str_is(role, "system") &&
        !str_is(role, "developer")) {
        if (json_kind(json_get(s->item, "role")) != JS_TEXT)
            return refuse_member(s, "role", FIELD_TEXT);
        char param[API_PARAM_BYTES];
        snprintf(param, sizeof(param), "%s[%zu].role", s->param, s->idx);
        return api_refuse(s->e, 400, param, "invalid_value",
                          "Invalid '%s': '%.*s' is not supported; supported: user, assistant, "
                          "system, developer.",
                          param, (int)(role.len > 100 ? 100 : role.len), role.ptr);
    }
    put_head(s, "msg", "message");
    TRY(put_text_member(s, "role", 0));
    TRY(put_content(s, is_assistant));
    buf_put_char(s->out, '}');
    return ST_OK;
}

static enum status store_call(const struct storing *s) {
    put_head(s, "fc", "function_call");
    TRY(put_text_member(s, "call_id", CALL_ID_MAX));
    TRY(put_text_member(s, "name", NAME_MAX_BYTES));
    TRY(put_text_member(s, "arguments", 0));
    buf_put_char(s->out, '}');
    return ST_OK;
}

static enum status store_call_output(const struct storing *s) {
    const struct json *output = json_get(s->item, "output");
    put_head(s, "fco", "function_call_output");
    TRY(put_text_member(s, "call_id", CALL_ID_MAX));
    if (json_kind(output) != JS_TEXT && json_kind(output) != JS_LIST)
        return refuse_member(s, "output", FIELD_TEXT | FIELD_LIST);
    for (size_t i = 0; i < json_count(output); i++)
        TRY(check_part(s, json_at(output, i), "output", i));
    buf_put_text(s->out, ",\"output\":");
    json_put(output, s->out);
    buf_put_char(s->out, '}');
    return ST_OK;
}

/* A list of a reasoning item; each part of it has a type and a text. */
static enum status put_thoughts(const struct storing *s, const char *key) {
    const struct json *list = json_get(s->item, key);
    if (!is_absent(list) && json_kind(list) != JS_LIST) return refuse_member(s, key, FIELD_LIST);
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *part = json_at(list, i);
        if (json_kind(json_get(part, "type")) != JS_TEXT)
            return api_refuse_missing(s->e, "%s[%zu].%s[%zu].type", s->param, s->idx, key, i);
        if (json_kind(json_get(part, "text")) != JS_TEXT)
            return api_refuse_missing(s->e, "%s[%zu].%s[%zu].text", s->param, s->idx, key, i);
    }
    buf_printf(s->out, ",\"%s\":", key);
    if (is_absent(list))
        buf_put_text(s->out, "[]");
    else
        json_put(list, s->out);
    return ST_OK;
}

static enum status store_reasoning(const struct storing *s) {
    put_head(s, "rs", "reasoning");
    TRY(put_thoughts(s, "summary"));
    TRY(put_thoughts(s, "content"));
    buf_put_char(s->out, '}');
    return ST_OK;
}

static enum status store_item(const struct storing *s) {
    const struct json *type = json_get(s->item, "type");
    struct str word = json_str(type);
    if (json_kind(s->item) != JS_MAP)
        return api_refuse_kind(s->e, s->item, FIELD_MAP, "%s[%zu]", s->param, s->idx);
    if (is_absent(type) || str_is(word, "message")) return store_message(s);
    if (str_is(word, "function_call")) return store_call(s);
    if (str_is(word, "function_call_output")) return store_call_output(s);
    if (str_is(word, "reasoning")) return store_reasoning(s);
    return api_refuse_unsupported(s->e, "Items of this type are not supported by this server",
                                  "%s[%zu].type", s->param, s->idx);
}

static bool is_reference(const struct json *item) {
    return str_is(json_str(json_get(item, "type")), "item_reference");
}

static enum status store_items(struct storing *s, const struct json *items, bool skips_references) {
    size_t stored = 0;
    if (json_kind(items) != JS_LIST)
        return api_refuse_kind(s->e, items, FIELD_LIST, "%s", s->param);
    buf_put_char(s->out, '[');
    for (; s->idx < json_count(items); s->idx++) {
        s->item = json_at(items, s->idx);
        if (skips_references && is_reference(s->item)) continue;
        if (stored++) buf_put_char(s->out, ',');
        TRY(store_item(s));
    }
    buf_put_char(s->out, ']');
    return buf_status(s->out);
}

enum status items_store(const struct json *items, struct str seed, const char *param,
                        struct buf *out, struct api_error *e) {
    struct storing s = {.seed = seed, .param = param, .out = out, .e = e};
    return store_items(&s, items, false);
}

enum status responses_input_items(const struct json *body, struct str answer_id, struct buf *out,
                                  struct api_error *e) {
    const struct json *input = json_get(body, "input");
    struct storing s = {.seed = answer_id, .param = "input", .out = out, .e = e};
    if (json_kind(input) != JS_TEXT) return store_items(&s, input, true);
    buf_put_text(out, "[{\"id\":\"msg_");
    buf_put_json_inner(out, answer_id);
    buf_put_text(out, "_0\",\"type\":\"message\",\"status\":\"completed\",\"role\":\"user\","
                      "\"content\":[{\"type\":\"input_text\",\"text\":");
    json_put(input, out);
    buf_put_text(out, "}]}]");
    return buf_status(out);
}

/* ---- merging ---- */

static bool has_item(const struct json *items, struct str id) {
    for (size_t i = 0; i < json_count(items); i++)
        if (str_eq(json_str(json_get(json_at(items, i), "id")), id)) return true;
    return false;
}

/* Append the body's own input to the list. */
static enum status push_own(const struct json *body, struct json *list,
                            const struct json *earlier) {
    const struct json *input = json_get(body, "input");
    if (json_kind(input) == JS_TEXT) {
        struct json *message = json_map_create();
        enum status st = json_set(message, STR("role"), json_text_create(STR("user")));
        if (st == ST_OK) st = json_set(message, STR("content"), json_pin(input));
        if (st == ST_OK) return json_push(list, message);
        json_destroy(message);
        return st;
    }
    for (size_t i = 0; i < json_count(input); i++) {
        const struct json *item = json_at(input, i);
        if (is_reference(item) && has_item(earlier, json_str(json_get(item, "id")))) continue;
        TRY(json_push(list, json_pin(item)));
    }
    return ST_OK;
}

static enum status check_size(const struct json *list, const struct buf *out, struct api_error *e) {
    const struct json_limits *limits = &json_limits_request;
    if (json_count(list) > API_MESSAGES_MAX)
        return api_refuse(e, 400, "input", "array_above_max_length",
                          "The conversation has %zu items with those of this request, more than "
                          "the maximum of %d.",
                          json_count(list), API_MESSAGES_MAX);
    if (buf_status(out) == ST_NOMEM) return ST_NOMEM;
    if (buf_status(out) != ST_OK || out->len > limits->bytes_max ||
        json_count_values(buf_str(out)) > limits->values_max)
        return api_refuse(e, 400, "input", "string_above_max_length",
                          "The conversation is too long with the items of this request: at most "
                          "%zu bytes and %zu values are read.",
                          limits->bytes_max, limits->values_max);
    return ST_OK;
}

/* The body with the list as its input, in the place where that was. */
static void put_body(const struct json *body, const struct json *list, struct buf *out) {
    bool is_put = false;
    buf_put_char(out, '{');
    for (struct json_iter it = json_iter_first(body); json_iter_ok(&it); json_iter_next(&it)) {
        const bool is_input = str_is(it.key, "input");
        buf_put_json_string(out, it.key);
        buf_put_char(out, ':');
        json_put(is_input ? list : it.value, out);
        buf_put_char(out, ',');
        is_put |= is_input;
    }
    if (is_put) {
        out->len -= buf_status(out) == ST_OK; /* the last comma */
    } else {
        buf_put_text(out, "\"input\":");
        json_put(list, out);
    }
    buf_put_char(out, '}');
}

static enum status merge(const struct json *body, const struct json *earlier, struct buf *out,
                         struct api_error *e) {
    if (json_kind(body) != JS_MAP) return api_refuse_kind(e, body, FIELD_MAP, "body");
    if (json_kind(earlier) != JS_LIST && json_kind(earlier) != JS_NONE)
        return api_refuse_kind(e, earlier, FIELD_LIST, "earlier items");
    const struct json *input = json_get(body, "input");
    if (!is_absent(input) && json_kind(input) != JS_TEXT && json_kind(input) != JS_LIST)
        return api_refuse_kind(e, input, FIELD_TEXT | FIELD_LIST, "input");
    struct json *list = json_list_create();
    enum status st = list ? ST_OK : ST_NOMEM;
    for (size_t i = 0; i < json_count(earlier) && st == ST_OK; i++)
        st = json_push(list, json_pin(json_at(earlier, i)));
    if (st == ST_OK) st = push_own(body, list, earlier);
    if (st == ST_OK) put_body(body, list, out);
    if (st == ST_OK) st = check_size(list, out, e);
    json_destroy(list);
    return st;
}

/* Stored items were within these limits when they were stored. */
static enum status parse_items(struct str items, struct json **out, struct api_error *e) {
    struct err err = {0};
    *out = NULL;
    if (items.len == 0) return ST_OK;
    if (json_parse(items, &json_limits_model_file, out, &err) == ST_OK) return ST_OK;
    return api_refuse(e, 400, NULL, "invalid_json", "The stored items: %s.", err.text);
}

enum status responses_merge(struct str body, struct str earlier_items, struct buf *out,
                            struct api_error *e) {
    struct json *doc = NULL, *earlier = NULL;
    struct err err = {0};
    TRY(parse_items(earlier_items, &earlier, e));
    enum status st = ST_OK;
    if (json_parse(body, &json_limits_request, &doc, &err) != ST_OK)
        st = api_refuse(e, 400, NULL, "invalid_json", "The body: %s.", err.text);
    if (st == ST_OK) st = merge(doc, earlier, out, e);
    json_destroy(doc);
    json_destroy(earlier);
    return st;
}

/* ---- pages ---- */

/* The index behind `after` in the direction of the page, which may be outside the list. */
static int64_t first_index(const struct json *items, bool ascending, struct str after) {
    const int64_t count = (int64_t)json_count(items);
    if (after.len == 0) return ascending ? 0 : count - 1;
    for (int64_t i = 0; i < count; i++)
        if (str_eq(json_str(json_get(json_at(items, (size_t)i), "id")), after))
            return ascending ? i + 1 : i - 1;
    return NO_ITEM;
}

static void put_page(const struct json *items, int64_t first, const struct page_choice *choice,
                     struct buf *out) {
    struct object_page page;
    const int64_t step = choice->ascending ? 1 : -1;
    object_page_init(&page, choice->limit);
    for (int64_t i = first; i >= 0 && i < (int64_t)json_count(items); i += step) {
        const struct json *item = json_at(items, (size_t)i);
        struct buf *at = object_page_add(&page, json_str(json_get(item, "id")));
        if (!at) break;
        json_put(item, at);
    }
    object_page_put(&page, PAGE_OPENAI, out);
    object_page_deinit(&page);
}

enum status items_page_put(struct str items, const struct page_choice *choice, struct str after,
                           struct buf *out, struct api_error *e) {
    struct json *list = NULL;
    TRY(parse_items(items.len ? items : STR("[]"), &list, e));
    const int64_t first = first_index(list, choice->ascending, after);
    enum status st = ST_OK;
    if (json_kind(list) != JS_LIST) st = api_refuse_kind(e, list, FIELD_LIST, "stored items");
    if (st == ST_OK && first == NO_ITEM)
        st = api_refuse(e, 400, "after", "invalid_value",
                        "Invalid 'after': there is no item '%.*s'.",
                        (int)(after.len > 100 ? 100 : after.len), after.ptr);
    if (st == ST_OK) put_page(list, first, choice, out);
    if (st == ST_OK) st = buf_status(out);
    json_destroy(list);
    return st;
}

enum status items_find_put(struct str items, struct str id, struct buf *out) {
    struct json *list = NULL;
    struct api_error e;
    enum status st = ST_MISSING;
    if (parse_items(items, &list, &e) != ST_OK) return ST_MISSING;
    for (size_t i = 0; i < json_count(list) && st == ST_MISSING; i++) {
        if (!str_eq(json_str(json_get(json_at(list, i), "id")), id)) continue;
        json_put(json_at(list, i), out);
        st = buf_status(out);
    }
    json_destroy(list);
    return st;
}
