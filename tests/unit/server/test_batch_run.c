/* Goal:   a batch answers each line once, whatever the engine and the store refuse meanwhile: a
 *         result that cannot be stored waits and stops new lines; a line that is refused for the
 *         moment is run again; one that fails for good has an error; a file whose client has gone
 *         away is removed; output files exist from the end of their batch on; a clock that jumps
 *         changes nothing but what expires.
 * Method: the whole server with a store in a folder of its own; the engine is stepped by hand, and
 *         functions of the store and of the engine fail when they are told to.
 * wrap: clock_now engine_start log_line tracer_add uv_now uv_timer_start
 * wrap: batches_add_line batches_finish batches_put_result engine_submit files_abandon files_append
 * wrap: clock_wall_s */
#include "server_rig.h"

#include "jobs/batches.h"
#include "jobs/files.h"
#include "jobs/store.h"
#include "server/batch_int.h"

#define BOUNDARY "content-type: multipart/form-data; boundary=b\r\n"

/* ---- what fails ---- */

static atomic_uint fail_results, fail_submits, fail_appends; /* how many more calls fail */
static atomic_uint good_appends;                             /* before those that fail */
static atomic_uint batch_submits;
static atomic_int submit_status;
static atomic_llong wall_ahead_s; /* of the machine's clock */

int64_t __real_clock_wall_s(void);
int64_t __wrap_clock_wall_s(void);
int64_t __wrap_clock_wall_s(void) { return __real_clock_wall_s() + atomic_load(&wall_ahead_s); }

static bool takes(atomic_uint *count) {
    unsigned left = atomic_load(count);
    while (left > 0)
        if (atomic_compare_exchange_weak(count, &left, left - 1)) return true;
    return false;
}

enum status __real_batches_put_result(struct store_db *db, struct str id,
                                      const struct line_result *r, struct err *err);
enum status __wrap_batches_put_result(struct store_db *db, struct str id,
                                      const struct line_result *r, struct err *err);
enum status __wrap_batches_put_result(struct store_db *db, struct str id,
                                      const struct line_result *r, struct err *err) {
    if (takes(&fail_results)) return err_set(err, ST_FULL, "the disk is full");
    return __real_batches_put_result(db, id, r, err);
}

enum status __real_engine_submit(struct engine *e, const struct request_spec *spec,
                                 struct request **out, struct err *err);
enum status __wrap_engine_submit(struct engine *e, const struct request_spec *spec,
                                 struct request **out, struct err *err);
enum status __wrap_engine_submit(struct engine *e, const struct request_spec *spec,
                                 struct request **out, struct err *err) {
    if (spec->is_batch) atomic_fetch_add(&batch_submits, 1);
    if (spec->is_batch && takes(&fail_submits))
        return err_set(err, (enum status)atomic_load(&submit_status), "it was told to fail");
    return __real_engine_submit(e, spec, out, err);
}

static atomic_uint fail_lines; /* that are added to a batch */

enum status __real_batches_add_line(struct store_db *db, struct str id,
                                    const struct batch_line *line, struct err *err);
enum status __wrap_batches_add_line(struct store_db *db, struct str id,
                                    const struct batch_line *line, struct err *err);
enum status __wrap_batches_add_line(struct store_db *db, struct str id,
                                    const struct batch_line *line, struct err *err) {
    if (takes(&fail_lines)) return err_set(err, ST_FULL, "the disk is full");
    return __real_batches_add_line(db, id, line, err);
}

static atomic_uint fail_ends; /* of batches */

enum status __real_batches_finish(struct store_db *db, struct str id, const struct batch_end *end,
                                  struct err *err);
enum status __wrap_batches_finish(struct store_db *db, struct str id, const struct batch_end *end,
                                  struct err *err);
enum status __wrap_batches_finish(struct store_db *db, struct str id, const struct batch_end *end,
                                  struct err *err) {
    if (takes(&fail_ends)) return err_set(err, ST_FULL, "the disk is full");
    return __real_batches_finish(db, id, end, err);
}

