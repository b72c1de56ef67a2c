/* server/body.c - a body is read: JSON, then whatever the route makes of it.
 *
 * Reading takes time in proportion to the body, so a long one is read in the pool. The pool gets
 * a copy, because the exchange and its body go when the client does.
 */
#include "base/json.h"
#include "base/mem.h"
#include "server/task_int.h"
#include "server/server_int.h"

struct reading {
    struct task base;
    char *copy; /* NULL: the exchange's own, which stays meanwhile */
    struct str body;
    uint64_t bytes_max;
    void *self;
    body_read_fn *read;
    body_done_fn *done;
};

static enum status parse(struct str body, uint64_t bytes_max, struct json **out,
                         struct api_error *e) {
    struct err err = {0};
    struct json_limits limits = json_limits_request;
    limits.bytes_max = bytes_max;
    enum status st = json_parse(body, &limits, out, &err);
    if (st == ST_OK && json_kind(*out) == JS_MAP) return ST_OK;
    if (st == ST_OK) {
        json_destroy(*out);
        return api_refuse(e, 400, NULL, NULL, "the body must be a JSON object");
    }
    if (st == ST_NOMEM) return st;
    return api_refuse(e, 400, NULL, NULL, "the body is not the JSON that it should be: %s",
                      err.text);
}

static void work(struct task *c) {
    struct reading *r = (struct reading *)c;
    struct json *doc;
    c->status = parse(r->body, r->bytes_max, &doc, &c->error);
    if (c->status == ST_OK) c->status = r->read(r->self, doc, &c->error);
    if (c->status != ST_OK && c->error.status == 0)
        api_refuse(&c->error, 503, NULL, "out_of_memory",
                   "the server has no memory for this request");
}

static void done(struct task *c) {
    struct reading *r = (struct reading *)c;
    struct reading here = *r;
    mem_free(r->copy);
    mem_free(r);
    here.done(here.self, here.base.http, here.base.status, &here.base.error);
}

static void refuse_memory(const struct http_request_reader *reader, struct http_request *req) {
    struct api_error e = {0};
    api_refuse(&e, 503, NULL, "out_of_memory", "the server has no memory for this request");
    reader->done(reader->self, req, ST_NOMEM, &e);
}

void http_request_read(struct http_request *req, const struct http_request_reader *reader) {
    struct str body = http_body(req->x);
    bool is_long = body.len >= TASK_READ_FROM_BYTES;
    struct reading *r = mem_zalloc(sizeof(*r));
    char *copy = r && is_long ? mem_dup(body.ptr, body.len) : NULL;
    if (!r || (is_long && !copy)) {
        mem_free(r);
        refuse_memory(reader, req);
        return;
    }
    *r = (struct reading){.base = {.work = work, .done = done},
                          .copy = copy,
                          .body = {copy ? copy : body.ptr, body.len},
                          .bytes_max = req->server->settings.body_max,
                          .self = reader->self,
                          .read = reader->read,
                          .done = reader->done};
    task_run(&r->base, req, is_long);
}
