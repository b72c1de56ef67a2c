/* server/stored_paths.c - stored answers by their ids: /v1/responses/ID, /v1/chat/completions/ID,
 * and /v1/requests/ID where the answer is not in memory.
 *
 * An answer that is being generated, or that has just ended, is in memory: it is answered from
 * there. Any other is read from the store.
 */
#include <stdio.h>
#include <string.h>

#include "access/keys.h"
#include "api/codec.h"
#include "api/conversation_items.h"
#include "api/object_page.h"
#include "api/metadata.h"
#include "api/stored_objects.h"
#include "base/json.h"
#include "jobs/answers.h"
#include "server/generations.h"
#include "server/handlers.h"
#include "server/server_int.h"
#include "server/sink.h"
#include "server/storage.h"
#include "server/stored_events.h"
#include "server/stored_paths.h"
#include "server/stored_read.h"

enum { EVENTS_A_POLL = 512, RETRY_MS = 1000 };

#define RESPONSES "openai.responses"
#define CHAT "openai.chat"

struct row_read {
    struct stored_read base;
    const char *codec; /* that it must have; NULL: any */
    struct answer_row row;
    uint32_t after;
    bool is_stream;
    struct str events;       /* after `after`, in row.pieces */
    bool is_lines;           /* they are given as lines, which are in base.body */
    struct buf metadata;     /* to be stored with it */
    struct page_choice page; /* of its items */
    char page_after[160];
    struct server *server; /* not NULL: it deletes the answer */
};

static void cancel_live(struct generation *gen) {
    struct api_error e = {0};
    api_refuse(&e, 499, NULL, "request_cancelled", "the request was cancelled");
    generation_fail(gen, &e);
}

/* The generation may be freed. */
static void delete_live(struct generation *gen) {
    gen->is_deleted = true;
    gen->is_findable = false;
    if (answer_is_done(&gen->answer))
        generation_forget(gen);
    else
        cancel_live(gen);
}

/* The row was deleted. Its answer may have come into memory since the request, if it was left over
 * from an earlier process. If the row could not be deleted, clients see the answer again. */
static void end_delete(const struct row_read *r) {
    const struct key *key = keys_find_owner(r->server->keys, str_of(r->base.owner));
    const struct str id = r->row.id.len > 0 ? r->row.id : str_of(r->base.id);
    struct generation *gen = key ? generation_find(r->server->generations, key, id) : NULL;
    if (!gen || !gen->is_durable || !str_is(id, gen->answer.id)) return;
    if (store_may_recover(r->base.op.status))
        gen->is_deleted = false;
    else if (r->base.op.status == ST_OK && !gen->is_deleted)
        delete_live(gen);
}

static void deinit_row(struct stored_read *base) {
    struct row_read *r = (struct row_read *)base;
    if (r->server) end_delete(r);
    answer_row_deinit(&r->row);
    buf_deinit(&r->metadata);
}

static struct row_read *row_read_create(struct http_request *req, const char *what,
                                        const char *codec, struct str id) {
    struct row_read *r = stored_read_create(req, sizeof(*r), what, id);
    if (!r) return NULL;
    r->codec = codec;
    r->base.deinit = deinit_row;
    buf_init(&r->metadata, 1 << 16);
    return r;
}

/* An answer's id without the prefix of a wire format. */
static struct str plain_id(struct str id) {
    static const char *const prefixes[] = {"resp_", "chatcmpl-", "cmpl-", "msg_"};
    struct str plain;
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (stored_id_read(id, prefixes[i], &plain)) return plain;
    return id;
}

static enum status find_row(struct row_read *r, struct store_db *db, struct err *err) {
    answer_row_deinit(&r->row);
    r->row = (struct answer_row){0};
    struct str owner = str_of(r->base.owner), id = str_of(r->base.id);
    enum status st = answers_find(db, owner, id, true, &r->row, err);
    /* An id with the prefix of its wire format; a client's x-request-id may look like one. */
    if (st == ST_MISSING && !r->codec)
        st = answers_find(db, owner, plain_id(id), true, &r->row, err);
    TRY(st);
    bool is_wanted = !r->codec || (str_is(r->row.codec, r->codec) && r->row.is_stored);
    return is_wanted ? ST_OK : ST_MISSING;
}

static enum status run_find(struct stored_read *base, struct store_db *db, struct err *err) {
    return find_row((struct row_read *)base, db, err);
}

