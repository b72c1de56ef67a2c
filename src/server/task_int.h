/* server/task_int.h - work for an HTTP request: at once, or in libuv's pool.
 *
 *     task_create, task_read_body -> read_body(task, json), any thread -> done(task), I/O thread
 *     task_run                    -> work(task), any thread            -> done(task), I/O thread
 *
 * Parsing JSON takes time in proportion to the body, so a body of TASK_READ_FROM_BYTES or more is
 * parsed in the pool. The pool gets a copy, because the exchange frees the body when the client
 * disconnects. The body is freed when it was read, not when the response has ended. If the client
 * has disconnected, `http` is NULL in `done`; work that waits for a thread is not done for it.
 *
 * The pool is shared fairly (server/work_queue.h). If its queue has no room, `done` is called with
 * a status that is not ST_OK and the error for the client.
 *
 * Lifetime: the first member of the caller's struct, which `done` frees or runs again.
 * Thread: the I/O thread; `read_body` and `work` on any, and they change only the task.
 */
#ifndef SERVER_TASK_INT_H
#define SERVER_TASK_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "api/error.h"
#include "base/status.h"
#include "base/str.h"
#include "server/work_queue.h"

struct codec;
struct http_request;
struct json;
struct key;
struct server;

struct task {
    struct work_item item; /* first: the pool's queue gives it back; task_run fills it */
    struct server *server;
    struct http_request *http; /* NULL: none, or its client has disconnected */
    enum status status;        /* of `read_body` or `work` */
    struct api_error error;
    void (*work)(struct task *task);
    void (*done)(struct task *task);
    uint64_t bytes;       /* that the work reads or writes, if that is not the body */
    _Atomic bool is_left; /* its client has disconnected: work that takes long should end */

    /* Of task_create. */
    const struct codec *codec; /* of the request's route */
    const struct key *key;
    /* Takes `doc`, also on failure. */
    enum status (*read_body)(struct task *task, struct json *doc);
    struct str body; /* until it was read; its length stays */
    char *body_copy; /* NULL: `body` is the exchange's */
    uint64_t body_bytes_max;
    bool logs_body; /* --log-prompts: it is kept until the answer ends */
};

enum { TASK_READ_FROM_BYTES = 64 << 10 }; /* of a body: its JSON is parsed in the pool */

typedef enum status task_body_fn(struct task *task, struct json *doc);
typedef void task_done_fn(struct task *task);

/* Zeroed memory of `bytes` that begins with a task of `req`. NULL: out of memory, and `req` has
 * been answered. */
void *task_create(struct http_request *req, size_t bytes, task_body_fn *read_body,
                  task_done_fn *done);
/* Parse the request's body and call read_body. Where `status` is not ST_OK, `error` is filled. */
void task_read_body(struct task *task);
/* Work for `req`. */
void task_run(struct task *task, struct http_request *req, bool in_pool);
/* Work without an HTTP request. */
void task_run_alone(struct task *task, struct server *s, bool in_pool);
/* Its client has gone away: if it waits for a thread, `done` is called now, without the work. */
void task_cancel(struct task *task);

#endif
