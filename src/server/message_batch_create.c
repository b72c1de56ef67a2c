/* server/message_batch_create.c - POST /v1/messages/batches: Anthropic's batch, whose requests are
 * in the body.
 *
 *     (read some requests, in libuv's pool -> store them as lines)* -> start -> 200
 *
 * The batch is stored with its first lines, in the state VALIDATING, and acknowledged when all
 * lines are on disk. If a request is wrong, the client disconnects or the disk is full, the batch
 * is removed again; one that a crash has cut short is removed by the next start (RUN_DISCARDING).
 *
 * Memory: the body, taken from the connection, until all lines are stored.
 */
#include <stdio.h>

#include "api/message_batches.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "jobs/batches.h"
#include "jobs/store.h"
#include "server/batch_create.h"
#include "server/batch_run.h"
#include "server/batch_slice.h"
#include "server/handlers.h"
#include "server/http_request.h"
#include "server/registry.h"
#include "server/storage.h"
#include "server/task_int.h"

enum {
    SLICE_BYTES = 256 << 10,
    OBJECT_BYTES_MAX = 1 << 16,
    WINDOW_S = 24 * 3600, /* Anthropic's: a batch expires after a day */
};

struct message_create {
    struct task task; /* first */
    struct store_op op;
    char *body; /* owned */
    size_t body_bytes;
    struct message_batch reader;
    bool has_reader;
    bool is_last;   /* all requests were read */
    bool is_stored; /* the batch exists */
    bool is_removing;
    struct storage_retry retry; /* of its removal */
    struct batch_slice lines;
    char id[STORAGE_ID_BYTES], owner[STORAGE_OWNER_BYTES];
    char model[SERVED_NAME_BYTES]; /* of all requests; "": they differ */
    bool has_model;
    struct batch_row row;
};

static void destroy(struct message_create *m) {
    if (m->has_reader) message_batch_deinit(&m->reader);
    batch_slice_clear(&m->lines);
    mem_free(m->body);
    mem_free(m);
}

/* ---- on the store's thread ---- */

static struct message_create *create_of(struct store_op *op) {
    return LIST_ITEM(&op->in_store, struct message_create, op.in_store);
}

static enum status remove_batch(struct store_db *db, const struct message_create *m,
                                struct err *err) {
    TRY(batches_fail(db, str_of(m->id), STR("[]"), clock_wall_s(), err));
    return batches_delete(db, str_of(m->owner), str_of(m->id), err);
}

static enum status run(struct store_op *op, struct store_db *db) {
    struct message_create *m = create_of(op);
    if (m->is_removing) return remove_batch(db, m, &op->err);
    if (!m->is_stored) TRY(batches_insert(db, &m->row, &op->err));
    TRY(batch_slice_store(&m->lines, db, str_of(m->id), &op->err));
    if (!m->is_last) return ST_OK;
    return batches_start(db, str_of(m->id), m->reader.count, str_of(m->model), m->row.created_s,
                         &op->err);
}

/* ---- reading, in libuv's pool ---- */

static void note_model(struct message_create *m) {
    const struct str name = json_str(json_path(m->reader.doc, "params.model"));
    if (!m->has_model) str_store(name, m->model, sizeof(m->model));
    if (!str_is(name, m->model)) m->model[0] = 0;
    m->has_model = true;
}

static enum status read_some(struct message_create *m, struct api_error *e) {
    if (!m->has_reader) {
        m->has_reader = true;
        TRY(message_batch_init(&m->reader, (struct str){m->body, m->body_bytes}, e));
    }
    while (m->lines.bytes < SLICE_BYTES) {
        struct batch_line line;
        enum status st = message_batch_next(&m->reader, &line, e);
        m->is_last = st == ST_MISSING;
        if (m->is_last) return ST_OK;
        TRY(st);
        note_model(m);
        TRY(batch_slice_keep(&m->lines, &line));
    }
    return ST_OK;
}

