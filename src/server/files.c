/* server/files.c - the files of clients: list, describe, delete.
 *
 * A key sees the files of its owner; another's file is as one that does not exist.
 */
#include "api/file_objects.h"
#include "api/object_page.h"
#include "jobs/files.h"
#include "server/handlers.h"
#include "server/http_request.h"
#include "server/stored_paths.h"
#include "server/stored_read.h"

enum { PURPOSE_BYTES = 64 };

/* ---- GET /v1/files ---- */

struct files_read {
    struct stored_read base;
    struct page_choice page;
    char after[STORED_AFTER_BYTES], purpose[PURPOSE_BYTES];
};

static bool add_file(void *ctx, const struct file_row *row) {
    struct buf *out = object_page_add(ctx, row->id);
    if (out) file_object_put(row, out);
    return out;
}

static enum status run_list(struct stored_read *base, struct store_db *db, struct err *err) {
    const struct files_read *r = (struct files_read *)base;
    const struct files_page query = {.owner = str_of(base->owner),
                                     .purpose = str_of(r->purpose),
                                     .after = str_of(r->after),
                                     .limit = r->page.limit + 1,
                                     .ascending = r->page.ascending};
    struct object_page page;
    object_page_init(&page, r->page.limit);
    enum status st = files_list(db, &query, add_file, &page, err);
    if (st == ST_OK) object_page_put(&page, PAGE_OPENAI, &base->body);
    object_page_deinit(&page);
    return st;
}

static void read_purpose(const struct http_request *req, char out[PURPOSE_BYTES]) {
    struct buf text;
    buf_init(&text, PURPOSE_BYTES - 1);
    (void)http_query_find(req->head->query, "purpose", &text);
    str_store(buf_str(&text), out, PURPOSE_BYTES);
    buf_deinit(&text);
}

void handle_files(struct http_request *req) {
    struct page_choice page;
    char after[STORED_AFTER_BYTES];
    if (!stored_page_read(req, &page_rules_files, &page, after)) return;
    struct files_read *r = stored_read_create(req, sizeof(*r), "file", (struct str){0});
    if (!r) return;
    r->page = page;
    str_store(str_of(after), r->after, sizeof(r->after));
    r->base.cursor = r->after;
    r->base.cursor_name = "after";
    read_purpose(req, r->purpose);
    r->base.run = run_list;
    stored_read_push(&r->base, true);
}

/* ---- GET and DELETE /v1/files/ID ---- */

static enum status run_describe(struct stored_read *r, struct store_db *db, struct err *err) {
    struct file_row row = {0};
    TRY(files_find(db, str_of(r->owner), str_of(r->id), &row, err));
    file_object_put(&row, &r->body);
    file_row_deinit(&row);
    return ST_OK;
}

void handle_file(struct http_request *req) {
    struct stored_read *r = stored_read_create(req, sizeof(*r), "file", req->arg);
    if (!r) return;
    r->run = run_describe;
    stored_read_push(r, true);
}

static enum status run_delete(struct stored_read *r, struct store_db *db, struct err *err) {
    TRY(files_delete(db, str_of(r->owner), str_of(r->id), err));
    file_deleted_put(str_of(r->id), &r->body);
    return ST_OK;
}

void handle_file_delete(struct http_request *req) {
    struct stored_read *r = stored_read_create(req, sizeof(*r), "file", req->arg);
    if (!r) return;
    r->run = run_delete;
    stored_read_push(r, false);
}
