/* server/stored_read.c - see server/stored_read.h. */
#include "server/stored_read.h"

#include "base/check.h"
#include "base/mem.h"
#include "server/storage.h"

static const size_t BODY_BYTES_MAX = (size_t)1 << 28;

static struct stored_read *read_of(struct store_op *op) {
    return LIST_ITEM(&op->in_store, struct stored_read, op.in_store);
}

static void destroy(struct stored_read *r) {
    if (r->deinit) r->deinit(r);
    buf_deinit(&r->body);
    mem_free(r);
}

static enum status run(struct store_op *op, struct store_db *db) {
    struct stored_read *r = read_of(op);
    buf_clear(&r->body);
    r->error = (struct api_error){0};
    return r->run(r, db, &op->err);
}

/* The id as the client wrote it, which may have a prefix. */
static struct str id_sent(const struct stored_read *r) {
    struct str id = str_of(r->id), sent = r->http->arg;
    return str_ends(sent, id) ? sent : id;
}

static void name_missing(struct stored_read *r) {
    if (r->id[0])
        api_refuse(&r->error, 404, NULL, "not_found", "no such %s: \"%.*s\"", r->what,
                   STR_ARG(id_sent(r)));
    else if (r->cursor)
        api_refuse(&r->error, 404, r->cursor_name, "not_found",
                   "no such %s: \"%s\"; '%s' must be the id of one that exists", r->what, r->cursor,
                   r->cursor_name);
}

static void done(struct store_op *op) {
    struct stored_read *r = read_of(op);
    struct http_request *req = r->http;
    if (req && op->status != ST_OK) {
        if (r->error.status == 0 && op->status == ST_MISSING) name_missing(r);
        if (r->error.status == 0) storage_refuse(op->status, &op->err, r->what, &r->error);
        respond_error(req, &r->error);
    } else if (req && r->reply) {
        r->reply(r);
    } else if (req) {
        respond_json(req, &r->body);
    }
    destroy(r);
}

static void on_gone(struct http_request *req) { ((struct stored_read *)req->owner)->http = NULL; }

void *stored_read_create(struct http_request *req, size_t bytes, const char *what, struct str id) {
    CHECK(bytes >= sizeof(struct stored_read));
    if (!storage_require(req)) return NULL;
    struct stored_read *r = mem_zalloc(bytes);
    if (!r) {
        respond_out_of_memory(req);
        return NULL;
    }
    r->http = req;
    r->what = what;
    str_store(str_of(req->grant.key->owner), r->owner, sizeof(r->owner));
    str_store(id, r->id, sizeof(r->id));
    buf_init(&r->body, BODY_BYTES_MAX);
    return r;
}

void stored_read_refuse(struct stored_read *r, const struct api_error *e) {
    respond_error(r->http, e);
    destroy(r);
}

void stored_read_push(struct stored_read *r, bool is_read) {
    r->op = (struct store_op){.run = run, .done = done, .is_read = is_read};
    r->http->owner = r;
    r->http->on_gone = on_gone;
    storage_push(r->http->server, &r->op);
}