enum status __real_files_append(struct store_db *db, struct str id, struct str bytes,
                                struct err *err);
enum status __wrap_files_append(struct store_db *db, struct str id, struct str bytes,
                                struct err *err);
enum status __wrap_files_append(struct store_db *db, struct str id, struct str bytes,
                                struct err *err) {
    if (!takes(&good_appends) && takes(&fail_appends))
        return err_set(err, ST_FULL, "the disk is full");
    return __real_files_append(db, id, bytes, err);
}

static atomic_uint fail_abandons, abandons; /* of files that will not be complete */

enum status __real_files_abandon(struct store_db *db, struct str id, struct err *err);
enum status __wrap_files_abandon(struct store_db *db, struct str id, struct err *err);
enum status __wrap_files_abandon(struct store_db *db, struct str id, struct err *err) {
    if (takes(&fail_abandons)) return err_set(err, ST_FULL, "the disk is full");
    atomic_fetch_add(&abandons, 1);
    return __real_files_abandon(db, id, err);
}

/* ---- a server with a store ---- */

struct batch_rig {
    struct server_rig rig;
    char data[64];
    char file[64], batch[64];
};

static void open_data(struct batch_rig *b) {
    const char *const flags[] = {"data-dir", b->data, NULL};
    rig_open(&b->rig, NULL, flags);
}

static void batch_rig_open(struct batch_rig *b) {
    *b = (struct batch_rig){.data = "/tmp/jitney-data-XXXXXX"};
    assert_non_null(mkdtemp(b->data));
    open_data(b);
}

