/* server/batch_run.c - see server/batch_run.h and server/batch_int.h. */
#include "server/batch_run.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "report/log.h"
#include "server/batch_int.h"
#include "server/server_int.h"
#include "server/storage.h"

enum {
    TICK_MS = 250,
    STARTS_A_TURN = 8, /* of lines, before the loop looks after its sockets again */
};

bool runs_are_stopping(const struct batch_runs *all) {
    const struct server *s = all->server;
    return s->is_draining || s->failure || !s->store || all->is_closed;
}

/* ---- owners ---- */

static struct batch_owner *find_owner(const struct batch_runs *all, struct str name) {
    for (struct list_link *l = all->owners.first; l; l = l->next) {
        struct batch_owner *o = LIST_ITEM(l, struct batch_owner, in_all);
        if (str_is(name, o->name)) return o;
    }
    return NULL;
}

static struct batch_owner *make_owner(struct batch_runs *all, struct str name) {
    struct batch_owner *o = find_owner(all, name);
    if (o) return o;
    o = mem_zalloc(sizeof(*o));
    if (!o) return NULL;
    str_store(name, o->name, sizeof(o->name));
    list_push_last(&all->owners, &o->in_all);
    return o;
}

uint32_t batch_runs_room(const struct batch_runs *all, struct str owner) {
    const struct batch_owner *o = find_owner(all, owner);
    const uint32_t open = o ? o->runs.count : 0;
    return open < BATCHES_OPEN_MAX ? BATCHES_OPEN_MAX - open : 0;
}

static struct batch_run *run_of(struct list_link *l) {
    return LIST_ITEM(l, struct batch_run, in_owner);
}

static struct batch_run *find_run(const struct batch_runs *all, struct str id) {
    for (struct list_link *l = all->owners.first; l; l = l->next)
        for (struct list_link *k = LIST_ITEM(l, struct batch_owner, in_all)->runs.first; k;
             k = k->next)
            if (str_is(id, run_of(k)->id)) return run_of(k);
    return NULL;
}

/* ---- the chain of operations ---- */

static struct batch_run *run_of_op(struct store_op *op) {
    return LIST_ITEM(&op->in_store, struct batch_run, op.in_store);
}

static enum status on_store(struct store_op *op, struct store_db *db) {
    struct batch_run *run = run_of_op(op);
    return run->op_run(run, db, &op->err);
}

static void on_stored(struct store_op *op) {
    struct batch_run *run = run_of_op(op);
    run->is_busy = false;
    if (runs_are_stopping(run->all)) return;
    if (store_may_recover(op->status))
        run->retry_us = clock_now(&clock_real) + STORE_RETRY_US;
    else
        run->op_next(run);
}

static void push_again(struct batch_run *run) {
    run->is_busy = true;
    run->retry_us = 0;
    storage_push(run->all->server, &run->op);
}

void run_push(struct batch_run *run, run_op_fn *op, run_next_fn *next, bool is_read) {
    CHECK(!run->is_busy);
    CHECK(run->retry_us == 0);
    run->op_run = op;
    run->op_next = next;
    run->op = (struct store_op){.run = on_store, .done = on_stored, .is_read = is_read};
    push_again(run);
}

/* ---- the order of lines ---- */

/* Of an owner's batches the oldest that can start one. */
static bool start_for(const struct batch_owner *o) {
    for (struct list_link *l = o->runs.first, *next; l; l = next) {
        next = l->next;
        if (lines_start_one(run_of(l))) return true;
    }
    return false;
}

static void start_lines(struct batch_runs *all) {
    uint32_t started = 0;
    if (runs_are_stopping(all) || all->unstored > 0) return;
    for (uint32_t idle = 0; idle < all->owners.count && started < STARTS_A_TURN;) {
        struct list_link *first = list_pop_first(&all->owners);
        list_push_last(&all->owners, first);
        const bool has_started = start_for(LIST_ITEM(first, struct batch_owner, in_all));
        started += has_started;
        idle = has_started ? 0 : idle + 1;
    }
    if (started == STARTS_A_TURN) runs_set_due(all);
}

/* ---- the timer ---- */

/* An operation under way ends the step itself. One that is to be tried again is not: it may fail as
 * long as the store is full. */
static void check_reading(struct batch_run *run, int64_t now_s) {
    if (now_s >= run->expires_s) run->is_expired = true;
    if (run->is_busy || reading_end_early(run)) return;
    if (!run->reading) reading_begin(run);
}

