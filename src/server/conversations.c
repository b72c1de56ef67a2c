/* server/conversations.c - conversations that are stored: /v1/conversations.
 *
 * A conversation is a list of items. POST /v1/responses with `conversation` begins with its items,
 * and adds its own input and its output to it when the answer is complete.
 */
#include <stdio.h>
#include <string.h>

#include "api/conversation_items.h"
#include "api/metadata.h"
#include "api/object_page.h"
#include "api/stored_objects.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "jobs/answers.h"
#include "server/handlers.h"
#include "server/stored_paths.h"
#include "server/stored_read.h"

enum { CONVERSATION_BYTES_MAX = 64 << 20 };

struct conversation_read {
    struct stored_read base; /* base.id: the conversation's */
    struct conversation_create create;
    int64_t created_s;
    struct page_choice choice;
    struct object_page page;
    char after[STORED_AFTER_BYTES];
    char item[STORED_AFTER_BYTES]; /* an item's id, or "" */
};

static struct conversation_read *self(struct stored_read *base) {
    return (struct conversation_read *)base;
}

static void deinit(struct stored_read *base) {
    struct conversation_read *r = self(base);
    conversation_create_deinit(&r->create);
    object_page_deinit(&r->page);
}

static struct conversation_read *create(struct http_request *req, struct str id) {
    struct conversation_read *r = stored_read_create(req, sizeof(*r), "conversation", id);
    if (!r) return NULL;
    r->base.deinit = deinit;
    buf_init(&r->create.metadata, 1 << 16);
    buf_init(&r->create.items, CONVERSATION_BYTES_MAX);
    object_page_init(&r->page, 1);
    return r;
}

static enum status put_conversation(struct stored_read *base, struct store_db *db,
                                    struct err *err) {
    struct conversation_row row = {0};
    TRY(conversations_find(db, str_of(base->owner), str_of(base->id), &row, err));
    conversation_object_put(&row, &base->body);
    mem_free(row.memory);
    return buf_status(&base->body);
}

/* ---- create ---- */

static enum status run_create(struct stored_read *base, struct store_db *db, struct err *err) {
    struct conversation_read *r = self(base);
    struct str owner = str_of(base->owner), id = str_of(base->id);
    TRY(conversations_insert(db, owner, id, buf_str(&r->create.metadata), r->created_s, err));
    if (r->create.items.len > 0)
        TRY(conversations_append(db, owner, id, buf_str(&r->create.items), err));
    return put_conversation(base, db, err);
}

void handle_conversation_create(struct http_request *req) {
    struct api_error e = {0};
    char id[SERVER_ID_BYTES + 8];
    struct json *doc = stored_body_parse(req);
    if (!doc) return;
    int len = snprintf(id, sizeof(id), "conv_%s", req->id);
    struct conversation_read *r = create(req, (struct str){id, (size_t)len});
    enum status st = ST_OK;
    if (r) {
        conversation_create_deinit(&r->create);
        st = conversation_create_read(doc, str_of(req->id), &r->create, &e);
    }
    json_destroy(doc);
    if (!r) return;
    if (st != ST_OK) {
        if (e.status == 0) api_refuse(&e, 503, NULL, "out_of_memory", "out of memory");
        stored_read_refuse(&r->base, &e);
        return;
    }
    r->created_s = clock_wall_s();
    r->base.run = run_create;
    stored_read_push(&r->base, false);
}

/* ---- read ---- */

/* An item is missing: the response names it, if its conversation exists. */
static enum status name_missing(struct stored_read *base, struct store_db *db, const char *item,
                                enum status st, struct err *err) {
    struct conversation_row row = {0};
    if (st != ST_MISSING || !item[0]) return st;
    TRY(conversations_find(db, str_of(base->owner), str_of(base->id), &row, err));
    conversation_row_deinit(&row);
    return api_refuse(&base->error, 404, NULL, "not_found",
                      "conversation \"%s\" has no item \"%s\"", base->id, item);
}

static bool add_item(void *ctx, struct str item_id, struct str json) {
    struct conversation_read *r = ctx;
    struct buf *out = object_page_add(&r->page, item_id);
    if (out) buf_put_str(out, json);
    return out != NULL;
}

static enum status run_list(struct stored_read *base, struct store_db *db, struct err *err) {
    struct conversation_read *r = self(base);
    const struct answers_page page = {.owner = str_of(base->owner),
                                      .after = str_of(r->after),
                                      .limit = r->choice.limit + 1,
                                      .ascending = r->choice.ascending};
    object_page_deinit(&r->page);
    object_page_init(&r->page, r->choice.limit);
    enum status st = conversations_list(db, &page, str_of(base->id), add_item, r, err);
    TRY(name_missing(base, db, r->after, st, err));
    object_page_put(&r->page, PAGE_OPENAI, &base->body);
    return buf_status(&base->body);
}