static void batch_rig_close(struct batch_rig *b) {
    static const char *const names[] = {"jitney.db", "jitney.db-wal", "jitney.db-shm", "lock"};
    rig_close(&b->rig);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[128];
        snprintf(path, sizeof(path), "%s/%s", b->data, names[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(b->data), 0);
}

/* Raw: the body has a type of its own. */
static void send_form(struct batch_rig *b, struct client *c, struct str file) {
    struct buf body, text;
    buf_init(&body, 1 << 24);
    buf_init(&text, 1 << 24);
    buf_put_text(&body, "--b\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
                        "--b\r\ncontent-disposition: form-data; name=\"file\"; "
                        "filename=\"in.jsonl\"\r\n\r\n");
    buf_put_str(&body, file);
    buf_put_text(&body, "\r\n--b--\r\n");
    buf_printf(&text,
               "POST /v1/files HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n" BOUNDARY
               "content-length: %zu\r\n\r\n",
               body.len);
    buf_put_str(&text, buf_str(&body));
    client_open(&b->rig, c);
    client_write(&b->rig, c, buf_str(&text));
    buf_deinit(&body);
    buf_deinit(&text);
}

static void upload(struct batch_rig *b, struct str file) {
    struct client c;
    struct reply r;
    send_form(b, &c, file);
    reply_take(&b->rig, &c, &r);
    assert_int_equal(r.status, 200);
    str_store(json_str(json_get(r.json, "id")), b->file, sizeof(b->file));
    reply_free(&r);
}

static void create(struct batch_rig *b, uint32_t lines) {
    struct buf text;
    struct reply r;
    char body[256];
    buf_init(&text, 1 << 20);
    for (uint32_t i = 0; i < lines; i++)
        buf_printf(&text,
                   "{\"custom_id\":\"c%u\",\"method\":\"POST\",\"url\":\"/v1/completions\","
                   "\"body\":{\"model\":\"llama\",\"prompt\":\"a\",\"max_tokens\":2}}\n",
                   i);
    upload(b, buf_str(&text));
    buf_deinit(&text);
    snprintf(body, sizeof(body),
             "{\"input_file_id\":\"%s\",\"endpoint\":\"/v1/completions\","
             "\"completion_window\":\"24h\"}",
             b->file);
    ask(&b->rig, &r, "POST /v1/batches", NULL, body);
    assert_int_equal(r.status, 200);
    str_store(json_str(json_get(r.json, "id")), b->batch, sizeof(b->batch));
    reply_free(&r);
}

static struct batch_runs *runs_of(struct batch_rig *b) { return b->rig.server->batches; }

static void turn(struct batch_rig *b) {
    rig_step(&b->rig, 1);
    rig_turn(&b->rig);
}

static void until_ended(struct batch_rig *b) {
    const int64_t began_us = __real_clock_now(&clock_real);
    while (runs_of(b)->open > 0) {
        assert_false(rig_is_late(began_us));
        turn(b);
    }
}

static void assert_counts(struct batch_rig *b, const char *status, int64_t completed,
                          int64_t failed) {
    struct reply r;
    char line[128];
    snprintf(line, sizeof(line), "GET /v1/batches/%s", b->batch);
    ask(&b->rig, &r, line, NULL, NULL);
    assert_int_equal(r.status, 200);
    assert_json_text(&r, "status", status);
    assert_json_int(&r, "request_counts.completed", completed);
    assert_json_int(&r, "request_counts.failed", failed);
    reply_free(&r);
}

/* ---- tests ---- */

static void test_a_batch_is_run_to_its_end(void **state) {
    (void)state;
    struct batch_rig b;
    batch_rig_open(&b);
    create(&b, 100);
    until_ended(&b);
    assert_counts(&b, "completed", 100, 0);
    const struct batch_stats stats = batch_runs_stats(runs_of(&b));
    assert_int_equal(stats.completed, 100);
    assert_int_equal(stats.repeated, 0);
    assert_int_equal(runs_of(&b)->line_bytes, 0);
    batch_rig_close(&b);
}

static void test_a_result_that_cannot_be_stored_waits_and_stops_new_lines(void **state) {
    (void)state;
    struct batch_rig b;
    batch_rig_open(&b);
    atomic_store(&fail_results, 1000000);
    create(&b, 2000);
    const int64_t began_us = __real_clock_now(&clock_real);
    uint32_t quiet = 0;
    while (quiet < 200) { /* nothing is under way any more, and nothing is started */
        assert_false(rig_is_late(began_us));
        turn(&b);
        const bool is_idle = runs_of(&b)->unstored > 0 && b.rig.server->local_count == 0;
        quiet = is_idle ? quiet + 1 : 0;
    }
    assert_in_range(runs_of(&b)->unstored, 1, 1024);
    assert_counts(&b, "in_progress", 0, 0);
    atomic_store(&fail_results, 0);
    rig_pass_us(STORE_RETRY_US);
    until_ended(&b);
    assert_int_equal(runs_of(&b)->unstored, 0);
    assert_counts(&b, "completed", 2000, 0);
    batch_rig_close(&b);
}

static void test_a_line_that_is_refused_for_the_moment_is_run_again(void **state) {
    (void)state;
    struct batch_rig b;
    batch_rig_open(&b);
    atomic_store(&submit_status, ST_FULL);
    atomic_store(&fail_submits, 20);
    create(&b, 60);
    until_ended(&b);
    assert_counts(&b, "completed", 60, 0);
    assert_int_equal(batch_runs_stats(runs_of(&b)).repeated, 20);
    batch_rig_close(&b);
}

static void test_a_line_that_fails_three_times_has_an_error(void **state) {
    (void)state;
    struct batch_rig b;
    batch_rig_open(&b);
    atomic_store(&submit_status, ST_NOMEM);
    atomic_store(&fail_submits, 1000000);
    create(&b, 2);
    until_ended(&b);
    atomic_store(&fail_submits, 0);
    assert_counts(&b, "completed", 0, 2);
    assert_int_equal(batch_runs_stats(runs_of(&b)).repeated, 6);
    batch_rig_close(&b);
}

static void test_an_output_file_that_cannot_be_written_is_tried_again(void **state) {
    (void)state;
    struct batch_rig b;
    batch_rig_open(&b);
    create(&b, 5);
    atomic_store(&fail_appends, 2);
    const int64_t began_us = __real_clock_now(&clock_real);
    while (atomic_load(&fail_appends) == 2) {
        assert_false(rig_is_late(began_us));
        turn(&b);
    }
    atomic_store(&fail_appends, 0);
    rig_pass_us(2 * STORE_RETRY_US);
    until_ended(&b);
    assert_counts(&b, "completed", 5, 0);
    batch_rig_close(&b);
}

static int64_t count_files(struct batch_rig *b) {
    struct reply r;
    ask(&b->rig, &r, "GET /v1/files", NULL, NULL);
    assert_int_equal(r.status, 200);
    const int64_t count = (int64_t)json_count(json_get(r.json, "data"));
    reply_free(&r);
    return count;
}

static void until_append_has_failed(struct batch_rig *b) {
    const int64_t began_us = __real_clock_now(&clock_real);
    const unsigned before = atomic_load(&fail_appends);
    while (atomic_load(&fail_appends) == before) {
        assert_false(rig_is_late(began_us));
        turn(b);
    }
}

static void test_output_files_exist_from_the_end_of_their_batch_on(void **state) {
    (void)state;
    struct batch_rig b;
    batch_rig_open(&b);
    create(&b, 600); /* three pages of results */
    atomic_store(&good_appends, 1);
    atomic_store(&fail_appends, 1000000);
    until_append_has_failed(&b);
    assert_int_equal(count_files(&b), 1); /* the input */
    assert_counts(&b, "finalizing", 600, 0);
    atomic_store(&fail_appends, 0);
    rig_pass_us(2 * STORE_RETRY_US);
    until_ended(&b);
    assert_int_equal(count_files(&b), 2);
    assert_counts(&b, "completed", 600, 0);
    batch_rig_close(&b);
}

static void test_a_batch_that_is_cancelled_while_it_is_read_runs_no_line(void **state) {
    (void)state;
    struct batch_rig b;
    struct reply r;
    char line[128];
    batch_rig_open(&b);
    create(&b, 4000); /* more than a slice */
    const unsigned before = atomic_load(&batch_submits);
    const int64_t began_us = __real_clock_now(&clock_real);
    rig_block_pool(&b.rig); /* its lines are not checked */
    while (runs_of(&b)->readings == 0) {
        assert_false(rig_is_late(began_us));
        rig_turn(&b.rig);
    }
    snprintf(line, sizeof(line), "POST /v1/batches/%s/cancel", b.batch);
    ask(&b.rig, &r, line, NULL, "");
    assert_int_equal(r.status, 200);
    assert_json_text(&r, "status", "cancelling");
    reply_free(&r);
    rig_open_pool();
    until_ended(&b);
    assert_int_equal(atomic_load(&batch_submits), before);
    assert_counts(&b, "cancelled", 0, 0);
    batch_rig_close(&b);
}

/* ---- memory ---- */

static void test_a_batch_runs_although_others_fill_the_memory(void **state) {
    (void)state;
    struct batch_rig b;
    batch_rig_open(&b);
    runs_of(&b)->line_bytes += LINES_BYTES_MAX + 1; /* of batches that cannot go on */
    create(&b, 200);                                /* several pages */
    until_ended(&b);
    assert_counts(&b, "completed", 200, 0);
    runs_of(&b)->line_bytes -= LINES_BYTES_MAX + 1;
    batch_rig_close(&b);
}

static struct batch_run *only_run(struct batch_rig *b) {
    const struct batch_runs *all = runs_of(b);
    assert_int_equal(all->open, 1);
    const struct batch_owner *o = LIST_ITEM(all->owners.first, struct batch_owner, in_all);
    return LIST_ITEM(o->runs.first, struct batch_run, in_owner);
}

static void test_lines_of_a_model_that_is_not_ready_stay_in_the_store(void **state) {
    (void)state;
    struct batch_rig b;
    batch_rig_open(&b);
    struct served_model *m = registry_at(b.rig.server->registry, 0);
    m->state = LOAD_FAILED;
    create(&b, 20);
    const int64_t began_us = __real_clock_now(&clock_real);
    while (only_run(&b)->step != RUN_RUNNING || store_pending(b.rig.server->store) > 0) {
        assert_false(rig_is_late(began_us));
        turn(&b);
    }
    for (int i = 0; i < 3; i++) { /* time in which lines would come */
        rig_pass_us(1000000);
        for (int j = 0; j < 100 || store_pending(b.rig.server->store) > 0; j++) turn(&b);
    }
    assert_int_equal(runs_of(&b)->open, 1);
    assert_int_equal(runs_of(&b)->line_bytes, 0);
    m->state = LOAD_READY;
    until_ended(&b);
    assert_counts(&b, "completed", 20, 0);
    batch_rig_close(&b);
}

/* ---- the end of the process ---- */

static void end_server(struct batch_rig *b) {
    const int64_t began_us = __real_clock_now(&clock_real);
    struct err err = {0};
    raise(SIGTERM); /* twice: it does not wait for the lines under way */
    rig_turn(&b->rig);
    raise(SIGTERM);
    while (!rig_is_closed(&b->rig)) {
        assert_false(rig_is_late(began_us));
        if (!b->rig.server->is_closed) rig_step(&b->rig, 10);
        uv_run(&b->rig.server->loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(server_close(b->rig.server, &err), ST_OK);
    assert_int_equal(rmdir(b->rig.folder), 0);
}

static void begin_next_server(struct batch_rig *b) {
    rig_is_held = false;
    open_data(b);
    assert_int_equal(rig_is_loaded(&b->rig), true);
    const int64_t began_us = __real_clock_now(&clock_real);
    while (runs_of(b)->recovered_to <= 0) { /* until the batch was found */
        assert_false(rig_is_late(began_us));
        rig_turn(&b->rig);
    }
}

/* A message batch of which only some requests are stored, as a request leaves it for a moment. */
struct unfinished {
    struct store_op op;
    bool is_done, inserts;
};

static enum status put_or_find(struct store_op *op, struct store_db *db) {
    const struct unfinished *u = (struct unfinished *)(void *)op;
    const struct batch_row row = {
        .id = STR("msgbatch_1"), .kind = BATCH_ANTHROPIC, .endpoint = STR("/v1/messages")};
    struct batch_row found = {0};
    if (u->inserts) return batches_insert(db, &row, &op->err);
    enum status st = batches_find(db, STR(""), row.id, &found, &op->err);
    batch_row_deinit(&found);
    return st;
}

static void note_done(struct store_op *op) { ((struct unfinished *)(void *)op)->is_done = true; }

static enum status run_unfinished(struct batch_rig *b, bool inserts) {
    struct unfinished u = {.op = {.run = put_or_find, .done = note_done}, .inserts = inserts};
    const int64_t began_us = __real_clock_now(&clock_real);
    storage_push(b->rig.server, &u.op);
    while (!u.is_done || store_pending(b->rig.server->store) > 0) {
        assert_false(rig_is_late(began_us));
        rig_turn(&b->rig);
    }
    return u.op.status;
}

static void test_a_batch_that_is_being_created_is_removed_by_the_next_server_alone(void **state) {
    (void)state;
    struct batch_rig b;
    batch_rig_open(&b);
    assert_int_equal(run_unfinished(&b, true), ST_OK);
    batch_runs_recover(runs_of(&b)); /* as if this server were still reading the open batches */
    for (int i = 0; i < 3; i++) assert_int_equal(run_unfinished(&b, false), ST_OK);
    assert_int_equal(runs_of(&b)->open, 0);
    end_server(&b);
    begin_next_server(&b);
    until_ended(&b);
    assert_int_equal(run_unfinished(&b, false), ST_MISSING);
    batch_rig_close(&b);
}

/* ---- a clock that jumps ---- */

enum { DAY_S = 86400 };

static void test_a_clock_that_goes_back_changes_nothing(void **state) {
    (void)state;
    struct batch_rig b;
    batch_rig_open(&b);
    create(&b, 100);
    turn(&b);
    atomic_store(&wall_ahead_s, -400 * DAY_S);
    until_ended(&b);
    assert_counts(&b, "completed", 100, 0);
    assert_int_equal(count_files(&b), 2);
    atomic_store(&wall_ahead_s, 0);
    batch_rig_close(&b);
}

/* The end of an expired batch is not written; the next server, whose clock is right again, ends it
 * as it was begun. */
static void test_a_batch_that_expired_stays_so_when_the_clock_goes_back(void **state) {
    (void)state;
    struct batch_rig b;
    batch_rig_open(&b);
    rig_is_held = true;
    create(&b, 30);
    const int64_t began_us = __real_clock_now(&clock_real);
    while (b.rig.server->local_count == 0) {
        assert_false(rig_is_late(began_us));
        rig_turn(&b.rig);
    }
    atomic_store(&fail_appends, 1000000);
    atomic_store(&wall_ahead_s, 2 * DAY_S);
    rig_pass_us(1000000);
    until_append_has_failed(&b);
    end_server(&b);
    atomic_store(&fail_appends, 0);
    atomic_store(&wall_ahead_s, 0);
    begin_next_server(&b);
    until_ended(&b);
    assert_counts(&b, "expired", 0, 0);
    batch_rig_close(&b);
}

static void until_line_has_failed(struct batch_rig *b) {
    const int64_t began_us = __real_clock_now(&clock_real);
    const unsigned before = atomic_load(&fail_lines);
    while (atomic_load(&fail_lines) == before) {
        assert_false(rig_is_late(began_us));
        turn(b);
    }
}

static void until_end_has_failed(struct batch_rig *b) {
    const int64_t began_us = __real_clock_now(&clock_real);
    const unsigned before = atomic_load(&fail_ends);
    while (atomic_load(&fail_ends) == before) {
        assert_false(rig_is_late(began_us));
        turn(b);
    }
}

/* Its lines can never be stored. */
static void test_a_batch_expires_on_time_while_the_store_is_full(void **state) {
    (void)state;
    struct batch_rig b;
    batch_rig_open(&b);
    atomic_store(&fail_lines, 1000000);
    create(&b, 4);
    until_line_has_failed(&b);
    assert_counts(&b, "validating", 0, 0);
    assert_int_equal(runs_of(&b)->open, 1);
    atomic_store(&wall_ahead_s, 2 * DAY_S);
    rig_pass_us(1000000);
    until_ended(&b);
    assert_int_equal(runs_of(&b)->readings, 0);
    assert_counts(&b, "expired", 0, 0);
    atomic_store(&fail_lines, 0);
    atomic_store(&wall_ahead_s, 0);
    batch_rig_close(&b);
}

/* The server ends before the end of the batch is stored. */
static void test_a_batch_that_expired_in_validation_stays_so(void **state) {
    (void)state;
    struct batch_rig b;
    batch_rig_open(&b);
    atomic_store(&fail_lines, 1000000);
    create(&b, 4);
    until_line_has_failed(&b);
    atomic_store(&fail_ends, 1000000);
    atomic_store(&wall_ahead_s, 2 * DAY_S);
    rig_pass_us(1000000);
    until_end_has_failed(&b);
    end_server(&b);
    atomic_store(&fail_lines, 0);
    atomic_store(&fail_ends, 0);
    atomic_store(&wall_ahead_s, 0);
    begin_next_server(&b);
    until_ended(&b);
    assert_counts(&b, "expired", 0, 0);
    batch_rig_close(&b);
}

static void test_what_is_left_at_the_end_is_run_by_the_next_server(void **state) {
    (void)state;
    struct batch_rig b;
    batch_rig_open(&b);
    rig_is_held = true;
    create(&b, 30);
    const int64_t began_us = __real_clock_now(&clock_real);
    while (b.rig.server->local_count == 0) {
        assert_false(rig_is_late(began_us));
        rig_turn(&b.rig);
    }
    end_server(&b);
    begin_next_server(&b);
    until_ended(&b);
    assert_counts(&b, "completed", 30, 0);
    batch_rig_close(&b);
}

static void test_a_file_whose_client_has_gone_away_is_removed(void **state) {
    (void)state;
    struct batch_rig b;
    struct client c;
    struct reply r;
    struct buf file;
    batch_rig_open(&b);
    buf_init(&file, 1 << 24);
    for (uint32_t i = 0; i < 5 << 20; i += 16) buf_put_text(&file, "0123456789abcdef");
    send_form(&b, &c, buf_str(&file));
    client_close(&c);
    const int64_t began_us = __real_clock_now(&clock_real);
    while (http_stats(b.rig.server->http).exchanges > 0 || b.rig.server->tasks > 0 ||
           store_pending(b.rig.server->store) > 0) {
        assert_false(rig_is_late(began_us));
        rig_turn(&b.rig);
    }
    ask(&b.rig, &r, "GET /v1/files", NULL, NULL);
    assert_int_equal(json_count(json_get(r.json, "data")), 0);
    reply_free(&r);
    const unsigned before = atomic_load(&abandons);
    atomic_store(&fail_appends, 1); /* the disk is full: 507, and nothing is left */
    send_form(&b, &c, buf_str(&file));
    reply_take(&b.rig, &c, &r);
    assert_int_equal(r.status, 507);
    reply_free(&r);
    while (atomic_load(&abandons) == before) {
        assert_false(rig_is_late(began_us));
        rig_turn(&b.rig);
    }
    atomic_store(&fail_appends, 1);
    atomic_store(&fail_abandons, 2); /* it can only be removed later */
    send_form(&b, &c, buf_str(&file));
    reply_take(&b.rig, &c, &r);
    assert_int_equal(r.status, 507);
    reply_free(&r);
    while (atomic_load(&abandons) < before + 2) {
        assert_false(rig_is_late(began_us));
        rig_pass_us(100000);
        rig_turn(&b.rig);
    }
    buf_deinit(&file);
    batch_rig_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_batch_is_run_to_its_end),
        cmocka_unit_test(test_a_result_that_cannot_be_stored_waits_and_stops_new_lines),
        cmocka_unit_test(test_a_line_that_is_refused_for_the_moment_is_run_again),
        cmocka_unit_test(test_a_line_that_fails_three_times_has_an_error),
        cmocka_unit_test(test_an_output_file_that_cannot_be_written_is_tried_again),
        cmocka_unit_test(test_output_files_exist_from_the_end_of_their_batch_on),
        cmocka_unit_test(test_a_batch_runs_although_others_fill_the_memory),
        cmocka_unit_test(test_lines_of_a_model_that_is_not_ready_stay_in_the_store),
        cmocka_unit_test(test_a_batch_that_is_cancelled_while_it_is_read_runs_no_line),
        cmocka_unit_test(test_a_batch_that_is_being_created_is_removed_by_the_next_server_alone),
        cmocka_unit_test(test_a_clock_that_goes_back_changes_nothing),
        cmocka_unit_test(test_a_batch_that_expired_stays_so_when_the_clock_goes_back),
        cmocka_unit_test(test_a_batch_expires_on_time_while_the_store_is_full),
        cmocka_unit_test(test_a_batch_that_expired_in_validation_stays_so),
        cmocka_unit_test(test_what_is_left_at_the_end_is_run_by_the_next_server),
        cmocka_unit_test(test_a_file_whose_client_has_gone_away_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
