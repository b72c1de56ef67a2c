/* server/batch_lines.c - the step RUNNING of a batch: its lines become local requests, their
 * responses become results.
 *
 * A line is in one of the lists of its run: `ready`, `running`, `ended`. It is freed when its
 * result is stored, or when the run does not want it any more; the store still has it then.
 */
#include <stdio.h>

#include "access/keys.h"
#include "api/codec.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/siphash.h"
#include "engine/engine.h"
#include "sample/random_seed.h"
#include "server/batch_int.h"
#include "server/local_request.h"
#include "server/routes.h"
#include "server/server_int.h"
#include "server/storage.h"

enum {
    PAGE_LINES = 64,
    PAGE_BYTES = 4 << 20,
    EMBEDDINGS_LIMIT = 64,  /* lines for embeddings that are under way */
    UNKNOWN_LIMIT = 16,     /* lines whose model is not served */
    STORING_MAX = 1024,     /* results of one batch that are being stored */
    TRIES_MAX = 3,          /* of a line that fails with a status from 500 on */
    FAILING_TRIES_MAX = 16, /* of one while the engine's steps fail: more than end the process */
    FAILING_PAUSE_MS = 200, /* so that the process ends before other lines have failed */
    PAUSE_MIN_MS = 20,
    PAUSE_MAX_MS = 2000,
    ERROR_BYTES = 4096,
};

/* ---- lines ---- */

static struct run_line *line_of(struct list_link *l) {
    return LIST_ITEM(l, struct run_line, in_run);
}

static uint64_t bytes_of(const struct run_line *line) {
    return sizeof(*line) + line->body_bytes + line->result.body.len;
}

struct run_line *run_line_create(const struct batch_line *from) {
    struct run_line *line = mem_alloc(sizeof(*line) + from->body.len + 1);
    if (!line) return NULL;
    *line = (struct run_line){
        .number = from->number, .order = from->order, .body_bytes = from->body.len};
    str_store(from->url, line->url, sizeof(line->url));
    str_store(from->body, line->body, from->body.len + 1);
    return line;
}

static void free_line(struct batch_runs *all, struct run_line *line) {
    CHECK(all->line_bytes >= bytes_of(line));
    all->line_bytes -= bytes_of(line);
    mem_free(line->response);
    mem_free(line);
}

/* Of the operation that fetches, which may be run again. */
static void free_fetched(struct batch_run *run) {
    for (struct list_link *l; (l = list_pop_first(&run->fetched));) mem_free(line_of(l));
}

/* ---- fetching ---- */

struct fetch {
    struct batch_run *run;
    size_t bytes;
    bool is_out_of_memory;
};

static bool take_line(void *ctx, const struct batch_line *from) {
    struct fetch *f = ctx;
    struct run_line *line = run_line_create(from);
    f->is_out_of_memory = !line;
    if (!line) return false;
    list_push_last(&f->run->fetched, &line->in_run);
    f->bytes += from->body.len;
    return f->bytes < PAGE_BYTES;
}

static enum status fetch_page(struct batch_run *run, struct store_db *db, struct err *err) {
    struct fetch f = {.run = run};
    free_fetched(run);
    TRY(batches_waiting(db, str_of(run->id), run->fetched_to, PAGE_LINES, take_line, &f, err));
    return f.is_out_of_memory ? err_set(err, ST_NOMEM, "out of memory for a line") : ST_OK;
}

static void on_fetched(struct batch_run *run) {
    run->is_all_fetched = run->op.status != ST_OK || run->fetched.count == 0;
    for (struct list_link *l; (l = list_pop_first(&run->fetched));) {
        struct run_line *line = line_of(l);
        line->run = run;
        run->fetched_to = (struct line_place){.order = line->order, .number = line->number};
        run->all->line_bytes += bytes_of(line);
        list_push_last(&run->ready, l);
    }
    if (run->is_cancelled || run->is_expired) lines_cancel(run);
    lines_check_end(run);
    runs_set_due(run->all);
}

/* A batch that has nothing in memory may always fetch: the lines of batches that cannot go on must
 * not stop all others. */
static bool may_fetch(const struct batch_run *run) {
    if (run->is_all_fetched || run->is_busy || run->retry_us) return false;
    if (run->ready.count >= PAGE_LINES / 2) return false;
    const bool is_empty = run->ready.count + run->running.count + run->ended.count == 0;
    return is_empty || run->all->line_bytes <= LINES_BYTES_MAX;
}

static void fetch(struct batch_run *run) {
    if (!may_fetch(run)) return;
    run_push(run, fetch_page, on_fetched, true);
}

/* ---- results ---- */

static void on_result(struct store_op *op);

static struct run_line *line_of_op(struct store_op *op) {
    return LIST_ITEM(&op->in_store, struct run_line, op.in_store);
}

static enum status put_result(struct store_op *op, struct store_db *db) {
    const struct run_line *line = line_of_op(op);
    return batches_put_result(db, str_of(line->run->id), &line->result, &op->err);
}

