/* jobs/batches.h - batches: many requests of one file, each answered once.
 *
 *     VALIDATING --> IN_PROGRESS --> FINALIZING --> COMPLETED
 *       |  |              |  |
 *       |  |              |  +--expires--> FINALIZING --> EXPIRED
 *       |  +--cancel------+--cancel--> CANCELLING --> CANCELLED
 *       +--invalid--> FAILED
 *
 * A line is WAITING until its result is stored; nothing else of it is on disk, so a crash loses at
 * most work that is done again with the same result. A line's result and the counts of its batch
 * are written in one transaction, and a second result of a line changes nothing.
 *
 * Thread: the store's.
 */
#ifndef JOBS_BATCHES_H
#define JOBS_BATCHES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct store_db;

enum batch_state {
    BATCH_VALIDATING,
    BATCH_FAILED,
    BATCH_IN_PROGRESS,
    BATCH_FINALIZING,
    BATCH_COMPLETED,
    BATCH_EXPIRED,
    BATCH_CANCELLING,
    BATCH_CANCELLED,
};
const char *batch_state_name(enum batch_state s); /* "in_progress" */
bool batch_state_is_final(enum batch_state s);

enum batch_kind { BATCH_OPENAI, BATCH_ANTHROPIC };

struct batch_row {
    struct str id, owner;
    enum batch_kind kind;
    enum batch_state state;
    struct str endpoint;                            /* "/v1/chat/completions" */
    struct str model;                               /* of its lines; empty until it is known */
    struct str input_file, output_file, error_file; /* ids or empty */
    struct str window;                              /* "24h" */
    struct str metadata;                            /* JSON object or empty */
    struct str errors; /* JSON list of the errors of its validation, or empty */
    uint64_t seed;     /* line i without a seed of its own uses one made of this and i */
    int64_t created_s, in_progress_s, expires_s, finalizing_s, completed_s, failed_s, expired_s,
        cancelling_s, cancelled_s; /* 0: not */
    int64_t output_after_s;        /* how long its output files are kept; 0: --data-keep */
    uint32_t total, completed, failed;
    uint32_t cancelled, expired; /* lines that were not run (Anthropic counts them) */
    uint64_t prompt_tokens, cached_tokens, answer_tokens; /* of all lines that ended */
    char *memory;
};
void batch_row_deinit(struct batch_row *row);

/* In the state `row->state`. */
enum status batches_insert(struct store_db *db, const struct batch_row *row, struct err *err);
enum status batches_find(struct store_db *db, struct str owner, struct str id,
                         struct batch_row *out, struct err *err);
struct batches_page {
    struct str owner, after;
    enum batch_kind kind;
    uint32_t limit;
    bool ascending;
};
enum status batches_list(struct store_db *db, const struct batches_page *page,
                         bool (*each)(void *ctx, const struct batch_row *row), void *ctx,
                         struct err *err);
/* Those that are not in a final state, in the order of creation, after row number `after`. */
enum status batches_next_open(struct store_db *db, int64_t after, int64_t *rowid,
                              struct batch_row *out, struct err *err);
/* Was the row inserted since the store was opened? */
bool batches_is_new(const struct store_db *db, int64_t rowid);

/* ---- validation ---- */

struct batch_line {
    uint32_t number; /* from 0, in input order */
    struct str custom_id, body;
    struct str url; /* the route of this line */
    uint64_t order; /* lines run in the order of this number, then of `number` */
};
/* ST_BAD: custom_id was used by an earlier line (err says which). About 40 us for a line of 2 KB: a
 * few hundred lines in one operation do not hold up others. */
enum status batches_add_line(struct store_db *db, struct str id, const struct batch_line *line,
                             struct err *err);
/* Remove all lines: validation begins again after a crash. */
enum status batches_clear_lines(struct store_db *db, struct str id, struct err *err);
/* VALIDATING becomes IN_PROGRESS with `total` lines, or FAILED with `errors`. Other states stay
 * (the batch was cancelled meanwhile). */
enum status batches_start(struct store_db *db, struct str id, uint32_t total, struct str model,
                          int64_t now_s, struct err *err);
enum status batches_fail(struct store_db *db, struct str id, struct str errors, int64_t now_s,
                         struct err *err);

/* ---- running ---- */

/* Waiting lines after place `after`, at most `limit`; `each` is called for each. */
struct line_place {
    uint64_t order;
    int64_t number; /* -1: from the first */
};
enum status batches_waiting(struct store_db *db, struct str id, struct line_place after,
                            uint32_t limit, bool (*each)(void *ctx, const struct batch_line *line),
                            void *ctx, struct err *err);

enum line_state { LINE_WAITING, LINE_DONE, LINE_FAILED, LINE_CANCELLED, LINE_EXPIRED };
struct line_result {
    uint32_t number;
    enum line_state state;
    uint32_t status;             /* of HTTP */
    struct str request_id, body; /* the response */
    uint64_t prompt_tokens, cached_tokens, answer_tokens;
};
/* Without effect if the line has a result. */
enum status batches_put_result(struct store_db *db, struct str id, const struct line_result *r,
                               struct err *err);
/* VALIDATING or IN_PROGRESS becomes CANCELLING; FINALIZING stays; final states: ST_BAD. */
enum status batches_cancel(struct store_db *db, struct str owner, struct str id, int64_t now_s,
                           struct err *err);

/* ---- the end ---- */

/* Lines that still wait get the state `rest` (CANCELLED or EXPIRED); the batch becomes FINALIZING,
 * unless it is CANCELLING. One that is VALIDATING can only expire, and loses its lines. */
enum status batches_finalize(struct store_db *db, struct str id, enum line_state rest,
                             int64_t now_s, struct err *err);
/* Every line in input order, after line `after` (-1: from the first), at most `limit`. */
struct line_row {
    struct batch_line line; /* without body */
    struct line_result result;
};
enum status batches_results(struct store_db *db, struct str id, int64_t after, uint32_t limit,
                            bool (*each)(void *ctx, const struct line_row *row), void *ctx,
                            struct err *err);
/* The output files are written: make them ready, set the final state, delete the lines. All in one
 * transaction. */
struct batch_end {
    enum batch_state state;
    struct str output_file, error_file; /* empty: none */
    int64_t now_s;
};
enum status batches_finish(struct store_db *db, struct str id, const struct batch_end *end,
                           struct err *err);
enum status batches_delete(struct store_db *db, struct str owner, struct str id, struct err *err);
enum status batches_expire(struct store_db *db, int64_t before_s, uint32_t limit, uint32_t *count,
                           struct err *err);

#endif
