/* server/stored_answer.c - see server/stored_answer.h. */
#include "server/stored_answer.h"

#include "api/conversation_items.h"
#include "api/stored_objects.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "jobs/answers.h"
#include "jobs/store.h"
#include "report/log.h"
#include "server/generation.h"
#include "server/registry.h"
#include "server/server_int.h"
#include "server/sink.h"
#include "server/storage.h"

enum { EVENTS_A_RUN = 64 };
static const size_t TEXT_BYTES_MAX = (size_t)1 << 30;

/* What is known of an answer that is being stored. The sink and each operation hold a reference. */
struct stored {
    struct server *server;
    uint32_t refs;
    struct keeper *keeper;         /* NULL: the sink was removed */
    struct generation *generation; /* until it was inserted */
    char id[ANSWER_ID_BYTES];
    bool is_inserted; /* there is a row */
    bool is_locked;   /* its conversation has another answer that is not complete, or has changed */

    struct store_op insert;
    struct buf body, items, prompt;
    struct answer_row row;         /* points into these and the generation, during `insert` */
    struct conversation_mark read; /* of its conversation when its prompt was made */

    struct store_op finish;
    const struct answer *answer; /* of its generation, from the end on; NULL: `end` is complete */
    struct buf output, whole, pieces;
    struct answer_end end;
    struct storage_retry retry; /* of `finish` */
    bool deletes;               /* it was not acknowledged: remove the row */
};

/* The sink. */
struct keeper {
    struct sink base;
    struct stored *stored;
    struct encoder encoder;
    bool is_finishing;
};

static void unref(struct stored *r) {
    CHECK(r->refs > 0);
    if (--r->refs > 0) return;
    buf_deinit(&r->body);
    buf_deinit(&r->items);
    buf_deinit(&r->prompt);
    buf_deinit(&r->output);
    buf_deinit(&r->whole);
    buf_deinit(&r->pieces);
    mem_free(r);
}

/* ---- the end ---- */

static enum answer_state state_of(const struct answer *a) {
    if (a->failure.status == 0) return ANSWER_DONE;
    return a->failure.status == 499 ? ANSWER_CANCELLED : ANSWER_FAILED;
}

/* The object that a client gets who asks for the answer. */
static void put_whole(const struct answer *a, struct buf *out) {
    const struct codec *codec = a->request->codec;
    if (a->failure.status == 0)
        codec->whole(a, out);
    else if (codec->state)
        codec->state(a, a->failure.status == 499 ? "cancelled" : "failed", out);
    else
        codec->put_error(&a->failure, str_of(a->id), out);
}

static bool is_responses(const struct answer *a) {
    return str_is(str_of(a->request->codec->name), "openai.responses");
}

enum status stored_answer_put_failed(const struct answer *a, struct buf *whole,
                                     struct buf *pieces) {
    struct encoder encoder;
    CHECK(a->failure.status != 0);
    CHECK(event_log_count(a->log) == 0);
    put_whole(a, whole);
    encoder_init(&encoder, a->request->codec, a, 0, FRAMING_SSE);
    (void)encoder_run(&encoder, EVENTS_A_RUN, pieces);
    const enum status st = encoder.status;
    encoder_deinit(&encoder);
    TRY(st);
    TRY(buf_status(whole));
    return buf_status(pieces);
}

/* On any thread: the answer has ended and does not change. */
static enum status write_end(struct stored *r, const struct answer *a) {
    buf_clear(&r->whole);
    buf_clear(&r->output);
    put_whole(a, &r->whole);
    if (a->failure.status == 0 && is_responses(a)) responses_output_items(a, &r->output);
    TRY(buf_status(&r->whole));
    TRY(buf_status(&r->output));
    r->end = (struct answer_end){.state = state_of(a),
                                 .output = buf_str(&r->output),
                                 .whole = buf_str(&r->whole),
                                 .pieces = buf_str(&r->pieces),
                                 .finished_s = clock_wall_s()};
    return ST_OK;
}

static enum status run_finish(struct store_op *op, struct store_db *db) {
    struct stored *r = LIST_ITEM(&op->in_store, struct stored, finish.in_store);
    if (r->answer && write_end(r, r->answer) != ST_OK)
        return err_set(&op->err, ST_NOMEM, "out of memory for the end of an answer");
    enum status st = r->deletes ? answers_delete(db, (struct str){0}, str_of(r->id), &op->err)
                                : answers_finish(db, str_of(r->id), &r->end, &op->err);
    return st == ST_MISSING ? ST_OK : st; /* it was deleted meanwhile */
}

static void push_finish(struct stored *r) {
    r->refs++;
    storage_push(r->server, &r->finish);
}