static void read_slice(struct task *task) {
    task->status = read_some((struct message_create *)task, &task->error);
    if (task->status == ST_NOMEM && task->error.status == 0)
        api_refuse(&task->error, 503, NULL, "out_of_memory",
                   "the server has no memory for this request");
}

/* ---- on the I/O thread ---- */

static void read_more(struct message_create *m);

static void remove_stored(struct message_create *m) {
    if (!m->is_stored) {
        destroy(m);
        return;
    }
    m->is_removing = true;
    storage_push(m->task.server, &m->op);
}

static void refuse(struct message_create *m, const struct api_error *e) {
    struct http_request *req = m->task.http;
    m->task.http = NULL;
    if (req) respond_error(req, e);
    remove_stored(m);
}

static void acknowledge(struct message_create *m) {
    struct buf body;
    m->row.state = BATCH_IN_PROGRESS;
    m->row.in_progress_s = m->row.created_s;
    m->row.total = m->reader.count;
    m->row.model = str_of(m->model);
    buf_init(&body, OBJECT_BYTES_MAX);
    message_batch_object_put(&m->row, (struct str){0}, &body);
    if (m->task.http) respond_json(m->task.http, &body);
    buf_deinit(&body);
    batch_runs_add(m->task.server->batches, &m->row);
    destroy(m);
}

static void on_stored(struct store_op *op) {
    struct message_create *m = create_of(op);
    batch_slice_clear(&m->lines);
    if (m->is_removing && storage_retry(m->task.server, op, &m->retry)) return;
    if (m->is_removing) {
        destroy(m);
        return;
    }
    m->is_stored |= op->status == ST_OK;
    if (op->status != ST_OK) {
        struct api_error e = {0};
        storage_refuse(op->status, &op->err, "message batch", &e);
        refuse(m, &e);
    } else if (m->is_last) {
        acknowledge(m); /* it has begun, also if the client has gone away */
    } else if (!m->task.http) {
        remove_stored(m);
    } else {
        read_more(m);
    }
}

static void on_gone(struct http_request *req) {
    ((struct message_create *)req->owner)->task.http = NULL;
}

static void on_read(struct task *task) {
    struct message_create *m = (struct message_create *)task;
    if (task->status != ST_OK) {
        refuse(m, &task->error);
    } else if (!task->http) {
        remove_stored(m);
    } else {
        task->http->on_gone = on_gone;
        m->op = (struct store_op){.run = run, .done = on_stored};
        storage_push(task->server, &m->op);
    }
}

static void read_more(struct message_create *m) {
    struct http_request *req = m->task.http;
    m->task.item = (struct work_item){.is_long = true, .is_continuing = true};
    m->task.work = read_slice;
    m->task.bytes = 1; /* the connection counts the body */
    task_run(&m->task, req, true);
}

static void fill_row(struct message_create *m) {
    const int64_t now_s = clock_wall_s();
    m->row = (struct batch_row){.id = str_of(m->id),
                                .owner = str_of(m->owner),
                                .kind = BATCH_ANTHROPIC,
                                .state = BATCH_VALIDATING,
                                .endpoint = STR("/v1/messages"),
                                .window = STR("24h"),
                                .seed = server_make_seed(m->task.server),
                                .created_s = now_s,
                                .expires_s = now_s + WINDOW_S};
}

void handle_message_batch_create(struct http_request *req) {
    struct api_error e = {0};
    if (!storage_require(req)) return;
    if (batch_check_room(req, &e) != ST_OK) {
        respond_error(req, &e);
        return;
    }
    struct message_create *m = task_create(req, sizeof(*m), NULL, on_read);
    if (!m) return;
    m->task.server = req->server;
    batch_make_id(req->server, "msgbatch_", m->id);
    str_store(str_of(req->grant.key->owner), m->owner, sizeof(m->owner));
    m->body = http_take_body(req->x, &m->body_bytes);
    fill_row(m);
    read_more(m);
}
