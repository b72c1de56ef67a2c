/* server/batch_validate.c - the step READING of a batch: its input file becomes lines.
 *
 *     clear -> (read a slice -> check its lines, in libuv's pool -> store them)* -> start or fail
 *
 * After a crash the step begins again, so lines that were stored before are cleared first. Once a
 * line is wrong, the rest of the file is only checked, to list its errors, too.
 */
#include "access/keys.h"
#include "api/batch_lines.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "jobs/files.h"
#include "report/log.h"
#include "server/batch_int.h"
#include "server/batch_slice.h"
#include "server/server_int.h"
#include "server/task_int.h"

enum { SLICE_BYTES = 256 << 10 };

struct batch_reading {
    struct task task; /* first */
    struct batch_run *run;
    struct line_splitter splitter;
    struct batch_check check;
    struct batch_slice lines; /* of this slice of the file */
    uint64_t offset;          /* bytes that were read */
    size_t got;
    bool is_last; /* the slice is the file's last */
    bool is_done; /* `end` was reached */
    char slice[SLICE_BYTES];
};

void reading_destroy(struct batch_run *run) {
    struct batch_reading *r = run->reading;
    if (!r) return;
    batch_slice_clear(&r->lines);
    line_splitter_deinit(&r->splitter);
    batch_check_deinit(&r->check);
    mem_free(r);
    run->reading = NULL;
    run->all->readings--;
    runs_set_due(run->all);
}

/* ---- the end ---- */

bool reading_end_early(struct batch_run *run) {
    CHECK(!run->is_busy);
    if (!run->is_cancelled && !run->is_expired) return false;
    run->retry_us = 0;
    reading_destroy(run);
    run_begin(run, RUN_WRITING);
    return true;
}

static void log_refused(const struct batch_run *run, const char *state, const char *text) {
    struct log_field fields[] = {log_text("id", str_of(run->id)), log_text("state", str_of(state)),
                                 log_text("text", str_of(text))};
    log_line(run->all->server->log, LOG_INFO, "batch", fields, 3);
}

static enum status fail(struct batch_run *run, struct store_db *db, struct err *err) {
    return batches_fail(db, str_of(run->id), buf_str(&run->reading->check.errors), clock_wall_s(),
                        err);
}

static void on_failed(struct batch_run *run) {
    if (run->is_cancelled) { /* before this: the batch is cancelling, and stays so until its end */
        reading_destroy(run);
        run_begin(run, RUN_WRITING);
        return;
    }
    log_refused(run, "failed", "its input file has errors; the batch lists them");
    run_destroy(run);
}

static enum status start(struct batch_run *run, struct store_db *db, struct err *err) {
    const struct batch_check *c = &run->reading->check;
    return batches_start(db, str_of(run->id), c->good_count, str_of(c->model), clock_wall_s(), err);
}

static void on_started(struct batch_run *run) {
    str_store(str_of(run->reading->check.model), run->model, sizeof(run->model));
    run->left = run->reading->check.good_count;
    if (reading_end_early(run)) return;
    reading_destroy(run);
    run_begin(run, RUN_RUNNING);
}

static void end(struct batch_run *run) {
    struct batch_reading *r = run->reading;
    if (!r->is_done && batch_check_end(&r->check) == ST_NOMEM) {
        log_refused(run, "validating", "out of memory; it is tried again after the next start");
        run_destroy(run);
        return;
    }
    r->is_done = true;
    if (r->check.error_count > 0)
        run_push(run, fail, on_failed, false);
    else
        run_push(run, start, on_started, false);
}

/* ---- a slice ---- */

static void read_slice(struct batch_run *run);

/* On the store's thread. A line whose custom_id was used before is an error of the file. */
static enum status add_lines(struct batch_run *run, struct store_db *db, struct err *err) {
    return batch_slice_store(&run->reading->lines, db, str_of(run->id), err);
}

static void on_added(struct batch_run *run) {
    struct batch_reading *r = run->reading;
    batch_slice_clear(&r->lines);
    if (run->op.status != ST_OK)
        batch_check_add(&r->check, &(struct batch_fault){.code = "duplicate_custom_id",
                                                         .param = "custom_id",
                                                         .message = run->op.err.text});
    if (reading_end_early(run)) return;
    if (r->is_last)
        end(run);
    else
        read_slice(run);
}

/* In libuv's pool. */
static void check_slice(struct task *task) {
    struct batch_reading *r = (struct batch_reading *)task;
    struct batch_check *c = &r->check;
    struct str text;
    line_splitter_push(&r->splitter, (struct str){r->slice, r->got}, r->is_last);
    while (!c->is_over && line_splitter_next(&r->splitter, &text)) {
        struct batch_line line;
        if (c->line_count == 0) text = batch_skip_mark(text);
        enum status st = batch_check_line(c, text, r->splitter.too_long, &line);
        if (st == ST_OK && c->error_count == 0) st = batch_slice_keep(&r->lines, &line);
        if (st == ST_NOMEM) task->status = st;
        if (st == ST_NOMEM) return;
    }
    if (r->splitter.held.status != ST_OK) task->status = ST_NOMEM;
}

static void on_checked(struct task *task) {
    struct batch_reading *r = (struct batch_reading *)task;
    struct batch_run *run = r->run;
    run->is_busy = false;
    if (runs_are_stopping(run->all)) return;
    if (task->status != ST_OK) {
        log_refused(run, "validating", "out of memory; it is tried again after the next start");
        run_destroy(run);
        return;
    }
    if (r->check.is_over) r->is_last = true;
    if (r->check.error_count > 0) batch_slice_clear(&r->lines);
    run_push(run, add_lines, on_added, false);
}

static enum status read_file(struct batch_run *run, struct store_db *db, struct err *err) {
    struct batch_reading *r = run->reading;
    return files_read(db, str_of(run->input_file), r->offset, r->slice, sizeof(r->slice), &r->got,
                      err);
}

static void on_file_read(struct batch_run *run) {
    struct batch_reading *r = run->reading;
    if (run->op.status != ST_OK) {
        batch_check_add(&r->check, &(struct batch_fault){.code = "file_not_readable",
                                                         .message = run->op.err.text});
        end(run);
        return;
    }
    r->offset += r->got;
    r->is_last = r->got < sizeof(r->slice);
    r->task =
        (struct task){.work = check_slice,
                      .done = on_checked,
                      .bytes = sizeof(r->slice),
                      .item = {.is_continuing = true, .is_long = true},
                      .key = keys_find_owner(run->all->server->keys, str_of(run->owner->name))};
    run->is_busy = true;
    task_run_alone(&r->task, run->all->server, true);
}

static void read_slice(struct batch_run *run) { run_push(run, read_file, on_file_read, true); }

/* ---- the beginning ---- */

static enum status clear(struct batch_run *run, struct store_db *db, struct err *err) {
    return batches_clear_lines(db, str_of(run->id), err);
}

static void on_cleared(struct batch_run *run) {
    if (!reading_end_early(run)) read_slice(run);
}

void reading_begin(struct batch_run *run) {
    CHECK(!run->reading);
    if (run->all->readings >= READINGS_MAX) return; /* the timer comes back to it */
    struct batch_reading *r = mem_zalloc(sizeof(*r));
    if (!r) return;
    run->reading = r;
    run->all->readings++;
    r->run = run;
    line_splitter_init(&r->splitter);
    if (batch_check_init(&r->check, str_of(run->endpoint)) != ST_OK) {
        reading_destroy(run);
        return;
    }
    run_push(run, clear, on_cleared, false);
}