/* It stays open, and is generated again after the next start. */
static void log_unstored(const struct stored *r, const struct err *err) {
    struct log_field fields[] = {log_text("answer", str_of(r->id)),
                                 log_text("error", str_of(err->text))};
    log_line(r->server->log, LOG_ERROR, "storage", fields, 2);
}

static void finish_done(struct store_op *op) {
    struct stored *r = LIST_ITEM(&op->in_store, struct stored, finish.in_store);
    if (storage_retry(r->server, op, &r->retry)) return; /* with this reference */
    if (op->status != ST_OK) log_unstored(r, &op->err);
    struct keeper *k = r->keeper;
    if (k) {
        k->base.generation->is_unstored = false;
        generation_detach_sink(k->base.generation, &k->base);
    }
    unref(r);
}

/* Its generation stays until the end is stored: long texts are written on the store's thread. */
static void begin_finish(struct stored *r, struct generation *gen) {
    gen->is_unstored = true;
    r->answer = &gen->answer;
    push_finish(r);
}

/* Its generation is freed at once. */
static void finish_refused(struct stored *r, const struct answer *a) {
    if (r->deletes || write_end(r, a) == ST_OK)
        push_finish(r);
    else
        stored_answers_recover_again(r->server);
}

/* ---- the sink ---- */

/* The events do not fit into memory: the answer fails, and its end is stored. */
static void fail_memory(struct keeper *k) {
    struct api_error e = {0};
    api_refuse(&e, 500, NULL, "out_of_memory",
               "the server has no memory for the events of this answer");
    buf_clear(&k->stored->pieces);
    encoder_deinit(&k->encoder);
    encoder_init(&k->encoder, k->encoder.codec, &k->base.generation->answer, UINT32_MAX,
                 FRAMING_SSE);
    generation_fail(k->base.generation, &e);
}

static bool keeper_advance(struct sink *s) {
    struct keeper *k = (struct keeper *)s;
    struct stored *r = k->stored;
    const struct answer *a = &s->generation->answer;
    if (k->is_finishing) return false;
    if (generation_is_left_open(s->generation)) {
        s->generation->is_findable = false; /* else it would hide the row that stays open */
        stored_answer_lost(r->server, s->generation);
        return true;
    }
    while (!encoder_run(&k->encoder, EVENTS_A_RUN, &r->pieces)) continue;
    s->generation->stored_bytes = r->pieces.cap;
    bool is_fine = buf_status(&r->pieces) == ST_OK && k->encoder.status == ST_OK;
    if (!is_fine && answer_is_done(a)) {
        stored_answers_recover_again(r->server); /* it stays open and is generated again */
        return true;
    }
    if (!is_fine) {
        fail_memory(k); /* calls this function again */
        return false;
    }
    if (!k->encoder.has_ended) return false;
    k->is_finishing = true;
    begin_finish(r, s->generation);
    return false;
}

/* It failed before the engine had it. The client was told so. */
static void keeper_refuse(struct sink *s, const struct api_error *e) {
    struct keeper *k = (struct keeper *)s;
    struct stored *r = k->stored;
    struct generation *gen = s->generation;
    if (!r->is_inserted) {
        r->deletes = true; /* if it is being inserted */
        return;
    }
    const bool is_load = e->status == 429 || e->status == 503; /* of the server, at the moment */
    if (gen->is_recovered && (generation_is_left_open(gen) || is_load)) {
        gen->is_findable = false; /* else it would hide the row that stays open */
        stored_answers_recover_again(r->server);
        return;
    }
    r->deletes = !gen->is_recovered;
    if (!r->deletes) (void)encoder_run(&k->encoder, EVENTS_A_RUN, &r->pieces);
    finish_refused(r, &gen->answer);
}

static void keeper_destroy(struct sink *s) {
    struct keeper *k = (struct keeper *)s;
    k->stored->keeper = NULL;
    unref(k->stored);
    encoder_deinit(&k->encoder);
    mem_free(k);
}

static const struct sink_kind keeper_kind = {
    .name = "store", .advance = keeper_advance, .refuse = keeper_refuse, .destroy = keeper_destroy};

/* ---- the beginning ---- */

/* That the conversation is there and free was seen before, too, but another request may have come
 * between. One that has ended as well added its items, which this prompt lacks. */
static enum status check_conversation(const struct stored *r, struct store_db *db,
                                      struct err *err) {
    const struct str owner = r->row.owner, id = r->row.conversation;
    if (id.len == 0) return ST_OK;
    TRY(conversations_check_complete(db, owner, id, err));
    return conversations_check_unchanged(db, owner, id, r->read, err);
}

static enum status run_insert(struct store_op *op, struct store_db *db) {
    struct stored *r = LIST_ITEM(&op->in_store, struct stored, insert.in_store);
    const enum status st = check_conversation(r, db, &op->err);
    r->is_locked = st == ST_BAD;
    TRY(st);
    return answers_insert(db, &r->row, &op->err);
}

