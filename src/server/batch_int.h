/* server/batch_int.h - struct batch_run: what the files that run batches share.
 *
 * batch_run.c has the list of runs and their order, batch_validate.c the step READING,
 * batch_lines.c RUNNING and batch_finish.c WRITING.
 *
 * The steps READING and WRITING, and fetching lines, are chains of operations of the store:
 * run_push starts one, and `next` is called when it is done. One is under way at a time
 * (`is_busy`). An operation that fails because the store cannot be written is tried again; `next`
 * sees every other status.
 *
 * Thread: the I/O thread; the functions that are given to run_push run on the store's.
 */
#ifndef SERVER_BATCH_INT_H
#define SERVER_BATCH_INT_H

#include <uv.h>

#include "base/list.h"
#include "jobs/batches.h"
#include "jobs/store.h"
#include "server/batch_run.h"
#include "server/registry.h"
#include "server/storage.h"

struct batch_reading; /* batch_validate.c */
struct batch_run;
struct http_request;

enum {
    LINES_BYTES_MAX = 64 << 20, /* of lines and results in memory: none are fetched above it */
    READINGS_MAX = 4,           /* input files that are checked at one time */
    STORE_RETRY_US = 1000000,
    RUN_WORD_BYTES = 64, /* of an endpoint */
};

enum run_step { RUN_READING, RUN_RUNNING, RUN_WRITING, RUN_DISCARDING };

/* The batches of one owner. */
struct batch_owner {
    char name[STORAGE_OWNER_BYTES];
    struct list runs; /* the oldest first */
    struct list_link in_all;
};

/* An output file. */
struct out_file {
    char id[STORAGE_ID_BYTES], name[STORAGE_ID_BYTES + 16];
    bool exists;
};

/* Of batch_finish.c. */
struct batch_writing {
    struct out_file output, error;
    int64_t after; /* results up to this line are written */
    /* Of the operation under way. */
    int64_t last;
    bool makes_output, makes_error;
};

typedef enum status run_op_fn(struct batch_run *run, struct store_db *db, struct err *err);
typedef void run_next_fn(struct batch_run *run);

struct batch_run {
    struct batch_runs *all;
    struct batch_owner *owner;
    struct list_link in_owner;
    char id[STORAGE_ID_BYTES], input_file[STORAGE_ID_BYTES], endpoint[RUN_WORD_BYTES];
    char model[SERVED_NAME_BYTES];
    enum batch_kind kind;
    uint64_t seed;
    int64_t expires_s;
    int64_t output_after_s; /* of its output files; 0: --data-keep */
    uint32_t left;          /* lines without a result */
    enum run_step step;
    bool is_cancelled; /* to be ended; the rest of its lines is not run */
    bool is_expired;

    struct store_op op; /* of the chain */
    run_op_fn *op_run;
    run_next_fn *op_next;
    bool is_busy;
    int64_t retry_us; /* not 0: when the operation is tried again */

    struct batch_reading *reading; /* READING, once it has begun */

    struct list fetched; /* by the operation under way */
    struct list ready;   /* fetched, not started */
    struct list running;
    struct list ended; /* their results are being stored */
    struct line_place fetched_to;
    bool is_all_fetched;
    int64_t paused_until_us; /* a line was refused for the moment */

    struct batch_writing writing;
};

/* A line: fetched, under way, or with a result that is being stored. */
struct run_line {
    struct list_link in_run;
    struct batch_run *run;
    struct http_request *request; /* under way */
    uint32_t slot;                /* of the model that it runs on */
    uint32_t tries;
    uint32_t number;
    uint64_t order;
    char url[RUN_WORD_BYTES];
    struct store_op op; /* stores the result */
    int64_t retry_us;   /* not 0: storing it failed and is tried again then */
    struct line_result result;
    char request_id[STORAGE_ID_BYTES];
    char *response; /* owned */
    size_t body_bytes;
    char body[];
};

enum { SLOTS = SERVED_MAX + 1 }; /* models, and one for lines whose model is not served */

struct batch_runs {
    struct server *server;
    uv_timer_t timer;
    bool is_closed;
    bool is_due;        /* the timer is set to go on at once */
    uint64_t pause_ms;  /* until the first batch that pauses goes on; 0: none does */
    int64_t check_us;   /* when expiry and failed operations are looked at next */
    struct list owners; /* whose turn is next is first */
    uint32_t open;      /* runs */
    uint32_t readings;
    uint64_t line_bytes;   /* of lines and results in memory */
    uint32_t unstored;     /* results that could not be stored */
    uint32_t live[SLOTS];  /* lines under way, by model */
    uint32_t limit[SLOTS]; /* of them; 0: as many as the model can use */
    struct batch_stats stats;
    struct store_op recovery;
    int64_t recovered_to, recovered_next; /* row numbers: taken, and found by the operation */
    bool recovers_again;                  /* reading failed in a way that may pass */
    struct batch_row recovered;
};

/* ---- batch_run.c ---- */

/* No further step is begun: the server is draining or has failed. */
bool runs_are_stopping(const struct batch_runs *all);
/* Run `op` on the store's thread, then `next` here, unless the server is draining. */
void run_push(struct batch_run *run, run_op_fn *op, run_next_fn *next, bool is_read);
void run_begin(struct batch_run *run, enum run_step step);
/* It has its final state, or does not exist any more. */
void run_destroy(struct batch_run *run);
/* Look soon for lines that can be started. */
void runs_set_due(struct batch_runs *all);

/* ---- batch_validate.c ---- */

void reading_begin(struct batch_run *run);
void reading_destroy(struct batch_run *run);
/* Has the batch been cancelled, or has it expired? Then it goes on with WRITING. No operation of it
 * is under way; one that was to be tried again is dropped. */
bool reading_end_early(struct batch_run *run);
struct run_line *run_line_create(const struct batch_line *line);

/* ---- batch_lines.c ---- */

/* Start one line. False: none can be started now. */
bool lines_start_one(struct batch_run *run);
/* All lines have results, or the batch was cancelled or has expired: begin with WRITING. */
void lines_check_end(struct batch_run *run);
void lines_cancel(struct batch_run *run); /* those under way; those that wait are dropped */
void lines_store_again(struct batch_run *run, int64_t now_us);
void lines_destroy(struct batch_run *run);

/* ---- batch_finish.c ---- */

void writing_begin(struct batch_run *run);
void discarding_begin(struct batch_run *run); /* a batch that was never acknowledged */

#endif