static bool has_failed(const struct answer_row *row) {
    return row->state == ANSWER_FAILED || row->state == ANSWER_CANCELLED;
}

/* The events of a long answer are cut here, and not on the I/O thread. */
static enum status run_events(struct stored_read *base, struct store_db *db, struct err *err) {
    struct row_read *r = (struct row_read *)base;
    char name[64];
    TRY(find_row(r, db, err));
    str_store(r->row.codec, name, sizeof(name));
    const struct codec *codec = codec_find(name);
    r->events = stored_events_after(r->row.pieces, r->after, has_failed(&r->row));
    r->is_lines = codec && codec->framing != FRAMING_SSE;
    if (r->is_lines) stored_events_put_lines(r->events, &base->body);
    return buf_status(&base->body) == ST_OK ? ST_OK : ST_NOMEM;
}

static void refuse_unknown(struct http_request *req, const char *what) {
    struct api_error e = {0};
    api_refuse(&e, 404, NULL, "not_found", "no such %s: \"%.*s\"", what, STR_ARG(req->arg));
    respond_error(req, &e);
}

/* The id without its prefix. False: it has another one, and the request was answered. */
static bool read_id(struct http_request *req, struct str sent, const char *prefix, const char *what,
                    struct str *id) {
    if (!storage_require(req)) return false;
    if (stored_id_read(sent, prefix, id)) return true;
    refuse_unknown(req, what);
    return false;
}

/* In memory, if this key has stored it. */
static struct generation *find_live(const struct http_request *req, struct str id,
                                    const char *codec) {
    struct generation *gen = generation_find(req->server->generations, req->grant.key, id);
    bool is_one = gen && gen->is_durable && gen->request.keeping.store &&
                  str_is(str_of(gen->request.codec->name), codec);
    return is_one && generation_is_visible(gen) ? gen : NULL;
}

/* ---- responses with an answer ---- */

/* It was accepted before a restart and is not yet being generated again. */
static void respond_not_resumed(struct http_request *req) {
    struct api_error e = {0};
    api_refuse(&e, 503, NULL, "not_resumed",
               "the answer is stored and will be continued when its model is ready; try again");
    e.retry_after_ms = RETRY_MS;
    respond_error(req, &e);
}

static void respond_events(const struct row_read *r) {
    static const struct http_header headers[] = {{{"cache-control", 13}, {"no-store", 8}}};
    respond(r->base.http,
            &(struct response){.status = 200,
                               .type = r->is_lines ? "application/x-ndjson"
                                                   : "text/event-stream; charset=utf-8",
                               .body = r->is_lines ? buf_str(&r->base.body) : r->events,
                               .headers = headers,
                               .header_count = 1});
}

/* An open row that is not in memory: its object, with the status "queued". */
static void respond_queued(struct http_request *req, const struct answer_row *row) {
    struct buf body;
    buf_init(&body, 1 << 20);
    buf_printf(&body,
               "{\"id\":\"resp_%.*s\",\"object\":\"response\",\"created_at\":%lld,"
               "\"status\":\"queued\",\"background\":%s,\"error\":null,"
               "\"incomplete_details\":null,\"model\":",
               STR_ARG(row->id), (long long)row->created_s, row->is_background ? "true" : "false");
    buf_put_json_string(&body, row->model);
    buf_put_text(&body, ",\"output\":[],\"parallel_tool_calls\":true,\"tool_choice\":\"auto\","
                        "\"tools\":[],\"store\":true,\"usage\":null");
    metadata_put(row->metadata, "{}", &body);
    buf_put_char(&body, '}');
    respond_json(req, &body);
    buf_deinit(&body);
}

static const char *live_status(const struct generation *gen) {
    if (gen->answer.failure.status != 0)
        return gen->answer.failure.status == 499 ? "cancelled" : "failed";
    return gen->stage < GENERATION_RUNNING || gen->answer.first_token_us == 0 ? "queued"
                                                                              : "in_progress";
}

/* An answer that is in memory and has no end on disk: it is under way, or the disk is full. A whole
 * answer may be long: its sink has it written in the pool. */
static void respond_live(struct http_request *req, struct generation *gen) {
    const struct answer *a = &gen->answer;
    struct sink *sink = NULL;
    struct buf body;
    if (answer_is_done(a) && a->failure.status == 0) {
        sink = sink_whole_create(req);
        if (sink)
            generation_join_sink(gen, sink);
        else
            respond_out_of_memory(req);
        return;
    }
    buf_init(&body, (size_t)1 << 28);
    a->request->codec->state(a, live_status(gen), &body);
    respond_json(req, &body);
    buf_deinit(&body);
}

