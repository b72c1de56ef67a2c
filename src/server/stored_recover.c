/* server/stored_recover.c - after a start: answers that were open when the last process ended are
 * generated again, from their first token, with the same prompt, seed and ids.
 *
 * One row after the other is read from the store; its body is parsed on the store's thread as well.
 * A row whose answer cannot be the same any more (another model file, version or device; a model
 * that is not served; a key that was removed) ends with an error that says so.
 */
#include "api/codec.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "jobs/answers.h"
#include "jobs/store.h"
#include "report/log.h"
#include "server/generation.h"
#include "server/generations.h"
#include "server/registry.h"
#include "server/routes.h"
#include "server/server_int.h"
#include "server/storage.h"
#include "server/stored_answer.h"

enum {
    RECOVERED_MAX = 256, /* that are under way at one time */
    RECOVERED_LEAST = 4, /* that may be under way however many clients wait */
    LOST_MAX = 3,        /* engines lost while an answer was generated: it may be the cause */
    AGAIN_US = 1000000,
};
static const size_t ENDING_BYTES_MAX = (size_t)256 << 20; /* it repeats fields of the request */

/* One row on its way from the store to a generation. */
struct recovery {
    struct store_op op;
    struct server *server;
    int64_t after, rowid;
    struct answer_row row;
    const struct codec *codec;
    struct api_request request;
    struct prompts prompts;
    struct api_error error; /* why it cannot go on; status 0: it can */
};

static void destroy(struct recovery *r) {
    api_request_deinit(&r->request);
    prompts_deinit(&r->prompts);
    answer_row_deinit(&r->row);
    mem_free(r);
}

/* ---- on the store's thread ---- */

static enum status read_body(struct recovery *r) {
    struct json *doc;
    struct err err = {0};
    struct json_limits limits = json_limits_request;
    limits.bytes_max = r->row.body.len + 1;
    enum status st = json_parse(r->row.body, &limits, &doc, &err);
    if (st == ST_OK) st = codec_read_body(r->codec, doc, false, &r->request, &r->error);
    if (st == ST_OK) st = prompts_get(r->row.prompt, &r->prompts);
    return st;
}

static void reset(struct recovery *r) {
    api_request_deinit(&r->request);
    prompts_deinit(&r->prompts);
    answer_row_deinit(&r->row);
    r->row = (struct answer_row){0};
    r->error = (struct api_error){0};
}

static enum status read_row(struct store_op *op, struct store_db *db) {
    struct recovery *r = LIST_ITEM(&op->in_store, struct recovery, op.in_store);
    reset(r);
    TRY(answers_next_open(db, (struct str){0}, r->after, &r->rowid, &r->row, &op->err));
    char name[64];
    str_store(r->row.codec, name, sizeof(name));
    r->codec = codec_find(name);
    enum status st = r->codec ? read_body(r) : ST_BAD;
    if (st == ST_NOMEM) return st;
    if (st != ST_OK && r->error.status == 0)
        api_refuse(&r->error, 500, NULL, "stored_request_unreadable",
                   "the stored request cannot be read by this version; send it again");
    return ST_OK;
}

/* ---- on the I/O thread ---- */

static const char *route_path(struct str path) {
    for (uint32_t i = 0; i < routes_count(); i++)
        if (str_is(path, routes_at(i)->path)) return routes_at(i)->path;
    return "/v1/requests/*";
}

static void check_row(struct recovery *r, const struct served_model *m, const struct key *key) {
    if (r->error.status != 0) return;
    if (!key)
        api_refuse(&r->error, 401, NULL, "key_removed",
                   "the API key that sent this request was removed from the server's key file");
    else if (!m)
        api_refuse(&r->error, 404, NULL, "model_not_found",
                   "the model \"%.*s\" is not served any more", STR_ARG(r->row.model));
    else if (r->row.lost_count >= LOST_MAX)
        api_refuse(&r->error, 500, NULL, "engine_lost_repeatedly",
                   "the engine was lost %u times while this answer was generated; it is not tried "
                   "again",
                   r->row.lost_count);
    else if (!str_is(r->row.fingerprint, m->fingerprint))
        api_refuse(&r->error, 409, NULL, "fingerprint_changed",
                   "the system fingerprint has changed: the answer was begun as %.*s, and the "
                   "server is now %s (another version, model file, chat template, context length, "
                   "device or KV "
                   "type); send the request again",
                   STR_ARG(r->row.fingerprint), m->fingerprint);
}

