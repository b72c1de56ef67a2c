/* server/task.c - see server/task_int.h. */
#include "server/task_int.h"

#include <stdatomic.h>

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/accounts.h"
#include "server/http_request.h"

/* Also of work that was not done: refused, or cancelled. */
static void end(struct task *task) {
    mem_free(task->body_copy);
    task->body_copy = NULL;
    task->done(task);
}

void task_cancel(struct task *task) {
    task->http = NULL;
    atomic_store(&task->is_left, true);
    if (task->item.state != WORK_WAITING) return;
    CHECK(work_queue_cancel(&task->item));
    task->server->tasks--;
    end(task);
}

static void on_gone(struct http_request *req) { task_cancel(req->owner); }

static void work_in_pool(struct work_item *item) {
    struct task *task = (struct task *)item;
    task->work(task);
}

static void pool_is_done(struct work_item *item) {
    struct task *task = (struct task *)item;
    task->server->tasks--;
    end(task);
}

static enum status push(struct task *task, struct server *s) {
    struct account *account = accounts_find(s->accounts, task->key);
    if (!account) return ST_NOMEM;
    task->item.run = work_in_pool;
    task->item.done = pool_is_done;
    task->item.bytes = task->bytes ? task->bytes : task->body.len;
    return work_queue_push(s->work, &account->lane, &task->item);
}

void task_run_alone(struct task *task, struct server *s, bool in_pool) {
    task->server = s;
    enum status st = in_pool ? push(task, s) : ST_OK;
    if (in_pool && st == ST_OK) {
        s->tasks++;
        task->item.is_continuing = true;
        return;
    }
    if (st != ST_OK) {
        task->status = st;
        work_queue_refuse(s->work, st, task->item.bytes, &task->error);
    } else {
        task->work(task);
    }
    end(task);
}

void task_run(struct task *task, struct http_request *req, bool in_pool) {
    task->http = req;
    req->owner = task;
    req->on_gone = on_gone;
    task_run_alone(task, req->server, in_pool);
}

/* ---- bodies ---- */

static enum status parse(const struct task *task, struct json **out, struct api_error *e) {
    struct err err = {0};
    struct json_limits limits = json_limits_request;
    limits.bytes_max = task->body_bytes_max;
    enum status st = json_parse(task->body, &limits, out, &err);
    if (st == ST_OK && json_kind(*out) == JS_MAP) return ST_OK;
    if (st == ST_OK) {
        json_destroy(*out);
        return api_refuse(e, 400, NULL, NULL, "the body must be a JSON object");
    }
    return st == ST_NOMEM ? st : api_refuse(e, 400, NULL, NULL, "invalid JSON: %s", err.text);
}

static void refuse_memory(struct task *task) {
    task->status = ST_NOMEM;
    api_refuse(&task->error, 503, NULL, "out_of_memory",
               "the server has no memory for this request");
}

static void parse_body(struct task *task) {
    struct json *doc;
    task->status = parse(task, &doc, &task->error);
    if (task->status == ST_OK) task->status = task->read_body(task, doc);
    if (task->status != ST_OK && task->error.status == 0) refuse_memory(task);
    if (!task->body_copy) http_request_drop_body(task->http); /* on the I/O thread */
    mem_free(task->body_copy);
    task->body_copy = NULL;
    task->body.ptr = NULL;
}

void *task_create(struct http_request *req, size_t bytes, task_body_fn *read_body,
                  task_done_fn *done) {
    CHECK(bytes >= sizeof(struct task));
    struct task *task = mem_zalloc(bytes);
    if (!task) {
        respond_out_of_memory(req);
        return NULL;
    }
    task->http = req;
    task->codec = req->codec;
    task->key = req->grant.key;
    task->logs_body = req->server->settings.log_prompts;
    task->read_body = read_body;
    task->done = done;
    return task;
}

void task_read_body(struct task *task) {
    struct http_request *req = task->http;
    bool in_pool = http_request_body(req).len >= TASK_READ_FROM_BYTES;
    task->work = parse_body;
    task->body = http_request_body(req);
    task->body_bytes_max = req->server->settings.body_max;
    if (in_pool) {
        task->body_copy = mem_dup(task->body.ptr, task->body.len);
        task->body.ptr = task->body_copy;
        http_request_drop_body(req);
    }
    if (!task->body.ptr) {
        task->work = refuse_memory;
        in_pool = false;
    }
    task_run(task, req, in_pool);
}
