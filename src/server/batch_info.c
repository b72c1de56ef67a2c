/* server/batch_info.c - the routes of batches that exist: list, describe, cancel, delete. They are
 * OpenAI's batches and Anthropic's message batches.
 *
 * A key sees the batches of its owner; another's batch is as one that does not exist, and so is a
 * batch of the other API.
 */
#include <stdio.h>

#include "api/batch_objects.h"
#include "api/message_batches.h"
#include "api/object_page.h"
#include "base/check.h"
#include "base/clock.h"
#include "jobs/batches.h"
#include "jobs/files.h"
#include "server/batch_run.h"
#include "server/handlers.h"
#include "server/http_request.h"
#include "server/stored_paths.h"
#include "server/stored_read.h"

enum { HOST_BYTES_MAX = 400, ORIGIN_BYTES = HOST_BYTES_MAX + 16 };

struct batch_read {
    struct stored_read base;
    struct server *server;
    enum batch_kind kind;
    char origin[ORIGIN_BYTES]; /* "https://host:port" of the URL of results */
    /* Of a list. */
    struct page_choice page;
    bool is_reversed; /* asked for with before_id: read in the other direction */
    char after[STORED_AFTER_BYTES];
};

static void put_batch(const struct batch_row *row, struct str origin, struct buf *out) {
    if (row->kind == BATCH_ANTHROPIC)
        message_batch_object_put(row, origin, out);
    else
        batch_object_put(row, out);
}

/* Of the URL that the client uses, as far as it is known. */
static void put_origin(const struct http_request *req, char out[ORIGIN_BYTES]) {
    const struct str host = req->head->host;
    if (host.len == 0 || host.len > HOST_BYTES_MAX) return;
    snprintf(out, ORIGIN_BYTES, "%s://%.*s", req->head->is_tls ? "https" : "http", (int)host.len,
             host.ptr);
}

static struct batch_read *create(struct http_request *req, enum batch_kind kind) {
    const char *what = kind == BATCH_OPENAI ? "batch" : "message batch";
    struct batch_read *r = stored_read_create(req, sizeof(*r), what, req->arg);
    if (!r) return NULL;
    r->server = req->server;
    r->kind = kind;
    put_origin(req, r->origin);
    return r;
}

/* ---- one ---- */

static enum status find(const struct batch_read *r, struct store_db *db, struct batch_row *out,
                        struct err *err) {
    TRY(batches_find(db, str_of(r->base.owner), str_of(r->base.id), out, err));
    if (out->kind == r->kind) return ST_OK;
    batch_row_deinit(out);
    return err_set(err, ST_MISSING, "no such batch");
}

static enum status run_describe(struct stored_read *base, struct store_db *db, struct err *err) {
    const struct batch_read *r = (struct batch_read *)base;
    struct batch_row row = {0};
    TRY(find(r, db, &row, err));
    put_batch(&row, str_of(r->origin), &base->body);
    batch_row_deinit(&row);
    return ST_OK;
}

static void describe(struct http_request *req, enum batch_kind kind) {
    struct batch_read *r = create(req, kind);
    if (!r) return;
    r->base.run = run_describe;
    stored_read_push(&r->base, true);
}

void handle_batch(struct http_request *req) { describe(req, BATCH_OPENAI); }
void handle_message_batch(struct http_request *req) { describe(req, BATCH_ANTHROPIC); }

/* ---- cancel ---- */

static enum status run_cancel(struct stored_read *base, struct store_db *db, struct err *err) {
    struct batch_row row = {0};
    TRY(find((struct batch_read *)base, db, &row, err));
    batch_row_deinit(&row);
    TRY(batches_cancel(db, str_of(base->owner), str_of(base->id), clock_wall_s(), err));
    return run_describe(base, db, err);
}

/* Also if the client has gone away. */
static void on_cancelled(struct stored_read *base) {
    struct batch_runs *all = ((struct batch_read *)base)->server->batches;
    if (base->op.status == ST_OK) batch_runs_cancel(all, str_of(base->id));
}

static void cancel(struct http_request *req, enum batch_kind kind) {
    struct batch_read *r = create(req, kind);
    if (!r) return;
    r->base.run = run_cancel;
    r->base.deinit = on_cancelled;
    stored_read_push(&r->base, false);
}

void handle_batch_cancel(struct http_request *req) { cancel(req, BATCH_OPENAI); }
void handle_message_batch_cancel(struct http_request *req) { cancel(req, BATCH_ANTHROPIC); }