static struct served_model *model_of(const struct server *s, struct str name) {
    struct served_model *m;
    struct api_error e = {0};
    if (registry_find_ready(s->registry, name, &m, &e) != ST_OK || !m->engine) return NULL;
    return m;
}

/* The end of an answer that no generation can be made for. */
struct ending {
    struct store_op op;
    struct server *server;
    char id[ANSWER_ID_BYTES];
    struct buf whole, pieces;
};

static enum status run_ending(struct store_op *op, struct store_db *db) {
    struct ending *t = LIST_ITEM(&op->in_store, struct ending, op.in_store);
    struct answer_end end = {.state = ANSWER_FAILED,
                             .whole = buf_str(&t->whole),
                             .pieces = buf_str(&t->pieces),
                             .finished_s = clock_wall_s()};
    return answers_finish(db, str_of(t->id), &end, &op->err);
}

static void ending_destroy(struct ending *t) {
    buf_deinit(&t->whole);
    buf_deinit(&t->pieces);
    mem_free(t);
}

static void ending_done(struct store_op *op) {
    struct ending *t = LIST_ITEM(&op->in_store, struct ending, op.in_store);
    if (store_may_recover(op->status)) stored_answers_recover_again(t->server);
    ending_destroy(t);
}

/* In the answer's own format, which needs neither a model nor a key. */
static enum status put_end(struct recovery *r, struct ending *t) {
    struct answer a = {.request = &r->request,
                       .model = r->row.model,
                       .fingerprint = r->row.fingerprint,
                       .created_s = r->row.created_s,
                       .failure = r->error};
    if (!r->codec) { /* a format that this version does not know */
        api_error_put_openai(&r->error, r->row.request_id, &t->whole);
        return buf_status(&t->whole);
    }
    if (!r->request.codec) api_request_init(&r->request, r->codec); /* its body is not JSON */
    str_store(r->row.id, a.id, sizeof(a.id));
    enum status st = event_log_create(&a.log, 0);
    if (st == ST_OK) st = stored_answer_put_failed(&a, &t->whole, &t->pieces);
    event_log_destroy(a.log);
    return st;
}

static void end_row(struct recovery *r) {
    struct ending *t = mem_zalloc(sizeof(*t));
    if (!t) {
        stored_answers_recover_again(r->server);
        return;
    }
    t->server = r->server;
    t->op = (struct store_op){.run = run_ending, .done = ending_done};
    str_store(r->row.id, t->id, sizeof(t->id));
    buf_init(&t->whole, ENDING_BYTES_MAX);
    buf_init(&t->pieces, ENDING_BYTES_MAX);
    if (put_end(r, t) == ST_OK) {
        storage_push(r->server, &t->op);
    } else {
        ending_destroy(t);
        stored_answers_recover_again(r->server);
    }
}

static void log_row(const struct recovery *r) {
    struct server *s = r->server;
    bool ok = r->error.status == 0;
    struct log_field fields[] = {log_text("answer", r->row.id), log_text("model", r->row.model),
                                 log_text("error", str_of(r->error.message.text))};
    log_line(s->log, ok ? LOG_INFO : LOG_WARN, "resumed", fields, ok ? 2 : 3);
}

/* Make the generation as it was, and start it. */
static void resume_row(struct recovery *r, struct served_model *m, const struct key *key) {
    struct server *s = r->server;
    struct generation *gen;
    struct api_error e = {0};
    struct generation_spec spec = {.model = m,
                                   .key = key,
                                   .route = route_path(r->row.route),
                                   .id = r->row.id,
                                   .request_id = r->row.request_id,
                                   .request = &r->request,
                                   .arrived_us = clock_now(&clock_real),
                                   .created_s = r->row.created_s};
    r->request.has_seed = true;
    r->request.sample.seed = r->row.seed;
    r->request.smooth_ms = 0;
    r->request.urgency.priority = r->row.priority;
    if (generation_create(s->generations, &spec, &gen, &e) != ST_OK) {
        stored_answers_recover_again(s);
        return;
    }
    gen->is_unlimited = true;
    uint32_t ctx_tokens = gen->prompts.ctx_tokens;
    gen->prompts = r->prompts;
    gen->prompts.ctx_tokens = ctx_tokens;
    r->prompts = (struct prompts){0};
    gen->timeout_us = (int64_t)(s->settings.request_timeout_s * 1e6);
    const bool is_kept = stored_answer_resume(s, gen) == ST_OK;
    if (!is_kept) stored_answers_recover_again(s);
    gen->is_recovered = true;
    if (!is_kept) {
        api_refuse(&e, 503, NULL, "out_of_memory", "the server has no memory for this answer");
        generation_fail(gen, &e); /* not started: it is freed */
        return;
    }
    s->recovered_live++;
    generation_start(gen, NULL);
}

