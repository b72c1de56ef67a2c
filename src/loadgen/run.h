/* loadgen/run.h - many clients of one server, in one thread.
 *
 *     closed loop (rate 0)  `clients` connections, each asks again as soon as it is answered
 *     open loop             requests arrive at random at `rate` a second, whatever the server
 *                           does; at most `clients` are under way, later ones wait, and their
 *                           waiting counts
 *
 * A run ends when `requests` were sent or `seconds` have passed, and all that were under way have
 * ended. It gives up if the server fails RUN_FAILURES_MAX requests in a row.
 *
 * Lifetime: a call. Thread: the caller's. Memory: the clients and their buffers.
 */
#ifndef LOADGEN_RUN_H
#define LOADGEN_RUN_H

#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"
#include "loadgen/measure.h"
#include "loadgen/plan.h"
#include "loadgen/target.h"

struct buf;

enum { RUN_CLIENTS_MAX = 4096, RUN_FAILURES_MAX = 100 };

struct load_run {
    const struct target *target; /* resolved */
    const struct plan *plan;
    const struct clock *clock;
    const char *key; /* NULL: none is sent */
    uint32_t clients;
    uint64_t first;    /* the plan's number of the first request */
    uint64_t requests; /* at most */
    double seconds;    /* 0: no limit */
    double rate;       /* 0: closed loop */
    double timeout_s;  /* for one request */
};

/* `out` is zeroed. A request that fails is counted there; ST_UNAVAILABLE: nearly all do. */
enum status load_run(const struct load_run *run, struct measure *out, struct err *err);

/* One request by itself: a probe of the plan (plan_put_probe) with its number run->first. */
enum status load_probe(const struct load_run *run, uint32_t words, struct trip *out,
                       struct err *err);

/* GET a path below the base; the answer is appended to `out`. The plan may be NULL. */
enum status load_get(const struct load_run *run, const char *path, struct buf *out,
                     struct err *err);

#endif