static void reply_response(struct stored_read *base) {
    struct row_read *r = (struct row_read *)base;
    const bool is_open = r->row.state == ANSWER_OPEN;
    struct generation *gen = is_open ? find_live(base->http, str_of(base->id), RESPONSES) : NULL;
    if (gen && generation_is_left_open(gen)) gen = NULL; /* the next process begins again */
    if (is_open && r->is_stream)
        respond_not_resumed(base->http);
    else if (gen)
        respond_live(base->http, gen);
    else if (is_open)
        respond_queued(base->http, &r->row);
    else if (r->is_stream)
        respond_events(r);
    else
        respond(base->http, &(struct response){.status = 200, .body = r->row.whole});
}

static void stream_live(struct http_request *req, struct generation *gen, uint32_t after) {
    struct sink *sink = sink_stream_create(req, gen, after);
    if (sink)
        generation_join_sink(gen, sink);
    else
        respond_out_of_memory(req);
}

static bool query_is(const struct http_request *req, const char *name, const char *value) {
    struct buf text;
    buf_init(&text, 64);
    bool is_equal = http_query_find(req->head->query, name, &text) && str_is(buf_str(&text), value);
    buf_deinit(&text);
    return is_equal;
}

static bool query_has(const struct http_request *req, const char *name) {
    struct buf text;
    buf_init(&text, 64);
    bool has = http_query_find(req->head->query, name, &text);
    buf_deinit(&text);
    return has;
}

void handle_response_get(struct http_request *req) {
    struct str id;
    uint64_t sequence;
    if (!read_id(req, req->arg, "resp_", "response", &id)) return;
    if (!http_request_query_u64(req, "starting_after", 0, &sequence)) return;
    const bool is_stream = query_is(req, "stream", "true");
    const uint32_t after = query_has(req, "starting_after") ? encoder_after_sequence(sequence) : 0;
    struct generation *gen = find_live(req, id, RESPONSES);
    if (gen && is_stream) {
        stream_live(req, gen, after);
    } else if (gen && !answer_is_done(&gen->answer)) {
        respond_live(req, gen);
    } else { /* the end that a client is told of is on disk: it is read from there */
        struct row_read *r = row_read_create(req, "response", RESPONSES, id);
        if (!r) return;
        r->after = after;
        r->is_stream = is_stream;
        r->base.run = is_stream ? run_events : run_find;
        r->base.reply = reply_response;
        stored_read_push(&r->base, true);
    }
}

/* ---- cancel and delete ---- */

/* It has ended: cancelling changes nothing. */
static void reply_ended(struct stored_read *base) {
    struct row_read *r = (struct row_read *)base;
    if (r->row.state == ANSWER_OPEN)
        respond_not_resumed(base->http);
    else
        respond(base->http, &(struct response){.status = 200, .body = r->row.whole});
}

/* False: it was answered. True: its end is on its way to the store, and the client is answered when
 * it is there. */
static bool cancel_background(struct http_request *req, struct generation *gen) {
    if (answer_is_done(&gen->answer)) return true;
    if (!gen->request.keeping.background) {
        struct api_error e = {0};
        api_refuse(&e, 400, NULL, NULL,
                   "only a response with \"background\": true can be cancelled here; close the "
                   "connection of any other, or DELETE /v1/requests/ID");
        respond_error(req, &e);
        return false;
    }
    cancel_live(gen);
    return true;
}

void handle_response_cancel(struct http_request *req) {
    struct str id;
    if (!read_id(req, req->arg, "resp_", "response", &id)) return;
    struct generation *gen = find_live(req, id, RESPONSES);
    if (gen && !cancel_background(req, gen)) return;
    struct row_read *r = row_read_create(req, "response", RESPONSES, id);
    if (!r) return;
    r->base.run = run_find;
    r->base.reply = reply_ended;
    stored_read_push(&r->base, true);
}

static void put_deleted(const struct row_read *r, struct buf *out) {
    char id[192];
    const bool is_chat = r->codec && str_is(str_of(r->codec), CHAT);
    int len = snprintf(id, sizeof(id), "%s%s", is_chat ? "chatcmpl-" : "resp_", r->base.id);
    struct str text = {id, (size_t)len};
    if (is_chat)
        chat_deleted_put(text, out);
    else
        response_deleted_put(text, out);
}