static void insert_done(struct store_op *op) {
    struct stored *r = LIST_ITEM(&op->in_store, struct stored, insert.in_store);
    struct generation *gen = r->generation;
    struct api_error e = {0};
    const enum status st = op->status;
    r->generation = NULL;
    r->is_inserted = st == ST_OK;
    buf_deinit(&r->body);
    buf_deinit(&r->items);
    buf_deinit(&r->prompt);
    if (r->is_locked)
        api_refuse(&e, 409, "conversation", "conversation_locked", "%s", op->err.text);
    else if (st == ST_MISSING)
        api_refuse(&e, 404, "conversation", "not_found", "%s", op->err.text);
    else if (st != ST_OK)
        storage_refuse(st, &op->err, "answer", &e);
    if (r->is_inserted && !r->keeper) push_finish(r); /* it was cancelled: deletes the row */
    /* The generation waits for this, also if it was cancelled. */
    generation_stored(gen, st == ST_OK ? ST_OK : ST_BAD, &e);
    unref(r);
}

static struct answer_row row_of(const struct stored *r, const struct generation *gen) {
    const struct api_request *q = &gen->request;
    struct str previous = {0};
    stored_id_read(q->keeping.previous, "resp_", &previous);
    return (struct answer_row){.id = str_of(r->id),
                               .request_id = str_of(gen->request_id),
                               .owner = str_of(gen->key->owner),
                               .codec = str_of(q->codec->name),
                               .route = str_of(gen->route),
                               .model = gen->answer.model,
                               .fingerprint = gen->answer.fingerprint,
                               .body = buf_str(&r->body),
                               .prompt = buf_str(&r->prompt),
                               .metadata = buf_str(&q->keeping.metadata),
                               .previous = previous,
                               .conversation = q->keeping.conversation,
                               .items = buf_str(&r->items),
                               .seed = q->sample.seed,
                               .created_s = gen->answer.created_s,
                               .priority = q->urgency.priority,
                               .is_stored = q->keeping.store,
                               .is_background = q->keeping.background};
}

void stored_answer_insert(void *ctx, struct generation *gen) {
    struct stored *r = NULL;
    (void)ctx;
    for (struct list_link *l = gen->sinks.first; l; l = l->next) {
        struct sink *s = LIST_ITEM(l, struct sink, in_generation);
        if (s->kind == &keeper_kind) r = ((struct keeper *)s)->stored;
    }
    CHECK(r); /* a durable generation that has not failed has it */
    prompts_put(&gen->prompts, &r->prompt);
    r->generation = gen;
    r->row = row_of(r, gen);
    r->refs++;
    storage_push(r->server, &r->insert);
}

static struct stored *stored_create(struct server *s, const struct generation *gen) {
    struct stored *r = mem_zalloc(sizeof(*r));
    if (!r) return NULL;
    r->server = s;
    r->refs = 1;
    str_store(str_of(gen->answer.id), r->id, sizeof(r->id));
    r->insert = (struct store_op){.run = run_insert, .done = insert_done};
    r->finish = (struct store_op){.run = run_finish, .done = finish_done};
    struct buf *const bufs[] = {&r->body, &r->items, &r->prompt, &r->output, &r->whole, &r->pieces};
    for (size_t i = 0; i < sizeof(bufs) / sizeof(bufs[0]); i++) buf_init(bufs[i], TEXT_BYTES_MAX);
    return r;
}

static enum status keep(struct server *s, struct generation *gen, struct stored **out) {
    struct keeper *k = mem_zalloc(sizeof(*k));
    struct stored *r = k ? stored_create(s, gen) : NULL;
    if (!r) {
        mem_free(k);
        return ST_NOMEM;
    }
    k->base.kind = &keeper_kind;
    k->stored = r;
    r->keeper = k;
    encoder_init(&k->encoder, gen->request.codec, &gen->answer, 0, FRAMING_SSE);
    gen->is_durable = gen->survives = gen->is_findable = true;
    generation_add_sink(gen, &k->base);
    *out = r;
    return ST_OK;
}

enum status stored_answer_keep(struct server *s, struct generation *gen,
                               const struct generation_spec *spec) {
    struct stored *r;
    TRY(keep(s, gen, &r));
    buf_put_str(&r->body, spec->body);
    buf_put_str(&r->items, spec->items);
    if (spec->read) r->read = *spec->read;
    return buf_status(&r->body) == ST_OK && buf_status(&r->items) == ST_OK ? ST_OK : ST_NOMEM;
}

enum status stored_answer_resume(struct server *s, struct generation *gen) {
    struct stored *r;
    TRY(keep(s, gen, &r));
    gen->is_recovered = r->is_inserted = true;
    return ST_OK;
}
