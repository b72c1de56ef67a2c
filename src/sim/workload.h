/* sim/workload.h - workloads to measure policies with: lengths, arrivals, tenants, targets.
 *
 * Lengths are read from a public workload file or drawn from a distribution. A stream of requests
 * takes them in order and arrives at random (Poisson) or all at once. Several streams form a
 * workload, for example with different tenants or priorities. The same seed gives the same
 * workload.
 *
 * Lifetime: zeroed, filled by workload_add, workload_deinit. Thread: its owner.
 */
#ifndef SIM_WORKLOAD_H
#define SIM_WORKLOAD_H

#include <stdint.h>

#include "base/status.h"

/* ---- lengths ---- */

struct length_pair {
    uint32_t prompt_tokens, answer_tokens; /* at least 1 each */
};
struct lengths {
    struct length_pair *items;
    uint32_t count;
};

/* Read a CSV file "time,prompt tokens,answer tokens" with one header line (the Azure traces). Lines
 * without a prompt or an answer are left out. ST_BAD names the first malformed line. */
enum status lengths_read(struct lengths *l, const char *path, struct err *err);

/* Log-normal distributions; a spread is the standard deviation of the logarithm. */
struct length_shape {
    const char *name;
    double prompt_median, prompt_spread, answer_median, answer_spread;
    uint32_t prompt_max, answer_max;
};
/* chat and reading have the medians and tails of Azure's conversation and code traces; writing has
 * short prompts and long answers; heavy has short prompts and answers from 1 to 3,000 tokens. */
extern const struct length_shape shape_chat, shape_reading, shape_writing, shape_heavy;

enum status lengths_draw(struct lengths *l, const struct length_shape *shape, uint32_t count,
                         uint64_t seed, struct err *err);
void lengths_deinit(struct lengths *l); /* a zeroed one is fine */

/* ---- requests ---- */

struct work_request {
    int64_t at_us;
    uint32_t prompt_tokens;
    uint32_t answer_tokens; /* the answer ends after this many */
    uint32_t max_tokens;    /* of the request: the scheduler knows only this */
    uint32_t tenant;
    int32_t priority;
    int64_t ttft_target_us, tpot_target_us;
};
struct workload {
    struct work_request *requests; /* by arrival */
    uint32_t count;
};

struct work_stream {
    const struct lengths *lengths; /* used in order, and from the first again after the last */
    uint32_t divisor;              /* of both lengths; 0: 1 */
    uint32_t count;
    double per_s; /* mean rate of arrivals; 0: all arrive at the start */
    uint64_t seed;
    uint32_t max_tokens; /* of every request; 0: each asks for exactly the length of its answer */
    uint32_t tenant;
    int32_t priority;
    int64_t ttft_target_us, tpot_target_us;
};
enum status workload_add(struct workload *w, const struct work_stream *stream, struct err *err);
void workload_deinit(struct workload *w); /* a zeroed one is fine */

#endif