static enum status run_delete(struct stored_read *base, struct store_db *db, struct err *err) {
    struct row_read *r = (struct row_read *)base;
    TRY(find_row(r, db, err));
    put_deleted(r, &base->body);
    return answers_delete(db, str_of(base->owner), r->row.id, err);
}

static void delete_stored(struct http_request *req, const char *prefix, const char *what,
                          const char *codec) {
    struct str id;
    if (!read_id(req, req->arg, prefix, what, &id)) return;
    struct generation *gen = find_live(req, id, codec);
    struct row_read *r = row_read_create(req, what, codec, id);
    if (!r) return;
    r->server = req->server;
    if (gen) delete_live(gen); /* its end is stored before this deletes it */
    r->base.run = run_delete;
    stored_read_push(&r->base, false);
}

void handle_response_delete(struct http_request *req) {
    delete_stored(req, "resp_", "response", RESPONSES);
}
void handle_chat_delete(struct http_request *req) {
    delete_stored(req, "chatcmpl-", "chat completion", CHAT);
}

/* ---- items ---- */

static bool read_page(struct http_request *req, const struct page_rules *rules, struct buf texts[3],
                      struct page_choice *out) {
    static const char *const names[] = {"limit", "order", "after"};
    struct api_error e = {0};
    for (int i = 0; i < 3; i++) (void)http_query_find(req->head->query, names[i], &texts[i]);
    const struct page_query q = {
        .limit = buf_str(&texts[0]), .order = buf_str(&texts[1]), .after = buf_str(&texts[2])};
    if (page_query_read(&q, rules, out, &e) == ST_OK) return true;
    respond_error(req, &e);
    return false;
}

bool stored_page_read(struct http_request *req, const struct page_rules *rules,
                      struct page_choice *out, char after[STORED_AFTER_BYTES]) {
    struct buf texts[3];
    for (int i = 0; i < 3; i++) buf_init(&texts[i], STORED_AFTER_BYTES);
    bool ok = read_page(req, rules, texts, out);
    str_store(buf_str(&texts[2]), after, STORED_AFTER_BYTES);
    for (int i = 0; i < 3; i++) buf_deinit(&texts[i]);
    return ok;
}

static enum status run_items(struct stored_read *base, struct store_db *db, struct err *err) {
    struct row_read *r = (struct row_read *)base;
    struct api_error e = {0};
    TRY(find_row(r, db, err));
    struct str items = r->row.items.len ? r->row.items : STR("[]");
    enum status st = items_page_put(items, &r->page, str_of(r->page_after), &base->body, &e);
    if (st == ST_BAD) base->error = e;
    return st;
}

void handle_response_items(struct http_request *req) {
    struct str id;
    struct page_choice page;
    char after[STORED_AFTER_BYTES];
    if (!read_id(req, req->arg, "resp_", "response", &id)) return;
    if (!stored_page_read(req, &page_rules_items, &page, after)) return;
    struct row_read *r = row_read_create(req, "response", RESPONSES, id);
    if (!r) return;
    r->page = page;
    str_store(str_of(after), r->page_after, sizeof(r->page_after));
    r->base.run = run_items;
    stored_read_push(&r->base, true);
}

/* ---- stored chats ---- */

static void reply_chat(struct stored_read *base) {
    struct row_read *r = (struct row_read *)base;
    if (r->row.state != ANSWER_DONE) {
        refuse_unknown(base->http, "chat completion");
        return;
    }
    (void)chat_stored_put(r->row.whole, r->row.metadata, &base->body);
    respond_json(base->http, &base->body);
}

void handle_chat_get(struct http_request *req) {
    struct str id;
    if (memchr(req->arg.ptr, '/', req->arg.len)) {
        struct api_error e = {0};
        api_refuse(&e, 404, NULL, "unknown_url", "Unknown request URL: GET %.*s",
                   STR_ARG(req->head->path));
        respond_error(req, &e);
        return;
    }
    if (!read_id(req, req->arg, "chatcmpl-", "chat completion", &id)) return;
    struct row_read *r = row_read_create(req, "chat completion", CHAT, id);
    if (!r) return;
    r->base.run = run_find;
    r->base.reply = reply_chat;
    stored_read_push(&r->base, true);
}