static void push_result(struct run_line *line) {
    line->op = (struct store_op){.run = put_result, .done = on_result};
    storage_push(line->run->all->server, &line->op);
}

static void count_result(struct batch_runs *all, const struct run_line *line) {
    line->run->left--;
    if (line->result.state == LINE_DONE)
        all->stats.completed++;
    else
        all->stats.failed++;
}

static void on_result(struct store_op *op) {
    struct run_line *line = line_of_op(op);
    struct batch_run *run = line->run;
    struct batch_runs *all = run->all;
    if (store_may_recover(op->status) && !runs_are_stopping(all)) {
        line->retry_us = clock_now(&clock_real) + STORE_RETRY_US;
        all->unstored++;
        return;
    }
    if (op->status == ST_OK) count_result(all, line);
    list_remove(&run->ended, &line->in_run);
    free_line(all, line);
    lines_check_end(run);
    runs_set_due(all);
}

void lines_store_again(struct batch_run *run, int64_t now_us) {
    for (struct list_link *l = run->ended.first; l; l = l->next) {
        struct run_line *line = line_of(l);
        if (!line->retry_us || now_us < line->retry_us) continue;
        line->retry_us = 0;
        run->all->unstored--;
        push_result(line);
    }
}

/* The line is in no list. False: out of memory for the result. */
static bool end_line(struct run_line *line, const struct local_response *r) {
    struct batch_runs *all = line->run->all;
    const bool is_fine = r->status < 400;
    char *copy = mem_dup(r->body.ptr, r->body.len);
    if (!copy) return false;
    str_store(str_of(r->request_id), line->request_id, sizeof(line->request_id));
    line->response = copy;
    line->result = (struct line_result){.number = line->number,
                                        .state = is_fine ? LINE_DONE : LINE_FAILED,
                                        .status = r->status,
                                        .request_id = str_of(line->request_id),
                                        .body = {copy, r->body.len},
                                        .prompt_tokens = r->prompt_tokens,
                                        .cached_tokens = r->cached_tokens,
                                        .answer_tokens = r->answer_tokens};
    all->line_bytes += r->body.len;
    list_push_last(&line->run->ended, &line->in_run);
    push_result(line);
    return true;
}

/* ---- which model, and how many lines of it ---- */

static struct served_model *model_of(const struct batch_run *run) {
    const struct registry *registry = run->all->server->registry;
    if (!run->model[0]) return registry_default(registry);
    return registry_find(registry, str_of(run->model));
}

static uint32_t slot_of(const struct batch_run *run, const struct served_model *m) {
    const struct registry *registry = run->all->server->registry;
    for (uint32_t i = 0; m && i < registry_count(registry); i++)
        if (registry_at(registry, i) == m) return i;
    return SERVED_MAX;
}

static bool is_embedding(const struct batch_run *run) {
    return str_ends(str_of(run->endpoint), STR("/embeddings"));
}

static uint32_t most_of(const struct batch_run *run, const struct served_model *m) {
    if (!m) return UNKNOWN_LIMIT;
    if (is_embedding(run) || !m->engine) return EMBEDDINGS_LIMIT;
    return engine_batch_places(m->engine);
}

static bool has_room(const struct batch_run *run, uint32_t slot, const struct served_model *m) {
    const uint32_t most = most_of(run, m), limit = run->all->limit[slot];
    return run->all->live[slot] < (limit > 0 && limit < most ? limit : most);
}

/* Fewer lines are kept under way after a refusal, and one more with each line that ends well. */
static void lower_limit(struct batch_runs *all, uint32_t slot) {
    all->limit[slot] = all->live[slot] > 0 ? all->live[slot] : 1;
}

static void raise_limit(struct batch_runs *all, uint32_t slot) {
    if (all->limit[slot] > 0) all->limit[slot]++;
}

/* ---- a line under way ---- */

static void pause_run(struct batch_run *run, int64_t ms) {
    if (ms < PAUSE_MIN_MS) ms = PAUSE_MIN_MS;
    if (ms > PAUSE_MAX_MS) ms = PAUSE_MAX_MS;
    run->paused_until_us = clock_now(&clock_real) + ms * 1000;
}

/* The last step of its engine failed: perhaps the device is lost. */
static bool is_engine_failing(const struct run_line *line) {
    const struct served_model *m = model_of(line->run);
    return m && m->engine && engine_liveness(m->engine).failed_steps > 0;
}

/* Is the response that of the server's state, and not of the line? */
static bool is_temporary(const struct run_line *line, const struct local_response *r) {
    if ((r->status == 429 || r->status == 503) && r->retry_after_ms > 0) return true;
    const uint32_t most = is_engine_failing(line) ? FAILING_TRIES_MAX : TRIES_MAX;
    return r->status >= 500 && line->tries < most;
}

static void run_again(struct run_line *line, int64_t after_ms) {
    struct batch_run *run = line->run;
    run->all->stats.repeated++;
    list_push_first(&run->ready, &line->in_run);
    pause_run(run, after_ms);
}

