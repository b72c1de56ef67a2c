/* server/task_int.h - work for an HTTP request: at once, or in libuv's pool if it takes long.
 *
 *     task_create, task_read_body -> decode(task, json), any thread -> done(task), I/O thread
 *     task_run                    -> work(task), any thread         -> done(task), I/O thread
 *
 * Parsing JSON takes time in proportion to the body, so a body of TASK_READ_FROM_BYTES or more is
 * parsed in the pool, from a copy, because the exchange and its body go when the client does.
 * In `done`, a task whose `http` is NULL has lost its client.
 *
 * Lifetime: the first member of the caller's struct, which `done` frees or runs again.
 * Thread: the I/O thread; `decode` and `work` on any, and they change nothing but the task.
 */
#ifndef SERVER_TASK_INT_H
#define SERVER_TASK_INT_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "api/error.h"
#include "base/status.h"
#include "base/str.h"

struct codec;
struct http_request;
struct json;
struct key;
struct server;

struct task {
    uv_work_t handle; /* first: libuv gives it back */
    struct server *server;
    struct http_request *http; /* NULL: none, or its client has gone away */
    enum status status;        /* of `decode` or `work` */
    struct api_error error;
    void (*work)(struct task *task);
    void (*done)(struct task *task);

    /* Of task_create. */
    const struct codec *codec; /* of the request's route */
    const struct key *key;
    enum status (*decode)(struct task *task, struct json *doc); /* takes `doc`, also on failure */
    struct str body;
    char *body_copy; /* NULL: `body` is the exchange's */
    uint64_t body_bytes_max;
};

enum {
    TASK_POOL_FROM_BYTES = 16 << 10, /* of a body: template and tokenizer run in the pool */
    TASK_READ_FROM_BYTES = 64 << 10, /* of a body: its JSON is parsed there, too */
};

typedef enum status task_decode_fn(struct task *task, struct json *doc);
typedef void task_done_fn(struct task *task);

/* Zeroed memory of `bytes` that begins with a task of `req`. NULL: out of memory, and `req` has
 * been answered. */
void *task_create(struct http_request *req, size_t bytes, task_decode_fn *decode,
                  task_done_fn *done);
/* Parse the request's body and decode it. Where `status` is not ST_OK, `error` is filled. */
void task_read_body(struct task *task);
/* Work for `req`. */
void task_run(struct task *task, struct http_request *req, bool in_pool);
/* Work without an HTTP request. */
void task_run_alone(struct task *task, struct server *s, bool in_pool);

#endif
