/* cli/profile_report.h - profiles of steps as tables for people and as JSON.
 *
 * Thread: the main thread.
 */
#ifndef CLI_PROFILE_REPORT_H
#define CLI_PROFILE_REPORT_H

#include <stdint.h>

struct buf;
struct peaks;
struct profile;

/* What was measured and on what. */
struct profile_report {
    const char *model, *device, *kv_type; /* as the user named it; "cpu-avx512"; "f16" */
    uint32_t threads;
    const struct peaks *peaks;
    const struct profile *steps;
    const char *const *kinds; /* of the steps: "decode", "batch", "prompt" */
    uint32_t step_count;
};

void profile_put_tables(const struct profile_report *r, struct buf *out);
void profile_put_json(const struct profile_report *r, struct buf *out);

#endif
