/* jobs/conversations.c - see jobs/answers.h for the contract: conversations and their items.
 *
 * Deleting a conversation takes its id away; upkeep.c deletes its items.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "jobs/answers.h"
#include "jobs/conversations_int.h"
#include "jobs/db_int.h"

enum { ITEM_ID_BYTES = 48, ITEM_ID_DIGITS = 32 };
static const size_t ITEM_BYTES_MAX = (size_t)1 << 30;

static enum status say_missing(struct str id, struct err *err) {
    return err_set(err, ST_MISSING, "there is no conversation %.*s", STR_ARG(id));
}

static enum status find_number(struct store_db *db, struct str owner, struct str id,
                               int64_t *number, struct err *err) {
    enum status st =
        db_get_int(db, "SELECT number FROM conversations WHERE id = ?2 AND (?1 = '' OR owner = ?1)",
                   VALUES(V_TEXT(owner), V_TEXT(id)), number, err);
    return st == ST_MISSING ? say_missing(id, err) : st;
}

enum status conversations_insert(struct store_db *db, struct str owner, struct str id,
                                 struct str metadata, int64_t created_s, struct err *err) {
    TRY(db_reserve(db, metadata.len, err));
    enum status st =
        db_run(db, "INSERT INTO conversations (id, owner, created_s, metadata) VALUES (?, ?, ?, ?)",
               VALUES(V_TEXT(id), V_TEXT(owner), V_INT(created_s), V_TEXT(metadata)), err);
    if (st == ST_BAD) return err_set(err, ST_BAD, "conversation %.*s exists", STR_ARG(id));
    return st;
}

void conversation_row_deinit(struct conversation_row *row) {
    mem_free(row->memory);
    *row = (struct conversation_row){0};
}

enum status conversations_find(struct store_db *db, struct str owner, struct str id,
                               struct conversation_row *out, struct err *err) {
    static const uint16_t offsets[] = {offsetof(struct conversation_row, id),
                                       offsetof(struct conversation_row, metadata)};
    *out = (struct conversation_row){0};
    struct query q;
    enum status st = query_begin(&q, db,
                                 "SELECT created_s, id, metadata FROM conversations"
                                 " WHERE id = ?2 AND (?1 = '' OR owner = ?1)",
                                 VALUES(V_TEXT(owner), V_TEXT(id)), err);
    if (st == ST_OK) st = query_next(&q);
    if (st == ST_OK) {
        out->created_s = query_int(&q, 0);
        st = query_copy_texts(&q, &(struct text_columns){offsets, 2, 1}, out, &out->memory);
    }
    query_end(&q);
    return st == ST_MISSING ? say_missing(id, err) : st;
}

enum status conversations_set_metadata(struct store_db *db, struct str owner, struct str id,
                                       struct str metadata, struct err *err) {
    TRY(db_run(db,
               "UPDATE conversations SET metadata = ?3 WHERE id = ?2 AND (?1 = '' OR owner = ?1)",
               VALUES(V_TEXT(owner), V_TEXT(id), V_TEXT(metadata)), err));
    return db_changes(db) ? ST_OK : say_missing(id, err);
}

enum status conversations_delete(struct store_db *db, struct str owner, struct str id,
                                 struct err *err) {
    int64_t number = 0;
    TRY(find_number(db, owner, id, &number, err));
    db->sweeps = true;
    return db_run(db, "UPDATE conversations SET id = NULL, metadata = '' WHERE number = ?",
                  VALUES(V_INT(number)), err);
}

/* ---- adding items ---- */

static const char *prefix_of(const struct json *item) {
    struct str type = json_str(json_get(item, "type"));
    if (str_is(type, "function_call")) return "fc_";
    if (str_is(type, "function_call_output")) return "fco_";
    if (str_is(type, "reasoning")) return "rs_";
    return type.len == 0 || str_is(type, "message") ? "msg_" : "item_";
}

/* An id of its own for the item that gets row number `number`: those numbers are not used again, so
 * an operation that runs twice gives the same id, and no two items of the store share one. */
