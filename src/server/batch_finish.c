/* server/batch_finish.c - the step WRITING of a batch: results become files, the batch ends.
 *
 *     finalize -> (a page of results is appended to the files)* -> finish
 *
 * The results are read and written on the store's thread, a page in an operation, so they are never
 * in the I/O thread's memory. The files become ready together with the batch's final state: after a
 * crash they are written again from the beginning.
 */
#include <stdio.h>

#include "api/batch_lines.h"
#include "api/message_batches.h"
#include "base/buf.h"
#include "base/clock.h"
#include "jobs/files.h"
#include "report/log.h"
#include "server/batch_int.h"
#include "server/server_int.h"

enum { PAGE_LINES = 256, PAGE_BYTES = 512 << 10 };
static const size_t PAGE_BYTES_MAX = (size_t)1 << 30; /* a page of one long line */

/* ---- on the store's thread ---- */

struct page {
    const struct batch_run *run;
    struct buf output, error;
    int64_t last;
};

static bool put_line(void *ctx, const struct line_row *row) {
    struct page *p = ctx;
    if (p->run->kind == BATCH_ANTHROPIC)
        message_batch_result_put(row, &p->output);
    else
        batch_output_put(str_of(p->run->id), row,
                         batch_output_is_error(row) ? &p->error : &p->output);
    p->last = row->line.number;
    return p->output.len + p->error.len < PAGE_BYTES;
}

static enum status append(const struct batch_run *run, struct store_db *db,
                          const struct out_file *f, const struct buf *text, struct err *err) {
    if (buf_status(text) != ST_OK) return err_set(err, ST_NOMEM, "out of memory for results");
    if (text->len == 0) return ST_OK;
    const int64_t now_s = clock_wall_s();
    const int64_t expires_s = run->output_after_s ? now_s + run->output_after_s : 0;
    const struct file_row row = {.id = str_of(f->id),
                                 .owner = str_of(run->owner->name),
                                 .filename = str_of(f->name),
                                 .purpose = STR("batch_output"),
                                 .created_s = now_s,
                                 .expires_s = expires_s};
    if (!f->exists) TRY(files_create(db, &row, err));
    return files_append(db, str_of(f->id), buf_str(text), err);
}

static enum status write_page(struct batch_run *run, struct store_db *db, struct err *err) {
    struct batch_writing *w = &run->writing;
    struct page p = {.run = run, .last = w->after};
    buf_init(&p.output, PAGE_BYTES_MAX);
    buf_init(&p.error, PAGE_BYTES_MAX);
    enum status st = batches_results(db, str_of(run->id), w->after, PAGE_LINES, put_line, &p, err);
    if (st == ST_OK) st = append(run, db, &w->output, &p.output, err);
    if (st == ST_OK) st = append(run, db, &w->error, &p.error, err);
    w->last = p.last;
    w->makes_output = p.output.len > 0;
    w->makes_error = p.error.len > 0;
    buf_deinit(&p.output);
    buf_deinit(&p.error);
    return st;
}

static enum status finalize(struct batch_run *run, struct store_db *db, struct err *err) {
    enum line_state rest = run->is_cancelled ? LINE_CANCELLED : LINE_EXPIRED;
    return batches_finalize(db, str_of(run->id), rest, clock_wall_s(), err);
}

static enum batch_state final_state(const struct batch_run *run) {
    if (run->is_cancelled) return BATCH_CANCELLED;
    return run->is_expired ? BATCH_EXPIRED : BATCH_COMPLETED;
}

static enum status finish(struct batch_run *run, struct store_db *db, struct err *err) {
    const struct batch_writing *w = &run->writing;
    const struct batch_end end = {
        .state = final_state(run),
        .output_file = w->output.exists ? str_of(w->output.id) : (struct str){0},
        .error_file = w->error.exists ? str_of(w->error.id) : (struct str){0},
        .now_s = clock_wall_s()};
    return batches_finish(db, str_of(run->id), &end, err);
}

/* ---- on the I/O thread ---- */

static void on_finished(struct batch_run *run) {
    const bool is_fine = run->op.status == ST_OK;
    struct log_field fields[] = {
        log_text("id", str_of(run->id)),
        log_text("state", is_fine ? str_of(batch_state_name(final_state(run))) : STR("unknown")),
        log_text("error", str_of(run->op.err.text))};
    log_line(run->all->server->log, is_fine ? LOG_INFO : LOG_ERROR, "batch", fields,
             is_fine ? 2 : 3);
    run_destroy(run);
}

static void on_page(struct batch_run *run) {
    struct batch_writing *w = &run->writing;
    const bool is_last = w->last == w->after;
    if (run->op.status != ST_OK) { /* it stays FINALIZING, for the next start */
        on_finished(run);
        return;
    }
    if (!is_last) {
        w->output.exists |= w->makes_output;
        w->error.exists |= w->makes_error;
        w->after = w->last;
    }
    if (is_last)
        run_push(run, finish, on_finished, false);
    else
        run_push(run, write_page, on_page, false);
}

static void on_finalized(struct batch_run *run) { run_push(run, write_page, on_page, false); }

static void name_file(const struct batch_run *run, const char *what, struct out_file *f) {
    char hex[SERVER_ID_BYTES];
    server_make_id(run->all->server, hex);
    snprintf(f->id, sizeof(f->id), "file-%s", hex);
    snprintf(f->name, sizeof(f->name), "%s_%s.jsonl", run->id, what);
}

void writing_begin(struct batch_run *run) {
    run->writing = (struct batch_writing){.after = -1};
    name_file(run, "output", &run->writing.output);
    name_file(run, "error", &run->writing.error);
    run_push(run, finalize, on_finalized, false);
}

/* ---- a batch whose lines were never all stored ---- */

static enum status discard(struct batch_run *run, struct store_db *db, struct err *err) {
    TRY(batches_fail(db, str_of(run->id), STR("[]"), clock_wall_s(), err));
    return batches_delete(db, str_of(run->owner->name), str_of(run->id), err);
}

void discarding_begin(struct batch_run *run) { run_push(run, discard, run_destroy, false); }
