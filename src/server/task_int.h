/* server/task_int.h - work for a exchange that is done at once, or in libuv's pool if it is much.
 *
 *     task_run -> work(task), anywhere -> done(task), on the loop
 *
 * A task whose `exchange` is NULL by then has lost its client.
 *
 * Lifetime: the first member of the caller's struct, which `done` frees. Thread: the io thread,
 * but for `work`, which touches nothing that the io thread may change.
 */
#ifndef SERVER_TASK_INT_H
#define SERVER_TASK_INT_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "api/error.h"
#include "base/status.h"

struct server;
struct http_request;

struct task {
    uv_work_t req; /* first: libuv gives it back */
    struct server *server;
    struct http_request *http;
    enum status status; /* what `work` found */
    struct api_error error;
    void (*work)(struct task *c);
    void (*done)(struct task *c);
};

enum {
    TASK_POOL_FROM_BYTES = 16 << 10, /* of a body: template and tokenizer go into the pool */
    TASK_READ_FROM_BYTES = 64 << 10, /* and from here on reading the JSON, too */
};

void task_run(struct task *c, struct http_request *req, bool is_much);
/* The same for somebody who has no exchange. */
void task_run_alone(struct task *c, struct server *s, bool is_much);

#endif
