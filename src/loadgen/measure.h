/* loadgen/measure.h - what became of the requests of a run, and how it is told.
 *
 * Definitions, those of vLLM's `bench serve`:
 *
 *   TTFT  from the sending of the request (in an open loop: from when it was due) to the first
 *         event that carries text;
 *   E2E   to the last event that belongs to the answer;
 *   TPOT  (E2E - TTFT) / (output tokens - 1), one for each request of two tokens or more;
 *   ITL   every gap between two events with text, of all requests together;
 *   throughput  all tokens by the time from the first request to the last end.
 *
 * Tokens are counted by the server (usage); where it does not, events with text count.
 *
 * Lifetime: zeroed storage of the caller's (0.2 MB). Thread: its owner.
 */
#ifndef LOADGEN_MEASURE_H
#define LOADGEN_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "loadgen/hist.h"

struct buf;

enum { MEASURE_REASONS = 8, MEASURE_WHY_BYTES = 160 };

/* One request, as its client saw it. */
struct trip {
    uint32_t status; /* of HTTP; 0: no response came */
    bool has_usage;
    uint32_t prompt_tokens, output_tokens, cached_tokens; /* of usage */
    uint32_t text_events;
    int64_t begun_us, first_us, last_us; /* first_us 0: no text came */
};

struct failure {
    uint32_t status; /* as above */
    uint64_t count;
    char why[MEASURE_WHY_BYTES]; /* of the first such */
};

struct measure {
    uint32_t clients;
    double rate;                           /* of arrivals a second; 0: closed loop */
    uint64_t completed, failed, uncounted; /* uncounted: completed without usage */
    uint64_t input_tokens, output_tokens, cached_tokens;
    int64_t begun_us, ended_us;
    double cpu_s;                             /* of this program, meanwhile */
    struct failure failures[MEASURE_REASONS]; /* the last one takes what has no place */
    uint32_t reasons;
    struct hist ttft, tpot, itl, e2e;
};

void measure_note_end(struct measure *m, const struct trip *t);
void measure_note_failure(struct measure *m, const struct trip *t, const char *why);

double measure_s(const struct measure *m);
double measure_cpu_share(const struct measure *m); /* of one core */
void measure_put_table(const struct measure *m, struct buf *out);
void measure_put_json(const struct measure *m, struct buf *out); /* an object, names as vLLM's */

#endif
