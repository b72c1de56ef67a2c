/* jobs/batches_int.h - what batches.c and batch_lines.c share. */
#ifndef JOBS_BATCHES_INT_H
#define JOBS_BATCHES_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "jobs/batches.h"

/* What decides whether a batch may be changed. */
struct batch_head {
    int64_t number, line_set;
    enum batch_state state;
    enum line_state rest; /* of lines without a result; WAITING until it is finalized */
    bool is_started;      /* it was IN_PROGRESS */
};

/* `owner` empty: any. ST_MISSING with a sentence. */
enum status batch_head_find(struct store_db *db, struct str owner, struct str id,
                            struct batch_head *out, struct err *err);

#endif