/* ---- delete ---- */

/* With its results, which no other path reaches. */
static enum status delete_ended(struct stored_read *base, struct store_db *db,
                                const struct batch_row *row, struct err *err) {
    if (!batch_state_is_final(row->state))
        return api_refuse(&base->error, 400, NULL, NULL,
                          "the batch has not ended; cancel it before you delete it");
    const struct str files[] = {row->input_file, row->output_file, row->error_file};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        enum status st =
            files[i].len ? files_delete(db, str_of(base->owner), files[i], err) : ST_OK;
        if (st != ST_OK && st != ST_MISSING) return st;
    }
    return batches_delete(db, str_of(base->owner), str_of(base->id), err);
}

static enum status run_delete(struct stored_read *base, struct store_db *db, struct err *err) {
    struct batch_row row = {0};
    TRY(find((struct batch_read *)base, db, &row, err));
    enum status st = delete_ended(base, db, &row, err);
    batch_row_deinit(&row);
    if (st == ST_OK) message_batch_deleted_put(str_of(base->id), &base->body);
    return st;
}

void handle_message_batch_delete(struct http_request *req) {
    struct batch_read *r = create(req, BATCH_ANTHROPIC);
    if (!r) return;
    r->base.run = run_delete;
    stored_read_push(&r->base, false);
}

/* ---- lists ---- */

struct batch_list {
    struct object_page page;
    struct str origin;
};

static bool add_batch(void *ctx, const struct batch_row *row) {
    struct batch_list *list = ctx;
    struct buf *out = object_page_add(&list->page, row->id);
    if (out) put_batch(row, list->origin, out);
    return out;
}

static enum status run_list(struct stored_read *base, struct store_db *db, struct err *err) {
    const struct batch_read *r = (struct batch_read *)base;
    const struct batches_page query = {.owner = str_of(base->owner),
                                       .after = str_of(r->after),
                                       .kind = r->kind,
                                       .limit = r->page.limit + 1,
                                       .ascending = r->page.ascending};
    const enum page_form form = r->kind == BATCH_OPENAI ? PAGE_OPENAI : PAGE_ANTHROPIC;
    struct batch_list list = {.origin = str_of(r->origin)};
    object_page_init(&list.page, r->page.limit);
    list.page.is_reversed = r->is_reversed;
    enum status st = batches_list(db, &query, add_batch, &list, err);
    if (st == ST_OK) object_page_put(&list.page, form, &base->body);
    object_page_deinit(&list.page);
    return st;
}

void handle_batches(struct http_request *req) {
    struct page_choice page;
    char after[STORED_AFTER_BYTES];
    if (!stored_page_read(req, &page_rules_batches, &page, after)) return;
    struct batch_read *r = create(req, BATCH_OPENAI);
    if (!r) return;
    r->page = page;
    str_store(str_of(after), r->after, sizeof(r->after));
    r->base.cursor = r->after;
    r->base.cursor_name = "after";
    r->base.run = run_list;
    stored_read_push(&r->base, true);
}

/* limit, after_id and before_id. */
static enum status read_page(const struct http_request *req, struct batch_read *r,
                             struct api_error *e) {
    static const char *const names[] = {"limit", "after_id", "before_id"};
    struct buf texts[3];
    for (int i = 0; i < 3; i++) {
        buf_init(&texts[i], STORED_AFTER_BYTES - 1);
        (void)http_query_find(req->head->query, names[i], &texts[i]);
    }
    const struct page_query q = {
        .limit = buf_str(&texts[0]), .after = buf_str(&texts[1]), .before = buf_str(&texts[2])};
    enum status st = page_query_read(&q, &page_rules_messages, &r->page, e);
    r->is_reversed = q.before.len > 0;
    r->page.ascending ^= r->is_reversed;
    str_store(r->is_reversed ? q.before : q.after, r->after, sizeof(r->after));
    r->base.cursor = r->after;
    r->base.cursor_name = r->is_reversed ? "before_id" : "after_id";
    for (int i = 0; i < 3; i++) buf_deinit(&texts[i]);
    return st;
}

void handle_message_batches(struct http_request *req) {
    struct api_error e = {0};
    struct batch_read *r = create(req, BATCH_ANTHROPIC);
    if (!r) return;
    if (read_page(req, r, &e) != ST_OK) {
        stored_read_refuse(&r->base, &e);
        return;
    }
    r->base.run = run_list;
    stored_read_push(&r->base, true);
}
