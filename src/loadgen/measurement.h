/* loadgen/measurement.h - the results of a run, as a table and as JSON.
 *
 * Definitions, those of vLLM's `bench serve`:
 *
 *   TTFT  from the start of the request (in an open loop: from its arrival time) to the first event
 *         with text;
 *   E2E   to the last event of the answer;
 *   TPOT  (E2E - TTFT) / (output tokens - 1), one for each request of two tokens or more;
 *   ITL   the time between two events with text, over all requests;
 *   throughput  all tokens divided by the time from the first request to the last end.
 *
 * Token counts come from the server (usage); without usage, events with text are counted.
 *
 * Lifetime: zeroed storage of the caller's (0.2 MB). Thread: its owner.
 */
#ifndef LOADGEN_MEASUREMENT_H
#define LOADGEN_MEASUREMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "loadgen/hist.h"

struct buf;

enum { MEASUREMENT_REASONS = 8, MEASUREMENT_WHY_BYTES = 160 };

/* One request, as its client measured it. */
struct request_result {
    uint32_t status; /* of HTTP; 0: no response */
    bool has_usage;
    uint32_t prompt_tokens, output_tokens, cached_tokens; /* of usage */
    uint32_t text_events;
    int64_t begun_us, first_us, last_us; /* first_us 0: no text */
};

struct failure {
    uint32_t status; /* as above */
    uint64_t count;
    char why[MEASUREMENT_WHY_BYTES]; /* of the first one with this status */
};

struct measurement {
    uint32_t clients;
    double rate;                           /* arrivals a second; 0: closed loop */
    uint64_t completed, failed, uncounted; /* uncounted: completed without usage */
    uint64_t input_tokens, output_tokens, cached_tokens;
    int64_t begun_us, ended_us;
    double cpu_s;                                 /* CPU time of this program during the run */
    struct failure failures[MEASUREMENT_REASONS]; /* the last one counts all further statuses */
    uint32_t reasons;
    struct hist ttft, tpot, itl, e2e;
};

void measurement_add(struct measurement *m, const struct request_result *t);
void measurement_add_failure(struct measurement *m, const struct request_result *t,
                             const char *why);

double measurement_s(const struct measurement *m);
double measurement_cpu_share(const struct measurement *m); /* of one core */
void measurement_put_table(const struct measurement *m, struct buf *out);
void measurement_put_json(const struct measurement *m,
                          struct buf *out); /* an object with the names of vLLM */

#endif