static void check_run(struct batch_run *run, int64_t now_us, int64_t now_s) {
    if (run->step == RUN_READING) check_reading(run, now_s);
    if (run->retry_us && now_us >= run->retry_us) push_again(run);
    lines_store_again(run, now_us);
    if (run->step != RUN_RUNNING || run->is_expired || run->is_cancelled) return;
    if (now_s < run->expires_s) return;
    run->is_expired = true;
    lines_cancel(run);
    lines_check_end(run);
}

static void check_runs(struct batch_runs *all) {
    const int64_t now_us = clock_now(&clock_real), now_s = clock_wall_s();
    if (runs_are_stopping(all)) return;
    for (struct list_link *o = all->owners.first; o; o = o->next) {
        const struct batch_owner *owner = LIST_ITEM(o, struct batch_owner, in_all);
        for (struct list_link *l = owner->runs.first; l; l = l->next)
            check_run(run_of(l), now_us, now_s);
    }
}

static void on_timer(uv_timer_t *timer) {
    struct batch_runs *all = timer->data;
    const int64_t now_us = clock_now(&clock_real);
    all->is_due = false;
    if (now_us >= all->check_us) {
        all->check_us = now_us + TICK_MS * 1000;
        if (all->recovers_again && !runs_are_stopping(all)) {
            all->recovers_again = false;
            storage_push(all->server, &all->recovery);
        }
        check_runs(all);
    }
    all->pause_ms = 0;
    start_lines(all);
    const uint64_t pause_ms =
        all->pause_ms > 0 && all->pause_ms < TICK_MS ? all->pause_ms : TICK_MS;
    if (!all->is_due) uv_timer_start(timer, on_timer, pause_ms, 0);
}

void runs_set_due(struct batch_runs *all) {
    if (all->is_due || all->is_closed) return;
    all->is_due = true;
    uv_timer_start(&all->timer, on_timer, 0, 0);
}

void batch_runs_wake(struct batch_runs *all) {
    if (all) runs_set_due(all);
}

/* ---- runs ---- */

void run_begin(struct batch_run *run, enum run_step step) {
    run->step = step;
    switch (step) {
    case RUN_READING:
        reading_begin(run);
        break;
    case RUN_RUNNING:
        run->fetched_to = (struct line_place){.number = -1};
        runs_set_due(run->all);
        break;
    case RUN_WRITING:
        writing_begin(run);
        break;
    case RUN_DISCARDING:
        discarding_begin(run);
        break;
    }
}

static enum run_step step_of(const struct batch_row *row) {
    const bool is_cut = row->kind == BATCH_ANTHROPIC; /* its lines were not all stored */
    if (row->state == BATCH_VALIDATING) return is_cut ? RUN_DISCARDING : RUN_READING;
    return row->state == BATCH_IN_PROGRESS ? RUN_RUNNING : RUN_WRITING;
}

static void fill_run(struct batch_run *run, const struct batch_row *row) {
    str_store(row->id, run->id, sizeof(run->id));
    str_store(row->input_file, run->input_file, sizeof(run->input_file));
    str_store(row->endpoint, run->endpoint, sizeof(run->endpoint));
    str_store(row->model, run->model, sizeof(run->model));
    run->kind = row->kind;
    run->left = row->total - row->completed - row->failed - row->cancelled - row->expired;
    run->seed = row->seed;
    run->expires_s = row->expires_s;
    run->output_after_s = row->output_after_s;
    run->is_cancelled = row->state == BATCH_CANCELLING;
    const bool is_started = row->in_progress_s != 0; /* else it expired while it was validating */
    run->is_expired = row->state == BATCH_FINALIZING && (row->expired > 0 || !is_started);
}

void batch_runs_add(struct batch_runs *all, const struct batch_row *row) {
    if (runs_are_stopping(all)) return;
    struct batch_run *run = mem_zalloc(sizeof(*run));
    struct batch_owner *owner = run ? make_owner(all, row->owner) : NULL;
    if (!owner) {
        mem_free(run);
        return;
    }
    run->all = all;
    run->owner = owner;
    list_push_last(&owner->runs, &run->in_owner);
    all->open++;
    fill_run(run, row);
    run_begin(run, step_of(row));
}

void run_destroy(struct batch_run *run) {
    struct batch_runs *all = run->all;
    struct batch_owner *owner = run->owner;
    reading_destroy(run);
    lines_destroy(run);
    list_remove(&owner->runs, &run->in_owner);
    all->open--;
    mem_free(run);
    if (owner->runs.count > 0) return;
    list_remove(&all->owners, &owner->in_all);
    mem_free(owner);
}