static enum status make_id(const struct json *item, int64_t number, char out[ITEM_ID_BYTES],
                           struct err *err) {
    char text[64], hex[SHA256_HEX_BYTES];
    struct sha256 *h = sha256_create();
    if (!h) return err_set(err, ST_NOMEM, "out of memory");
    int len = snprintf(text, sizeof(text), "jitney conversation item %lld", (long long)number);
    sha256_add(h, text, (size_t)len);
    sha256_hex(h, hex);
    sha256_destroy(h);
    snprintf(out, ITEM_ID_BYTES, "%s%.*s", prefix_of(item), ITEM_ID_DIGITS, hex);
    return ST_OK;
}

static enum status is_id_used(struct store_db *db, int64_t conversation, struct str id,
                              bool *is_used, struct err *err) {
    int64_t number = 0;
    enum status st = db_get_int(db, "SELECT number FROM items WHERE conversation = ? AND id = ?",
                                VALUES(V_INT(conversation), V_TEXT(id)), &number, err);
    *is_used = st == ST_OK;
    return st == ST_MISSING ? ST_OK : st;
}

static enum status insert_item(struct store_db *db, int64_t conversation, struct str id,
                               const struct json *item, struct err *err) {
    struct buf text;
    buf_init(&text, ITEM_BYTES_MAX);
    json_put(item, &text);
    enum status st = buf_status(&text);
    if (st != ST_OK) err_set(err, st, "an item of %zu bytes does not fit in memory", text.len);
    if (st == ST_OK)
        st = db_run(db, "INSERT INTO items (conversation, id, json) VALUES (?, ?, ?)",
                    VALUES(V_INT(conversation), V_TEXT(id), V_TEXT(buf_str(&text))), err);
    buf_deinit(&text);
    return st;
}

static enum status next_item_number(struct store_db *db, int64_t *out, struct err *err) {
    *out = 0;
    enum status st =
        db_get_int(db, "SELECT seq FROM sqlite_sequence WHERE name = 'items'", NO_VALUES, out, err);
    ++*out;
    return st == ST_MISSING ? ST_OK : st;
}

static enum status add_item(struct store_db *db, int64_t conversation, struct json *item,
                            struct err *err) {
    if (json_kind(item) != JS_MAP) return err_set(err, ST_BAD, "an item is not an object");
    struct str id = json_str(json_get(item, "id"));
    bool is_used = id.len == 0;
    if (id.len) TRY(is_id_used(db, conversation, id, &is_used, err));
    char made[ITEM_ID_BYTES];
    if (is_used) {
        int64_t number = 0;
        TRY(next_item_number(db, &number, err));
        TRY(make_id(item, number, made, err));
        id = str_of(made);
        if (json_set(item, STR("id"), json_text_create(id)) != ST_OK)
            return err_set(err, ST_NOMEM, "out of memory");
    }
    return insert_item(db, conversation, id, item, err);
}

enum status conversation_extend(struct store_db *db, int64_t conversation, struct str items,
                                struct err *err) {
    if (!items.len) return ST_OK;
    static const struct json_limits limits = {
        .bytes_max = (size_t)1 << 30, .depth_max = 512, .values_max = (size_t)1 << 28};
    struct json *list = NULL;
    TRY(json_parse(items, &limits, &list, err));
    enum status st = ST_OK;
    if (json_kind(list) != JS_LIST) st = err_set(err, ST_BAD, "items are not a list");
    for (size_t i = 0; st == ST_OK && i < json_count(list); i++)
        st = add_item(db, conversation, json_at(list, i), err);
    json_destroy(list);
    return st;
}

enum status conversations_append(struct store_db *db, struct str owner, struct str id,
                                 struct str items, struct err *err) {
    int64_t number = 0;
    TRY(find_number(db, owner, id, &number, err));
    TRY(db_reserve(db, items.len, err));
    return conversation_extend(db, number, items, err);
}

/* ---- reading items ---- */

enum status items_take(struct buf *list, struct str *out, struct err *err) {
    const size_t max = list->max;
    enum status st = buf_status(list);
    if (st == ST_FULL) return err_set(err, ST_BAD, "the conversation has more than %zu bytes", max);
    if (st != ST_OK) return err_set(err, st, "out of memory");
    size_t len = 0;
    char *text = buf_take(list, &len);
    *out = (struct str){text, len};
    return ST_OK;
}

enum status conversations_check_complete(struct store_db *db, struct str owner, struct str id,
                                         struct err *err) {
    int64_t number = 0, count = 0;
    TRY(find_number(db, owner, id, &number, err));
    TRY(db_get_int(db, "SELECT count(*) FROM answers WHERE state = 0 AND conversation = ?",
                   VALUES(V_TEXT(id)), &count, err));
    if (count == 0) return ST_OK;
    return err_set(err, ST_BAD, "conversation %.*s has a response that is not complete; try again",
                   STR_ARG(id));
}

