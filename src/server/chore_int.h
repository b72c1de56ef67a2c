/* server/chore_int.h - work for a visit that is done at once, or in libuv's pool if it is much.
 *
 *     chore_run -> work(chore), anywhere -> done(chore), on the loop
 *
 * A chore whose `visit` is NULL by then has lost its client.
 *
 * Lifetime: the first member of the caller's struct, which `done` frees. Thread: the io thread,
 * but for `work`, which touches nothing that the io thread may change.
 */
#ifndef SERVER_CHORE_INT_H
#define SERVER_CHORE_INT_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "api/error.h"
#include "base/status.h"

struct server;
struct visit;

struct chore {
    uv_work_t req; /* first: libuv gives it back */
    struct server *server;
    struct visit *visit;
    enum status status; /* what `work` found */
    struct api_error error;
    void (*work)(struct chore *c);
    void (*done)(struct chore *c);
};

enum {
    CHORE_POOL_FROM_BYTES = 16 << 10, /* of a body: template and tokenizer go into the pool */
    CHORE_READ_FROM_BYTES = 64 << 10, /* and from here on reading the JSON, too */
};

void chore_run(struct chore *c, struct visit *v, bool is_much);
/* The same for somebody who has no visit. */
void chore_run_alone(struct chore *c, struct server *s, bool is_much);

#endif
