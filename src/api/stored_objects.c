/* api/stored_objects.c - see api/stored_objects.h for the contract. */
#include "api/stored_objects.h"

#include "api/conversation_items.h"
#include "api/fields.h"
#include "api/metadata.h"
#include "base/json.h"
#include "jobs/answers.h"

enum { ITEMS_BYTES_MAX = 1 << 25 };

bool stored_id_read(struct str sent, const char *prefix, struct str *id) {
    if (!str_starts(sent, str_of(prefix))) return false;
    *id = str_skip(sent, str_of(prefix).len);
    return id->len > 0;
}

/* ---- conversations ---- */

static enum status read_items(const struct json *items, struct str seed, struct buf *out,
                              struct api_error *e) {
    if (json_count(items) > CONVERSATION_ITEMS_MAX)
        return api_refuse(e, 400, "items", "array_above_max_length",
                          "Invalid 'items': the array is %zu long, longer than the maximum of %d.",
                          json_count(items), CONVERSATION_ITEMS_MAX);
    return items_store(items, seed, "items", out, e);
}

enum status conversation_create_read(const struct json *body, struct str seed,
                                     struct conversation_create *out, struct api_error *e) {
    const struct json *items = json_get(body, "items");
    buf_init(&out->metadata, METADATA_BYTES_MAX);
    buf_init(&out->items, ITEMS_BYTES_MAX);
    if (body && json_kind(body) != JS_MAP) return api_refuse_kind(e, body, FIELD_MAP, "body");
    TRY(metadata_read(json_get(body, "metadata"), "metadata", &out->metadata, e));
    if (json_kind(items) == JS_NONE || json_kind(items) == JS_NULL) return ST_OK;
    return read_items(items, seed, &out->items, e);
}

void conversation_create_deinit(struct conversation_create *c) {
    buf_deinit(&c->metadata);
    buf_deinit(&c->items);
}

enum status conversation_items_read(const struct json *body, struct str seed, struct buf *out,
                                    struct api_error *e) {
    const struct json *items = json_get(body, "items");
    if (json_kind(body) != JS_MAP) return api_refuse_kind(e, body, FIELD_MAP, "body");
    if (json_kind(items) == JS_NONE || json_kind(items) == JS_NULL)
        return api_refuse_missing(e, "items");
    if (json_kind(items) == JS_LIST && json_count(items) == 0)
        return api_refuse(e, 400, "items", "array_below_min_length",
                          "Invalid 'items': the array is empty; expected 1 to %d items.",
                          CONVERSATION_ITEMS_MAX);
    return read_items(items, seed, out, e);
}

void conversation_object_put(const struct conversation_row *row, struct buf *out) {
    buf_put_text(out, "{\"id\":");
    buf_put_json_string(out, row->id);
    buf_printf(out, ",\"object\":\"conversation\",\"created_at\":%lld", (long long)row->created_s);
    metadata_put(row->metadata, "{}", out);
    buf_put_char(out, '}');
}

static void put_deleted(struct str id, const char *object, struct buf *out) {
    buf_put_text(out, "{\"id\":");
    buf_put_json_string(out, id);
    buf_printf(out, ",\"object\":\"%s\",\"deleted\":true}", object);
}

void conversation_deleted_put(struct str id, struct buf *out) {
    put_deleted(id, "conversation.deleted", out);
}

enum status conversation_added_put(struct str items, struct buf *out) {
    const struct page_choice all = {.limit = CONVERSATION_ITEMS_MAX, .ascending = true};
    struct api_error e;
    return items_page_put(items, &all, STR(""), out, &e);
}

/* ---- stored answers ---- */

void response_deleted_put(struct str id, struct buf *out) { put_deleted(id, "response", out); }

void chat_deleted_put(struct str id, struct buf *out) {
    buf_put_text(out, "{\"object\":\"chat.completion.deleted\",\"id\":");
    buf_put_json_string(out, id);
    buf_put_text(out, ",\"deleted\":true}");
}

enum status chat_stored_put(struct str whole, struct str metadata, struct buf *out) {
    struct json *doc = NULL, *pairs = NULL;
    enum status st = json_parse(whole, &json_limits_model_file, &doc, NULL);
    if (st == ST_OK && json_kind(doc) != JS_MAP) st = ST_BAD;
    if (st == ST_OK && metadata.len) st = json_parse(metadata, &json_limits_request, &pairs, NULL);
    if (st == ST_OK)
        st = json_set(doc, STR("metadata"), pairs ? pairs : json_null_create());
    else
        json_destroy(pairs);
    if (st == ST_OK) {
        json_put(doc, out);
        st = buf_status(out);
    }
    json_destroy(doc);
    return st;
}

/* ---- the messages of stored chats ---- */

static enum status fill_message(struct json *message, struct str id, size_t number) {
    struct buf name;
    if (json_kind(message) != JS_MAP) return ST_BAD;
    const bool has_parts = json_kind(json_get(message, "content")) == JS_LIST;
    struct json *parts = has_parts ? json_pin(json_get(message, "content")) : json_null_create();
    TRY(json_set(message, STR("content_parts"), parts));
    if (has_parts || !json_get(message, "content"))
        TRY(json_set(message, STR("content"), json_null_create()));
    if (!json_get(message, "name")) TRY(json_set(message, STR("name"), json_null_create()));
    buf_init(&name, 256);
    buf_printf(&name, "%.*s-%zu", STR_ARG(id), number);
    enum status st = buf_status(&name);
    if (st == ST_OK) st = json_set(message, STR("id"), json_text_create(buf_str(&name)));
    buf_deinit(&name);
    return st;
}

enum status chat_messages_put(struct str body, struct str id, struct buf *out) {
    struct json *doc = NULL;
    struct json_limits limits = json_limits_request;
    limits.bytes_max = body.len + 1;
    enum status st = json_parse(body, &limits, &doc, NULL);
    const struct json *list = json_get(doc, "messages");
    if (st == ST_OK && json_kind(list) != JS_LIST) st = ST_BAD;
    for (size_t i = 0; i < json_count(list) && st == ST_OK; i++)
        st = fill_message(json_at(list, i), id, i);
    if (st == ST_OK) json_put(list, out);
    if (st == ST_OK) st = buf_status(out);
    json_destroy(doc);
    return st;
}