/* Its model is served, but was not loaded: it waits for a start at which it is. */
static bool is_waiting(const struct server *s, const struct recovery *r) {
    const struct served_model *m = registry_find(s->registry, r->row.model);
    return m && m->state != LOAD_READY;
}

static void row_read(struct store_op *op) {
    struct recovery *r = LIST_ITEM(&op->in_store, struct recovery, op.in_store);
    struct server *s = r->server;
    s->is_recovering = false;
    if (op->status != ST_OK || s->is_draining) {
        s->is_recovered = op->status == ST_MISSING;
        destroy(r);
        return;
    }
    s->recovered_after = r->rowid;
    if (is_waiting(s, r)) {
        destroy(r);
        stored_answers_recover(s);
        return;
    }
    const struct key *key = keys_find_owner(s->keys, r->row.owner);
    struct served_model *m = model_of(s, r->row.model);
    check_row(r, m, key);
    log_row(r);
    bool is_here = key && generation_find(s->generations, key, r->row.id);
    if (!is_here && r->error.status == 0)
        resume_row(r, m, key);
    else if (!is_here)
        end_row(r);
    destroy(r);
    stored_answers_recover(s);
}

/* A part of each queue stays free for clients. */
static bool has_room(const struct server *s) {
    if (s->recovered_live < RECOVERED_LEAST) return true;
    for (uint32_t i = 0; i < registry_count(s->registry); i++) {
        const struct served_model *m = registry_at(s->registry, i);
        if (m->state != LOAD_READY || !m->engine) continue;
        if (s->recovered_live + m->live_choices >= engine_places(m->engine) / 2) return false;
    }
    return s->recovered_live < RECOVERED_MAX;
}

void stored_answers_recover_again(struct server *s) {
    if (s->recover_again_us == 0) s->recover_again_us = clock_now(&clock_real) + AGAIN_US;
}

/* All rows were read once: those that stayed open are read again when it is time. */
static void begin_again(struct server *s) {
    if (!s->is_recovered || s->recover_again_us == 0) return;
    if (clock_now(&clock_real) < s->recover_again_us) return;
    s->recover_again_us = 0;
    s->recovered_after = 0;
    s->is_recovered = false;
}

void stored_answers_recover(struct server *s) {
    begin_again(s);
    if (!s->store || !s->is_loaded || s->is_recovering || s->is_recovered || s->is_draining) return;
    if (!has_room(s)) return;
    struct recovery *r = mem_zalloc(sizeof(*r));
    if (!r) return; /* the timer tries again */
    r->op = (struct store_op){.run = read_row, .done = row_read, .is_read = true};
    r->server = s;
    r->after = s->recovered_after;
    s->is_recovering = true;
    storage_push(s, &r->op);
}

/* ---- a lost engine ---- */

struct lost_note {
    struct store_op op;
    char id[ANSWER_ID_BYTES];
};

static enum status run_note(struct store_op *op, struct store_db *db) {
    struct lost_note *t = LIST_ITEM(&op->in_store, struct lost_note, op.in_store);
    return answers_note_lost(db, str_of(t->id), &op->err);
}

static void note_done(struct store_op *op) {
    mem_free(LIST_ITEM(&op->in_store, struct lost_note, op.in_store));
}

static void count_loss(struct server *s, const struct generation *gen) {
    struct lost_note *t = mem_zalloc(sizeof(*t));
    if (!t) return;
    t->op = (struct store_op){.run = run_note, .done = note_done};
    str_store(str_of(gen->answer.id), t->id, sizeof(t->id));
    storage_push(s, &t->op);
}

static void note_lost(void *ctx, const struct generation *gen) {
    if (gen->is_durable && gen->stage == GENERATION_RUNNING) count_loss(ctx, gen);
}

void stored_answer_lost(struct server *s, const struct generation *gen) {
    if (s->failure || s->is_ending) return; /* the next process goes on */
    count_loss(s, gen);
    stored_answers_recover_again(s);
    /* Also the second try failed, and no step has succeeded in between. */
    if (gen->is_recovered && engine_liveness(gen->model->engine).failed_steps > 1)
        s->is_engine_lost = true;
}

void stored_answers_note_lost(struct server *s) {
    if (s->store) generations_each_live(s->generations, note_lost, s);
}
