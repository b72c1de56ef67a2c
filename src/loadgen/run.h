/* loadgen/run.h - many clients of one server, in one thread.
 *
 *     closed loop (rate 0)  `clients` connections; each sends its next request as soon as the
 *                           response to the last one is complete
 *     open loop             requests arrive at random, `rate` a second, however slow the server is;
 *                           at most `clients` are under way, later ones wait, and their waiting
 *                           time counts
 *
 * A run sends no more requests after `request_max` or `seconds`, and ends when the last response is
 * complete. It fails if LOADGEN_FAILURES_MAX requests fail in a row.
 *
 * Lifetime: a call. Thread: the caller's. Memory: the clients and their buffers.
 */
#ifndef LOADGEN_RUN_H
#define LOADGEN_RUN_H

#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"
#include "loadgen/measurement.h"
#include "loadgen/requests.h"
#include "loadgen/target.h"

struct buf;

enum { LOADGEN_CLIENTS_MAX = 4096, LOADGEN_FAILURES_MAX = 100 };

struct loadgen_run {
    const struct target *target; /* resolved */
    const struct loadgen_requests *requests;
    const struct clock *clock;
    const char *key; /* NULL: no key is sent */
    uint32_t clients;
    uint64_t first;       /* number of the first request */
    uint64_t request_max; /* UINT64_MAX: no limit */
    double seconds;       /* 0: no limit */
    double rate;          /* arrivals a second; 0: closed loop */
    double timeout_s;     /* for one request */
};

/* `out` is zeroed. It counts failed requests; ST_UNAVAILABLE: too many failed in a row. */
enum status loadgen_run(const struct loadgen_run *run, struct measurement *out, struct err *err);

/* Send one request by itself: the probe (loadgen_put_probe) number run->first. */
enum status loadgen_send_probe(const struct loadgen_run *run, uint32_t words,
                               struct request_result *out, struct err *err);

/* GET a path below the base; the body is appended to `out`. run->requests may be NULL. */
enum status loadgen_get(const struct loadgen_run *run, const char *path, struct buf *out,
                        struct err *err);

#endif