static void on_response(void *ctx, const struct local_response *r) {
    struct run_line *line = ctx;
    struct batch_run *run = line->run;
    struct batch_runs *all = run->all;
    CHECK(all->live[line->slot] > 0);
    all->live[line->slot]--;
    line->request = NULL;
    list_remove(&run->running, &line->in_run);
    runs_set_due(all);
    if (runs_are_stopping(all) && r->status >= 429) { /* it is run after the next start */
        free_line(all, line);
        return;
    }
    if (is_temporary(line, r)) {
        const bool is_refused = r->retry_after_ms > 0;
        if (is_refused)
            lower_limit(all, line->slot);
        else
            line->tries++;
        const int64_t pause_ms = is_engine_failing(line) ? FAILING_PAUSE_MS : 0;
        run_again(line, is_refused ? r->retry_after_ms : pause_ms);
        return;
    }
    raise_limit(all, line->slot);
    if (!end_line(line, r)) run_again(line, PAUSE_MAX_MS);
}

/* Every line has a seed of its own, which is the same when it is run again. */
static uint64_t seed_of(const struct run_line *line) {
    const uint64_t number = line->number;
    const struct siphash_key key = {.low = line->run->seed, .high = 0};
    return random_seed_of(siphash_of(key, &number, sizeof(number)).low);
}

static void refuse_line(struct run_line *line, const struct route *route) {
    struct api_error e = {0};
    struct buf body;
    api_refuse(&e, 401, NULL, "key_removed",
               "the API key that created this batch was removed from the server's key file");
    buf_init(&body, ERROR_BYTES);
    routes_codec(route, str_of(line->url))->put_error(&e, (struct str){0}, &body);
    const struct local_response r = {.status = e.status, .body = buf_str(&body), .request_id = ""};
    if (!end_line(line, &r)) run_again(line, PAUSE_MAX_MS);
    buf_deinit(&body);
}

/* The line is in no list. */
static void start_line(struct run_line *line, uint32_t slot) {
    struct batch_run *run = line->run;
    struct server *s = run->all->server;
    struct str arg;
    uint32_t allowed;
    const struct route *route = routes_find(HTTP_POST, str_of(line->url), &arg, &allowed);
    const struct key *key = keys_find_owner(s->keys, str_of(run->owner->name));
    CHECK(route); /* the url was checked when the line was stored */
    if (!key) {
        refuse_line(line, route);
        return;
    }
    const struct local_request spec = {.body = {line->body, line->body_bytes},
                                       .seed = seed_of(line),
                                       .done = on_response,
                                       .ctx = line};
    line->slot = slot;
    line->request = local_request_start(s, route, key, &spec);
    if (!line->request) {
        run_again(line, PAUSE_MAX_MS);
        return;
    }
    run->all->live[slot]++;
    list_push_last(&run->running, &line->in_run);
}

static bool is_paused(const struct batch_run *run) {
    const int64_t left_us = run->paused_until_us - clock_now(&clock_real);
    struct batch_runs *all = run->all;
    if (left_us <= 0) return false;
    const uint64_t left_ms = (uint64_t)left_us / 1000 + 1;
    if (all->pause_ms == 0 || left_ms < all->pause_ms) all->pause_ms = left_ms;
    return true;
}

static bool may_start(const struct batch_run *run) {
    if (run->step != RUN_RUNNING || run->is_cancelled || run->is_expired) return false;
    return run->ended.count < STORING_MAX && !is_paused(run);
}

bool lines_start_one(struct batch_run *run) {
    if (!may_start(run)) return false;
    const struct served_model *m = model_of(run);
    const uint32_t slot = slot_of(run, m);
    const bool is_ready = !m || m->state == LOAD_READY;
    if (!is_ready && run->left > 0) return false; /* its lines wait, in the store */
    fetch(run);
    if (run->ready.count == 0 || !has_room(run, slot, m)) return false;
    start_line(line_of(list_pop_first(&run->ready)), slot);
    return true;
}

/* ---- the end ---- */

void lines_check_end(struct batch_run *run) {
    if (run->step != RUN_RUNNING || run->is_busy || runs_are_stopping(run->all)) return;
    if (run->running.count > 0 || run->ended.count > 0) return;
    const bool is_cut = run->is_cancelled || run->is_expired;
    if (!is_cut && (!run->is_all_fetched || run->ready.count > 0)) return;
    run->retry_us = 0;
    run_begin(run, RUN_WRITING);
}

void lines_cancel(struct batch_run *run) {
    for (struct list_link *l; (l = list_pop_first(&run->running));) {
        struct run_line *line = line_of(l);
        run->all->live[line->slot]--;
        local_request_cancel(line->request);
        free_line(run->all, line);
    }
    for (struct list_link *l; (l = list_pop_first(&run->ready));) free_line(run->all, line_of(l));
}

void lines_destroy(struct batch_run *run) {
    CHECK(run->running.count == 0);
    lines_cancel(run);
    free_fetched(run);
    for (struct list_link *l; (l = list_pop_first(&run->ended));) free_line(run->all, line_of(l));
}