static enum status run_messages(struct stored_read *base, struct store_db *db, struct err *err) {
    struct row_read *r = (struct row_read *)base;
    struct api_error e = {0};
    struct buf list;
    char name[192];
    TRY(find_row(r, db, err));
    if (r->row.state != ANSWER_DONE) return ST_MISSING;
    int len = snprintf(name, sizeof(name), "chatcmpl-%s", base->id);
    buf_init(&list, r->row.body.len * 2 + (1 << 20));
    enum status st = chat_messages_put(r->row.body, (struct str){name, (size_t)len}, &list);
    if (st == ST_OK)
        st = items_page_put(buf_str(&list), &r->page, str_of(r->page_after), &base->body, &e);
    if (st == ST_BAD) base->error = e;
    buf_deinit(&list);
    return st;
}

void handle_chat_messages(struct http_request *req) {
    struct str id;
    struct page_choice page;
    char after[STORED_AFTER_BYTES];
    if (!read_id(req, req->arg, "chatcmpl-", "chat completion", &id)) return;
    if (!stored_page_read(req, &page_rules_chats, &page, after)) return;
    struct row_read *r = row_read_create(req, "chat completion", CHAT, id);
    if (!r) return;
    r->page = page;
    str_store(str_of(after), r->page_after, sizeof(r->page_after));
    r->base.run = run_messages;
    stored_read_push(&r->base, true);
}

static enum status run_update(struct stored_read *base, struct store_db *db, struct err *err) {
    struct row_read *r = (struct row_read *)base;
    TRY(find_row(r, db, err));
    TRY(answers_set_metadata(db, str_of(base->owner), r->row.id, buf_str(&r->metadata), err));
    return find_row(r, db, err);
}

/* A small body, parsed on the I/O thread. NULL: the request was answered. */
struct json *stored_body_parse(struct http_request *req) {
    struct json *doc;
    struct err err = {0};
    struct api_error e = {0};
    struct str body = http_request_body(req);
    enum status st = json_parse(body.len ? body : STR("{}"), &json_limits_request, &doc, &err);
    if (st == ST_OK && json_kind(doc) == JS_MAP) return doc;
    if (st == ST_OK) json_destroy(doc);
    api_refuse(&e, 400, NULL, NULL, "invalid JSON: %s",
               st == ST_OK ? "the body must be a JSON object" : err.text);
    respond_error(req, &e);
    return NULL;
}

void handle_chat_update(struct http_request *req) {
    struct str id;
    struct api_error e = {0};
    if (!read_id(req, req->arg, "chatcmpl-", "chat completion", &id)) return;
    struct json *doc = stored_body_parse(req);
    if (!doc) return;
    struct row_read *r = row_read_create(req, "chat completion", CHAT, id);
    enum status st = r ? metadata_update_read(doc, &r->metadata, &e) : ST_OK;
    json_destroy(doc);
    if (!r) return;
    if (st != ST_OK) {
        stored_read_refuse(&r->base, &e);
        return;
    }
    r->base.run = run_update;
    r->base.reply = reply_chat;
    stored_read_push(&r->base, false);
}

struct chats_read {
    struct stored_read base;
    struct object_page page;
    struct page_choice choice;
    char after[STORED_AFTER_BYTES], model[128];
};

static bool add_chat(void *ctx, const struct answer_row *row) {
    struct chats_read *r = ctx;
    char id[192];
    int len = snprintf(id, sizeof(id), "chatcmpl-%.*s", STR_ARG(row->id));
    struct buf *out = object_page_add(&r->page, (struct str){id, (size_t)len});
    if (out) (void)chat_stored_put(row->whole, row->metadata, out);
    return out != NULL;
}

static enum status run_chats(struct stored_read *base, struct store_db *db, struct err *err) {
    struct chats_read *r = (struct chats_read *)base;
    struct str after = str_of(r->after);
    if (after.len && !stored_id_read(after, "chatcmpl-", &after)) return ST_MISSING;
    const struct answers_page page = {.owner = str_of(base->owner),
                                      .codec = STR(CHAT),
                                      .model = str_of(r->model),
                                      .after = after,
                                      .limit = r->choice.limit + 1,
                                      .ascending = r->choice.ascending};
    object_page_deinit(&r->page);
    object_page_init(&r->page, r->choice.limit);
    TRY(answers_list(db, &page, add_chat, r, err));
    object_page_put(&r->page, PAGE_OPENAI, &base->body);
    return buf_status(&base->body);
}

