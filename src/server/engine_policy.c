/* server/engine_policy.c - POST /v1/engine/policy: another policy or other knobs, while requests
 * run. */
#include <inttypes.h>
#include <stdio.h>

#include "api/fields.h"
#include "api/request.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/control.h"
#include "engine/engine.h"
#include "report/log.h"
#include "sched/policy.h"
#include "server/engine_ask.h"
#include "server/engine_paths.h"
#include "server/handlers.h"
#include "server/http_request.h"
#include "server/registry.h"
#include "server/task_int.h"

enum { NUMBER_BYTES = 40, RETRY_MS = 1000, PARAM_BYTES = 64 };
static const size_t RULES_BYTES_MAX = 1 << 20;

struct policy_task {
    struct task base;
    struct json *body;
};

/* ---- reading ---- */

static enum status refuse_knob(struct str name, const char *sentence, struct api_error *e) {
    char param[PARAM_BYTES];
    snprintf(param, sizeof(param), "knobs.%.*s", STR_ARG(str_take(name, 40)));
    return api_refuse(e, 400, param, NULL, "%s", sentence);
}

/* A knob's value as --set takes it. */
static struct str text_of(const struct json *value, char out[NUMBER_BYTES]) {
    int len = 0;
    switch (json_kind(value)) {
    case JS_TEXT:
        return json_str(value);
    case JS_BOOL:
        return json_bool(value, false) ? STR("on") : STR("off");
    case JS_INT:
        len = snprintf(out, NUMBER_BYTES, "%" PRId64, json_int(value, 0));
        break;
    case JS_REAL:
        len = snprintf(out, NUMBER_BYTES, "%.17g", json_num(value, 0));
        break;
    default:
        break;
    }
    return (struct str){out, (size_t)len};
}

static bool is_live_knob(struct str name) {
    struct knobs k = knobs_default();
    for (uint32_t i = 0; i < knobs_count(); i++) {
        struct knob_row row;
        knobs_show(&k, i, &row);
        if (str_is(name, row.name)) return knobs_is_live(i);
    }
    return true; /* unknown: knobs_set says so */
}

static enum status read_knob(struct str name, const struct json *value, struct knobs *k,
                             struct api_error *e) {
    char number[NUMBER_BYTES];
    struct err err = {0};
    if (!is_live_knob(name))
        return refuse_knob(name,
                           "this knob decides how much memory is set aside, so it cannot be "
                           "changed while the engine runs; restart the server with --set",
                           e);
    if (knobs_set(k, name, text_of(value, number), &err) == ST_OK) return ST_OK;
    return refuse_knob(name, err.text, e);
}

static enum status read_knobs(const struct json *knobs, const struct knobs *start, struct knobs *k,
                              struct api_error *e) {
    for (struct json_iter it = json_iter_first(knobs); json_iter_ok(&it); json_iter_next(&it)) {
        struct err err = {0};
        TRY(read_knob(it.key, it.value, k, e));
        if (knobs_check_caps(start, k, &err) != ST_OK) return refuse_knob(it.key, err.text, e);
    }
    return ST_OK;
}

/* `start`: the knobs with which the engine was made. */
static enum status read_rules(const struct json *body, const struct knobs *start,
                              struct control_rules *rules, struct api_error *e) {
    const struct json *policy = json_get(body, "policy"), *knobs = json_get(body, "knobs");
    if (json_kind(policy) == JS_TEXT) {
        struct buf name;
        buf_init(&name, PARAM_BYTES);
        buf_put_str(&name, json_str(policy));
        const struct sched_policy *found = sched_policy_find(buf_text(&name));
        buf_deinit(&name);
        if (!found)
            return api_refuse(e, 400, "policy", NULL,
                              "unknown policy \"%.*s\"; GET /v1/engine/state lists the policies",
                              STR_ARG(str_take(json_str(policy), PARAM_BYTES)));
        rules->policy = found;
    }
    return read_knobs(knobs, start, &rules->knobs, e);
}

/* ---- answering ---- */

static enum status refuse_busy(struct api_error *e) {
    api_refuse(e, 503, NULL, "engine_busy",
               "the engine has not taken the change between two steps; it will be in force after "
               "the step under way");
    e->retry_after_ms = RETRY_MS;
    return ST_BAD;
}

static void log_rules(struct server *s, const struct served_model *m,
                      const struct control_rules *rules) {
    struct log_field fields[] = {log_text("model", str_of(m->name)),
                                 log_text("policy", str_of(rules->policy->name))};
    log_line(s->log, LOG_INFO, "policy", fields, 2);
}

static void respond_rules(struct http_request *req, struct served_model *m, bool is_done) {
    struct control_rules rules = control_rules(engine_control(m->engine));
    struct api_error e = {0};
    struct buf out;
    if (!is_done) {
        refuse_busy(&e);
        respond_error(req, &e);
        return;
    }
    log_rules(req->server, m, &rules);
    buf_init(&out, RULES_BYTES_MAX);
    buf_put_char(&out, '{');
    engine_put_rules(&rules, &out);
    buf_put_char(&out, '}');
    respond_json(req, &out);
    buf_deinit(&out);
}

static void change_rules(struct http_request *req, const struct json *body) {
    struct api_error e = {0};
    uint64_t ticket = 0;
    struct served_model *m = engine_paths_model(req);
    if (!m) return;
    struct control_rules rules = control_rules(engine_control(m->engine));
    enum status st = read_rules(body, &m->knobs, &rules, &e);
    if (st == ST_OK && engine_ask_change(m->engine, &rules, &ticket) != ST_OK) st = refuse_busy(&e);
    if (st == ST_OK)
        engine_asks_wait(req->server->asks, req, m, ticket, respond_rules);
    else
        respond_error(req, &e);
}

/* The table of fields checks the kinds. */
static enum status read_policy_body(struct task *task, struct json *doc) {
    struct policy_task *t = (struct policy_task *)task;
    struct api_request r;
    api_request_init(&r, NULL);
    t->body = doc;
    enum status st = api_fields_read(EP_ENGINE_POLICY, doc, &r, &task->error);
    api_request_deinit(&r);
    return st;
}

static void on_policy_body_read(struct task *task) {
    struct policy_task *t = (struct policy_task *)task;
    struct http_request *req = task->http;
    if (req && task->status == ST_OK)
        change_rules(req, t->body);
    else if (req)
        respond_error(req, &task->error);
    json_destroy(t->body);
    mem_free(t);
}

void handle_engine_policy(struct http_request *req) {
    struct policy_task *t = task_create(req, sizeof(*t), read_policy_body, on_policy_body_read);
    if (t) task_read_body(&t->base);
}