static enum status run_item(struct stored_read *base, struct store_db *db, struct err *err) {
    struct conversation_read *r = self(base);
    struct str items = {0};
    TRY(conversations_items(db, str_of(base->owner), str_of(base->id), CONVERSATION_BYTES_MAX,
                            &items, err));
    enum status st = items_find_put(items, str_of(r->item), &base->body);
    mem_free((char *)(uintptr_t)items.ptr);
    return name_missing(base, db, r->item, st, err);
}

void handle_conversation_get(struct http_request *req) {
    struct conversation_read *r = create(req, req->arg);
    if (!r) return;
    r->base.run = put_conversation;
    stored_read_push(&r->base, true);
}

void handle_conversation_items(struct http_request *req) {
    struct page_choice choice;
    char after[STORED_AFTER_BYTES];
    if (!stored_page_read(req, &page_rules_items, &choice, after)) return;
    struct conversation_read *r = create(req, req->arg);
    if (!r) return;
    r->choice = choice;
    str_store(str_of(after), r->after, sizeof(r->after));
    r->base.run = run_list;
    stored_read_push(&r->base, true);
}

/* Of "ID/items/ITEM". */
static struct conversation_read *create_item(struct http_request *req) {
    const char *slash = memchr(req->arg.ptr, '/', req->arg.len);
    const struct str id = str_take(req->arg, (size_t)(slash - req->arg.ptr));
    struct conversation_read *r = create(req, id);
    if (r) str_store(str_skip(req->arg, id.len + STR("/items/").len), r->item, sizeof(r->item));
    return r;
}

void handle_conversation_item(struct http_request *req) {
    struct conversation_read *r = create_item(req);
    if (!r) return;
    r->base.run = run_item;
    stored_read_push(&r->base, true);
}

/* ---- change ---- */

static enum status run_update(struct stored_read *base, struct store_db *db, struct err *err) {
    TRY(conversations_set_metadata(db, str_of(base->owner), str_of(base->id),
                                   buf_str(&self(base)->create.metadata), err));
    return put_conversation(base, db, err);
}

static enum status run_add(struct stored_read *base, struct store_db *db, struct err *err) {
    struct str items = buf_str(&self(base)->create.items);
    TRY(conversations_append(db, str_of(base->owner), str_of(base->id), items, err));
    return conversation_added_put(items, &base->body);
}

/* `adds`: items are added, otherwise its metadata are replaced. */
static void change(struct http_request *req, bool adds) {
    struct api_error e = {0};
    struct json *doc = stored_body_parse(req);
    if (!doc) return;
    struct conversation_read *r = create(req, req->arg);
    enum status st = ST_OK;
    if (r && adds)
        st = conversation_items_read(doc, str_of(req->id), &r->create.items, &e);
    else if (r)
        st = metadata_update_read(doc, &r->create.metadata, &e);
    json_destroy(doc);
    if (!r) return;
    if (st != ST_OK) {
        if (e.status == 0) api_refuse(&e, 503, NULL, "out_of_memory", "out of memory");
        stored_read_refuse(&r->base, &e);
        return;
    }
    r->base.run = adds ? run_add : run_update;
    stored_read_push(&r->base, false);
}

void handle_conversation_update(struct http_request *req) { change(req, false); }
void handle_conversation_add(struct http_request *req) { change(req, true); }

static enum status run_delete(struct stored_read *base, struct store_db *db, struct err *err) {
    TRY(conversations_delete(db, str_of(base->owner), str_of(base->id), err));
    conversation_deleted_put(str_of(base->id), &base->body);
    return ST_OK;
}

/* The response is the conversation, as OpenAI's is. */
static enum status run_delete_item(struct stored_read *base, struct store_db *db, struct err *err) {
    const char *item = self(base)->item;
    enum status st =
        conversations_delete_item(db, str_of(base->owner), str_of(base->id), str_of(item), err);
    TRY(name_missing(base, db, item, st, err));
    return put_conversation(base, db, err);
}

void handle_conversation_delete(struct http_request *req) {
    struct conversation_read *r = create(req, req->arg);
    if (!r) return;
    r->base.run = run_delete;
    stored_read_push(&r->base, false);
}

void handle_conversation_item_delete(struct http_request *req) {
    struct conversation_read *r = create_item(req);
    if (!r) return;
    r->base.run = run_delete_item;
    stored_read_push(&r->base, false);
}