static void deinit_chats(struct stored_read *base) {
    object_page_deinit(&((struct chats_read *)base)->page);
}

/* Has the query a parameter "metadata[..]"? */
static bool names_metadata(struct str query) {
    for (size_t i = 0; i < query.len; i++)
        if ((i == 0 || query.ptr[i - 1] == '&') && str_starts(str_skip(query, i), STR("metadata")))
            return true;
    return false;
}

void handle_chats(struct http_request *req) {
    struct page_choice choice;
    struct buf model;
    char after[STORED_AFTER_BYTES];
    if (!storage_require(req)) return;
    if (names_metadata(req->head->query)) {
        struct api_error e = {0};
        api_refuse(&e, 400, "metadata", "unsupported_parameter",
                   "stored chats cannot be selected by their metadata; leave it out");
        respond_error(req, &e);
        return;
    }
    if (!stored_page_read(req, &page_rules_chats, &choice, after)) return;
    struct chats_read *r = stored_read_create(req, sizeof(*r), "chat completion", STR(""));
    if (!r) return;
    buf_init(&model, sizeof(r->model));
    (void)http_query_find(req->head->query, "model", &model);
    str_store(buf_str(&model), r->model, sizeof(r->model));
    buf_deinit(&model);
    str_store(str_of(after), r->after, sizeof(r->after));
    r->base.cursor = r->after;
    r->base.cursor_name = "after";
    r->choice = choice;
    object_page_init(&r->page, choice.limit);
    r->base.run = run_chats;
    r->base.deinit = deinit_chats;
    stored_read_push(&r->base, true);
}

/* ---- /v1/requests/ID ---- */

static const char *state_text(enum answer_state s) {
    static const char *const names[] = {"queued", "completed", "failed", "cancelled"};
    return names[s];
}

static enum status run_poll(struct stored_read *base, struct store_db *db, struct err *err) {
    struct row_read *r = (struct row_read *)base;
    struct buf events;
    bool is_all = true;
    TRY(find_row(r, db, err));
    buf_init(&events, r->row.pieces.len * 2 + 64);
    struct str rest = stored_events_after(r->row.pieces, r->after, has_failed(&r->row));
    uint32_t next = stored_events_put_list(rest, r->after, EVENTS_A_POLL, &is_all, &events);
    buf_printf(&base->body, "{\"id\":\"%.*s\",\"status\":\"%s\",\"events\":[", STR_ARG(r->row.id),
               state_text(r->row.state));
    buf_put_str(&base->body, buf_str(&events));
    buf_printf(&base->body, "],\"next\":%u,\"done\":%s}", next,
               is_all && r->row.state != ANSWER_OPEN ? "true" : "false");
    const bool fits = buf_status(&events) == ST_OK && buf_status(&base->body) == ST_OK;
    buf_deinit(&events);
    return fits ? ST_OK : ST_NOMEM;
}

static void reply_resume(struct stored_read *base) {
    struct row_read *r = (struct row_read *)base;
    if (r->row.state == ANSWER_OPEN)
        respond_not_resumed(base->http);
    else
        respond_events(r);
}

void stored_request_get(struct http_request *req, uint32_t after, bool is_stream) {
    struct row_read *r = row_read_create(req, "request", NULL, req->arg);
    if (!r) return;
    r->after = after;
    r->base.run = is_stream ? run_events : run_poll;
    r->base.reply = is_stream ? reply_resume : NULL;
    stored_read_push(&r->base, true);
}

static enum status run_forget(struct stored_read *base, struct store_db *db, struct err *err) {
    struct row_read *r = (struct row_read *)base;
    TRY(find_row(r, db, err));
    buf_printf(&base->body, "{\"id\":\"%.*s\",\"status\":\"%s\"}", STR_ARG(r->row.id),
               r->row.state == ANSWER_OPEN ? "cancelled" : state_text(r->row.state));
    return answers_delete(db, str_of(base->owner), r->row.id, err);
}

void stored_request_delete(struct http_request *req, struct generation *gen) {
    const struct str id = gen ? str_of(gen->answer.id) : req->arg;
    struct row_read *r = row_read_create(req, "request", NULL, id);
    if (!r) return;
    r->server = req->server;
    if (gen) delete_live(gen); /* its end is stored before this deletes it */
    r->base.run = run_forget;
    stored_read_push(&r->base, false);
}
