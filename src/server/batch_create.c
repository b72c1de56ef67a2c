/* server/batch_create.c - POST /v1/batches: a batch of the lines of an uploaded file.
 *
 * The batch is on disk before it is acknowledged; its file is read afterwards (batch_validate.c).
 */
#include <stdio.h>

#include "api/batch_objects.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "jobs/batches.h"
#include "jobs/files.h"
#include "server/batch_create.h"
#include "server/batch_run.h"
#include "server/handlers.h"
#include "server/http_request.h"
#include "server/storage.h"
#include "server/stored_read.h"
#include "server/task_int.h"

enum status batch_check_room(struct http_request *req, struct api_error *e) {
    const struct key *key = req->grant.key;
    if (batch_runs_room(req->server->batches, str_of(key->owner)) > 0) return ST_OK;
    api_refuse(e, 429, NULL, "too_many_batches",
               "this API key has %u batches that have not ended, which is the most; wait until one "
               "has ended, or cancel one",
               (unsigned)BATCHES_OPEN_MAX);
    e->retry_after_ms = BATCH_RETRY_MS;
    return ST_BAD;
}

/* The body while it is read. */
struct create_task {
    struct task base;
    struct json *doc;
    struct batch_create create; /* borrows from `doc` */
};

struct create_read {
    struct stored_read base;
    struct server *server;
    struct json *doc;
    struct batch_create create;
    struct batch_row row;
};

static enum status read_body(struct task *task, struct json *doc) {
    struct create_task *t = (struct create_task *)task;
    t->doc = doc;
    return batch_create_read(doc, &t->create, &task->error);
}

static enum status run_insert(struct stored_read *base, struct store_db *db, struct err *err) {
    const struct create_read *k = (struct create_read *)base;
    const struct str id = k->create.input_file;
    struct file_row file = {0};
    enum status st = files_find(db, str_of(base->owner), id, &file, err);
    if (st == ST_MISSING)
        return api_refuse(&base->error, 400, "input_file_id", "file_not_found",
                          "input_file_id is \"%.*s\"; there is no such file", STR_ARG(id));
    TRY(st);
    if (!str_is(file.purpose, "batch"))
        st = api_refuse(&base->error, 400, "input_file_id", NULL,
                        "the file has the purpose \"%.*s\"; a batch takes one with the purpose "
                        "\"batch\"",
                        STR_ARG(file.purpose));
    file_row_deinit(&file);
    if (st == ST_OK) st = batches_insert(db, &k->row, err);
    if (st == ST_OK) batch_object_put(&k->row, &base->body);
    return st;
}

/* The batch is run also if the client has gone away: it is stored. */
static void on_inserted(struct stored_read *base) {
    struct create_read *k = (struct create_read *)base;
    if (base->op.status == ST_OK) batch_runs_add(k->server->batches, &k->row);
    batch_create_deinit(&k->create);
    json_destroy(k->doc);
}

void batch_make_id(struct server *s, const char *prefix, char out[STORAGE_ID_BYTES]) {
    char hex[SERVER_ID_BYTES];
    server_make_id(s, hex);
    snprintf(out, STORAGE_ID_BYTES, "%s%s", prefix, hex);
}

static void fill_row(struct create_read *k) {
    const struct batch_create *create = &k->create;
    const int64_t now_s = clock_wall_s();
    k->row = (struct batch_row){.id = str_of(k->base.id),
                                .owner = str_of(k->base.owner),
                                .kind = BATCH_OPENAI,
                                .state = BATCH_VALIDATING,
                                .endpoint = create->endpoint,
                                .input_file = create->input_file,
                                .window = create->window,
                                .metadata = buf_str(&create->metadata),
                                .seed = server_make_seed(k->server),
                                .output_after_s = create->output_after_s,
                                .created_s = now_s,
                                .expires_s = now_s + create->window_s};
}

static void on_body_read(struct task *task) {
    struct create_task *t = (struct create_task *)task;
    struct http_request *req = task->http;
    enum status st = task->status;
    if (req && st == ST_OK) st = batch_check_room(req, &task->error);
    struct create_read *k = NULL;
    if (req && st != ST_OK)
        respond_error(req, &task->error);
    else if (req)
        k = stored_read_create(req, sizeof(*k), "batch", (struct str){0});
    if (k) {
        k->server = req->server;
        k->doc = t->doc;
        k->create = t->create;
        batch_make_id(req->server, "batch_", k->base.id);
        fill_row(k);
        k->base.run = run_insert;
        k->base.deinit = on_inserted;
        stored_read_push(&k->base, false);
    } else {
        batch_create_deinit(&t->create);
        json_destroy(t->doc);
    }
    mem_free(t);
}

void handle_batch_create(struct http_request *req) {
    if (!storage_require(req)) return;
    struct create_task *t = task_create(req, sizeof(*t), read_body, on_body_read);
    if (t) task_read_body(&t->base);
}
