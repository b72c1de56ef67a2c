/* server/file_content.c - a stored file as a response: the content of a file, the results of a
 * message batch.
 *
 *     find it -> (read a slice -> send it -> wait while the client is slow)* -> end
 *
 * One slice of SLICE_BYTES is in memory at a time, besides what waits for the client (at most
 * STREAM_BACKLOG_BYTES and a slice).
 */
#include "api/message_batches.h"
#include "base/check.h"
#include "base/mem.h"
#include "jobs/batches.h"
#include "jobs/files.h"
#include "jobs/store.h"
#include "server/handlers.h"
#include "server/http_request.h"
#include "server/storage.h"

enum { SLICE_BYTES = 128 << 10 };

struct content;
struct content_kind {
    enum status (*find)(struct content *c, struct store_db *db);
    const char *what, *type;
};

struct content {
    struct store_op op; /* first */
    struct server *server;
    struct http_request *http; /* NULL: its client has disconnected */
    const struct content_kind *kind;
    char owner[STORAGE_OWNER_BYTES], id[STORAGE_ID_BYTES];
    char file[STORAGE_ID_BYTES]; /* its id */
    struct api_error error;      /* of `find` */
    uint64_t bytes, offset;
    size_t got;
    bool is_busy; /* an operation is under way */
    bool has_begun;
    char slice[SLICE_BYTES];
};

/* ---- on the store's thread ---- */

static enum status find_file(struct content *c, struct store_db *db) {
    struct file_row row = {0};
    TRY(files_find(db, str_of(c->owner), str_of(c->id), &row, &c->op.err));
    str_store(row.id, c->file, sizeof(c->file));
    c->bytes = row.bytes;
    file_row_deinit(&row);
    return ST_OK;
}

static enum status find_results(struct content *c, struct store_db *db) {
    struct batch_row batch = {0};
    struct file_row row = {0};
    TRY(batches_find(db, str_of(c->owner), str_of(c->id), &batch, &c->op.err));
    enum status st = batch.kind == BATCH_ANTHROPIC ? ST_OK : ST_MISSING;
    if (st == ST_OK && !batch_state_is_final(batch.state))
        st = api_refuse(&c->error, 404, NULL, "not_found",
                        "the batch has not ended; results_url is set when it has");
    if (st == ST_OK) st = files_find(db, str_of(c->owner), batch.output_file, &row, &c->op.err);
    if (st == ST_OK) {
        str_store(row.id, c->file, sizeof(c->file));
        c->bytes = row.bytes;
    }
    file_row_deinit(&row);
    batch_row_deinit(&batch);
    return st;
}

static enum status read_slice(struct content *c, struct store_db *db) {
    return files_read(db, str_of(c->file), c->offset, c->slice, sizeof(c->slice), &c->got,
                      &c->op.err);
}

static enum status run(struct store_op *op, struct store_db *db) {
    struct content *c = (struct content *)op;
    c->error = (struct api_error){0};
    if (!c->has_begun) TRY(c->kind->find(c, db));
    return read_slice(c, db);
}

/* ---- on the I/O thread ---- */

static void read_next(struct content *c) {
    CHECK(!c->is_busy);
    c->is_busy = true;
    storage_push(c->server, &c->op);
}

static void refuse(struct content *c) {
    if (c->error.status == 0 && c->op.status == ST_MISSING)
        api_refuse(&c->error, 404, NULL, "not_found", "no such %s: \"%.*s\"", c->kind->what,
                   STR_ARG(c->http->arg));
    if (c->error.status == 0) storage_refuse(c->op.status, &c->op.err, c->kind->what, &c->error);
    respond_error(c->http, &c->error);
    mem_free(c);
}

static void end(struct content *c, bool is_whole) {
    if (is_whole)
        respond_end(c->http);
    else
        respond_abort(c->http); /* the client must see that something is missing */
    mem_free(c);
}

static void begin(struct content *c) {
    static const struct http_header headers[] = {{{"cache-control", 13}, {"no-store", 8}}};
    c->has_begun = true;
    respond_begin(c->http,
                  &(struct response){
                      .status = 200, .type = c->kind->type, .headers = headers, .header_count = 1});
}

static void on_read(struct store_op *op) {
    struct content *c = (struct content *)op;
    c->is_busy = false;
    if (!c->http) {
        mem_free(c);
        return;
    }
    if (!c->has_begun && op->status != ST_OK) {
        refuse(c);
        return;
    }
    if (!c->has_begun) begin(c);
    c->offset += c->got;
    const bool is_failed = op->status != ST_OK || (c->got == 0 && c->offset < c->bytes);
    if (is_failed || c->got == 0) {
        end(c, !is_failed);
        return;
    }
    http_stream_put(c->http->x, (struct str){c->slice, c->got});
    http_stream_flush(c->http->x);
    if (http_backlog(c->http->x) <= STREAM_BACKLOG_BYTES) read_next(c);
}

static void on_writable(struct http_request *req) {
    struct content *c = req->owner;
    if (!c->is_busy && c->has_begun) read_next(c);
}

static void on_gone(struct http_request *req) {
    struct content *c = req->owner;
    c->http = NULL;
    if (!c->is_busy) mem_free(c);
}

static void send_file(struct http_request *req, const struct content_kind *kind) {
    if (!storage_require(req)) return;
    struct content *c = mem_zalloc(sizeof(*c));
    if (!c) {
        respond_out_of_memory(req);
        return;
    }
    c->kind = kind;
    c->op = (struct store_op){.run = run, .done = on_read, .is_read = true};
    c->server = req->server;
    c->http = req;
    str_store(str_of(req->grant.key->owner), c->owner, sizeof(c->owner));
    if (req->arg.len < sizeof(c->id)) str_store(req->arg, c->id, sizeof(c->id));
    req->owner = c;
    req->on_gone = on_gone;
    req->on_writable = on_writable;
    read_next(c);
}

void handle_file_content(struct http_request *req) {
    static const struct content_kind kind = {
        .find = find_file, .what = "file", .type = "application/octet-stream"};
    send_file(req, &kind);
}

void handle_message_batch_results(struct http_request *req) {
    static const struct content_kind kind = {
        .find = find_results, .what = "message batch", .type = "application/x-jsonl"};
    send_file(req, &kind);
}