void batch_runs_cancel(struct batch_runs *all, struct str id) {
    struct batch_run *run = find_run(all, id);
    if (!run || run->is_cancelled || run->step == RUN_WRITING) return;
    run->is_cancelled = true; /* READING sees it */
    if (run->step != RUN_RUNNING) return;
    lines_cancel(run);
    lines_check_end(run);
}

/* ---- recovery ---- */

static enum status read_next_open(struct store_op *op, struct store_db *db) {
    struct batch_runs *all = LIST_ITEM(&op->in_store, struct batch_runs, recovery.in_store);
    int64_t found = 0;
    batch_row_deinit(&all->recovered);
    all->recovered = (struct batch_row){0};
    TRY(batches_next_open(db, all->recovered_to, &found, &all->recovered, &op->err));
    all->recovered_next = found; /* this function may run twice from the same place */
    /* A new batch has its run already, or is being stored by a request. */
    return batches_is_new(db, found) ? ST_MISSING : ST_OK;
}

static void on_next_open(struct store_op *op) {
    struct batch_runs *all = LIST_ITEM(&op->in_store, struct batch_runs, recovery.in_store);
    const bool has_one = op->status == ST_OK;
    if (has_one) all->recovered_to = all->recovered_next;
    all->recovers_again = store_may_recover(op->status); /* the timer */
    if (has_one && !find_run(all, all->recovered.id)) batch_runs_add(all, &all->recovered);
    batch_row_deinit(&all->recovered);
    all->recovered = (struct batch_row){0};
    if (has_one && !runs_are_stopping(all)) {
        storage_push(all->server, op);
        return;
    }
    struct log_field fields[] = {log_int("open", all->open),
                                 log_text("error", str_of(op->err.text))};
    const bool is_fine = has_one || op->status == ST_MISSING;
    if (all->open > 0 || !is_fine)
        log_line(all->server->log, is_fine ? LOG_INFO : LOG_ERROR, "batches", fields,
                 is_fine ? 1 : 2);
}

void batch_runs_recover(struct batch_runs *all) {
    all->recovery = (struct store_op){.run = read_next_open, .done = on_next_open, .is_read = true};
    all->recovered_to = -1;
    storage_push(all->server, &all->recovery);
}

/* ---- life ---- */

enum status batch_runs_create(struct server *s, struct batch_runs **out) {
    struct batch_runs *all = mem_zalloc(sizeof(*all));
    if (!all) return ST_NOMEM;
    all->server = s;
    CHECK(uv_timer_init(&s->loop, &all->timer) == 0);
    all->timer.data = all;
    uv_timer_start(&all->timer, on_timer, TICK_MS, 0);
    *out = all;
    return ST_OK;
}

void batch_runs_stop(struct batch_runs *all) {
    if (!all) return;
    for (struct list_link *o = all->owners.first; o; o = o->next)
        for (struct list_link *l = LIST_ITEM(o, struct batch_owner, in_all)->runs.first; l;
             l = l->next)
            lines_cancel(run_of(l));
}

void batch_runs_close(struct batch_runs *all) {
    if (!all) return;
    batch_runs_stop(all);
    all->is_closed = true;
    uv_close((uv_handle_t *)&all->timer, NULL);
}

void batch_runs_destroy(struct batch_runs *all) {
    if (!all) return;
    while (all->owners.first) {
        const struct batch_owner *o = LIST_ITEM(all->owners.first, struct batch_owner, in_all);
        run_destroy(run_of(o->runs.first));
    }
    for (uint32_t i = 0; i < SLOTS; i++) CHECK(all->live[i] == 0);
    CHECK(all->open == 0);
    CHECK(all->line_bytes == 0);
    batch_row_deinit(&all->recovered);
    mem_free(all);
}

struct batch_stats batch_runs_stats(const struct batch_runs *all) {
    if (!all) return (struct batch_stats){0};
    struct batch_stats stats = all->stats;
    stats.open = all->open;
    for (uint32_t i = 0; i < SLOTS; i++) stats.running += all->live[i];
    for (struct list_link *o = all->owners.first; o; o = o->next)
        for (struct list_link *l = LIST_ITEM(o, struct batch_owner, in_all)->runs.first; l;
             l = l->next)
            stats.waiting += run_of(l)->left - run_of(l)->running.count;
    return stats;
}