enum status conversations_mark(struct store_db *db, struct str owner, struct str id,
                               struct conversation_mark *out, struct err *err) {
    int64_t number = 0;
    *out = (struct conversation_mark){0};
    TRY(find_number(db, owner, id, &number, err));
    struct query q;
    enum status st = query_begin(
        &q, db, "SELECT count(*), coalesce(max(number), 0) FROM items WHERE conversation = ?",
        VALUES(V_INT(number)), err);
    if (st == ST_OK) st = query_next(&q);
    if (st == ST_OK)
        *out = (struct conversation_mark){.item_count = query_int(&q, 0),
                                          .last_item = query_int(&q, 1)};
    query_end(&q);
    return st;
}

enum status conversations_check_unchanged(struct store_db *db, struct str owner, struct str id,
                                          struct conversation_mark mark, struct err *err) {
    struct conversation_mark now;
    TRY(conversations_mark(db, owner, id, &now, err));
    if (now.item_count == mark.item_count && now.last_item == mark.last_item) return ST_OK;
    return err_set(err, ST_BAD,
                   "conversation %.*s has changed since this request read its items; try again",
                   STR_ARG(id));
}

enum status conversations_items(struct store_db *db, struct str owner, struct str id,
                                size_t bytes_max, struct str *out, struct err *err) {
    int64_t number = 0;
    TRY(find_number(db, owner, id, &number, err));
    struct buf list;
    buf_init(&list, bytes_max);
    buf_put_char(&list, '[');
    struct query q;
    enum status st =
        query_begin(&q, db, "SELECT json FROM items WHERE conversation = ? ORDER BY number",
                    VALUES(V_INT(number)), err);
    while (st == ST_OK && buf_status(&list) == ST_OK && (st = query_next(&q)) == ST_OK) {
        if (list.len > 1) buf_put_char(&list, ',');
        buf_put_str(&list, query_text(&q, 0));
    }
    query_end(&q);
    buf_put_char(&list, ']');
    if (st == ST_OK || st == ST_MISSING) st = items_take(&list, out, err);
    buf_deinit(&list);
    return st;
}

enum status conversations_list(struct store_db *db, const struct answers_page *page, struct str id,
                               bool (*each)(void *ctx, struct str item_id, struct str json),
                               void *ctx, struct err *err) {
    int64_t number = 0, from = page->ascending ? 0 : INT64_MAX;
    TRY(find_number(db, page->owner, id, &number, err));
    if (page->after.len) {
        enum status st =
            db_get_int(db, "SELECT number FROM items WHERE conversation = ? AND id = ?",
                       VALUES(V_INT(number), V_TEXT(page->after)), &from, err);
        if (st == ST_MISSING)
            return err_set(err, ST_MISSING, "there is no item %.*s", STR_ARG(page->after));
        TRY(st);
    }
    const char *sql = page->ascending
                          ? "SELECT id, json FROM items WHERE conversation = ? AND number > ?"
                            " ORDER BY number LIMIT ?"
                          : "SELECT id, json FROM items WHERE conversation = ? AND number < ?"
                            " ORDER BY number DESC LIMIT ?";
    struct query q;
    enum status st =
        query_begin(&q, db, sql, VALUES(V_INT(number), V_INT(from), V_INT(page->limit)), err);
    bool goes_on = true;
    while (st == ST_OK && goes_on && (st = query_next(&q)) == ST_OK)
        goes_on = each(ctx, query_text(&q, 0), query_text(&q, 1));
    query_end(&q);
    return st == ST_MISSING ? ST_OK : st;
}

enum status conversations_delete_item(struct store_db *db, struct str owner, struct str id,
                                      struct str item_id, struct err *err) {
    int64_t number = 0;
    TRY(find_number(db, owner, id, &number, err));
    TRY(db_run(db, "DELETE FROM items WHERE conversation = ? AND id = ?",
               VALUES(V_INT(number), V_TEXT(item_id)), err));
    if (db_changes(db)) return ST_OK;
    return err_set(err, ST_MISSING, "there is no item %.*s", STR_ARG(item_id));
}
