/* server/file_upload.c - POST /v1/files: a form with a file becomes a stored file.
 *
 *     body -> the form is read in libuv's pool -> file row, slices one after the other -> ready
 *
 * Each slice is an operation of its own, so that others of the store are not delayed by a long
 * file. The file is acknowledged when all of it is on disk. If the client disconnects or the disk
 * is full, what was stored is removed.
 *
 * Memory: the body, taken from the connection, until the file is stored.
 */
#include <stdio.h>

#include "api/file_objects.h"
#include "api/multipart.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "jobs/files.h"
#include "jobs/store.h"
#include "server/handlers.h"
#include "server/http_request.h"
#include "server/storage.h"
#include "server/task_int.h"

enum { OBJECT_BYTES_MAX = 1 << 16, TYPE_BYTES = 256 };

enum upload_stage { UPLOAD_CREATE, UPLOAD_APPEND, UPLOAD_READY, UPLOAD_REMOVE };

struct upload {
    struct task base; /* first */
    struct store_op op;
    char type[TYPE_BYTES]; /* of the body */
    char *body;            /* owned */
    size_t body_bytes;
    uint64_t file_max;
    struct multipart form;
    struct file_upload file;
    struct file_row row;
    char id[STORAGE_ID_BYTES], owner[STORAGE_OWNER_BYTES];
    enum upload_stage stage;
    struct storage_retry retry; /* of its removal */
    size_t stored;              /* bytes of the file */
};

static void destroy(struct upload *u) {
    mem_free(u->body);
    mem_free(u);
}

static struct str slice_of(const struct upload *u) {
    return str_take(str_skip(u->file.data, u->stored), FILE_CHUNK_BYTES);
}

/* ---- on the store's thread ---- */

static struct upload *upload_of(struct store_op *op) {
    return LIST_ITEM(&op->in_store, struct upload, op.in_store);
}

static enum status run(struct store_op *op, struct store_db *db) {
    const struct upload *u = upload_of(op);
    switch (u->stage) {
    case UPLOAD_CREATE:
        return files_create(db, &u->row, &op->err);
    case UPLOAD_APPEND:
        return files_append(db, str_of(u->id), slice_of(u), &op->err);
    case UPLOAD_READY:
        return files_set_ready(db, str_of(u->id), &op->err);
    case UPLOAD_REMOVE:
        break;
    }
    return files_abandon(db, str_of(u->id), &op->err);
}

/* ---- on the I/O thread ---- */

static void answer(struct upload *u) {
    struct buf body;
    u->row.is_ready = true;
    u->row.bytes = u->file.data.len;
    buf_init(&body, OBJECT_BYTES_MAX);
    file_object_put(&u->row, &body);
    respond_json(u->base.http, &body);
    buf_deinit(&body);
}

/* Answers, unless the client has disconnected, and removes what was stored. */
static void give_up(struct upload *u) {
    struct api_error e = {0};
    struct http_request *req = u->base.http;
    u->base.http = NULL;
    if (req) {
        storage_refuse(u->op.status, &u->op.err, "file", &e);
        respond_error(req, &e);
    }
    if (u->stage == UPLOAD_CREATE && u->op.status != ST_OK) {
        destroy(u);
        return;
    }
    u->stage = UPLOAD_REMOVE;
    storage_push(u->base.server, &u->op);
}

static void on_stored(struct store_op *op) {
    struct upload *u = upload_of(op);
    bool is_wanted = u->base.http;
    if (u->stage == UPLOAD_REMOVE && storage_retry(u->base.server, op, &u->retry)) return;
    if (u->stage == UPLOAD_APPEND) u->stored += slice_of(u).len;
    bool is_last = u->stage == UPLOAD_READY || u->stage == UPLOAD_REMOVE;
    if (is_last && op->status == ST_OK && is_wanted) answer(u);
    if (u->stage == UPLOAD_REMOVE || (is_last && op->status == ST_OK)) {
        destroy(u);
        return;
    }
    if (op->status != ST_OK || !is_wanted) {
        give_up(u);
        return;
    }
    u->stage = slice_of(u).len > 0 ? UPLOAD_APPEND : UPLOAD_READY;
    storage_push(u->base.server, op);
}

static void on_gone(struct http_request *req) { ((struct upload *)req->owner)->base.http = NULL; }

static void begin_store(struct upload *u) {
    struct server *s = u->base.server;
    const int64_t now_s = clock_wall_s();
    char hex[SERVER_ID_BYTES];
    server_make_id(s, hex);
    snprintf(u->id, sizeof(u->id), "file-%s", hex);
    const struct file_upload *f = &u->file;
    u->row = (struct file_row){.id = str_of(u->id),
                               .owner = str_of(u->owner),
                               .filename = f->filename,
                               .purpose = f->purpose,
                               .created_s = now_s,
                               .expires_s = f->expires_after_s ? now_s + f->expires_after_s : 0};
    u->op = (struct store_op){.run = run, .done = on_stored};
    u->base.http->on_gone = on_gone;
    storage_push(s, &u->op);
}

/* In libuv's pool. */
static void read_form(struct task *task) {
    struct upload *u = (struct upload *)task;
    struct api_error *e = &task->error;
    struct str body = {u->body, u->body_bytes};
    task->status = multipart_read(str_of(u->type), body, &u->form, e);
    if (task->status == ST_OK) task->status = file_upload_read(&u->form, &u->file, e);
    if (task->status == ST_OK && u->file.data.len > u->file_max)
        task->status = api_refuse(e, 413, "file", "file_too_large",
                                  "the file has %zu bytes; this server takes at most %llu "
                                  "(--file-max)",
                                  u->file.data.len, (unsigned long long)u->file_max);
}

static void on_form_read(struct task *task) {
    struct upload *u = (struct upload *)task;
    if (task->http && task->status == ST_OK) {
        begin_store(u);
        return;
    }
    if (task->http) respond_error(task->http, &task->error);
    destroy(u);
}

void handle_file_upload(struct http_request *req) {
    if (!storage_require(req)) return;
    struct upload *u = task_create(req, sizeof(*u), NULL, on_form_read);
    if (!u) return;
    str_store(http_find(req->head, "content-type"), u->type, sizeof(u->type));
    str_store(str_of(req->grant.key->owner), u->owner, sizeof(u->owner));
    u->file_max = req->server->memory.file_max;
    u->body = http_take_body(req->x, &u->body_bytes);
    u->base.work = read_form;
    u->base.bytes = 1; /* the connection counts the body */
    u->base.item.is_long = u->base.item.is_continuing = true;
    task_run(&u->base, req, u->body_bytes >= TASK_READ_FROM_BYTES);
}
